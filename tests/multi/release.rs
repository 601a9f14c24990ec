//! A release gives back every member, whatever becomes of the others (protocol §8.4: Redisson's stops at the first error).

use distlock::{Client, DistLock, Error, Flavour, Guard, Lost, MultiLock, NotHeld, Released};

use crate::rig::{Second, fair, member, multi, only_keys, soon};
use bed::{Bed, enter, eventually, idle, ms, reentrant, secs};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The same three, plain and not.
fn locks(client: &Client) -> [MultiLock; 3] {
    let mixed = multi(client, &[(Flavour::Fenced, "a"), (Flavour::Reentrant, "b"), (Flavour::Write, "c")]);
    [client.multi(NAMES), fair(client, &NAMES), mixed]
}

#[tokio::test]
async fn all_are_free_after_an_unlock_and_after_a_drop() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in locks(&client) {
            let guard = lock.lock().await.unwrap();
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
            assert_eq!(bed.keys().await, [""; 0]);
            drop(lock.lock().await.unwrap());
            soon("dropped, it is free", secs(3), async { lock.lock().await.unwrap().unlock().await.unwrap() }).await;
            // One that is dropped half-way is carried through.
            let mut unlocking = Box::pin(lock.lock().await.unwrap().unlock());
            assert!(futures::poll!(unlocking.as_mut()).is_pending());
            drop(unlocking);
            soon("half-way, it is free", secs(3), async { lock.lock().await.unwrap().unlock().await.unwrap() }).await;
        }
    })
    .await;
}

/// Has one member go, each in turn; unlocks, or learns of it first.
async fn with_one_gone(bed: &Bed, steal: bool, known: bool) {
    let client = bed.client().await;
    for gone in NAMES {
        let lock = client.multi(NAMES);
        let guard = lock.lock().await.unwrap();
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
        // All is done when the error is told.
        let left = bed.admin.keys().await;
        assert_eq!(left, if steal { vec![gone.to_owned()] } else { vec![] });
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn one_is_gone() {
    reentrant(async |bed| with_one_gone(bed, false, false).await).await;
}

#[tokio::test]
async fn one_is_stolen() {
    reentrant(async |bed| with_one_gone(bed, true, false).await).await;
}

#[tokio::test]
async fn one_is_known_to_be_lost() {
    reentrant(async |bed| with_one_gone(bed, false, true).await).await;
}

/// Dropped, the guard gives back what is left, and tells nobody.
#[tokio::test]
async fn a_dropped_guard_gives_back_what_is_left() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in locks(&client) {
            let guard = lock.lock().await.unwrap();
            let () = bed.admin.cmd(&["DEL", "b"]).await;
            drop(guard);
            idle(&client).await;
            assert_eq!(bed.keys().await, [""; 0]);
        }
    })
    .await;
}

async fn over_two(bed: &Bed) -> (Client, Second, Guard, MultiLock) {
    let client = bed.client().await;
    let second = Second::with(|builder| builder.command_timeout(ms(300)).watchdog(secs(3)).retry_attempts(1)).await;
    let lock = MultiLock::of(vec![
        member(client.reentrant("a")),
        member(second.client.reentrant("b")),
        member(client.fair("c")),
    ]);
    let guard = lock.lock().await.unwrap();
    (client, second, guard, lock)
}

/// One member's server is down: the others are free at once, and the error is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ones_server_is_down() {
    reentrant(async |bed| {
        let (client, second, guard, _lock) = over_two(bed).await;
        second.server.kill9();
        let unlocking = tokio::spawn(guard.unlock());
        soon("the others are free", ms(2_500), only_keys(&bed.admin, &[])).await;
        let error = soon("an answer", secs(10), unlocking).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Connection { .. } | Error::Timeout { .. } | Error::Lost { .. }), "{error:?}");
        idle(&client).await;
        tokio::task::block_in_place(|| second.server.restart());
        second.end().await;
    })
    .await;
}

/// One member's client is shut down, which gives that one back: the others are released, and the error is told.
#[tokio::test]
async fn ones_client_is_shut_down() {
    reentrant(async |bed| {
        let (client, second, guard, _lock) = over_two(bed).await;
        second.client.shutdown(secs(5)).await.unwrap();
        assert!(!guard.is_held());
        assert!(matches!(guard.lost().await, Error::Closed));
        let error = guard.unlock().await.unwrap_err();
        assert!(matches!(error, Error::Closed), "{error:?}");
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert_eq!(second.admin().await.keys().await, [""; 0]);
        idle(&client).await;
    })
    .await;
}

/// All clients of the members are shut down with it held: every member is given back.
#[tokio::test]
async fn a_shutdown_gives_all_back() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for held in [false, true] {
            let other = bed.client().await;
            let lock = other.multi(["a", "b", "c", "d"]);
            let guard = lock.lock().await.unwrap();
            if !held {
                drop(guard);
                other.shutdown(secs(5)).await.unwrap();
            } else {
                other.shutdown(secs(5)).await.unwrap();
                assert!(!guard.is_held());
                assert!(matches!(guard.unlock().await, Err(Error::Closed)));
            }
            only_keys(&bed.admin, &[]).await;
            assert!(matches!(lock.try_lock().await, Err(Error::Closed)));
        }
        client.multi(["a", "b"]).lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// A client that is shut down while a multi lock waits: told so, and nothing is left, also where it holds some.
#[tokio::test]
async fn a_shutdown_ends_a_wait() {
    reentrant(async |bed| {
        let stranger = bed.client().await;
        let theirs = stranger.reentrant("b").lock().await.unwrap();
        for together in [true, false] {
            let client = bed.client().await;
            let lock = if together { client.multi(NAMES) } else { fair(&client, &NAMES) };
            let waiter = tokio::spawn(async move { lock.lock().await });
            if !together {
                eventually("it has a", async || bed.admin.exists("a").await).await;
            }
            eventually("it waits", async || client.stats().waiting == 1).await;
            client.shutdown(secs(5)).await.unwrap();
            let outcome = soon("it ends", secs(5), waiter).await.unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
            only_keys(&bed.admin, &["b"]).await;
        }
        theirs.unlock().await.unwrap();
    })
    .await;
}

/// Dropped where there is no runtime, it gives all back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_on_another_thread() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in locks(&client) {
            let guard = lock.lock().await.unwrap();
            std::thread::spawn(move || drop(guard)).join().unwrap();
            idle(&client).await;
            assert!(!lock.is_locked().await.unwrap());
            assert_eq!(bed.keys().await, [""; 0]);
        }
    })
    .await;
}

/// Only its own hold (threads 86: #542): what others hold by then is left alone.
#[tokio::test]
async fn what_others_hold_by_then_stays_theirs() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let me = client.owner();
        let guard = enter(&client.multi(NAMES), &me).await;
        assert!(other.reentrant("b").force_unlock().await.unwrap());
        let theirs = other.reentrant("b").lock().await.unwrap();
        let error = guard.unlock().await.unwrap_err();
        assert!(matches!(error, Error::NotHeld { why: NotHeld::HeldBy { .. }, .. } | Error::Lost { .. }), "{error:?}");
        assert_eq!(bed.admin.keys().await, ["b"]);
        assert!(theirs.is_held());
        assert_eq!(other.renew_now().await.renewed, 1);
        theirs.unlock().await.unwrap();
    })
    .await;
}
