//! Late commands. A `SET` has no last moment (time after which the server refuses it). The second look and the lease
//! limit the effect of its copies, and no copy creates a second holder.

use bed::fault::brisk;
use bed::wire::{Wire, arrives};
use bed::{ends, eventually, idle, ms, secs};
use distlock::{Acquire, Released};
use distlock_support::proxy::{Action, Matcher};

use crate::rig::{plain, value};

const ALL: &[&str] = &["SET", "EVALSHA", "EVAL"];

/// The `SET` was answered, and its lock was released. A copy takes the free lock for the length of its lease. A value
/// is never used twice, so no client counts as the holder.
#[tokio::test]
async fn late_copy_of_set_occupies_free_lock_for_its_lease() {
    plain(async |bed| {
        let client = bed.client().await;
        let lock = client.plain("job");
        let wire = Wire::hear(&bed.server, ALL).await;
        let guard = lock.lock_leased(secs(200)).await.unwrap();
        let owner = guard.owner().clone();
        guard.unlock().await.unwrap();
        let set = wire.calls(bed).await.into_iter().find(|call| call[0].eq_ignore_ascii_case("set")).unwrap();
        assert_eq!(&set[1..], ["job", owner.as_str(), "NX", "PX", "200000"]);
        arrives(bed, &set).await;
        assert_eq!(value(bed, "job").await.as_deref(), Some(owner.as_str()));
        assert!(lock.try_lock().await.unwrap().is_none());
        // A waiter acquires when the copy's lease ends. A copy has no effect on a held lock.
        let () = bed.admin.cmd(&["PEXPIRE", "job", "100"]).await;
        let guard = ends("a waiter behind a lease that runs out", lock.lock()).await.unwrap();
        assert_ne!(*guard.owner(), owner);
        let before = value(bed, "job").await;
        arrives(bed, &set).await;
        assert_eq!(value(bed, "job").await, before);
        assert!(guard.is_held() && client.renew_now().await.renewed == 1);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// The `SET` timed out, and was undone before its copy arrived. The second look, one command timeout after the undo,
/// finds the copy.
#[tokio::test]
async fn late_copy_of_undone_set_is_found_by_second_look() {
    plain(async |bed| {
        let proxy = bed.proxy();
        // The late `SET` below must arrive before the second look, which comes one command timeout after the undo.
        let slow = brisk(&proxy.url()).watchdog(secs(3600)).command_timeout(secs(15));
        let client = bed.connect(slow.retry_attempts(1_000)).await;
        let lock = client.plain("job");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let wire = Wire::hear(&bed.server, ALL).await;
        // The fault is matched by the lock's name, because the command never reaches the server.
        proxy.on_request(Matcher::command("SET").containing("job"), Action::CloseBefore);
        let error = lock.acquire(Acquire::new().wait(ms(0)).lease(secs(600))).await.unwrap_err();
        assert!(error.outcome_unknown(), "{error:?}");
        let undone = async || wire.calls(bed).await.iter().any(|call| call.iter().any(|word| word == "job"));
        eventually("it is undone", undone).await;
        let undoing = wire.last(bed).await;
        let late = undoing.last().unwrap().clone();
        let () = bed.admin.cmd(&["SET", "job", &late, "NX", "PX", "600000"]).await;
        eventually("the look finds it", async || !bed.admin.exists("job").await).await;
        idle(&client).await;
    })
    .await;
}

/// The copy of a script finds that its value is gone, or arrives after its last moment.
#[tokio::test]
async fn late_copies_of_scripts_do_not_change_newer_hold() {
    plain(async |bed| {
        let client = bed.client().await;
        let lock = client.plain("job");
        let wire = Wire::hear(&bed.server, ALL).await;
        let me = client.owner();
        let own = || Acquire::new().owner(&me).lease(secs(400));
        // An acquire by script has a last moment.
        let guard = lock.acquire(own()).await.unwrap().unwrap();
        guard.extend(secs(600)).await.unwrap();
        guard.extend(secs(200)).await.unwrap();
        client.renew_now().await;
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        let guard = lock.lock().await.unwrap();
        client.renew_now().await;
        assert!(lock.force_unlock().await.unwrap());
        drop(guard);
        idle(&client).await;
        let calls = wire.calls(bed).await;
        let scripts: Vec<_> =
            calls.into_iter().filter(|call| call[0].to_ascii_uppercase().starts_with("EVAL")).collect();
        assert!(scripts.len() >= 6, "{scripts:?}");
        // The last moment of the acquire and of the force has passed: one command timeout after they were sent.
        tokio::time::sleep(client.options().command_timeout + secs(1)).await;
        let guard = lock.acquire(own()).await.unwrap().unwrap();
        let before = value(bed, "job").await;
        for call in &scripts {
            arrives(bed, call).await;
            assert_eq!(value(bed, "job").await, before, "{call:?}");
            let left = bed.admin.pttl("job").await;
            assert!(left > 200_000 && left <= 400_000, "{left}: {call:?}");
        }
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        for call in &scripts {
            arrives(bed, call).await;
            assert!(!bed.admin.exists("job").await, "{call:?}");
        }
    })
    .await;
}

/// A plain lock keeps no record of an `extend` to a shorter lease. So the guard's next `extend` waits until no copy of
/// the first can arrive.
#[tokio::test]
async fn late_copy_of_shorter_extend_does_not_cut_newer_lease() {
    plain(async |bed| {
        let client = bed.client().await;
        let lock = client.plain("job");
        let wire = Wire::hear(&bed.server, ALL).await;
        let guard = lock.lock_leased(secs(300)).await.unwrap();
        guard.extend(secs(100)).await.unwrap();
        let shorter = wire.last(bed).await;
        guard.extend(secs(600)).await.unwrap();
        arrives(bed, &shorter).await;
        let left = bed.admin.pttl("job").await;
        assert!(left > 300_000, "a copy of the shorter one has cut the lease to {left} ms");
        assert!(u128::from(left.unsigned_abs()) >= guard.remaining().as_millis(), "{left}");
        guard.unlock().await.unwrap();
    })
    .await;
}
