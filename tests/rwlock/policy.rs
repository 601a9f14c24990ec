//! `Prefer::Writers`: a waiting writer holds later readers back for up to `max_reader_delay`, but never an owner that
//! already holds the lock. `tests/sim/rwlock.rs` asserts the exact time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Acquire, Client, Flavour, Prefer};
use distlock_support::Numbers;

use crate::rig::{HOUR, Inside, granted, marked, marks, passes, served, unlock_all, waiter, waits};
use bed::{Bed, PATIENCE, ends, enter, eventually, in_vain, ms, passer, rw, secs};

/// A client whose readers are held back for this long.
async fn patient(bed: &Bed, max_reader_delay: Duration) -> Client {
    bed.connect(bed.builder().configure(|options| {
        options.max_reader_delay = max_reader_delay;
        options.poll_cap = ms(300);
    }))
    .await
}

/// A client whose writers are preferred. Their marks last for hours.
async fn preferring(bed: &Bed) -> Client {
    bed.connect(bed.builder().configure(|options| (options.prefer, options.poll_cap) = (Prefer::Writers, HOUR))).await
}

/// A waiting writer holds back readers of its own and of other clients, whatever their preference and way to acquire.
/// Readers with a `max_reader_delay` of zero are not held back.
#[tokio::test]
async fn new_readers_are_held_back_by_waiting_writer() {
    rw(async |bed| {
        let own = bed
            .connect(bed.builder().configure(|options| {
                options.prefer = Prefer::Writers;
                options.max_reader_delay = HOUR;
                options.poll_cap = HOUR;
            }))
            .await;
        let (client, other) = (patient(bed, HOUR).await, patient(bed, HOUR).await);
        let me = client.owner();
        let first = enter(&client.rw("a").read(), &me).await;
        let writer = waiter(&own, Flavour::Write, "a");
        marked(bed, "a").await;
        waits(bed, &own, "a", 1).await;
        for reader in [&own, &client, &other] {
            for prefer in [Prefer::Readers, Prefer::Writers] {
                let lock = reader.rw("a").prefer(prefer).read();
                assert!(lock.try_lock().await.unwrap().is_none());
                let waited = lock.lock_for(ms(50)).await;
                assert!(in_vain(&waited), "lock_for of a reader behind a waiting writer: {waited:?}");
                let leased = Acquire::new().owner(&reader.owner()).lease(secs(1)).wait(ms(50));
                let waited = lock.acquire(leased).await;
                assert!(in_vain(&waited), "acquire of a reader behind a waiting writer: {waited:?}");
            }
        }
        let hasty = patient(bed, ms(0)).await.rw("a").read();
        ends("a reader that yields to nobody", hasty.lock()).await.unwrap().unlock().await.unwrap();
        // A holder may always re-enter.
        for _ in 0..3 {
            let again = Acquire::new().owner(&me).wait(ms(0));
            client.rw("a").read().acquire(again).await.unwrap().expect("in already").unlock().await.unwrap();
        }
        let waiting = [&other, &own, &other].map(|client| waiter(client, Flavour::Read, "a"));
        waits(bed, &other, "a", 2).await;
        first.unlock().await.unwrap();
        let writing = granted("the writer", writer).await;
        assert!(!bed.admin.exists(&marks("a")).await, "it waits no more");
        assert!(waiting.iter().all(|reader| !reader.is_finished()));
        writing.unlock().await.unwrap();
        for reader in waiting {
            served("a reader", reader).await;
        }
    })
    .await;
}

/// A writer may read although another writer waits, also after its downgrade.
#[tokio::test]
async fn owner_of_write_hold_is_not_held_back() {
    rw(async |bed| {
        let client = bed
            .connect(bed.builder().configure(|options| {
                options.prefer = Prefer::Writers;
                options.max_reader_delay = HOUR;
            }))
            .await;
        let (other, me) = (preferring(bed).await, client.owner());
        let lock = client.rw("a");
        let writing = enter(&lock.write(), &me).await;
        let writer = waiter(&other, Flavour::Write, "a");
        marked(bed, "a").await;
        let again = Acquire::new().owner(&me).wait(ms(0));
        let reading = lock.read().acquire(again.clone()).await.unwrap().expect("it writes");
        let more = writing.downgrade().await.unwrap();
        let third = lock.read().acquire(again).await.unwrap().expect("it reads");
        // The waiting writer holds new readers back.
        assert!(lock.read().try_lock().await.unwrap().is_none());
        for guard in [reading, more, third] {
            assert!(!writer.is_finished());
            guard.unlock().await.unwrap();
        }
        served("the writer", writer).await;
    })
    .await;
}

/// A live writer renews its mark (its entry among the waiting writers). The mark of a writer that is cut off expires two
/// poll caps after it was set. Until then, it holds each reader back for up to `max_reader_delay`.
#[tokio::test]
async fn mark_of_writer_that_is_cut_off_expires_and_admits_readers() {
    rw(async |bed| {
        let (client, endless) = (patient(bed, ms(400)).await, patient(bed, HOUR).await);
        let first = client.rw("a").read().lock().await.unwrap();
        let proxy = bed.proxy();
        let preferring = bed::builder(&proxy.url()).configure(|options| {
            options.prefer = Prefer::Writers;
            options.poll_cap = secs(1);
        });
        let own = bed.connect(preferring.watchdog(HOUR).command_timeout(PATIENCE)).await;
        let writer = waiter(&own, Flavour::Write, "a");
        marked(bed, "a").await;
        // The latest end of a mark, in ms of the server's clock. It is an earlier time if the writer was suspended and
        // has no mark now.
        let end = async || -> f64 {
            let latest: Vec<(String, f64)> = bed.admin.cmd(&["ZREVRANGE", &marks("a"), "0", "0", "WITHSCORES"]).await;
            latest.first().map_or(0.0, |(_, end)| *end)
        };
        let first_end = end().await;
        eventually("the writer renews its mark", async || end().await > first_end).await;
        proxy.blackhole(true);
        let held_back = waiter(&endless, Flavour::Read, "a");
        let second = ends("a reader behind the mark", client.rw("a").read().lock()).await.unwrap();
        let third = granted("a reader that waits until the mark runs out", held_back).await;
        eventually("the mark runs out", async || !bed.admin.exists(&marks("a")).await).await;
        passes("nobody waits", &endless.rw("a").read()).await;
        unlock_all([first, second, third]).await;
        proxy.blackhole(false);
        served("the writer, which is connected again", writer).await;
    })
    .await;
}

/// W2 (`tests/README.md`): writers wait behind a reader, and hold readers back. None of these waiters sends a command.
#[tokio::test]
async fn waiters_send_no_commands_until_woken() {
    rw(async |bed| {
        let holder = bed.still_client().await;
        let builder = || {
            bed.still_builder().configure(|options| {
                options.prefer = Prefer::Writers;
                options.max_reader_delay = HOUR;
            })
        };
        let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
        let first = holder.rw("a").read().lock().await.unwrap();
        let writers: Vec<_> = (0..10).map(|n| passer(clients[n % 2].rw("a").write())).collect();
        marked(bed, "a").await;
        let readers: Vec<_> = (0..10).map(|n| passer(clients[n % 2].rw("a").read())).collect();
        for client in &clients {
            waits(bed, client, "a", 10).await;
        }
        // Of all writers of a process, only the contender (the waiter that has the turn) has a mark.
        assert_eq!(bed.admin.cmd::<u64>(&["ZCARD", &marks("a")]).await, 2);
        bed.admin.reset_stats().await;
        let scripts = async || bed.admin.calls("evalsha").await;
        let nothing_sent = async || {
            let before = scripts().await;
            tokio::time::sleep(ms(500)).await;
            scripts().await == before
        };
        eventually("waiters send nothing for half a second", nothing_sent).await;
        // The next poll is an hour away, and no message arrives. In each client, one waiter of each half attempts again
        // when its client has subscribed.
        let scripts = scripts().await;
        assert!(scripts <= 4, "{scripts} scripts of waiters that sleep");
        first.unlock().await.unwrap();
        for task in writers.into_iter().chain(readers) {
            ends("a waiter", task).await.unwrap();
        }
    })
    .await;
}

/// #5379: 50 readers of two clients read again and again for some ms each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preferred_writer_is_not_starved_by_stream_of_readers() {
    rw(async |bed| {
        let clients = [preferring(bed).await, preferring(bed).await, preferring(bed).await];
        let (stop, reads, inside): (Arc<AtomicBool>, Arc<AtomicU64>, Arc<Inside>) = Default::default();
        let stream: Vec<_> = (0..50)
            .map(|n| {
                let lock = clients[n % 2].rw("a").read();
                let (stop, reads, inside) = (Arc::clone(&stop), Arc::clone(&reads), Arc::clone(&inside));
                let mut numbers = Numbers::new(n as u64);
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().await.unwrap();
                        inside.read(ms(10 + numbers.below(20))).await;
                        guard.unlock().await.unwrap();
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let lock = clients[2].rw("a").write();
        for _ in 0..30 {
            let guard = ends("the writer", lock.lock()).await.unwrap();
            inside.write(ms(1)).await;
            guard.unlock().await.unwrap();
            // Waits until the readers are back at full load.
            let before = reads.load(Ordering::Relaxed);
            eventually("readers go on", async || reads.load(Ordering::Relaxed) >= before + 50).await;
        }
        stop.store(true, Ordering::Relaxed);
        for reader in stream {
            ends("a reader of the stream", reader).await.unwrap();
        }
    })
    .await;
}
