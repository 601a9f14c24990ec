//! How long its members are kept (protocol §8.5: Redisson's have twice the wait, and no rollback).

use std::time::Instant;

use distlock::{Acquire, DistLock, Flavour, MultiLock};
use distlock_support::Numbers;

use crate::rig::{fair, member, multi};
use bed::{QUICK, enter, eventually, idle, ms, reentrant, secs, text};

/// The watchdog keeps all of them over several periods, in batches.
#[tokio::test]
async fn the_watchdog_keeps_all() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let lock = client.multi((0..250).map(|n| format!("m{n}")));
        let guard = lock.lock().await.unwrap();
        bed.admin.reset_stats().await;
        let began = Instant::now();
        let mut least = QUICK;
        while began.elapsed() < QUICK * 2 {
            assert!(guard.is_held());
            least = least.min(guard.remaining());
            tokio::time::sleep(ms(20)).await;
        }
        let keys = bed.admin.keys().await;
        assert_eq!(keys.len(), 250);
        for key in &keys {
            let left = bed.admin.pttl(key).await;
            assert!(left > 0 && left <= 1_800, "{key}: {left}");
        }
        let periods = began.elapsed().as_millis() as u64 / 600 + 1;
        let sent = bed.admin.calls("evalsha").await;
        println!("{sent} commands for 250 locks in {:?}; least left {least:?}", began.elapsed());
        assert!(sent >= 3 * 3 && sent <= 4 * periods, "{sent} commands in {periods} periods");
        guard.unlock().await.unwrap();
    })
    .await;
}

/// So are those of other flavours, and of other clients each by its own watchdog; the first to end is the end of all.
#[tokio::test]
async fn the_deadline_is_the_earliest_members() {
    reentrant(async |bed| {
        let (quick, slow) = (bed.quick().await, bed.client().await);
        let lock = MultiLock::of(vec![
            member(quick.fair("a")),
            member(slow.reentrant("b")),
            member(slow.rw("c").read()),
            member(quick.rw("d").write()),
        ]);
        let guard = lock.lock().await.unwrap();
        assert!(guard.remaining() <= QUICK && guard.deadline() <= Instant::now() + QUICK);
        let until = Instant::now() + QUICK + ms(700);
        while Instant::now() < until {
            assert!(guard.is_held());
            tokio::time::sleep(ms(20)).await;
        }
        assert!(lock.remaining_ttl().await.unwrap().unwrap() <= QUICK);
        assert!(bed.admin.pttl("b").await > 20_000);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// An explicit lease from the start, not twice the wait first: also with a wait (protocol §8.1).
#[tokio::test]
async fn members_have_the_lease_that_was_asked_for() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(["a", "b"]), fair(&client, &["a", "b"])] {
            let how = Acquire::new().wait(secs(60)).lease(secs(3));
            let guard = lock.acquire(how).await.unwrap().unwrap();
            for name in ["a", "b"] {
                let left = bed.admin.pttl(name).await;
                assert!(left > 1_500 && left <= 3_000, "{left}");
            }
            assert_eq!(client.renew_now().await.renewed, 0, "not the watchdog's");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// Extended, all of them are, and it is an explicit lease from then on.
#[tokio::test]
async fn an_extension_is_for_all() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mixed = [(Flavour::Reentrant, "a"), (Flavour::Write, "b"), (Flavour::Spin, "c"), (Flavour::Read, "d")];
        for lock in [client.multi(["a", "b", "c", "d"]), multi(&client, &mixed)] {
            let guard = lock.lock().await.unwrap();
            for lease in [secs(50), secs(4)] {
                guard.extend(lease).await.unwrap();
                let most = lease.as_millis() as i64;
                for name in ["a", "b", "c", "d"] {
                    let left = bed.admin.pttl(name).await;
                    assert!(left > most - 2_000 && left <= most, "{name}: {left}");
                }
                assert!(guard.remaining() > lease - secs(2) && guard.remaining() <= lease);
                assert_eq!(client.renew_now().await.renewed, 0);
            }
            assert!(matches!(guard.extend(ms(0)).await, Err(distlock::Error::Config { .. })));
            assert!(guard.is_held());
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// The leases of members that were held while another one was waited for are set anew: all of it is left at the start.
#[tokio::test]
async fn a_wait_takes_nothing_off_the_lease() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        for members in [Flavour::Fair, Flavour::Reentrant] {
            // On a busy machine the wait may be longer than it holds `a` meanwhile; then once more.
            let mut held = false;
            for _ in 0..10 {
                let theirs = stranger.reentrant("b").lock().await.unwrap();
                let lock = multi(&client, &["a", "b", "c"].map(|name| (members, name)));
                let me = client.owner();
                let waiter = tokio::spawn(async move {
                    let guard = lock.acquire(Acquire::new().lease(ms(600)).owner(&me)).await.unwrap().unwrap();
                    (guard, Instant::now())
                });
                eventually("it has a", async || bed.admin.exists("a").await).await;
                tokio::time::sleep(ms(220)).await;
                held = bed.admin.exists("a").await;
                theirs.unlock().await.unwrap();
                let (guard, had) = waiter.await.unwrap();
                for name in ["a", "b", "c"] {
                    let left = bed.admin.pttl(name).await + had.elapsed().as_millis() as i64;
                    assert!(left > 420 && left <= 650, "{name}: {left} ms left at the start");
                }
                assert!(guard.remaining() + had.elapsed() > ms(420));
                drop(guard);
                idle(&client).await;
                if held {
                    break;
                }
            }
            assert!(held, "it holds nothing while it waits");
        }
    })
    .await;
}

/// A lease shorter than the wait for another member: what ended meanwhile is asked for anew, and all are held at the end.
#[tokio::test]
async fn a_lease_shorter_than_the_wait() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        let lock = fair(&client, &["a", "b", "c"]);
        let theirs = stranger.reentrant("b").lock().await.unwrap();
        let waiter = tokio::spawn(async move {
            lock.acquire(Acquire::new().lease(ms(300))).await.unwrap().map(|guard| (guard, Instant::now()))
        });
        eventually("it has a", async || bed.admin.exists("a").await).await;
        eventually("a's lease is over", async || !bed.admin.exists("a").await).await;
        theirs.unlock().await.unwrap();
        let (guard, had) = waiter.await.unwrap().expect("no wait");
        let held = guard.members().iter().filter(|member| member.is_held).count();
        assert!(held == 3 || had.elapsed() > ms(100), "{held} of 3 are held");
        drop(guard);
    })
    .await;
}

/// Leases of a few milliseconds, many callers, late replies: as long as a guard says held, every member is its owner's on the
/// server (M1); and whoever is refused or late leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_says_held_it_is() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let names = ["a", "b", "c"];
        let tasks: Vec<_> = (0..6_usize)
            .map(|n| {
                let client = &clients[n % 2];
                let lock = if n < 4 { client.multi(names) } else { fair(client, &names) };
                let url = bed.server.url();
                let (single, me) = (client.reentrant(names[n % 3]), (n == 3).then(|| client.owner()));
                tokio::spawn(async move {
                    let looking = distlock_support::Admin::from_url(&url).await;
                    let mut numbers = Numbers::new(n as u64);
                    let (mut seen, mut tried) = (0, 0);
                    let until = Instant::now() + ms(1_200);
                    while Instant::now() < until {
                        tried += 1;
                        let mut how = Acquire::new().lease(ms(5 + numbers.below(60))).wait(secs(1));
                        how = me.iter().fold(how, |how, me| how.owner(me));
                        // A stranger to the others, now and then.
                        if numbers.below(4) == 0 {
                            drop(single.acquire(Acquire::new().lease(ms(5)).wait(ms(20))).await);
                        }
                        let Ok(Some(guard)) = lock.acquire(how).await else { continue };
                        let owner = text(guard.owner());
                        while guard.is_held() {
                            let name = names[numbers.below(3) as usize];
                            let fields = looking.hgetall(name).await;
                            // Held after the answer, so it was held when the server looked.
                            if guard.is_held() {
                                seen += 1;
                                assert!(fields.contains_key(&owner), "{name} is not {owner}'s: {fields:?}");
                                assert_eq!(fields.len(), 1, "{fields:?}");
                            }
                            if numbers.below(3) == 0 {
                                break;
                            }
                        }
                        match numbers.below(3) {
                            0 => drop(guard),
                            _ => drop(guard.unlock().await),
                        }
                    }
                    (seen, tried)
                })
            })
            .collect();
        let (mut seen, mut tried) = (0, 0);
        for task in tasks {
            let (s, t) = task.await.unwrap();
            (seen, tried) = (seen + s, tried + t);
        }
        println!("{tried} acquires, seen to be held {seen} times");
        assert!(seen > 0, "{seen} of {tried}");
    })
    .await;
}

/// Once more as the same owner, for a shorter time: the longer one stands (lesson 21).
#[tokio::test]
async fn coming_in_again_never_shortens() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.multi(["a", "b"]);
        let me = client.owner();
        let outer = lock.acquire(Acquire::new().owner(&me).lease(secs(20))).await.unwrap().unwrap();
        let inner = lock.acquire(Acquire::new().owner(&me).lease(secs(5))).await.unwrap().unwrap();
        assert!(bed.admin.pttl("a").await > 15_000 && bed.admin.pttl("b").await > 15_000);
        assert!(inner.remaining() <= secs(5) && outer.remaining() > secs(15));
        inner.unlock().await.unwrap();
        assert!(bed.admin.pttl("a").await > 15_000 && bed.admin.pttl("b").await > 15_000);
        let watched = enter(&lock, &me).await;
        watched.unlock().await.unwrap();
        assert!(outer.is_held());
        outer.unlock().await.unwrap();
    })
    .await;
}
