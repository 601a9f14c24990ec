//! A multi lock is held while all of its members are held, and the first lost member ends the hold. The release
//! releases every remaining member nevertheless.

use distlock::{Client, Error, Flavour, Guard, Lost, MultiLock, NotHeld, RedLock, Released};

use crate::rig::{Second, fair, member, multi, only_keys};
use bed::{Bed, PATIENCE, becomes, ends, idle, reentrant, secs};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// One member is deleted before the guard is dropped. `cancel.rs` drops guards and releases of whole locks.
#[tokio::test]
async fn guard_dropped_after_loss_of_a_member_frees_the_others() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mixed = [(Flavour::Fenced, "a"), (Flavour::Reentrant, "b"), (Flavour::Write, "c")];
        for lock in [client.multi(NAMES), fair(&client, &NAMES), multi(&client, &mixed)] {
            let guard = lock.lock().await.unwrap();
            let () = bed.admin.cmd(&["DEL", "b"]).await;
            drop(guard);
            idle(&client).await;
            assert_eq!(bed.keys().await, [""; 0]);
        }
    })
    .await;
}

/// The work under the lock stops. The other members are released at once, even if the guard is not dropped.
#[tokio::test]
async fn multi_lock_is_lost_when_one_member_is_lost() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let red = MultiLock::of(vec![
            member(RedLock::new([client.clone()], "r").node_timeout(PATIENCE)),
            member(client.reentrant("a")),
            member(client.fair("c")),
        ]);
        let nested = MultiLock::of(vec![member(client.reentrant("b")), member(fair(&client, &["d", "e"]))]);
        for (lock, gone) in [
            (client.multi(NAMES), "a"),
            (client.multi(NAMES), "c"),
            (fair(&client, &NAMES), "c"),
            (nested, "e"),
            (red.clone(), "c"),
            (red, "r"),
        ] {
            let guard = lock.lock().await.unwrap();
            let (lost, expiring) = (tokio::spawn(guard.lost()), tokio::spawn(guard.expiring()));
            let () = bed.admin.cmd(&["DEL", gone]).await;
            let running = guard.run(async {
                client.renew_now().await;
                std::future::pending::<()>().await;
            });
            let told = |error: &Error| matches!(error, Error::Lost { name, why: Lost::Gone } if **name == *lock.name());
            let error = ends("the work under the lock", running).await.unwrap_err();
            assert!(told(&error), "{error:?}");
            let error = ends("the loss is signalled", lost).await.unwrap();
            assert!(told(&error), "{error:?}");
            ends("the end is signalled", expiring).await.unwrap();
            assert!(!guard.is_held() && guard.remaining().is_zero());
            only_keys(&bed.admin, &[]).await;
            assert!(guard.members().iter().all(|member| !member.is_held), "{guard:?}");
            let error = guard.extend(secs(5)).await.unwrap_err();
            assert!(told(&error), "{error:?}");
            assert!(matches!(guard.run(async {}).await, Err(Error::Lost { .. })));
            let error = guard.unlock().await.unwrap_err();
            assert!(told(&error), "{error:?}");
        }
    })
    .await;
}

/// Each member in turn is deleted, or is taken by another owner. The guard learns of the loss before its release or by
/// it.
#[tokio::test]
async fn with_one_member_gone_the_release_frees_the_others() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        for (steal, known) in [(false, false), (true, false), (false, true)] {
            for gone in NAMES {
                let guard = client.multi(NAMES).lock().await.unwrap();
                let () = bed.admin.cmd(&["DEL", gone]).await;
                if steal {
                    let () = bed.admin.cmd(&["HSET", gone, "stranger:1", "1"]).await;
                }
                if known {
                    assert_eq!(client.renew_now().await.lost, 1);
                }
                let name = guard.name().to_owned();
                let error = guard.unlock().await.unwrap_err();
                match &error {
                    Error::Lost { name: told, why: Lost::Gone } => assert!(known && **told == *name, "{error:?}"),
                    Error::NotHeld { name: told, why } => {
                        assert!(!known && **told == *name, "{error:?}");
                        let stranger = NotHeld::HeldBy { owner: "stranger:1".into() };
                        assert_eq!(*why, if steal { stranger } else { NotHeld::LeaseOver });
                    }
                    _ => panic!("{error:?}"),
                }
                // The other members are released in the background.
                let left = if steal { vec![gone] } else { Vec::new() };
                only_keys(&bed.admin, &left).await;
                if steal {
                    assert_eq!(bed.admin.hgetall(gone).await["stranger:1"], "1");
                }
                let () = bed.admin.cmd(&["FLUSHALL"]).await;
            }
        }
    })
    .await;
}

async fn over_two(bed: &Bed) -> (Client, Second, Guard) {
    let client = bed.client().await;
    let second = Second::start().await;
    let lock = MultiLock::of(vec![
        member(client.reentrant("a")),
        member(second.client.multi(["b", "d"])),
        member(client.fair("c")),
    ]);
    let guard = lock.lock().await.unwrap();
    (client, second, guard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_frees_other_members_while_one_server_is_down() {
    reentrant(async |bed| {
        let (client, second, guard) = over_two(bed).await;
        second.server.kill9();
        let unlocking = tokio::spawn(guard.unlock());
        only_keys(&bed.admin, &[]).await;
        tokio::task::block_in_place(|| second.server.restart());
        let outcome = ends("the release", unlocking).await.unwrap();
        let told = match &outcome {
            // The first command was in flight when the server died. The repeated command finds no hold, whether the
            // first one ran or not.
            Ok(released) => *released == Released::Free,
            Err(error) => {
                matches!(error, Error::NotHeld { .. } | Error::Lost { .. } | Error::ReleasePending { .. })
            }
        };
        assert!(told, "{outcome:?}");
        idle(&client).await;
        second.end().await;
    })
    .await;
}

/// The shutdown releases its client's members. The guard's release releases the other members.
#[tokio::test]
async fn release_frees_other_members_after_shutdown_of_one_client() {
    reentrant(async |bed| {
        let (client, second, guard) = over_two(bed).await;
        second.client.shutdown(std::time::Duration::ZERO).await.unwrap();
        assert!(!guard.is_held());
        assert!(matches!(guard.lost().await, Error::Closed));
        let error = guard.unlock().await.unwrap_err();
        assert!(matches!(error, Error::Closed), "{error:?}");
        // The guard was lost, so the other members are released in the background.
        only_keys(&bed.admin, &[]).await;
        only_keys(&second.admin().await, &[]).await;
        idle(&client).await;
    })
    .await;
}

/// The waiting lock may hold some members.
#[tokio::test]
async fn shutdown_ends_wait_with_closed_error_and_leaves_no_keys() {
    reentrant(async |bed| {
        let stranger = bed.client().await;
        let theirs = stranger.reentrant("b").lock().await.unwrap();
        let mixed = |client: &Client| multi(client, &[(Flavour::Fair, "a"), (Flavour::Reentrant, "b")]);
        for together in [true, false] {
            let client = bed.still_client().await;
            let lock = if together { client.multi(NAMES) } else { mixed(&client) };
            let waiter = tokio::spawn(async move { lock.lock().await });
            becomes("acquires that wait", 1, async || client.stats().waiting).await;
            client.shutdown(PATIENCE).await.unwrap();
            let outcome = ends("the waiter", waiter).await.unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
            only_keys(&bed.admin, &["b"]).await;
        }
        theirs.unlock().await.unwrap();
    })
    .await;
}
