//! Leases set anew on both halves: each guard's own, and nobody else's is cut short by it.

use distlock::{DistLock as _, Error, Lost};

use crate::rig::{Scene, covers, lease, near, waits, writes};
use bed::{enter, ms, rw, secs, text, waiter};

#[tokio::test]
async fn a_readers_extension_is_its_own() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me, you) = (client.rw("a"), client.owner(), other.owner());
        let scene = Scene::new(bed, "a").await;
        let both = [(text(&me), 1), (text(&you), 1)];
        let (mine, theirs) =
            (lease(&lock.read(), &me, secs(10)).await, lease(&other.rw("a").read(), &you, secs(20)).await);
        mine.extend(secs(60)).await.unwrap();
        scene.is("longer", "read", &both, 60_000).await;
        scene.covered("longer", &me, &[60_000]).await;
        scene.covered("longer", &you, &[20_000]).await;
        assert!(mine.remaining() > secs(55));
        // Shorter than the other's: the hash lasts as long as that.
        mine.extend(secs(5)).await.unwrap();
        scene.is("shorter", "read", &both, 20_000).await;
        scene.covered("shorter", &me, &[5_000]).await;
        scene.covered("shorter", &you, &[20_000]).await;
        assert!(mine.remaining() < secs(5));
        theirs.unlock().await.unwrap();
        scene.is("alone", "read", &[(text(&me), 1)], 5_000).await;
        // A writer that comes finds out when it looks after the end.
        mine.extend(ms(300)).await.unwrap();
        let deadline = mine.deadline();
        let (guard, granted) = waiter(other.rw("a").write()).await.unwrap();
        assert!(granted >= deadline && granted < deadline + ms(700));
        guard.unlock().await.unwrap();
        let lost = mine.extend(secs(5)).await;
        assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
        drop(mine);
    })
    .await;
}

/// Two guards of one owner: the one's shorter lease does not cut the other's, whichever has which cover.
#[tokio::test]
async fn guards_of_one_owner_do_not_cut_each_other_short() {
    rw(async |bed| {
        let client = bed.client().await;
        for reads in [true, false] {
            for short in [0, 1] {
                let (lock, me) = (client.rw("a"), client.owner());
                let take = async || {
                    if reads {
                        lease(&lock.read(), &me, secs(20)).await
                    } else {
                        lease(&lock.write(), &me, secs(20)).await
                    }
                };
                let mut guards = vec![take().await, take().await];
                guards[short].extend(ms(200)).await.unwrap();
                let kept = &guards[1 - short];
                assert!(kept.remaining() > secs(15));
                assert!(near(bed.admin.pttl("a").await, 20_000));
                if reads {
                    let longest = covers(bed, "a", &me).await.into_iter().max().unwrap();
                    assert!(longest >= kept.remaining().as_millis() as i64, "{longest}");
                }
                let lost = tokio::time::timeout(secs(2), guards[short].lost()).await.expect("its time is over");
                assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }));
                assert!(kept.is_held());
                assert!(guards.remove(short).unlock().await.is_err());
                let kept = guards.remove(0);
                if reads {
                    let longest = covers(bed, "a", &me).await.into_iter().max().unwrap();
                    assert!(longest >= kept.remaining().as_millis() as i64, "{longest}");
                }
                kept.unlock().await.unwrap();
                assert_eq!(bed.admin.keys().await, [""; 0]);
            }
        }
    })
    .await;
}

/// A writer that reads as well: neither extension cuts the other half short.
#[tokio::test]
async fn a_writers_two_halves_are_extended_apart() {
    rw(async |bed| {
        let client = bed.client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        let scene = Scene::new(bed, "a").await;
        let all = [(writes(&me), 1), (text(&me), 1)];
        let (writing, reading) = (lease(&lock.write(), &me, secs(20)).await, lease(&lock.read(), &me, secs(10)).await);
        reading.extend(secs(5)).await.unwrap();
        scene.is("a shorter read", "write", &all, 20_000).await;
        scene.covered("a shorter read", &me, &[5_000]).await;
        reading.extend(secs(50)).await.unwrap();
        scene.is("a longer read", "write", &all, 50_000).await;
        writing.extend(secs(10)).await.unwrap();
        scene.is("a shorter write", "write", &all, 50_000).await;
        scene.covered("a shorter write", &me, &[50_000]).await;
        reading.unlock().await.unwrap();
        writing.extend(secs(10)).await.unwrap();
        scene.is("written", "write", &all[..1], 10_000).await;
        writing.unlock().await.unwrap();
        scene.gone("the end").await;
    })
    .await;
}

/// An extension takes a guard out of the watchdog's care, of the half that it is of and no other.
#[tokio::test]
async fn an_extension_ends_the_watchdogs_care_of_one_half() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for reads in [true, false] {
            let (lock, me) = (client.rw("a"), client.owner());
            let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
            assert_eq!(client.renew_now().await.renewed, 2);
            let (given, kept) = if reads { (&reading, &writing) } else { (&writing, &reading) };
            given.extend(secs(8)).await.unwrap();
            assert_eq!(client.renew_now().await.renewed, 1);
            assert!(given.remaining() < secs(8) && kept.remaining() > secs(20));
            assert!(near(bed.admin.pttl("a").await, 30_000));
            assert!(near(covers(bed, "a", &me).await[0], if reads { 8_000 } else { 30_000 }));
            assert!(other.rw("a").read().try_lock().await.unwrap().is_none());
            writing.unlock().await.unwrap();
            assert!(reading.is_held());
            other.rw("a").read().try_lock().await.unwrap().expect("shared").unlock().await.unwrap();
            reading.unlock().await.unwrap();
            assert_eq!(bed.admin.keys().await, [""; 0]);
        }
        // What is gone is not made again, and a waiter is not in the way.
        let lost = enter(&client.rw("a").read(), &client.owner()).await;
        let writer = waiter(other.rw("a").write());
        waits(bed, &other, "a", 1).await;
        assert!(other.rw("a").read().force_unlock().await.unwrap());
        let (guard, _) = writer.await.unwrap();
        let refused = lost.extend(secs(5)).await;
        assert!(matches!(refused, Err(Error::Lost { why: Lost::Gone, .. })), "{refused:?}");
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        drop(lost);
        crate::rig::sweep_covers(bed, 1).await;
    })
    .await;
}
