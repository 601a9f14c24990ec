//! Ten thousand concurrent readers of one lock: all acquire and release without an error, and none of their commands
//! blocks the server for long.

use distlock::{Acquire, Client, Guard};

use bed::{Bed, ms, rw, secs};

const READERS: usize = 10_000;

#[derive(Clone, Copy, PartialEq)]
enum Who {
    Tasks,
    Owners,
    Leases,
}

/// Script commands since the last call, and the commands inside them.
async fn work(bed: &Bed) -> (u64, u64) {
    let (mut commands, mut asked) = (0, 0);
    for (name, calls) in bed.admin.commandstats().await {
        match &*name {
            name if name.starts_with("eval") => commands += calls,
            "hgetall" | "hkeys" => asked += calls * READERS as u64 / 10,
            name if ["config", "info", "slowlog"].iter().any(|own| name.starts_with(own)) => {}
            "subscribe" => panic!("readers that join other readers of their process need no subscription"),
            _ => asked += calls,
        }
    }
    bed.admin.reset_stats().await;
    (commands, asked)
}

async fn come(client: &Client, who: Who, n: u64) -> distlock::Result<Option<Guard>> {
    let how = match who {
        Who::Tasks => Acquire::new(),
        Who::Owners => Acquire::new().owner(&client.owner()),
        Who::Leases => Acquire::new().lease(secs(3600) + ms(n * 7_919 % 600_000)),
    };
    client.rw("x").read().acquire(how).await
}

/// Runs all futures at once, and asserts that none fails. On a single-threaded runtime, all calls are made before any
/// reply is read. So the number of calls in a command does not depend on the machine's speed.
async fn all<T>(jobs: impl Iterator<Item = impl Future<Output = distlock::Result<T>>>) -> Vec<T> {
    let outcomes = tokio::task::unconstrained(futures::future::join_all(jobs)).await;
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| panic!("a call failed: {error:?}"))).collect()
}

/// Asserts that each reader costs a few commands inside a script, and that many readers share a script.
fn bounded(what: &str, (commands, asked): (u64, u64)) {
    println!("{what}: {commands} commands, {asked} inside");
    assert!(asked <= 14 * READERS as u64, "{what}: {asked}");
    // 32 readers share a command, and a few of each client are sent alone.
    assert!(commands <= READERS as u64 / 20, "{what}: {commands}");
}

async fn ten_thousand_come_and_go(who: Who) {
    rw(async |bed| {
        let client = bed.still_client().await;
        bed.admin.reset_stats().await;
        let come = all((0..READERS as u64).map(|n| come(&client, who, n))).await;
        let guards: Vec<Guard> = come.into_iter().map(|guard| guard.expect("shared")).collect();
        assert_eq!(bed.admin.hgetall("x").await.len(), READERS + 1);
        bounded("came", work(bed).await);
        if who == Who::Tasks {
            let round = client.renew_now().await;
            assert_eq!((round.renewed, round.failed, round.lost), (READERS, 0, 0));
            bounded("renewed", work(bed).await);
        }
        // A writer is refused without reading all readers.
        assert!(client.rw("x").write().try_lock().await.unwrap().is_none());
        let (_, asked) = work(bed).await;
        assert!(asked < 40, "a writer: {asked}");
        assert!(guards.iter().all(Guard::is_held));
        all(guards.into_iter().map(Guard::unlock)).await;
        bounded("left", work(bed).await);
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

bed::cases!(ten_thousand_come_and_go:
    of_one_client_that_renews_them = Who::Tasks,
    as_given_owners = Who::Owners,
    with_leases_of_different_lengths = Who::Leases,
);
