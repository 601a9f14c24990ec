//! Ten thousand concurrent readers of one lock: all acquire and release without an error, and none of their commands
//! blocks the server for long.

use std::time::Duration;

use distlock::{Acquire, Client, Guard};

use bed::{Bed, rw, secs};

const READERS: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    /// Tasks of this number of clients.
    Tasks(usize),
    Owners,
    Leases,
}

/// Script commands since the last call, and the commands inside them.
#[derive(Debug)]
struct Work {
    commands: u64,
    asked: u64,
}

async fn work(bed: &Bed) -> Work {
    let (mut work, stats) = (Work { commands: 0, asked: 0 }, bed.admin.commandstats().await);
    for (name, calls) in stats {
        match &*name {
            name if name.starts_with("eval") => work.commands += calls,
            "hgetall" | "hkeys" => work.asked += calls * READERS as u64 / 10,
            name if ["config", "info", "slowlog"].iter().any(|own| name.starts_with(own)) => {}
            _ => work.asked += calls,
        }
    }
    bed.admin.reset_stats().await;
    work
}

async fn come(client: Client, who: Who, n: usize) -> distlock::Result<Option<Guard>> {
    let (lock, mut how) = (client.rw("x").read(), Acquire::new());
    let me = client.owner();
    match who {
        Who::Owners => how = how.owner(&me),
        Who::Leases => how = how.lease(secs(3600) + Duration::from_millis(n as u64 * 7_919 % 600_000)),
        Who::Tasks(_) => {}
    }
    lock.acquire(how).await
}

/// Runs all futures at once, and asserts that none fails. On a single-threaded runtime, all calls are made before any
/// reply is read. So the number of calls in a command does not depend on the machine's speed.
async fn all<T>(jobs: impl Iterator<Item = impl Future<Output = distlock::Result<T>>>) -> Vec<T> {
    let (mut done, mut failed) = (Vec::with_capacity(READERS), Vec::new());
    for outcome in tokio::task::unconstrained(futures::future::join_all(jobs)).await {
        match outcome {
            Ok(value) => done.push(value),
            Err(error) => failed.push(error),
        }
    }
    assert!(failed.is_empty(), "{} failed, the first: {:?}", failed.len(), failed[0]);
    done
}

/// Asserts that each reader costs a few commands inside a script, and that many readers share a script.
fn bounded(what: &str, work: &Work) {
    assert!(work.asked <= 14 * READERS as u64, "{what}: {work:?}");
    println!("{what}: {work:?}");
    // 32 readers share a command, and a few of each client are sent alone.
    assert!(work.commands <= READERS as u64 / 20, "{what}: {work:?}");
}

async fn ten_thousand_come_and_go(who: Who) {
    rw(async |bed| {
        let clients = if let Who::Tasks(clients) = who { clients } else { 1 };
        let clients: Vec<Client> = futures::future::join_all((0..clients).map(|_| bed.still_client())).await;
        work(bed).await;
        let come = (0..READERS).map(|n| come(clients[n % clients.len()].clone(), who, n));
        let guards: Vec<Guard> = all(come).await.into_iter().map(|guard| guard.expect("shared")).collect();
        assert_eq!(bed.admin.hgetall("x").await.len(), READERS + 1);
        bounded("came", &work(bed).await);
        if who == Who::Tasks(1) {
            let round = clients[0].renew_now().await;
            assert_eq!((round.renewed, round.failed, round.lost), (READERS, 0, 0));
            bounded("renewed", &work(bed).await);
        }
        // A writer is refused without reading all readers.
        assert!(clients[0].rw("x").write().try_lock().await.unwrap().is_none());
        let asked = work(bed).await;
        assert!(asked.asked < 40, "a writer: {asked:?}");
        assert!(guards.iter().all(Guard::is_held));
        all(guards.into_iter().map(Guard::unlock)).await;
        bounded("left", &work(bed).await);
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

bed::cases!(ten_thousand_come_and_go:
    of_one_client_that_renews_them = Who::Tasks(1),
    of_eight_clients = Who::Tasks(8),
    as_given_owners = Who::Owners,
    with_leases_of_different_lengths = Who::Leases,
);
