//! The watchdog's bookkeeping: when a loss is told, what a bad entry does to others, and that held means registered.

use std::sync::Arc;
use std::time::Instant;

use bed::{Counter, QUICK, eventually, freed, idle, in_vain, ms, reentrant, secs};
use distlock::{Acquire, Error, Flavour, Lost, Released};
use distlock_support::Numbers;
use futures::FutureExt as _;
use tokio::task::JoinSet;

/// When renewals go out.
const PERIOD: std::time::Duration = ms(QUICK.as_millis() as u64 / 3);

/// Whenever between two rounds it is taken and deleted: the next round tells.
#[tokio::test]
async fn a_loss_is_told_within_a_third_at_any_phase() {
    reentrant(async |bed| {
        const PHASES: u32 = 12;
        let client = bed.quick().await;
        // Some lock is always held, so that rounds go out all the time.
        let always = client.reentrant("always").lock().await.unwrap();
        let mut watching = JoinSet::new();
        for n in 0..PHASES {
            let name = format!("phase {n}");
            let guard = client.reentrant(&name).lock().await.unwrap();
            bed.admin.cmd::<i64>(&["DEL", &name]).await;
            let deleted = Instant::now();
            watching.spawn(async move {
                let lost = tokio::time::timeout(QUICK * 2, guard.lost()).await.expect("told");
                assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
                deleted.elapsed()
            });
            tokio::time::sleep(PERIOD / PHASES).await;
        }
        let mut times = Vec::new();
        while let Some(took) = watching.join_next().await {
            times.push(took.unwrap());
        }
        let worst = *times.iter().max().unwrap();
        println!("told after {:?} in the middle, {worst:?} at worst; a third is {PERIOD:?}", bed::median(times));
        assert!(worst < PERIOD + ms(150), "{worst:?}");
        always.unlock().await.unwrap();
    })
    .await;
}

/// The server refuses to renew anything for two thirds of a lease.
#[tokio::test]
async fn refused_renewals_are_tried_until_the_lease_ends() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let guard = client.reentrant("job").lock().await.unwrap();
        let mut lost = Box::pin(guard.lost());
        for round in 0..2 {
            assert_eq!(client.renew_now().await.renewed, 1, "round {round}");
            bed.admin.cmd::<()>(&["ACL", "SETUSER", "default", "-pexpire"]).await;
            tokio::time::sleep(QUICK * 2 / 3).await;
            assert!(guard.is_held() && (&mut lost).now_or_never().is_none());
            assert_eq!(client.renew_now().await.failed, 1);
            bed.admin.cmd::<()>(&["ACL", "SETUSER", "default", "+pexpire"]).await;
            eventually("renewed", async || guard.remaining() > QUICK * 2 / 3).await;
        }
        // For good: the local clock ends it, not the server's refusal.
        bed.admin.cmd::<()>(&["ACL", "SETUSER", "default", "-pexpire"]).await;
        let left = guard.remaining();
        let start = Instant::now();
        let told = tokio::time::timeout(QUICK * 2, lost).await.expect("told");
        assert!(matches!(told, Error::Lost { why: Lost::Expired, .. }), "{told:?}");
        assert!(start.elapsed() + ms(5) >= left, "{:?} of {left:?}", start.elapsed());
        assert!(!guard.is_held());
        bed.admin.cmd::<()>(&["ACL", "SETUSER", "default", "+pexpire"]).await;
        drop(guard);
    })
    .await;
}

/// Batches in which a key has become something else, or is gone.
#[tokio::test]
async fn a_bad_entry_stops_no_other() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mut guards = Vec::new();
        for n in 0..250 {
            guards.push(client.reentrant(&format!("job {n:03}")).lock().await.unwrap());
        }
        let bad = [0, 99, 100, 180, 249];
        for n in bad {
            let name = format!("job {n:03}");
            if n % 2 == 0 {
                bed.admin.cmd::<()>(&["SET", &name, "no lock"]).await;
            } else {
                bed.admin.cmd::<()>(&["DEL", &name]).await;
            }
        }
        let round = client.renew_now().await;
        assert_eq!((round.renewed, round.failed, round.lost), (245, 0, 5));
        for (n, guard) in guards.into_iter().enumerate() {
            assert_eq!(guard.is_held(), !bad.contains(&n), "job {n}");
            assert_eq!(guard.unlock().await.is_ok(), !bad.contains(&n), "job {n}");
        }
        for n in bad.iter().filter(|n| **n % 2 == 0) {
            assert_eq!(bed.admin.cmd::<i64>(&["DEL", &format!("job {n:03}")]).await, 1);
        }
    })
    .await;
}

/// Sixteen tasks take and give the same few locks in every way there is, with rounds of renewal between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_means_registered_and_released_means_not() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mut tasks = JoinSet::new();
        for task in 0..16 {
            let client = client.clone();
            tasks.spawn(async move {
                let mut numbers = Numbers::new(task);
                let me = client.owner();
                let mut held = 0_u32;
                for _ in 0..1_500 {
                    let lock = client.reentrant(&format!("job {}", numbers.below(3)));
                    let how = Acquire::new().wait(ms(0));
                    let how = if numbers.below(3) == 0 { how.owner(&me) } else { how };
                    let Some(guard) = lock.acquire(how.clone()).await.unwrap() else { continue };
                    assert!(guard.is_held() && client.stats().holds > 0);
                    held += 1;
                    match numbers.below(4) {
                        0 => drop(guard),
                        1 => {
                            // Dropped half-way.
                            let mut unlock = std::pin::pin!(guard.unlock());
                            drop(futures::poll!(unlock.as_mut()));
                        }
                        _ => assert_eq!(guard.unlock().await.unwrap(), Released::Free),
                    }
                }
                held
            });
        }
        let mut held = 0;
        let mut tick = tokio::time::interval(ms(2));
        loop {
            tokio::select! {
                done = tasks.join_next() => match done {
                    Some(done) => held += done.unwrap(),
                    None => break,
                },
                _ = tick.tick() => assert_eq!(client.renew_now().await.lost, 0),
            }
        }
        println!("{held} of 24000 attempts held");
        assert!(held > 2_000);
        idle(&client).await;
        assert_eq!(client.stats().names, 0);
        let round = client.renew_now().await;
        assert_eq!((round.renewed, round.failed, round.lost), (0, 0, 0));
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

// testLockReentrantRenew
#[tokio::test]
async fn the_holds_of_one_owner_leave_the_next_ones_renewal_alone() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let lock = client.reentrant("job");
        let me = client.owner();
        let how = || Acquire::new().owner(&me);
        let (outer, inner) = (lock.acquire(how()).await.unwrap().unwrap(), lock.acquire(how()).await.unwrap().unwrap());
        outer.unlock().await.unwrap();
        inner.unlock().await.unwrap();
        let guard = lock.lock().await.unwrap();
        tokio::time::sleep(QUICK * 4).await;
        assert!(guard.is_held() && bed.admin.exists("job").await);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

// testLockAfterTimeout
#[tokio::test]
async fn a_lock_taken_after_a_restart_is_renewed() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let lock = client.reentrant("job");
        for _ in 0..2 {
            let guard = lock.lock().await.unwrap();
            bed.server.restart();
            tokio::time::sleep(QUICK * 2).await;
            assert!(!guard.is_held());
            let lost = guard.unlock().await;
            assert!(matches!(lost, Err(Error::Lost { .. } | Error::NotHeld { .. })), "{lost:?}");
            let guard = lock.lock_for(secs(5)).await.unwrap().expect("free after the restart");
            tokio::time::sleep(QUICK * 2).await;
            assert!(guard.is_held() && bed.admin.exists("job").await);
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        }
    })
    .await;
}

// Heavy.lockUnlockRLock, Heavy.tryLockUnlockRLock, shorter
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_of_waits_and_gives_up_ends_with_nothing() {
    reentrant(async |bed| {
        const NAMES: usize = 20;
        let clients = [bed.client().await, bed.quick().await];
        let counters: Arc<[Counter; NAMES]> = Arc::default();
        let mut tasks = JoinSet::new();
        for task in 0..20 {
            let (client, counters) = (clients[task % 2].clone(), Arc::clone(&counters));
            tasks.spawn(async move {
                let mut numbers = Numbers::new(task as u64);
                let mut counted = 0;
                for round in 0..400 {
                    let at = (round + task) % NAMES;
                    let lock = client.lock(Flavour::Reentrant, &format!("job {at}"));
                    let guard = if task < 10 {
                        lock.lock().await.unwrap()
                    } else {
                        match lock.lock_for(ms(numbers.below(10))).await {
                            Ok(Some(guard)) => guard,
                            outcome if in_vain(&outcome) => continue,
                            outcome => panic!("{outcome:?}"),
                        }
                    };
                    counters[at].bump(ms(0)).await;
                    counted += 1;
                    guard.unlock().await.unwrap();
                }
                counted
            });
        }
        let mut counted = 0;
        while let Some(task) = tasks.join_next().await {
            counted += task.unwrap();
        }
        assert_eq!(counters.iter().map(Counter::get).sum::<u64>(), counted);
        println!("{counted} of 8000 rounds held");
        let lock = clients[0].lock(Flavour::Reentrant, "job 0");
        freed(&lock, secs(2)).await;
    })
    .await;
}
