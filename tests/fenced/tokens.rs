//! One number for each section, on every way to acquire.

use std::sync::Arc;

use distlock::{Acquire, DistLock, Flavour, Owner, Released};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::rig::{counted, counter, fenced, token, waited};
use bed::{enter, freed, idle, ms, secs, text};

/// testTokenIncrease, for every way to acquire: the numbers are 1, 2, 3, ..
#[tokio::test]
async fn token_grows_by_one_on_every_way_to_acquire() {
    fenced(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.fenced("job");
        assert_eq!(lock.last_token().await.unwrap(), 0);
        assert!(!bed.admin.exists(&counter("job")).await, "asking for the last number makes none");
        let me = client.owner();
        let boxed: Arc<dyn DistLock> = client.lock(Flavour::Fenced, "job");
        let mut expected = 0;
        for way in 0..9 {
            let guard = match way {
                0 => lock.lock().await.unwrap(),
                1 => lock.try_lock().await.unwrap().unwrap(),
                2 => lock.lock_for(secs(600)).await.unwrap().unwrap(),
                3 => lock.lock_leased(secs(600)).await.unwrap(),
                4 => enter(&lock, &me).await,
                5 => lock.acquire(Acquire::new().owner(&me).not_reentrant()).await.unwrap().unwrap(),
                6 => me.scope(lock.lock()).await.unwrap(),
                7 => boxed.lock_for(secs(600)).await.unwrap().unwrap(),
                _ => other.fenced("job").lock().await.unwrap(),
            };
            expected += 1;
            assert_eq!(token(&guard), expected, "way {way}");
            assert_eq!(lock.last_token().await.unwrap(), expected, "way {way}");
            // A refused acquire takes no number.
            assert!(lock.try_lock().await.unwrap().is_none());
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
            assert_eq!(lock.last_token().await.unwrap(), expected, "way {way}");
        }
        // The acquires wait behind a holder of this client, and behind a holder of another client.
        for holder in [&client, &other] {
            let guard = holder.fenced("job").lock().await.unwrap();
            expected += 2;
            assert_eq!(token(&guard), expected - 1);
            let guard = waited(guard, &client, Arc::clone(&boxed)).await;
            assert_eq!(token(&guard), expected);
            guard.unlock().await.unwrap();
        }
        assert_eq!(counted(bed, "job").await, Some(expected.to_string()));
    })
    .await;
}

/// Redisson increments the number at a re-entry. In this crate, a section keeps its number (M3-re).
#[tokio::test]
async fn re_entry_keeps_the_token() {
    fenced(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, there) = (client.fenced("job"), other.fenced("job"));
        for (round, shared) in [(1, false), (2, true)] {
            let me = client.owner();
            let outer = enter(&lock, &me).await;
            let leased = Acquire::new().owner(&me).wait(ms(0)).lease(secs(60));
            let inner = lock.acquire(leased).await.unwrap().unwrap();
            assert_eq!((token(&outer), token(&inner)), (round, round));
            inner.unlock().await.unwrap();
            let again = enter(&lock, &me).await;
            assert_eq!(token(&again), round);
            assert_eq!(bed.admin.hgetall("job").await[&text(&me)], "2");
            if shared {
                // Another process re-enters with the owner's text.
                let me: Owner = me.to_string().parse().unwrap();
                let guard = enter(&there, &me).await;
                assert_eq!(token(&guard), round);
                assert_eq!(lock.hold_count(&me).await.unwrap(), 3);
                assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(2));
            }
            again.unlock().await.unwrap();
            assert_eq!(outer.unlock().await.unwrap(), Released::Free);
            assert_eq!(lock.last_token().await.unwrap(), round);
        }
        // A hold without a guard that both clients re-enter is one section.
        let owner = lock.lock().await.unwrap().into_owner();
        for lock in [&lock, &there] {
            let guard = enter(lock, &owner).await;
            assert_eq!(token(&guard), 3);
            assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1));
        }
        assert_eq!(lock.release(&owner).await.unwrap(), Released::Free);
        assert_eq!(token(&lock.lock().await.unwrap()), 4);
        // After the last release, the owner begins another section.
        idle(&client).await;
        let guard = enter(&lock, &owner).await;
        assert_eq!(token(&guard), 5);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A reentrant lock would be handed over inside the process without a command. A fenced lock needs a command for the
/// number of each section.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_client_get_tokens_in_acquire_order() {
    const TASKS: u64 = 64;
    const LOOPS: u64 = 3;
    fenced(async |bed| {
        let client = bed
            .connect(bed.builder().configure(|options| {
                options.local_handoff_time = secs(600);
                options.local_handoff_limit = 1000;
            }))
            .await;
        let tokens = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for n in 0..TASKS {
            let (lock, tokens) = (client.fenced("job"), Arc::clone(&tokens));
            tasks.spawn(async move {
                for _ in 0..LOOPS {
                    let guard = lock.lock().await.unwrap();
                    tokens.lock().push(token(&guard));
                    // Every other holder releases by dropping its guard.
                    if n % 2 == 0 {
                        guard.unlock().await.unwrap();
                    }
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(*tokens.lock(), (1..=TASKS * LOOPS).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_acquires_of_many_locks_have_separate_tokens() {
    const ROUNDS: u64 = 5;
    fenced(async |bed| {
        let client = bed.client().await;
        let mut tasks = JoinSet::new();
        for n in 0..100 {
            let lock = client.fenced(&format!("job {n}"));
            tasks.spawn(async move {
                for round in 1..=ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    assert_eq!(token(&guard), round);
                    guard.unlock().await.unwrap();
                }
                assert_eq!(lock.last_token().await.unwrap(), ROUNDS);
            });
        }
        tasks.join_all().await;
    })
    .await;
}

/// However a section ends, the next section has a higher number.
#[tokio::test]
async fn counter_keeps_growing_however_a_section_ends() {
    fenced(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, there) = (client.fenced("job"), other.fenced("job"));
        let boxed: Arc<dyn DistLock> = Arc::new(lock.clone());
        let lapsed = lock.lock_leased(secs(600)).await.unwrap();
        let () = bed.admin.cmd(&["PEXPIRE", "job", "1"]).await;
        let next = there.lock().await.unwrap();
        assert_eq!((token(&lapsed), token(&next)), (1, 2));
        drop(lapsed);
        // The lock's own client forces it open, then another client.
        assert!(there.force_unlock().await.unwrap());
        let forced = lock.lock().await.unwrap();
        assert_eq!(token(&forced), 3);
        assert!(there.force_unlock().await.unwrap());
        assert_eq!(token(&there.lock().await.unwrap()), 4);
        drop((next, forced));
        freed(&boxed).await;
        let owner = lock.lock().await.unwrap().into_owner();
        assert_eq!(there.release(&owner).await.unwrap(), Released::Free);
        assert!(!boxed.is_locked().await.unwrap());
        assert_eq!(lock.last_token().await.unwrap(), 5);
        let guard = lock.lock().await.unwrap();
        assert_eq!(token(&guard), 6);
        // The last section's hash is gone. The counter stays and has no TTL.
        guard.unlock().await.unwrap();
        assert_eq!(bed.admin.keys().await, [counter("job")]);
        assert_eq!(bed.admin.pttl(&counter("job")).await, -1);
    })
    .await;
}
