//! The striped lock: one resource cut into segments.

mod bed;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bed::{Bed, Counter, Numbers, eventually, idle, in_vain, ms, reentrant, secs};
use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard, NotHeld, Released, Striped};

const SEGMENTS: usize = 4;

/// Takes any segment.
async fn any(striped: &Striped) -> (usize, Guard) {
    striped.any(Acquire::new()).await.unwrap().unwrap()
}

/// A striped lock of every flavour that keeps its own kind out.
fn exclusive(client: &Client) -> Vec<Striped> {
    let flavours = Flavour::ALL.iter().filter(|flavour| **flavour != Flavour::Read);
    flavours.map(|flavour| Striped::over(client, *flavour, flavour.as_str(), SEGMENTS)).collect()
}

async fn forget_counters(bed: &Bed) {
    for key in bed.admin.keys().await.iter().filter(|key| key.starts_with("redisson_lock_token")) {
        let _: u64 = bed.admin.cmd(&["DEL", key]).await;
    }
}

/// As many holders as segments side by side, each with a segment of its own, at once; and no more.
#[tokio::test]
async fn as_many_holders_as_segments_and_no_more() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            let mut guards = Vec::new();
            let mut taken = HashSet::new();
            for n in 0..SEGMENTS {
                let (at, guard) = if n % 2 == 0 { any(&striped).await } else { any(&theirs).await };
                assert!(taken.insert(at), "{at} twice");
                assert_eq!(guard.name(), format!("{}:{at}", striped.name()));
                assert!(guard.is_held() && bed.admin.exists(guard.name()).await);
                guards.push(guard);
            }
            for lock in [&striped, &theirs] {
                assert!(lock.try_lock().await.unwrap().is_none());
                let began = Instant::now();
                let outcome = lock.lock_for(ms(60)).await;
                assert!(in_vain(&outcome), "{outcome:?}");
                assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
                assert!(lock.all().try_lock().await.unwrap().is_none());
            }
            for guard in guards {
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
            }
        }
        forget_counters(bed).await;
    })
    .await;
}

/// Readers share their segments: no end to them.
#[tokio::test]
async fn readers_share_segments() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let read = Striped::over(&client, Flavour::Read, "rw", 2);
        let write = Striped::over(&client, Flavour::Write, "rw", 2);
        let mut guards = Vec::new();
        for _ in 0..6 {
            guards.push(read.try_lock().await.unwrap().expect("shared"));
        }
        assert!(write.try_lock().await.unwrap().is_none());
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        let writing = write.all().lock().await.unwrap();
        assert!(read.try_lock().await.unwrap().is_none());
        writing.unlock().await.unwrap();
    })
    .await;
}

/// One free segment is found at one command for each that is tried; all busy: each is asked once.
#[tokio::test]
async fn it_costs_a_command_for_each_segment_that_is_tried() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = client.striped("s", SEGMENTS);
        any(&striped).await.1.unlock().await.unwrap();
        let sent = async || {
            let count = bed.admin.commandstats().await.get("evalsha").copied().unwrap_or(0);
            bed.admin.reset_stats().await;
            count
        };
        sent().await;
        let (_, first) = any(&striped).await;
        assert_eq!(sent().await, 1);
        let mut guards = vec![first];
        for n in 1..SEGMENTS {
            guards.push(any(&striped).await.1);
            assert!((1..=n as u64 + 1).contains(&sent().await));
        }
        assert!(striped.try_lock().await.unwrap().is_none());
        assert_eq!(sent().await, SEGMENTS as u64);
        // Who waits is silent.
        let waiting = striped.clone();
        let waiter = tokio::spawn(async move { any(&waiting).await });
        let listens = async || bed.admin.channels().await.len() == SEGMENTS && client.stats().waiting == SEGMENTS;
        eventually("it waits for each", secs(5), listens).await;
        tokio::time::sleep(ms(100)).await;
        sent().await;
        tokio::time::sleep(ms(400)).await;
        assert!(sent().await <= 1, "it asks while it waits");
        drop(guards);
        waiter.await.unwrap().1.unlock().await.unwrap();
    })
    .await;
}

/// Who waits has the first segment that becomes free, whichever it is; and gives back what else it got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_has_the_first_that_becomes_free() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            for freed in 0..SEGMENTS {
                let mut guards = Vec::new();
                for segment in 0..SEGMENTS {
                    guards.push(striped.segment(segment).unwrap().lock().await.unwrap());
                }
                let lock = if freed % 2 == 0 { striped.clone() } else { theirs.clone() };
                let waiting = if freed % 2 == 0 { &client } else { &other };
                let waiter = tokio::spawn(async move { any(&lock).await });
                eventually("it waits for each", secs(5), async || waiting.stats().waiting == SEGMENTS).await;
                guards.remove(freed).unlock().await.unwrap();
                let (at, guard) = tokio::time::timeout(secs(7), waiter).await.expect("never woken").unwrap();
                assert_eq!(at, freed);
                guard.unlock().await.unwrap();
                eventually("it waits no more", secs(5), async || waiting.stats().waiting == 0).await;
                for guard in guards {
                    guard.unlock().await.unwrap();
                }
            }
            // All at once: one is kept, the others are free.
            let all = striped.all().lock().await.unwrap();
            let lock = theirs.clone();
            let waiter = tokio::spawn(async move { any(&lock).await });
            eventually("it waits for each", secs(5), async || other.stats().waiting == SEGMENTS).await;
            all.unlock().await.unwrap();
            let (at, guard) = tokio::time::timeout(secs(7), waiter).await.expect("never woken").unwrap();
            for n in (0..SEGMENTS).filter(|n| *n != at) {
                let free = async || !striped.segment(n).unwrap().is_locked().await.unwrap();
                eventually("the others are free", secs(3), free).await;
            }
            guard.unlock().await.unwrap();
            idle(&client).await;
            idle(&other).await;
        }
        forget_counters(bed).await;
    })
    .await;
}

/// A key's segment is the same for ever: other processes, and other versions, have agreed to it.
#[tokio::test]
async fn a_keys_segment_never_changes() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let of = |segments: usize, key: &str| client.striped("x", segments).of(key).unwrap();
        let keys = ["", "a", "b", "order:1", "order:2", "ключ", "a rather long key, longer than any word"];
        let golden: Vec<_> = [2, 8, 1_000].map(|n| keys.map(|key| of(n, key))).to_vec();
        assert_eq!(golden, GOLDEN, "other numbers than before");
        let striped = client.striped("other", 8);
        assert_eq!(striped.of([0_u8, 255]), Striped::over(&client, Flavour::Fair, "x", 8).of([0_u8, 255]));
        // Every key has one, and they are spread.
        let mut seen = [0_u32; 8];
        for n in 0..8_000 {
            seen[striped.of(format!("key {n}")).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert_eq!(client.striped("x", 1).of("a"), Some(0));
        assert_eq!(client.striped("x", 0).of("a"), None);
    })
    .await;
}

const GOLDEN: [[usize; 7]; 3] = [[0, 0, 1, 0, 1, 1, 1], [4, 4, 3, 2, 3, 5, 5], [700, 300, 179, 906, 331, 573, 133]];

/// All of them exclude any, and any excludes all, over every flavour.
#[tokio::test]
async fn all_and_any_exclude_each_other() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (striped, theirs) in exclusive(&client).into_iter().zip(exclusive(&other)) {
            let all = striped.all().lock().await.unwrap();
            assert_eq!(all.members().len(), SEGMENTS);
            assert!(theirs.try_lock().await.unwrap().is_none());
            assert!(theirs.segment(2).unwrap().try_lock().await.unwrap().is_none());
            all.unlock().await.unwrap();
            let (_, one) = any(&theirs).await;
            assert!(striped.all().try_lock().await.unwrap().is_none());
            let lock = striped.all();
            let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
            eventually("it waits", secs(5), async || client.stats().waiting > 0).await;
            one.unlock().await.unwrap();
            let all = tokio::time::timeout(secs(7), waiter).await.expect("never woken").unwrap();
            all.unlock().await.unwrap();
            idle(&client).await;
            idle(&other).await;
        }
        forget_counters(bed).await;
    })
    .await;
}

/// Redis Cluster's slot of a key.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    });
    crc % 16_384
}

/// In a cluster its segments lie in slots of their own; with a hash tag, in one.
#[tokio::test]
async fn segments_are_spread_over_the_slots() {
    reentrant(async |bed| {
        assert_eq!((slot("foo"), slot("123456789"), slot("{user1000}.following")), (12_182, 12_739, slot("user1000")));
        let client = bed.client().await;
        let slots = |name: &str| -> HashSet<u16> {
            let segments = client.striped(name, 8);
            (0..8).map(|n| slot(segments.segment(n).unwrap().name())).collect()
        };
        for name in ["tickets", "a", "orders:42", "x{", "{}{one}"] {
            assert!(slots(name).len() >= 6, "{name}: {:?}", slots(name));
        }
        for (name, tag) in [("tickets{one}", "one"), ("{one}tickets", "one"), ("x{{one}", "{one")] {
            assert_eq!(slots(name), [slot(tag)].into(), "{name}");
        }
    })
    .await;
}

/// No segments: refused, whatever is asked. Impossible names and leases too.
#[tokio::test]
async fn what_cannot_work_is_refused() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let me = client.owner();
        let none = client.striped("x", 0);
        assert!(none.is_empty() && none.len() == 0 && none.segment(0).is_none());
        let config = |error: Error| assert!(matches!(error, Error::Config { .. }), "{error:?}");
        config(none.try_lock().await.unwrap_err());
        config(none.lock().await.unwrap_err());
        config(none.any(Acquire::new().wait(secs(1))).await.unwrap_err());
        config(none.state().await.unwrap_err());
        config(none.force_unlock().await.unwrap_err());
        config(none.release(&me).await.unwrap_err());
        config(none.all().lock().await.unwrap_err());
        config(client.striped("", 3).try_lock().await.unwrap_err());
        let long = client.striped(&"x".repeat(5_000), 3);
        config(long.try_lock().await.unwrap_err());
        config(long.lock().await.unwrap_err());
        config(client.striped("x", 3).lock_leased(Duration::ZERO).await.unwrap_err());
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// State, force and release are of all segments together.
#[tokio::test]
async fn what_is_asked_of_all_segments() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let striped = client.striped("s", SEGMENTS);
        let (me, you) = (client.owner(), other.owner());
        assert!(!striped.is_locked().await.unwrap() && striped.remaining_ttl().await.unwrap().is_none());
        let one = striped.acquire(Acquire::new().owner(&me).lease(secs(5))).await.unwrap().unwrap();
        let two = striped.acquire(Acquire::new().owner(&you).lease(secs(9))).await.unwrap().unwrap();
        assert_ne!(one.name(), two.name());
        let state = striped.state().await.unwrap();
        assert_eq!(state.holders.len(), 2);
        assert_eq!((state.hold_count(&me), state.hold_count(&you)), (1, 1));
        assert!(state.remaining.is_some_and(|left| left > secs(7) && left <= secs(9)), "{state:?}");
        // One owner in several segments, or in one several times: so often it holds.
        let at: usize = one.name().rsplit_once(':').unwrap().1.parse().unwrap();
        let again = striped.segment(at).unwrap().acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        assert_eq!(striped.hold_count(&me).await.unwrap(), 2);
        assert_eq!(again.unlock().await.unwrap(), Released::StillHeld(1));
        // Given away, it is released wherever it is, by another client.
        let me = one.into_owner();
        assert_eq!(other.striped("s", SEGMENTS).release(&me).await.unwrap(), Released::Free);
        let error = striped.release(&me).await.unwrap_err();
        let told = matches!(&error, Error::NotHeld { name, why: NotHeld::Never } if &**name == "s");
        assert!(told, "{error:?}");
        assert_eq!(bed.admin.keys().await, [two.name()]);
        // By force: all.
        let third = any(&striped).await.1;
        assert!(striped.force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(!striped.force_unlock().await.unwrap());
        assert!(third.unlock().await.is_err() && two.unlock().await.is_err());
    })
    .await;
}

/// Not to come in again: who holds any segment is told so at once, and gets no other one.
#[tokio::test]
async fn not_to_come_in_again() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = client.striped("s", SEGMENTS);
        let me = client.owner();
        let alone = || Acquire::new().owner(&me).not_reentrant();
        let guard = striped.acquire(alone()).await.unwrap().unwrap();
        for wait in [ms(0), secs(20)] {
            let began = Instant::now();
            let error = striped.acquire(alone().wait(wait)).await.unwrap_err();
            assert!(matches!(error, Error::WouldDeadlock { .. }), "{error:?}");
            assert!(began.elapsed() < secs(5));
        }
        assert_eq!(bed.admin.keys().await, [guard.name()]);
        assert_eq!(striped.hold_count(&me).await.unwrap(), 1);
        // Others come in beside it.
        any(&striped).await.1.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        striped.acquire(alone()).await.unwrap().unwrap().unlock().await.unwrap();
    })
    .await;
}

/// An error of one segment that will not pass is told; one that is busy forever is not in the way of the others.
#[tokio::test]
async fn a_segment_that_is_no_lock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let () = bed.admin.cmd(&["SET", "s:1", "x"]).await;
        let striped = client.striped("s", 2);
        let mut errors = 0;
        for _ in 0..4 {
            match striped.try_lock().await {
                Ok(guard) => drop(guard.expect("segment 0 is free").unlock().await.unwrap()),
                Err(error) => {
                    assert!(matches!(error, Error::WrongType { .. }), "{error:?}");
                    errors += 1;
                }
            }
        }
        assert_eq!(errors, 2, "by turns it begins there");
        let () = bed.admin.cmd(&["DEL", "s:1"]).await;
    })
    .await;
}

/// Dropped while it waits for all of them: no key, no place in a queue, no subscription stays; and again at random points.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_point_it_leaves_nothing() {
    reentrant(async |bed| {
        let client = bed.connect(bed.builder().subscription_linger(ms(100))).await;
        let holder = bed.client().await;
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Spin] {
            let striped = Striped::over(&client, flavour, "s", SEGMENTS);
            let all = Striped::over(&holder, flavour, "s", SEGMENTS).all().lock().await.unwrap();
            for _ in 0..5 {
                let lock = striped.clone();
                let waiter = tokio::spawn(async move { any(&lock).await });
                eventually("it waits for each", secs(5), async || client.stats().waiting == SEGMENTS).await;
                waiter.abort();
                idle(&client).await;
                assert_eq!(bed.admin.keys().await.len(), SEGMENTS, "no queue");
            }
            all.unlock().await.unwrap();
            let tasks: Vec<_> = (0..8)
                .map(|n| {
                    let striped = striped.clone();
                    tokio::spawn(async move {
                        let mut numbers = Numbers::new(n + 1);
                        for _ in 0..60 {
                            let pause = Duration::from_micros(numbers.below(4_000));
                            match tokio::time::timeout(pause, striped.any(Acquire::new())).await {
                                Ok(Ok(Some((_, guard)))) if numbers.below(2) == 0 => drop(guard),
                                Ok(Ok(Some((_, guard)))) => drop(guard.unlock().await.unwrap()),
                                Ok(Ok(None)) => panic!("no wait ran out"),
                                Ok(Err(error)) => panic!("{error}"),
                                Err(_) => {}
                            }
                        }
                        let (_, guard) = tokio::time::timeout(secs(20), any(&striped)).await.expect("stuck");
                        guard.unlock().await.unwrap();
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            idle(&client).await;
            eventually("no key is left", secs(5), async || bed.admin.keys().await.is_empty()).await;
            eventually("no name leaves a trace", secs(5), async || client.stats().names == 0).await;
        }
        eventually("no subscription is left", secs(5), async || bed.admin.channels().await.is_empty()).await;
    })
    .await;
}

/// 2 000 sections of 16 tasks of two clients over 8 segments: never two in one, none is left out, and all are used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_sections_of_sixteen_tasks() {
    const EACH: u64 = 125;
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let counters: Arc<Vec<Counter>> = Arc::new((0..8).map(|_| Counter::default()).collect());
        let began = Instant::now();
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let (striped, counters) = (clients[n % 2].striped("tickets", 8), Arc::clone(&counters));
                tokio::spawn(async move {
                    let mut longest = Duration::ZERO;
                    for _ in 0..EACH {
                        let began = Instant::now();
                        let (at, guard) = tokio::time::timeout(secs(20), any(&striped)).await.expect("stuck");
                        longest = longest.max(began.elapsed());
                        counters[at].bump(Duration::ZERO).await;
                        guard.unlock().await.unwrap();
                    }
                    longest
                })
            })
            .collect();
        let mut longest = Duration::ZERO;
        for task in tasks {
            longest = longest.max(task.await.unwrap());
        }
        let each: Vec<_> = counters.iter().map(Counter::get).collect();
        println!("2 000 sections in {:?}, the longest wait {longest:?}, by segment {each:?}", began.elapsed());
        assert_eq!(each.iter().sum::<u64>(), 16 * EACH);
        assert!(each.iter().all(|count| *count > 50), "{each:?}");
        assert!(longest < secs(5), "{longest:?}");
    })
    .await;
}

/// By key: who is in a key's segment is alone with it, and others are beside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_key() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let counters: Arc<Vec<Counter>> = Arc::new((0..20).map(|_| Counter::default()).collect());
        let tasks: Vec<_> = (0..8_usize)
            .map(|n| {
                let (striped, counters) = (clients[n % 2].striped("map", 8), Arc::clone(&counters));
                tokio::spawn(async move {
                    let mut numbers = Numbers::new(n as u64);
                    for _ in 0..40 {
                        let key = numbers.below(20) as usize;
                        let at = striped.of(format!("key {key}")).unwrap();
                        let guard = striped.segment(at).unwrap().lock().await.unwrap();
                        counters[key].bump(Duration::ZERO).await;
                        guard.unlock().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(counters.iter().map(Counter::get).sum::<u64>(), 8 * 40);
    })
    .await;
}

/// As a `DistLock` among others: chosen at run time, leased, waited for.
#[tokio::test]
async fn as_any_other_lock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock: Arc<dyn DistLock> = Arc::new(client.striped("s", 2));
        assert_eq!(lock.name(), "s");
        let one = lock.lock().await.unwrap();
        let two = lock.lock_leased(ms(300)).await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        // The second one's lease ends.
        let began = Instant::now();
        let three = lock.lock_for(secs(10)).await.unwrap().expect("a lease has ended");
        assert!(began.elapsed() < secs(3), "{:?}", began.elapsed());
        assert_eq!(three.name(), two.name());
        assert!(!two.is_held());
        drop(two);
        one.unlock().await.unwrap();
        three.unlock().await.unwrap();
    })
    .await;
}
