//! Leases of read-write locks: a waiter acquires when the last lease of the other half ends, and the watchdog renews
//! both halves. Ported from `RedissonReadWriteLockTest`.

use crate::pair::Pair;
use crate::prelude::*;
use tokio::sync::Semaphore;

const WATCHDOG: Duration = ms(30_000);

/// Two clients whose waiters do not poll. A command takes 2 ms.
fn pair() -> Pair {
    Pair::new(Flavour::Write, way(ms(1)), |options| {
        (options.poll_cap, options.watchdog) = (ms(3_600_000), WATCHDOG);
    })
}

fn read(pair: &Pair) -> Box<dyn DistLock> {
    lock(&pair.ours.client, Flavour::Read, "x")
}

/// Starts a waiting writer at the other client.
fn writer(pair: &Pair) -> JoinHandle<Instant> {
    waiter(lock(&pair.theirs.client, Flavour::Write, "x").into())
}

/// Asserts that the writer acquires this long after `began`, while these guards exist. Then drops the guards and
/// checks that nothing is left.
async fn enters(pair: Pair, writer: JoinHandle<Instant>, began: Instant, after: Duration, guards: Vec<Guard>) {
    let had = writer.await.unwrap() - began;
    assert!(had >= after && had <= after + ms(30), "entered after {had:?} instead of {after:?}");
    drop(guards);
    pair.ends().await;
}

/// `testReadLockExpiration`: the first reader unlocks, or its lease ends.
#[test]
fn release_by_reader_does_not_shorten_lease_of_other_reader() {
    each([true, false], async |unlocks| {
        let pair = pair();
        let (one, two) = (pair.ours.client.owner(), pair.ours.client.owner());
        let began = Instant::now();
        let long = enter(&*read(&pair), &one, 10_000).await;
        let short = enter(&*read(&pair), &two, 3_000).await;
        let writer = writer(&pair);
        sleep_until(began + ms(2_800)).await;
        short.unlock().await.unwrap();
        sleep_until(began + ms(9_100)).await;
        assert!(long.is_held() && !writer.is_finished());
        if unlocks {
            long.unlock().await.unwrap();
            enters(pair, writer, began, ms(9_100), Vec::new()).await;
        } else {
            enters(pair, writer, began, ms(10_000), vec![long]).await;
        }
    });
}

/// A release while other readers stay does not free the lock, so this process does not yield.
#[test]
fn reader_that_returns_beside_other_reader_acquires_at_once() {
    virtually(async || {
        let pair = pair();
        let writing = pair.other.lock().await.unwrap();
        let lock = read(&pair);
        let reader = tokio::spawn(async move { lock.lock().await.unwrap() });
        sleep(ms(50)).await;
        writing.unlock().await.unwrap();
        // The reader has waited, so this process is subscribed.
        let first = reader.await.unwrap();
        let second = read(&pair).lock().await.unwrap();
        first.unlock().await.unwrap();
        let began = Instant::now();
        let third = read(&pair).lock().await.unwrap();
        assert!(began.elapsed() <= ms(3), "entered after {:?}", began.elapsed());
        drop((second, third));
        pair.ends().await;
    });
}

/// `testReadLockLeaseTimeoutDiffThreadsRRW`: the second reader extends the lease of the hash, and its release undoes
/// that. The writer starts to wait before the second reader acquires, or after its release.
#[test]
fn writer_waits_for_lease_of_remaining_reader() {
    each([true, false], async |waits_before| {
        let pair = pair();
        let (one, two) = (pair.ours.client.owner(), pair.ours.client.owner());
        let began = Instant::now();
        let stays = enter(&*read(&pair), &one, 10_000).await;
        let early = waits_before.then(|| writer(&pair));
        sleep_until(began + ms(5_000)).await;
        enter(&*read(&pair), &two, 10_000).await.unlock().await.unwrap();
        let writer = early.unwrap_or_else(|| writer(&pair));
        enters(pair, writer, began, ms(10_000), vec![stays]).await;
    });
}

/// `testReadLockLeaseTimeout`: an owner reads twice and releases once. The other hold ends with its own lease.
#[test]
fn each_read_hold_of_an_owner_ends_with_its_own_lease() {
    each([(true, 4_000), (false, 7_000)], async |(inner_goes, ends)| {
        let pair = pair();
        let me = pair.ours.client.owner();
        let began = Instant::now();
        let outer = enter(&*read(&pair), &me, 4_000).await;
        sleep_until(began + ms(3_000)).await;
        let entered = Instant::now();
        let inner = enter(&*read(&pair), &me, 4_000).await;
        let (goes, stays) = if inner_goes { (inner, outer) } else { (outer, inner) };
        assert_eq!(goes.unlock().await.unwrap(), Released::StillHeld(1));
        let writer = writer(&pair);
        let began = if inner_goes { began } else { entered - ms(3_000) };
        enters(pair, writer, began, ms(ends), vec![stays]).await;
    });
}

/// `testWriteLockExpiration`: a writer re-enters with a shorter lease. The inner lease ends, or is released.
#[test]
fn shorter_inner_write_lease_admits_no_other_writer() {
    each([true, false], async |unlocks| {
        let pair = pair();
        let me = pair.ours.client.owner();
        let began = Instant::now();
        let outer = enter(&*pair.mine, &me, 10_000).await;
        let inner = enter(&*pair.mine, &me, 1_000).await;
        let writer = writer(&pair);
        let mut guards = vec![outer];
        if unlocks {
            assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        } else {
            inner.lost().await;
            guards.push(inner);
        }
        for second in 1..10 {
            sleep_until(began + ms(1_000 * second)).await;
            assert!(guards[0].is_held() && !writer.is_finished(), "after {second} s");
            assert!(pair.other.try_lock().await.unwrap().is_none());
        }
        enters(pair, writer, began, ms(10_000), guards).await;
    });
}

/// `testReadWriteTTL`: the watchdog renews both halves of one owner. After the release of the write half it renews the
/// read half.
#[test]
fn watchdog_renews_both_halves_and_then_remaining_half() {
    virtually(async || {
        let pair = pair();
        let me = pair.ours.client.owner();
        let (writes, reads) = (take(&*pair.mine, &me).await, take(&*read(&pair), &me).await);
        let kept = async |halves: &[Flavour]| {
            for _ in 0..250 {
                sleep(ms(100)).await;
                for half in halves {
                    let left = lasts(&pair.server, *half, "x", &text(&me));
                    assert!(left > 19_000, "{half}: {left} ms left");
                }
            }
        };
        kept(&[Flavour::Write, Flavour::Read]).await;
        writes.unlock().await.unwrap();
        kept(&[Flavour::Read]).await;
        assert!(reads.is_held());
        let writer = writer(&pair);
        sleep(ms(1_000)).await;
        assert!(!writer.is_finished());
        let released = Instant::now();
        reads.unlock().await.unwrap();
        enters(pair, writer, released, ms(0), Vec::new()).await;
    });
}

/// `testReadLockExpirationRenewal`: fifty readers, ten at a time. Each one reads for longer than the watchdog's lease.
#[test]
fn readers_that_come_and_go_are_all_renewed() {
    virtually(async || {
        let pair = pair();
        let (room, mut readers) = (Arc::new(Semaphore::new(10)), JoinSet::new());
        for n in 0..50 {
            let client = if n % 2 == 0 { &pair.ours.client } else { &pair.theirs.client };
            let (lock, room) = (lock(client, Flavour::Read, "x"), Arc::clone(&room));
            readers.spawn(async move {
                let _place = room.acquire_owned().await.unwrap();
                let guard = lock.lock().await.unwrap();
                sleep(WATCHDOG + ms(5_000)).await;
                assert!(guard.is_held(), "reader {n}");
                guard.unlock().await.unwrap();
            });
        }
        readers.join_all().await;
        pair.ends().await;
    });
}
