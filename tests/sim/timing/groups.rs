//! Group locks: how long waits last, how soon they are granted, what waiters send, and when a hold ends. Every command
//! takes a round trip of 2 ms unless a test says otherwise, and waiters do not poll for an hour.

use crate::fleet::Fleet;
use crate::prelude::*;
use std::cell::Cell;

mod redlock;

const HOUR: Duration = Duration::from_secs(3600);
const WATCHDOG: Duration = Duration::from_secs(30);
const NODE: Duration = ms(500);

/// Longest time for which members are held while another member is awaited.
const HOLD: Duration = ms(600);

/// Servers with these one-way latencies, and clients of all of them. The servers know the scripts, and the clients
/// know the clocks.
async fn fleet_of(ways: &[Duration], clients: usize) -> Arc<Fleet> {
    let next = Cell::new(0);
    let fleet = Fleet::new(1, ways.len(), clients, |server, _| {
        let one_way = ways[next.replace(next.get() + 1) % ways.len()];
        Party::new(server, way(one_way), |options| options.poll_cap = HOUR)
    });
    for (party, flavour) in pairs(fleet.clients.iter().flatten(), [Flavour::Reentrant, Flavour::Fair]) {
        lock(&party.client, flavour, "warm").lock().await.unwrap().unlock().await.unwrap();
    }
    Arc::new(fleet)
}

async fn fleet(servers: usize, clients: usize) -> Arc<Fleet> {
    fleet_of(&vec![ms(1); servers], clients).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Three members, acquired by one script.
    Plain,
    /// Three members, acquired one by one.
    Fair,
    TwoServers,
    Striped,
    /// A majority of three servers.
    Red,
}

const KINDS: [Kind; 5] = [Kind::Plain, Kind::Fair, Kind::TwoServers, Kind::Striped, Kind::Red];

fn multi(fleet: &Fleet, client: usize, members: &[(usize, Flavour, &str)]) -> MultiLock {
    let one = |(server, flavour, name): &(usize, Flavour, &str)| -> Arc<dyn DistLock> {
        lock(&fleet.clients[client][*server].client, *flavour, name).into()
    };
    MultiLock::of(members.iter().map(one).collect())
}

impl Kind {
    /// The members of a multi lock, by server, flavour and name.
    fn members(self) -> [(usize, Flavour, &'static str); 3] {
        let flavour = if self == Self::Fair { Flavour::Fair } else { Flavour::Reentrant };
        [(0, flavour, "a"), (usize::from(self == Self::TwoServers), flavour, "b"), (0, flavour, "c")]
    }

    fn lock(self, fleet: &Fleet, client: usize) -> Arc<dyn DistLock> {
        match self {
            Self::Plain | Self::Fair | Self::TwoServers => Arc::new(multi(fleet, client, &self.members())),
            Self::Striped => Arc::new(fleet.clients[client][0].client.striped("s", 3)),
            Self::Red => Arc::new(fleet.red(client, Flavour::Reentrant, "r", NODE)),
        }
    }
}

fn for_each(body: impl AsyncFnOnce(Kind, Arc<Fleet>) + Copy + Send + 'static) {
    each(KINDS, async move |kind| {
        let fleet = fleet(3, 2).await;
        body(kind, Arc::clone(&fleet)).await;
        fleet.settled(ms(60_000)).await.unwrap_or_else(|left| panic!("{left}"));
    });
}

#[test]
fn group_wait_covers_all_members_and_is_granted_soon_after_release() {
    for_each(async |kind, fleet| {
        let (ours, theirs) = (kind.lock(&fleet, 0), kind.lock(&fleet, 1));
        let mut held = Vec::new();
        while let Some(guard) = theirs.try_lock().await.unwrap() {
            held.push(guard);
        }
        for wait in [1, 100, 5_000].map(ms) {
            ends_busy(&*ours, wait, "a group").await;
        }
        let waiting = waiter(ours);
        sleep(ms(5_000)).await;
        assert!(!waiting.is_finished(), "two holders");
        let released = Instant::now();
        futures::future::join_all(held.into_iter().map(|guard| guard.unlock())).await;
        let had = timeout(HOUR / 2, waiting).await.unwrap_or_else(|_| panic!("not woken")).unwrap();
        assert!(had - released <= ms(20), "granted {:?} after the release", had - released);
    });
}

#[test]
fn guard_signals_expiring_with_third_left_and_lost_before_lease_ends() {
    for_each(async |kind, fleet| {
        let began = Instant::now();
        let guard = kind.lock(&fleet, 0).lock_leased(ms(1_200)).await.unwrap();
        guard.expiring().await;
        assert!(guard.is_held());
        assert!((ms(780)..=ms(805)).contains(&began.elapsed()), "{:?}", began.elapsed());
        let lost = guard.lost().await;
        assert!(matches!(&lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        assert!((ms(1_170)..=ms(1_188)).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!(!guard.is_held() && guard.unlock().await.is_err());
    });
}

/// The loss is reported before the lease ends at the server, and the other members are released at once.
#[test]
fn multi_lock_with_silent_server_is_lost_before_lease_ends() {
    virtually(async || {
        let fleet = fleet(2, 1).await;
        let guard = Kind::TwoServers.lock(&fleet, 0).lock().await.unwrap();
        fleet.servers[1].freeze(true);
        let began = Instant::now();
        timeout(WATCHDOG, guard.expiring()).await.expect("the end is announced");
        assert!(guard.is_held());
        let lost = timeout(WATCHDOG, guard.lost()).await.expect("the loss is signalled");
        assert!(matches!(&lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        assert!(fleet.servers[1].pttl(b"b") > 0 && began.elapsed() <= WATCHDOG, "after {:?}", began.elapsed());
        sleep(ms(20)).await;
        assert_eq!(fleet.servers[0].keys(), [b""; 0]);
        fleet.servers[1].freeze(false);
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// An error, not "busy", at the end of the wait. The last attempt is cut off, so the error comes from earlier
/// attempts.
#[test]
fn wait_at_silent_servers_ends_on_time_with_retryable_error() {
    virtually(async || {
        let fleet = fleet(3, 1).await;
        let red: Arc<dyn DistLock> = Arc::new(fleet.red(0, Flavour::Reentrant, "r", ms(200)));
        let plain: Arc<dyn DistLock> = Arc::new(fleet.clients[0][0].client.reentrant("a"));
        let nested: Arc<dyn DistLock> = Arc::new(MultiLock::of(vec![Arc::clone(&red), plain]));
        [1, 2].into_iter().for_each(|n| fleet.servers[n].freeze(true));
        for wait in [300, 1_500].map(ms) {
            for lock in [Kind::TwoServers.lock(&fleet, 0), Arc::clone(&red), Arc::clone(&nested)] {
                let began = Instant::now();
                let error = lock.lock_for(wait).await.unwrap_err();
                let took = began.elapsed();
                assert!(matches!(error, Error::Timeout { .. } | Error::NoQuorum { needed: 2, .. }), "{error:?}");
                assert!(error.is_retryable(), "{error:?}");
                assert!(took >= wait && took <= wait + ms(50), "{took:?} of {wait:?}");
            }
        }
        [1, 2].into_iter().for_each(|n| fleet.servers[n].freeze(false));
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// Members that expired or aged during the wait for another member have a whole lease in the end.
#[test]
fn multi_lock_members_have_full_lease_after_wait() {
    each([(Kind::Fair, 250, 1_000), (Kind::Plain, 1_000, 400), (Kind::TwoServers, 1_000, 400)], async |case| {
        let (kind, lease, wait) = case;
        let fleet = fleet(2, 2).await;
        let b = kind.members()[1];
        let held = multi(&fleet, 1, &[b]).lock().await.unwrap();
        let ours = kind.lock(&fleet, 0);
        let (guard, ()) = tokio::join!(ours.lock_leased(ms(lease)), async {
            sleep(ms(wait)).await;
            held.unlock().await.unwrap();
        });
        let guard = guard.unwrap();
        assert!(guard.members().iter().all(|member| member.is_held), "{guard:?}");
        for (server, _, name) in kind.members() {
            let left = fleet.servers[server].pttl(name.as_bytes());
            assert!(left >= lease as i64 - 20, "{name} has {left} ms left");
        }
        // Allows for the drift margin of 1 % and a few round trips.
        assert!(guard.remaining() >= ms(lease * 98 / 100 - 20), "{guard:?}");
        guard.unlock().await.unwrap();
        fleet.ends(ms(60_000)).await;
    });
}

/// A member whose lease has ended when the last server answers is not held: a multi lock needs both members, a RedLock
/// a majority.
#[test]
fn lease_too_short_for_its_servers_is_never_granted() {
    each([(40, false), (60, false), (110, false), (300, true)], async move |(lease, granted)| {
        let fleet = fleet_of(&[ms(1), ms(60), ms(60)], 1).await;
        for lock in [Kind::TwoServers.lock(&fleet, 0), Kind::Red.lock(&fleet, 0)] {
            for wait in [0, 300].map(ms) {
                let began = Instant::now();
                match lock.acquire(Acquire::new().wait(wait).lease(ms(lease))).await {
                    Ok(Some(guard)) => {
                        assert!(granted && guard.is_held(), "{lease} ms: {guard:?}");
                        assert!(guard.remaining() <= ms(lease - 120 - 5), "{guard:?} of {lease} ms");
                    }
                    Ok(None) => assert!(!granted, "{lease} ms: busy"),
                    Err(error) => assert!(!granted && error.is_retryable(), "{lease} ms: {error:?}"),
                }
                assert!(began.elapsed() <= wait + NODE, "{:?} of {wait:?}", began.elapsed());
                sleep(ms(1_000)).await;
            }
        }
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// The multi lock releases its members once, after about half a second, and then sends nothing.
#[test]
fn waiting_multi_lock_holds_free_members_only_briefly_and_once() {
    virtually(async || {
        let fleet = fleet(1, 2).await;
        let held = fleet.clients[1][0].client.reentrant("b").lock().await.unwrap();
        let (ours, me) = (Kind::Plain.lock(&fleet, 0), fleet.clients[0][0].client.owner());
        let before = fleet.servers[0].scripts_run();
        let waiting = tokio::spawn(async move { ours.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap() });
        sleep(ms(200)).await;
        assert!(fleet.servers[0].pttl(b"a") > 0, "a is held for a while");
        sleep(HOLD).await;
        assert_eq!(fleet.servers[0].pttl(b"a"), -2, "a is held still");
        sleep(ms(8_000)).await;
        let sent = fleet.servers[0].scripts_run() - before;
        // Includes the last attempt before the wait for a member ends.
        assert!(sent <= 14, "{sent} scripts");
        held.unlock().await.unwrap();
        waiting.await.unwrap().unlock().await.unwrap();
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// The other callers hold b and wait for a. The multi lock holds a, if anything, and waits for b.
#[test]
fn multi_lock_does_not_deadlock_with_opposite_order_callers() {
    const ROUNDS: u32 = 30;
    let cases = [(Flavour::Reentrant, false), (Flavour::Reentrant, true), (Flavour::Fair, true)];
    each(cases, async move |(flavour, owned)| {
        let fleet = fleet(1, 2).await;
        let ours = multi(&fleet, 0, &[(0, flavour, "a"), (0, flavour, "b")]);
        let me = fleet.clients[0][0].client.owner();
        let many = tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let how = if owned { Acquire::new().owner(&me) } else { Acquire::new() };
                ours.acquire(how).await.unwrap().unwrap().unlock().await.unwrap();
            }
        });
        let [a, b] = ["a", "b"].map(|name| lock(&fleet.clients[1][0].client, flavour, name));
        for _ in 0..ROUNDS {
            let held = timeout(ms(60_000), b.lock()).await.expect("deadlock at b").unwrap();
            sleep(ms(5)).await;
            let began = Instant::now();
            let inner = timeout(ms(60_000), a.lock()).await.expect("deadlock at a").unwrap();
            // A multi lock that acquires all members by one command holds nothing while it waits.
            let most = if owned { HOLD + ms(20) } else { ms(20) };
            assert!(began.elapsed() <= most, "a was waited for for {:?}", began.elapsed());
            inner.unlock().await.unwrap();
            held.unlock().await.unwrap();
        }
        all([many]).await;
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// Another owner holds one member, each member in turn. The other members are free.
#[test]
fn wait_for_one_busy_member_never_ends_early() {
    for_each(async |kind, fleet| {
        if matches!(kind, Kind::Striped | Kind::Red) {
            return;
        }
        for (busy, (server, flavour, name)) in kind.members().into_iter().enumerate() {
            for holder in 0..2 {
                let holder = lock(&fleet.clients[holder][server].client, flavour, name).lock().await.unwrap();
                for wait in [100, 2_000].map(ms) {
                    ends_busy(&*kind.lock(&fleet, 0), wait, &format!("member {busy}")).await;
                }
                holder.unlock().await.unwrap();
            }
        }
    });
}
