//! RedLocks and multi locks in particular situations.

use crate::fleet::Fleet;
use crate::made::{POLL_CAP, ROUND_TRIP, TIMEOUT, WATCHDOG, party};
use crate::prelude::*;

const NAME: &str = "orders:42";

fn fleet(seed: u64, servers: usize, clients: usize) -> Fleet {
    Fleet::new(seed, servers, clients, |server, _| party(server, Prefer::default()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    /// The server refuses connections.
    Down,
    /// The server does not answer.
    Frozen,
    /// Another client holds the lock there.
    Taken,
}

/// X2: five servers, in each of the 4^5 combinations of states. The lock is granted if a majority is free, and busy if
/// another client holds a majority. Otherwise the result is `NoQuorum`. Each result arrives within the wait. In the end
/// nothing is left.
#[test]
fn redlock_result_follows_majority_of_server_states() {
    let (granted, busy, away) = virtually(async || {
        let (mut granted, mut busy, mut away) = (0, 0, 0);
        for state in 0..4_usize.pow(5) {
            let way = |n: usize| [Way::Up, Way::Down, Way::Frozen, Way::Taken][state / 4_usize.pow(n as u32) % 4];
            let ways: Vec<Way> = (0..5).map(way).collect();
            let fleet = fleet(state as u64, 5, 2);
            let mut taken = Vec::new();
            for (n, way) in ways.iter().enumerate() {
                match way {
                    Way::Up => {}
                    Way::Down => fleet.servers[n].stop(),
                    Way::Frozen => fleet.servers[n].freeze(true),
                    Way::Taken => taken.push(fleet.clients[1][n].client.reentrant(NAME).lock().await.unwrap()),
                }
            }
            let count = |wanted: &[Way]| ways.iter().filter(|way| wanted.contains(way)).count();
            let lock = fleet.red(0, Flavour::Reentrant, NAME, TIMEOUT);
            let wait = if state % 2 == 0 { ms(0) } else { ms(300) };
            let began = Instant::now();
            let outcome = lock.lock_for(wait).await;
            let took = began.elapsed();
            match &outcome {
                Ok(Some(guard)) => {
                    assert!(count(&[Way::Up]) >= 3, "{ways:?}");
                    assert!(guard.is_held() && took <= ROUND_TRIP, "{ways:?}: after {took:?}");
                    let has = fleet.spans(Flavour::Reentrant, NAME, &text(guard.owner()));
                    assert!(has[2] > 0, "X2: {has:?} in {ways:?}");
                    granted += 1;
                }
                Ok(None) => {
                    assert!(count(&[Way::Taken]) >= 3, "{ways:?}");
                    busy += 1;
                }
                Err(Error::NoQuorum { granted: votes, needed: 3, .. }) => {
                    // The result is not "busy", so fewer than three servers were held by others.
                    assert!(count(&[Way::Up]).max(count(&[Way::Taken])) < 3 && *votes <= count(&[Way::Up]), "{ways:?}");
                    away += 1;
                }
                Err(odd) => panic!("{ways:?}: {odd}"),
            }
            assert!(took <= wait.max(TIMEOUT) + ms(20), "{ways:?}: told after {took:?} of {wait:?}");
            drop((outcome, taken));
            for (n, way) in ways.iter().enumerate() {
                match way {
                    Way::Down => fleet.servers[n].start(true),
                    Way::Frozen => fleet.servers[n].freeze(false),
                    Way::Up | Way::Taken => {}
                }
            }
            fleet.ends(WATCHDOG + 4 * TIMEOUT + POLL_CAP).await;
        }
        (granted, busy, away)
    });
    // `granted` combinations have at least three servers up. `busy` combinations have at least three taken.
    assert_eq!((granted, busy, away), (106, 106, 812));
}

/// Five clients over five servers try at the same time, again and again, without a livelock. The lock is held for a
/// good part of the time, and every client acquires.
#[test]
fn five_clients_over_five_servers_do_not_livelock() {
    const CLIENTS: usize = 5;
    const ROUNDS: u32 = 20;
    const HOLD: Duration = ms(5);
    for seed in 0..3 {
        virtually(async move || {
            let fleet = fleet(seed, 5, CLIENTS);
            let start = Instant::now();
            let red = |n| Arc::new(fleet.red(n, Flavour::Reentrant, NAME, TIMEOUT));
            let longest = all((0..CLIENTS).map(|n| turns(red(n), ROUNDS, HOLD))).await;
            let (took, worst) = (start.elapsed(), longest.into_iter().max().unwrap());
            // Each change of the holder costs a few round trips, and sometimes a pause.
            assert!(took < 5 * ROUNDS * (HOLD + 5 * ROUND_TRIP), "seed {seed}: {took:?} for {} holds", 5 * ROUNDS);
            assert!(worst < ms(3000), "seed {seed}: one waited for {worst:?}");
            fleet.ends(ms(500)).await;
        });
    }
}

/// X1: two callers list the members in opposite orders. They run a thousand rounds, over one server and over two, and
/// drop some unfinished acquires. There is no deadlock, and nothing is left.
#[test]
fn two_callers_with_reversed_lists_never_deadlock() {
    each([1, 2], async move |servers| {
        let before = tasks();
        let fleet = Arc::new(fleet(servers as u64, servers, 2));
        let caller = |n: usize| {
            let fleet = Arc::clone(&fleet);
            tokio::spawn(async move {
                let mut dice = Numbers::lane(11, n as u64);
                let mut held = 0;
                for _ in 0..1000 {
                    let one = |at: usize| -> Arc<dyn DistLock> {
                        let client = &fleet.clients[n][at % servers].client;
                        Arc::new(client.reentrant(&format!("part:{at}")))
                    };
                    let all = if n == 0 { [0, 1, 2].map(one) } else { [2, 1, 0].map(one) };
                    let lock = MultiLock::of(all.into());
                    let within = if dice.once_in(4) { dice.between(0, 20) } else { ms(20_000) };
                    let Ok(guard) = timeout(within, lock.lock()).await else {
                        assert!(within < ms(20_000), "deadlock");
                        continue;
                    };
                    let guard = guard.unwrap();
                    assert_eq!(guard.members().iter().filter(|member| member.is_held).count(), 3);
                    held += 1;
                    sleep(dice.between(0, 3)).await;
                    guard.unlock().await.unwrap();
                }
                held
            })
        };
        for caller in [caller(0), caller(1)] {
            let held = caller.await.unwrap();
            assert!(held > 750, "{held}");
        }
        fleet.ends(ms(500)).await;
        drop(fleet);
        no_task_is_left(before, ms(50)).await.unwrap();
    });
}

/// A RedLock is held while most of its servers have it. Two servers may be cut off for any time. If a third one is cut
/// off, the guard reports the loss before the leases end. No other client acquires earlier (M1, M2).
#[test]
fn redlock_hold_is_lost_with_its_majority() {
    virtually(async || {
        let fleet = fleet(1, 5, 2);
        let cut = |n: usize, cut| fleet.clients[0][n].link.partition(cut);
        let guard = fleet.red(0, Flavour::Reentrant, NAME, TIMEOUT).lock().await.unwrap();
        let mut lost = std::pin::pin!(guard.lost());
        [1, 3].into_iter().for_each(|n| cut(n, true));
        assert!(timeout(20 * WATCHDOG, &mut lost).await.is_err(), "lost with three of five servers");
        assert!(guard.is_held());
        let other = fleet.red(1, Flavour::Reentrant, NAME, TIMEOUT);
        assert!(other.try_lock().await.unwrap().is_none());
        cut(4, true);
        let (began, left) = (Instant::now(), guard.remaining());
        let next = tokio::spawn(async move { other.lock().await.map(|guard| (guard, Instant::now())) });
        assert!(matches!(lost.await, Error::Lost { .. }));
        let told = Instant::now();
        assert!(!guard.is_held() && began.elapsed() <= left + ms(2), "told after {:?} of {left:?}", began.elapsed());
        let (next, granted) = next.await.unwrap().unwrap();
        // The other waiter is subscribed at a server that still keeps the lost hold, and polls the other servers about
        // once a second.
        assert!(granted >= told && granted <= told + ms(1600), "granted {:?} after the loss", granted - told);
        assert!(guard.unlock().await.is_err());
        [1, 3, 4].into_iter().for_each(|n| cut(n, false));
        next.unlock().await.unwrap();
        fleet.ends(WATCHDOG + 4 * TIMEOUT).await;
    });
}

/// Servers restart without their data. After two restarts the lock stays held. After the third, the next renewal
/// notifies the holder, within a third of the watchdog's lease.
#[test]
fn redlock_is_lost_at_next_renewal_after_majority_is_emptied() {
    virtually(async || {
        let fleet = fleet(1, 5, 1);
        let guard = fleet.red(0, Flavour::Reentrant, NAME, TIMEOUT).lock().await.unwrap();
        sleep(ms(100)).await;
        [0, 2].into_iter().for_each(|n| fleet.servers[n].restart(false));
        assert!(timeout(20 * WATCHDOG, guard.lost()).await.is_err(), "lost with three of five servers");
        fleet.servers[1].restart(false);
        let began = Instant::now();
        assert!(matches!(guard.lost().await, Error::Lost { .. }));
        assert!(began.elapsed() <= WATCHDOG / 3 + ms(50), "told after {:?}", began.elapsed());
        drop(guard);
        fleet.ends(WATCHDOG).await;
    });
}

/// Nested group locks are held as a whole or not at all, and nothing is left.
#[test]
fn multi_lock_of_redlocks_acquires_all_members_or_none() {
    virtually(async || {
        let fleet = Arc::new(fleet(5, 3, 2));
        let client = |n: usize| {
            let fleet = Arc::clone(&fleet);
            tokio::spawn(async move {
                let mut dice = Numbers::lane(5, n as u64);
                let mut held = 0;
                for _ in 0..100 {
                    let red = |name| -> Arc<dyn DistLock> { Arc::new(fleet.red(n, Flavour::Reentrant, name, TIMEOUT)) };
                    let plain: Arc<dyn DistLock> = Arc::new(fleet.clients[n][1].client.reentrant("c"));
                    let mut all = vec![red("a"), plain, red("b")];
                    all.rotate_left(n);
                    let within = if dice.once_in(3) { dice.between(0, 30) } else { ms(30_000) };
                    let Ok(guard) = timeout(within, MultiLock::of(all).lock()).await else {
                        assert!(within < ms(30_000), "deadlock");
                        continue;
                    };
                    let guard = guard.unwrap();
                    let owner = text(guard.owner());
                    for name in ["a", "b"] {
                        let has = fleet.spans(Flavour::Reentrant, name, &owner);
                        assert!(has[1] > 0, "X1: {name}: {has:?}");
                    }
                    assert_eq!(count(&fleet.servers[1], Flavour::Reentrant, "c", &owner), 1);
                    held += 1;
                    sleep(dice.between(0, 5)).await;
                    if dice.once_in(2) {
                        guard.unlock().await.unwrap();
                    }
                }
                held
            })
        };
        for client in [client(0), client(1)] {
            assert!(client.await.unwrap() >= 66);
        }
        fleet.ends(ms(500)).await;
    });
}
