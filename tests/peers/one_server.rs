//! One server and one key, used by this crate and a peer.

use std::sync::Arc;

use bed::{Bed, Counter, PATIENCE, ends, eventually, ms, secs, waits_in_vain, with_longer_waits};
use distlock::{Error, Lost, PlainValue, Released};
use distlock_support::peer::{Library, Peer};
use tokio::task::JoinSet;

use crate::{AT_ONCE, LONG, beside};

async fn value(bed: &Bed, key: &str) -> Option<Vec<u8>> {
    bed.admin.cmd(&["GET", key]).await
}

async fn each_side_excludes_the_other_until_its_release(library: Library) {
    beside(library, async |bed, peer| {
        let client = bed.client().await;
        for form in [PlainValue::Owner, PlainValue::Hex, PlainValue::Base64] {
            let lock = client.plain("job").value(form);
            let guard = lock.lock().await.unwrap();
            assert_eq!(peer.lock("job", LONG, AT_ONCE).await, None, "{form:?}");
            let other = Arc::clone(peer);
            let waiter = tokio::spawn(async move { other.lock("job", LONG, PATIENCE).await });
            tokio::time::sleep(ms(300)).await;
            assert!(guard.is_held() && !waiter.is_finished());
            guard.unlock().await.unwrap();
            let theirs = waiter.await.unwrap().expect("ours is given back");

            let before = value(bed, "job").await;
            assert!(lock.try_lock().await.unwrap().is_none());
            waits_in_vain(ms(50), async |wait| lock.lock_for(wait).await).await;
            assert_eq!(lock.state().await.unwrap().holders.len(), 1);
            assert_eq!(value(bed, "job").await, before);
            let waiting = lock.clone();
            let waiter = tokio::spawn(async move { waiting.lock().await.unwrap() });
            tokio::time::sleep(ms(300)).await;
            assert!(!waiter.is_finished());
            assert!(peer.release(theirs).await);
            let guard = ends("our waiter after their release", waiter).await.unwrap();
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        }
    })
    .await;
}

async fn each_has_it_when_the_others_lease_is_over(library: Library) {
    beside(library, async |bed, peer| {
        let lock = bed.client().await.plain("job");
        // `redsync` refuses a grant that arrives after its lease.
        with_longer_waits(ms(800), async |lease| peer.lock("job", lease, AT_ONCE).await).await;
        let guard = ends("ours, when their lease is over", lock.lock()).await.unwrap();
        guard.unlock().await.unwrap();

        let guard = lock.lock_leased(ms(800)).await.unwrap();
        let theirs = peer.lock("job", LONG, PATIENCE).await.expect("our lease is over");
        assert!(!guard.is_held(), "two at a time");
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        assert!(peer.release(theirs).await);
    })
    .await;
}

async fn extended_or_renewed_lock_stays_held(library: Library) {
    beside(library, async |bed, peer| {
        let client = bed.client().await;
        let lock = client.plain("job");
        // The peer extends its own lease.
        let theirs = peer.lock("job", secs(60), AT_ONCE).await.expect("it is free");
        let () = bed.admin.cmd(&["PEXPIRE", "job", "20000"]).await;
        assert!(peer.extend(theirs, secs(60)).await);
        let left = lock.remaining_ttl().await.unwrap().expect("it is held");
        assert!(left > secs(20), "{left:?}");
        waits_in_vain(ms(300), async |wait| lock.lock_for(wait).await).await;
        assert!(peer.release(theirs).await);
        // Our watchdog renews our lease.
        let guard = lock.lock().await.unwrap();
        let before = bed.admin.pttl("job").await;
        // Cuts the lease to half, so that the renewal shows.
        let () = bed.admin.cmd(&["PEXPIRE", "job", "15000"]).await;
        assert_eq!(client.renew_now().await.renewed, 1);
        assert!(bed.admin.pttl("job").await > 15_000, "of {before} ms");
        assert_eq!(peer.lock("job", LONG, AT_ONCE).await, None);
        assert!(guard.is_held());
        guard.extend(LONG).await.unwrap();
        assert!(bed.admin.pttl("job").await > 60_000);
        assert_eq!(peer.lock("job", LONG, AT_ONCE).await, None);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

async fn late_release_does_not_release_the_others_lock(library: Library) {
    beside(library, async |bed, peer| {
        // No automatic renewal may find the loss before the test does.
        let client = bed.still_client().await;
        let lock = client.plain("job");
        // The peer's lease has ended, and our client holds the lock.
        let theirs = with_longer_waits(ms(300), async |lease| peer.lock("job", lease, AT_ONCE).await).await;
        let guard = lock.lock().await.unwrap();
        let before = value(bed, "job").await;
        assert!(!peer.extend(theirs, secs(60)).await);
        assert!(!peer.release(theirs).await);
        assert_eq!(value(bed, "job").await, before);
        assert_eq!(client.renew_now().await.renewed, 1);
        assert!(guard.is_held());
        // Our lock is deleted, and the peer holds it.
        let () = bed.admin.cmd(&["DEL", "job"]).await;
        let theirs = peer.lock("job", LONG, AT_ONCE).await.expect("it is free");
        let before = value(bed, "job").await;
        assert_eq!(client.renew_now().await.lost, 1);
        assert!(matches!(guard.lost().await, Error::Lost { why: Lost::Gone, .. }));
        assert!(guard.unlock().await.is_err());
        let stranger = client.owner();
        assert!(matches!(lock.release(&stranger).await, Err(Error::NotHeld { .. })));
        bed::idle(&client).await;
        assert_eq!(value(bed, "job").await, before);
        assert!(peer.release(theirs).await);
        eventually("it is free", async || !bed.admin.exists("job").await).await;
    })
    .await;
}

/// Two clients of ours with several tasks, and tasks of the peer, take turns.
async fn one_at_a_time_whoever_it_is(library: Library) {
    beside(library, async |bed, peer| {
        let counter = Arc::new(Counter::default());
        let mut tasks = JoinSet::new();
        for client in [bed.client().await, bed.client().await] {
            for _ in 0..2 {
                let (lock, counter) = (client.plain("job"), Arc::clone(&counter));
                tasks.spawn(async move {
                    for _ in 0..20 {
                        let guard = lock.lock().await.unwrap();
                        counter.bump(ms(1)).await;
                        guard.unlock().await.unwrap();
                        // Leaves the lock free for a moment, because peers poll.
                        tokio::time::sleep(ms(20)).await;
                    }
                });
            }
        }
        for _ in 0..2 {
            let (peer, counter): (Arc<Peer>, _) = (Arc::clone(peer), Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..8 {
                    let theirs = peer.lock("job", LONG, PATIENCE).await.expect("it is free now and then");
                    counter.bump(ms(1)).await;
                    assert!(peer.release(theirs).await);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(counter.get(), 4 * 20 + 2 * 8);
    })
    .await;
}

libraries!([redsync: Redsync, redlock: Redlock, redis_py: RedisPy, rslock: Rslock], [
    each_side_excludes_the_other_until_its_release
    each_has_it_when_the_others_lease_is_over
    extended_or_renewed_lock_stays_held
    late_release_does_not_release_the_others_lock
    one_at_a_time_whoever_it_is
]);
