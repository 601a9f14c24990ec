//! Users of other libraries, which neither publish nor receive messages.

use std::sync::Arc;

use bed::{Bed, Counter, ends, ms, secs, waits_in_vain};
use distlock::{Error, Lost, NotHeld, Released};
use distlock_support::Admin;
use tokio::task::JoinSet;

use crate::rig::{Stranger, plain, value};

fn stranger<'a>(bed: &'a Bed, value: &'a str) -> Stranger<'a> {
    Stranger { admin: &bed.admin, value }
}

/// Values of other libraries: hex, base64, a uuid, bytes that are not UTF-8.
const VALUES: [&str; 6] = [
    "a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5",
    "PpQbmd7PO+5LjbGwDPnMPA==",
    "7be4a1a69a6b4a4c8b9f1c1f6f8f6f8f",
    "ADDED:2024-05-01T00:00:00.000Z@host",
    "x",
    "",
];

#[tokio::test]
async fn holder_and_stranger_exclude_and_cannot_release_each_other() {
    plain(async |bed| {
        let client = bed.client().await;
        let lock = client.plain("job");
        for theirs in VALUES {
            let other = stranger(bed, theirs);
            let guard = lock.lock().await.unwrap();
            assert!(!other.takes("job", secs(5)).await && !other.extends("job", secs(60)).await);
            assert!(!other.releases("job").await && guard.is_held());
            let owner = guard.owner().clone();
            guard.unlock().await.unwrap();
            assert!(other.takes("job", secs(600)).await, "{theirs:?}");
            assert!(lock.try_lock().await.unwrap().is_none());
            waits_in_vain(ms(30), async |wait| lock.lock_for(wait).await).await;
            let refused = lock.release(&owner).await;
            assert!(
                matches!(&refused, Err(Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }) if owner == theirs),
                "{refused:?}"
            );
            let state = lock.state().await.unwrap();
            assert_eq!(state.holders, [(theirs.to_owned(), 1)]);
            assert!(state.remaining.unwrap() > secs(100));
            assert!(other.extends("job", secs(400)).await && other.releases("job").await, "{theirs:?}");
            assert!(!lock.is_locked().await.unwrap());
        }
        // A value that is not UTF-8 counts as a holder, too.
        let () = bed.admin.cmd_bytes(&[&b"SET"[..], b"job", b"\xff\x00\xfe"]).await;
        waits_in_vain(ms(30), async |wait| lock.lock_for(wait).await).await;
        assert_eq!(lock.state().await.unwrap().holders.len(), 1);
        assert!(lock.force_unlock().await.unwrap());
    })
    .await;
}

/// Clients of this crate and strangers take turns. Our release wakes our waiter by a message. Behind a stranger, our
/// waiter polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counter_of_our_clients_and_strangers_is_exact() {
    plain(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let counter = Arc::new(Counter::default());
        let mut tasks = JoinSet::new();
        for n in 0..4 {
            let (lock, counter) = (clients[n % 2].plain("job"), Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..25 {
                    let guard = lock.lock().await.unwrap();
                    counter.bump(ms(1)).await;
                    guard.unlock().await.unwrap();
                    tokio::time::sleep(ms(4)).await;
                }
            });
        }
        for n in 0..3 {
            let (url, counter) = (bed.server.url(), Arc::clone(&counter));
            tasks.spawn(async move {
                let (admin, value) = (Admin::from_url(&url).await, format!("stranger {n}"));
                let other = Stranger { admin: &admin, value: &value };
                for _ in 0..25 {
                    while !other.takes("job", secs(600)).await {
                        tokio::time::sleep(ms(2)).await;
                    }
                    counter.bump(ms(1)).await;
                    assert!(other.releases("job").await);
                    tokio::time::sleep(ms(4)).await;
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(counter.get(), 7 * 25);
    })
    .await;
}

/// The watchdog renews our hold. The hold is lost when a stranger deletes the key without comparing the value.
#[tokio::test]
async fn hold_is_renewed_and_reports_loss_when_key_is_deleted() {
    plain(async |bed| {
        // No automatic renewal may find the loss before the test does.
        let client = bed.still_client().await;
        let lock = client.plain("job");
        let other = stranger(bed, VALUES[1]);
        let mut guard = lock.lock().await.unwrap();
        for taken in [false, true] {
            let () = bed.admin.cmd(&["PEXPIRE", "job", "60000"]).await;
            assert_eq!(client.renew_now().await.renewed, 1);
            assert!(bed.admin.pttl("job").await > 60_000 && !other.takes("job", secs(5)).await);
            let () = bed.admin.cmd(&["DEL", "job"]).await;
            if taken {
                assert!(other.takes("job", secs(600)).await);
            }
            assert_eq!(client.renew_now().await.lost, 1);
            let lost = ends("the loss is signalled", guard.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
            bed::idle(&client).await;
            // The client does not touch a key that a stranger holds now.
            assert_eq!(value(bed, "job").await.as_deref(), taken.then_some(VALUES[1]));
            assert!(!taken || other.releases("job").await);
            guard = lock.lock().await.unwrap();
        }
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}
