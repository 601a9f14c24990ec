//! What stands in Redis after every step, whether the owner is known elsewhere or not: one that is
//! may be counted by the server only.

use std::time::Duration;

use distlock::{DistLock as _, Guard, Owner, Released};

use crate::rig::{Scene, covers, lease, near, writes};
use bed::{Bed, enter, ms, rw, secs, text};

/// Runs a body with owners that nobody else knows, and once more with such as may act elsewhere.
async fn both_ways(body: impl AsyncFn(&Bed, fn(&Owner))) {
    rw(async |bed| {
        body(bed, |_| {}).await;
        body(bed, |owner| drop(owner.to_string())).await;
    })
    .await;
}

/// What Redisson leaves after the same steps. Where ours differs: the second write lease is not added to the first, and the downgrade
/// is told.
#[tokio::test]
async fn the_state_is_redissons_after_every_step() {
    both_ways(async |bed, known| {
        let (u, v, w) = (bed.client().await, bed.client().await, bed.client().await);
        let [a, b, c] = [u.owner(), v.owner(), w.owner()];
        [&a, &b, &c].into_iter().for_each(known);
        let mut scene = Scene::new(bed, "doc").await;
        let (by_a, by_b) = ((text(&a), 1), (text(&b), 1));

        let first = lease(&u.rw("doc").read(), &a, secs(10)).await;
        scene.is("a reads", "read", std::slice::from_ref(&by_a), 10_000).await;
        scene.covered("a reads", &a, &[10_000]).await;
        let second = lease(&v.rw("doc").read(), &b, secs(30)).await;
        scene.is("b reads", "read", &[by_a.clone(), by_b.clone()], 30_000).await;
        scene.covered("b reads", &b, &[30_000]).await;
        assert!(w.rw("doc").write().try_lock().await.unwrap().is_none());
        scene.is("c may not write", "read", &[by_a.clone(), by_b], 30_000).await;
        assert_eq!(second.unlock().await.unwrap(), Released::Free);
        scene.is("b is out", "read", &[by_a], 10_000).await;
        scene.covered("b is out", &b, &[]).await;
        // The end has come nearer by 20 s, which waiters have to know.
        assert_eq!(scene.told().await, (1, 0));
        assert_eq!(first.unlock().await.unwrap(), Released::Free);
        scene.gone("a is out").await;
        assert_eq!(scene.told().await, (2, 0));

        let writing = w.rw("doc").write();
        let first = lease(&writing, &c, secs(20)).await;
        scene.is("c writes", "write", &[(writes(&c), 1)], 20_000).await;
        let second = lease(&writing, &c, secs(20)).await;
        scene.is("c writes twice", "write", &[(writes(&c), 2)], 20_000).await;
        let reading = lease(&w.rw("doc").read(), &c, secs(5)).await;
        scene.is("c reads as well", "write", &[(writes(&c), 2), (text(&c), 1)], 20_000).await;
        scene.covered("c reads as well", &c, &[5_000]).await;
        assert_eq!(second.unlock().await.unwrap(), Released::StillHeld(1));
        scene.is("c writes once", "write", &[(writes(&c), 1), (text(&c), 1)], 20_000).await;
        assert_eq!(scene.told().await, (2, 0));
        assert_eq!(first.unlock().await.unwrap(), Released::Free);
        scene.is("c only reads", "read", &[(text(&c), 1)], 20_000).await;
        scene.covered("c only reads", &c, &[5_000]).await;
        assert_eq!(scene.told().await, (2, 1));
        assert_eq!(reading.unlock().await.unwrap(), Released::Free);
        scene.gone("c is out").await;
        assert_eq!(scene.told().await, (3, 1));
    })
    .await;
}

/// #758, #891, #4217: two holds for writing and two for reading by one owner, taken and given back in every order that
/// may be: exactly the others remain, with their leases.
#[tokio::test]
async fn holds_of_both_halves_go_in_any_order() {
    both_ways(async |bed, known| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (n, order) in ["wwrr", "wrwr", "wrrw", "rwwr", "rwrw", "rrww"].into_iter().enumerate() {
            let name = format!("{order} {n}");
            let lock = client.rw(&name);
            let me = client.owner();
            known(&me);
            let mut scene = Scene::new(bed, &name).await;
            let mut guards = [Vec::new(), Vec::new()];
            for half in "wrrw".chars() {
                let guard = if half == 'w' { enter(&lock.write(), &me).await } else { enter(&lock.read(), &me).await };
                guards[usize::from(half == 'r')].push(guard);
            }
            let mut told = (0, 0);
            for half in order.chars() {
                let reads = half == 'r';
                // First in, first out: a guard is one hold, not a certain one.
                let released = guards[usize::from(reads)].remove(0).unlock().await.unwrap();
                let left = [guards[0].len() as u32, guards[1].len() as u32];
                let expected = match left[usize::from(reads)] {
                    0 => Released::Free,
                    left => Released::StillHeld(left),
                };
                assert_eq!(released, expected, "{order}");
                let mut holds = vec![(writes(&me), left[0]), (text(&me), left[1])];
                holds.retain(|(_, count)| *count > 0);
                let mode = if left[0] > 0 { "write" } else { "read" };
                scene
                    .is(order, if holds.is_empty() { "" } else { mode }, &holds, i64::from(!holds.is_empty()) * 30_000)
                    .await;
                scene.covered(order, &me, &vec![30_000; left[1] as usize]).await;
                assert!(guards.iter().flatten().all(Guard::is_held), "{order}");
                // Others read as soon as nobody writes, and write when nobody does anything.
                let reader = other.rw(&name).read().try_lock().await.unwrap();
                assert_eq!(reader.is_some(), left[0] == 0, "{order}");
                if let Some(reader) = reader {
                    reader.unlock().await.unwrap();
                    told.0 += usize::from(left == [0, 0]);
                }
                told.1 += usize::from(!reads && left[0] == 0);
                told.0 += usize::from(reads && left == [0, 0]);
                assert_eq!(scene.told().await, told, "{order}");
            }
            scene.gone(order).await;
        }
    })
    .await;
}

/// RW3: three holds for reading of one owner, of different leases, given back in every order: whoever is left is covered
/// for as long as it was promised, and the hash lasts as long as the longest cover.
#[tokio::test]
async fn what_is_left_of_a_readers_holds_is_covered_as_promised() {
    both_ways(async |bed, known| {
        let client = bed.client().await;
        let leases = [secs(20), secs(5), secs(60)];
        for (n, order) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].into_iter().enumerate() {
            for beside in [false, true] {
                let name = format!("{n} {beside}");
                let (me, lock) = (client.owner(), client.rw(&name).read());
                known(&me);
                // Somebody else's longer lease is nobody's business, and stays.
                let other = if beside { Some(lock.lock_leased(secs(100)).await.unwrap()) } else { None };
                let mut guards = Vec::new();
                for time in leases {
                    guards.push(Some(lease(&lock, &me, time).await));
                }
                for (gone, which) in order.into_iter().enumerate() {
                    guards[which].take().unwrap().unlock().await.unwrap();
                    let left = covers(bed, &name, &me).await;
                    assert_eq!(left.len(), 2 - gone, "{order:?}");
                    let Some(promised) = guards.iter().flatten().map(Guard::remaining).max() else { continue };
                    let longest = Duration::from_millis(*left.iter().max().unwrap() as u64);
                    assert!(longest + ms(1) >= promised, "{order:?}: covered for {left:?}, promised {promised:?}");
                    // Nor for longer than anybody ever asked.
                    assert!(longest <= secs(60), "{order:?}: {left:?}");
                    let hash = bed.admin.pttl(&name).await;
                    let lasts = if beside { 100_000 } else { longest.as_millis() as i64 };
                    assert!(
                        near(hash, lasts) && hash + 200 >= longest.as_millis() as i64,
                        "{order:?}: {hash}, {left:?}"
                    );
                }
                if let Some(other) = other {
                    assert!(near(bed.admin.pttl(&name).await, 100_000), "{order:?}");
                    other.unlock().await.unwrap();
                }
                assert_eq!(bed.admin.keys().await, [""; 0]);
            }
        }
    })
    .await;
}

/// #1110, `testWriteLockExpiration`: a second, shorter write lease does not shorten the first, nor does giving it back;
/// and they are not added up.
#[tokio::test]
async fn a_shorter_write_lease_never_cuts_a_longer_one() {
    both_ways(async |bed, known| {
        let (client, other) = (bed.client().await, bed.client().await);
        for long_first in [true, false] {
            let (me, lock) = (client.owner(), client.rw("a"));
            known(&me);
            let leases = if long_first { [secs(20), ms(300)] } else { [ms(300), secs(20)] };
            let scene = Scene::new(bed, "a").await;
            let [first, second] =
                [lease(&lock.write(), &me, leases[0]).await, lease(&lock.write(), &me, leases[1]).await];
            scene.is("twice", "write", &[(writes(&me), 2)], 20_000).await;
            let (short, long) = if long_first { (second, first) } else { (first, second) };
            tokio::time::sleep(ms(350)).await;
            assert!(!short.is_held() && long.is_held());
            assert!(other.rw("a").write().try_lock().await.unwrap().is_none());
            assert!(short.unlock().await.is_err(), "its lease was over");
            scene.is("once", "write", &[(writes(&me), 1)], 20_000).await;
            assert!(long.is_held());
            // A hold for reading that lasts longer than the write lease that is left.
            let reading = lease(&lock.read(), &me, secs(50)).await;
            let again = lease(&lock.write(), &me, secs(5)).await;
            scene.is("all", "write", &[(writes(&me), 2), (text(&me), 1)], 50_000).await;
            again.unlock().await.unwrap();
            scene.is("a partial release", "write", &[(writes(&me), 1), (text(&me), 1)], 50_000).await;
            reading.unlock().await.unwrap();
            // Redisson's rule, and ours: under the write hold a read release leaves the lease alone.
            scene.is("no reads", "write", &[(writes(&me), 1)], 50_000).await;
            long.unlock().await.unwrap();
            scene.gone("the end").await;
        }
    })
    .await;
}

/// Ends of leases: of a writer; of a writer whose own read hold goes on; of readers.
#[tokio::test]
async fn the_state_after_leases_have_ended() {
    both_ways(async |bed, known| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (me, lock) = (client.owner(), client.rw("a"));
        known(&me);
        let scene = Scene::new(bed, "a").await;
        let over = lease(&lock.write(), &me, ms(100)).await;
        tokio::time::sleep(ms(120)).await;
        scene.gone("a writer's lease is over").await;
        assert!(over.unlock().await.is_err());

        // The hash lasts for the reader; the writer is told that its time was over, and leaves the lock to it.
        let writing = lease(&lock.write(), &me, ms(200)).await;
        let reading = lease(&lock.read(), &me, secs(20)).await;
        tokio::time::sleep(ms(220)).await;
        scene.is("the write lease is over", "write", &[(writes(&me), 1), (text(&me), 1)], 20_000).await;
        assert!(!writing.is_held() && reading.is_held());
        assert!(writing.unlock().await.is_err());
        scene.is("written", "read", &[(text(&me), 1)], 20_000).await;
        other.rw("a").read().try_lock().await.unwrap().expect("shared").unlock().await.unwrap();
        reading.unlock().await.unwrap();
        scene.gone("read").await;

        // The read lease ends under the write hold: giving that back frees the lock.
        let writing = enter(&lock.write(), &me).await;
        let reading = lease(&lock.read(), &me, ms(100)).await;
        tokio::time::sleep(ms(120)).await;
        scene.is("the read lease is over", "write", &[(writes(&me), 1), (text(&me), 1)], 30_000).await;
        scene.covered("the read lease is over", &me, &[]).await;
        assert_eq!(writing.unlock().await.unwrap(), Released::Free);
        scene.gone("dead reads keep nobody out").await;
        assert!(reading.unlock().await.is_err());
        scene.gone("nothing comes back").await;

        // Two readers: one's lease ends. The field stays until the other leaves.
        let (short, long) = (lease(&lock.read(), &me, ms(100)).await, other.rw("a").read().lock().await.unwrap());
        tokio::time::sleep(ms(120)).await;
        assert_eq!(lock.read().hold_count(&me).await.unwrap(), 0);
        assert_eq!(bed.admin.hgetall("a").await.len(), 3);
        long.unlock().await.unwrap();
        scene.gone("only the dead were left").await;
        assert!(short.unlock().await.is_err());
        scene.gone("nothing comes back").await;
    })
    .await;
}
