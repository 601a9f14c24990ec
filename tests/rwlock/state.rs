//! The state in Redis and the replies of both halves, step by step. `tests/rw_model` compares random steps with leases
//! of all lengths, and renewals, to a model and to Redisson. `tests/sim/states` tests leases to the millisecond.

use std::time::Duration;

use distlock::{Acquire, DistLock, Error, Flavour, Guard, NotHeld, Owner, Released, RwLock};

use crate::rig::{BOTH, HOUR, Scene, cover, keys_gone, lease, near, passes, writes};
use bed::{Bed, enter, rw, text};

/// The fields of an owner with these numbers of write holds and read holds.
fn holds(owner: &Owner, [written, read]: [u32; 2]) -> Vec<(String, u32)> {
    let mut holds = vec![(writes(owner), written), (text(owner), read)];
    holds.retain(|(_, count)| *count > 0);
    holds
}

/// Asserts that both halves report to each client that this owner alone has these holds (#4400:
/// `testReadLockIsLocked`).
async fn answers(step: &str, locks: &[RwLock], owner: &Owner, [written, read]: [u32; 2]) {
    for lock in locks {
        let halves: [(&dyn DistLock, u32); 2] = [(&lock.write(), written), (&lock.read(), read)];
        for (half, count) in halves {
            let state = half.state().await.unwrap();
            let expected: Vec<_> = (count > 0).then(|| (text(owner), u64::from(count))).into_iter().collect();
            assert_eq!(state.holders, expected, "{step}: {half:?}");
            assert_eq!(state.remaining.is_some(), count > 0, "{step}: {half:?}");
            let told = (half.is_locked().await.unwrap(), half.is_held_by(owner).await.unwrap());
            assert_eq!(told, (count > 0, count > 0), "{step}: {half:?}");
            assert_eq!(half.hold_count(owner).await.unwrap(), u64::from(count), "{step}: {half:?}");
        }
    }
}

/// #758, #891, #4217, `testWriteReadReentrancy`: one owner has two write holds and two read holds, and releases them in
/// every order. All holds that are not released remain, with their leases. Other owners can read when no owner writes,
/// and write when the lock is free.
async fn owner_releases_holds_of_both_halves_in_any_order(bed: &Bed) {
    let (client, other) = (bed.still_client().await, bed.still_client().await);
    for order in ["wwrr", "wrwr", "wrrw", "rwwr", "rwrw", "rrww"] {
        let locks = [client.rw(order), other.rw(order)];
        let [lock, there] = &locks;
        let me = client.owner();
        let mut scene = Scene::new(bed, order).await;
        let mut guards = [Vec::new(), Vec::new()];
        for half in "wrrw".chars() {
            let guard = if half == 'w' { enter(&lock.write(), &me).await } else { enter(&lock.read(), &me).await };
            guards[usize::from(half == 'r')].push(guard);
        }
        let mut told = (0, 0);
        for half in order.chars() {
            let reads = usize::from(half == 'r');
            // All leases end at one time. A release notifies waiters if the end becomes at least a second earlier.
            client.renew_now().await;
            // The oldest guard is released first. Each guard is one hold.
            let released = guards[reads].remove(0).unlock().await.unwrap();
            let left = [guards[0].len() as u32, guards[1].len() as u32];
            let expected = if left[reads] == 0 { Released::Free } else { Released::StillHeld(left[reads]) };
            assert_eq!(released, expected, "{order}");
            let mode = match left {
                [0, 0] => "",
                [0, _] => "read",
                _ => "write",
            };
            scene.is(order, mode, &holds(&me, left)).await;
            scene.covered(order, &me, left[1] as usize).await;
            assert!(guards.iter().flatten().all(Guard::is_held), "{order}");
            answers(order, &locks, &me, left).await;
            let once = Acquire::new().lease(HOUR / 4).wait(Duration::ZERO);
            let reader = there.read().acquire(once).await.unwrap();
            assert_eq!(reader.is_some(), left[0] == 0, "{order}: a reader beside {left:?}");
            assert!(
                left == [0, 0] || there.write().try_lock().await.unwrap().is_none(),
                "{order}: a writer beside {left:?}"
            );
            if let Some(reader) = reader {
                let holders = lock.read().state().await.unwrap().holders;
                assert_eq!(holders.len(), 1 + usize::from(left[1] > 0), "{order}: {holders:?}");
                reader.unlock().await.unwrap();
            }
            let last = usize::from(left == [0, 0]);
            told = (told.0 + last * (1 + reads), told.1 + usize::from(reads == 0 && left[0] == 0));
            assert_eq!(scene.told().await, told, "{order}: messages");
        }
        scene.gone(order).await;
        passes(order, &there.write()).await;
    }
}

#[tokio::test]
async fn fresh_owner_releases_holds_of_both_halves_in_any_order() {
    rw(owner_releases_holds_of_both_halves_in_any_order).await;
}

/// The read half lasts as long as the longest cover, and no longer than the hash.
#[tokio::test]
async fn remaining_ttl_of_read_half_is_that_of_longest_cover() {
    rw(async |bed| {
        let client = bed.still_client().await;
        let lock = client.rw("a").read();
        let is_near = async |lease: Duration| {
            let left = lock.remaining_ttl().await.unwrap().unwrap_or_default();
            assert!(near(left.as_millis() as i64, lease), "{left:?} left of {lease:?}");
        };
        let short = lease(&lock, &client.owner(), 10 * HOUR).await;
        let long = lease(&lock, &client.owner(), 100 * HOUR).await;
        is_near(100 * HOUR).await;
        long.unlock().await.unwrap();
        for (hash, lasts) in [(30 * HOUR, 10 * HOUR), (HOUR, HOUR)] {
            assert!(bed.admin.cmd::<bool>(&["PEXPIRE", "a", &hash.as_millis().to_string()]).await);
            is_near(lasts).await;
        }
        short.unlock().await.unwrap();
    })
    .await;
}

/// `testUnlockFail`: a release by another owner, or of the other half, changes nothing and names the holder. Redis
/// returns the fields of a large hash in any order. The release overlooks no field, and takes no list of hold ids for
/// an owner.
#[tokio::test]
async fn release_by_non_holder_names_holder_and_changes_no_state() {
    rw(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for n in 0..16 {
            if n == 1 {
                // This is the older of the option's two names, because Redis 6.2 does not know the newer one.
                let () = bed.admin.cmd(&["CONFIG", "SET", "hash-max-ziplist-entries", "0"]).await;
            }
            for held in BOTH {
                let (name, me, you) = (format!("{held} {n}"), client.owner(), other.owner());
                assert!(matches!(
                    client.lock(held, &name).release(&me).await,
                    Err(Error::NotHeld { why: NotHeld::Never, .. })
                ));
                let guard = enter(&*client.lock(held, &name), &me).await;
                let before = bed.admin.hgetall(&name).await;
                let other_half = if held == Flavour::Read { Flavour::Write } else { Flavour::Read };
                for (asker, half, who) in [(&other, held, &you), (&other, other_half, &you), (&client, other_half, &me)]
                {
                    match asker.lock(half, &name).release(who).await {
                        Err(Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }) => assert_eq!(owner, text(&me)),
                        odd => panic!("{half} beside {name}: {odd:?}"),
                    }
                }
                assert!(other.lock(Flavour::Write, &name).try_lock().await.unwrap().is_none(), "beside {name}");
                assert_eq!(bed.admin.hgetall(&name).await, before, "{name}");
                assert!(guard.is_held());
                guard.unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// Any key or field may be missing. A renewal creates nothing.
#[tokio::test]
async fn renewal_reports_loss_of_either_half() {
    rw(async |bed| {
        let client = bed.still_client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        let watched = enter(&lock.read(), &me).await;
        let leased = lease(&lock.read(), &client.owner(), 10 * HOUR).await;
        bed.admin.cmd::<()>(&["FLUSHALL"]).await;
        assert_eq!(client.renew_now().await.lost, 2);
        assert!(!watched.is_held() && !leased.is_held());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        // Only the covers are gone, so other clients consider this reader dead.
        let watched = enter(&lock.read(), &me).await;
        let _: u64 = bed.admin.cmd(&["DEL", &cover("a", &text(&me), 1)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        assert!(!watched.is_held());
        drop(watched);
        let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
        let _: u64 = bed.admin.cmd(&["HDEL", "a", &writes(&me)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        assert!(!writing.is_held() && reading.is_held());
        drop(writing);
        let _: u64 = bed.admin.cmd(&["DEL", "a", &cover("a", &text(&me), 1)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        drop(reading);
        keys_gone(bed).await;
    })
    .await;
}
