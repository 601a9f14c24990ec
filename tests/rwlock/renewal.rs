//! Renewal: every cover of the own readers and the hash; it cuts nobody short, lengthens no explicit lease, and keeps up
//! what a Java watchdog cuts (#1458, #1604).

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::rig::{Scene, covers, keys_gone, lease, near, writes};
use bed::{enter, eventually, rw, secs, text, waiter};

/// `testReadLockExpirationRenewal`: many readers, ten at a time, which come and go beside renewals; every unlock finds it held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_come_and_go_beside_renewals_keep_their_holds() {
    rw(async |bed| {
        let client = bed.client().await;
        let ten = Arc::new(Semaphore::new(10));
        let readers: Vec<_> = (0..30)
            .map(|_| {
                let (client, lock, ten) = (client.clone(), client.rw("a").read(), Arc::clone(&ten));
                tokio::spawn(async move {
                    let _one = ten.acquire().await.unwrap();
                    let guard = lock.lock().await.unwrap();
                    let round = client.renew_now().await;
                    assert_eq!((round.failed, round.lost), (0, 0));
                    guard.unlock().await.unwrap();
                })
            })
            .collect();
        for reader in readers {
            reader.await.unwrap();
        }
        keys_gone(bed).await;
    })
    .await;
}

/// L3: three holds of one owner, and one of another: a renewal extends every cover and the hash.
#[tokio::test]
async fn every_cover_is_kept_up() {
    rw(async |bed| {
        let client = bed.still_client().await;
        let (lock, owners) = (client.rw("a").read(), [client.owner(), client.owner()]);
        let mut guards = Vec::new();
        for owner in [0, 0, 0, 1] {
            guards.push(enter(&lock, &owners[owner]).await);
        }
        for _ in 0..4 {
            for owner in &owners {
                let name = text(owner);
                for cover in bed.admin.keys().await.iter().filter(|key| key.contains(&format!("{name}:rwlock_timeout")))
                {
                    let _: u64 = bed.admin.cmd(&["PEXPIRE", cover, "30000"]).await;
                }
            }
            let _: u64 = bed.admin.cmd(&["PEXPIRE", "a", "30000"]).await;
            assert_eq!(client.renew_now().await.renewed, 2);
            let (first, second) = (covers(bed, "a", &owners[0]).await, covers(bed, "a", &owners[1]).await);
            assert_eq!((first.len(), second.len()), (3, 1));
            let least = first.iter().chain(&second).copied().min().unwrap().min(bed.admin.pttl("a").await);
            assert!(least > 30_000, "{least} ms are left of a cover after a renewal");
        }
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A round of ours beside longer explicit leases, of readers and of a writer that reads: Redisson's cuts the lock to 30 s.
#[tokio::test]
async fn a_renewal_cuts_nobody_short() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (me, you) = (client.owner(), other.owner());
        let scene = Scene::new(bed, "a").await;
        let long = lease(&other.rw("a").read(), &you, secs(100)).await;
        let watched = enter(&client.rw("a").read(), &me).await;
        for client in [&client, &other] {
            let renewed = client.renew_now().await;
            assert_eq!((renewed.failed, renewed.lost), (0, 0));
        }
        scene.is("readers", "read", &[(text(&you), 1), (text(&me), 1)], 100_000).await;
        scene.covered("the long one", &you, &[100_000]).await;
        scene.covered("the watched one", &me, &[30_000]).await;
        long.unlock().await.unwrap();
        watched.unlock().await.unwrap();

        let (writing, reading) =
            (enter(&client.rw("a").write(), &me).await, lease(&client.rw("a").read(), &me, secs(100)).await);
        assert_eq!(client.renew_now().await.renewed, 1);
        scene.is("a writer", "write", &[(writes(&me), 1), (text(&me), 1)], 100_000).await;
        scene.covered("a writer", &me, &[100_000]).await;
        writing.unlock().await.unwrap();
        reading.unlock().await.unwrap();
    })
    .await;
}

/// An explicit lease is never renewed: not by a round that looks after it, of either half.
#[tokio::test]
async fn a_round_lengthens_no_explicit_lease() {
    rw(async |bed| {
        let client = bed.client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        // More than half a watchdog is left, and less than a whole one.
        for reads in [true, false] {
            let guard = if reads {
                lease(&lock.read(), &me, secs(20)).await
            } else {
                lease(&lock.write(), &me, secs(20)).await
            };
            let before = bed.admin.pttl("a").await;
            let renewed = client.renew_now().await;
            assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (0, 0, 0));
            let after = bed.admin.pttl("a").await;
            assert!(after <= before, "reads: {reads}: {before} ms were left, and now {after}");
            guard.unlock().await.unwrap();
        }
        let (writing, reading) = (lease(&lock.write(), &me, secs(20)).await, lease(&lock.read(), &me, secs(18)).await);
        client.renew_now().await;
        let (hash, cover) = (bed.admin.pttl("a").await, covers(bed, "a", &me).await[0]);
        assert!(hash <= 20_000 && cover <= 18_000, "{hash}, {cover}");
        writing.unlock().await.unwrap();
        reading.unlock().await.unwrap();
    })
    .await;
}

/// A Java watchdog's round leaves the hash 30 s, or whatever its client's are; the explicit leases of our readers are longer.
/// The next round of theirs brings the hash up again, and the writer does not come in.
#[tokio::test]
async fn what_a_java_watchdog_cuts_is_kept_up() {
    rw(async |bed| {
        let client = bed.client().await;
        let (me, lock) = (client.owner(), client.rw("a"));
        let cut = async |ms: &str| assert!(bed.admin.cmd::<bool>(&["PEXPIRE", "a", ms]).await);
        for twice in [false, true] {
            let guard = lease(&lock.read(), &me, secs(100)).await;
            // The longest counts, whichever it is.
            let second = if twice { Some(lease(&lock.read(), &me, secs(50)).await) } else { None };
            for left in ["30000", "2000"] {
                cut(left).await;
                assert_eq!(client.renew_now().await.renewed, 0);
                let hash = bed.admin.pttl("a").await;
                assert!(near(hash, 100_000), "{hash}");
            }
            let left = covers(bed, "a", &me).await;
            assert!(near(left[0], 100_000) && left.get(1).is_none_or(|left| near(*left, 50_000)), "{left:?}");
            drop(second);
            guard.unlock().await.unwrap();
            keys_gone(bed).await;
        }
        // By itself, within a third of the watchdog; and the writer that waits does not come in.
        let (quick, other) = (bed.quick().await, bed.client().await);
        let guard = lease(&quick.rw("a").read(), &quick.owner(), secs(3600)).await;
        let writer = waiter(other.rw("a").write());
        for _ in 0..2 {
            // As a Java client with a watchdog of as long would.
            cut("30000").await;
            let up = async || bed.admin.pttl("a").await > 50_000;
            eventually("it is kept up", up).await;
        }
        assert!(!writer.is_finished() && guard.is_held());
        guard.unlock().await.unwrap();
        writer.await.unwrap().0.unlock().await.unwrap();
    })
    .await;
}

/// What is lost is not made again by a round, and the loss is told.
#[tokio::test]
async fn what_is_lost_is_told() {
    rw(async |bed| {
        let client = bed.client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        let watched = enter(&lock.read(), &me).await;
        let leased = lease(&lock.read(), &client.owner(), secs(100)).await;
        bed.admin.cmd::<()>(&["FLUSHALL"]).await;
        assert_eq!(client.renew_now().await.lost, 2);
        assert!(!watched.is_held() && !leased.is_held());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        // Only the covers: such a reader is dead for everybody else.
        let watched = enter(&lock.read(), &me).await;
        let _: u64 = bed.admin.cmd(&["DEL", &crate::rig::cover("a", &me, 1)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        assert!(!watched.is_held());
        drop(watched);
        let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
        let _: u64 = bed.admin.cmd(&["HDEL", "a", &writes(&me)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        assert!(!writing.is_held() && reading.is_held());
        drop(writing);
        let _: u64 = bed.admin.cmd(&["DEL", "a", &crate::rig::cover("a", &me, 1)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        drop(reading);
        keys_gone(bed).await;
    })
    .await;
}
