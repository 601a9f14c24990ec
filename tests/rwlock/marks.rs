//! The marks of waiting writers (entries in `{name}:rwlock_waiting`). A writer that stops waiting removes its mark at
//! once, and readers proceed. `tests/sim/states/readers.rs` and `tests/sim/rwlock.rs` test that each writer has its own
//! mark with its own lifetime.

use distlock::{Client, Error, Flavour, Prefer};

use crate::rig::{HOUR, channel, cover, keys_gone, lease, marks, passes, served, unlock_all, waiter, waits};
use bed::{Bed, becomes, ends, ms, passer, rw, text};

/// A client whose writers are preferred, and whose readers yield to them without a limit.
async fn preferring(bed: &Bed) -> Client {
    bed.connect(bed.builder().configure(|options| {
        options.prefer = Prefer::Writers;
        options.max_reader_delay = HOUR;
        options.poll_cap = HOUR;
    }))
    .await
}

async fn writers_wait(bed: &Bed, count: u64) {
    becomes("marks", count, async || bed.admin.cmd::<u64>(&["ZCARD", &marks("a")]).await).await;
}

/// Readers that were held back acquire at once, long before their next poll in an hour.
async fn a_writer_that_waits_no_more_takes_its_mark_back(closes: bool) {
    rw(async |bed| {
        let (writing, reading) = (preferring(bed).await, preferring(bed).await);
        let first = reading.rw("a").read().lock().await.unwrap();
        let lock = writing.rw("a").write();
        let writer = tokio::spawn(async move { lock.lock().await.map(drop) });
        waits(bed, &writing, "a", 1).await;
        writers_wait(bed, 1).await;
        let mut readers = vec![waiter(&reading, Flavour::Read, "a")];
        if !closes {
            readers.push(waiter(&writing, Flavour::Read, "a"));
        }
        // A client subscribes after its first attempt has failed.
        let held_back =
            async || (writing.stats().waiting + reading.stats().waiting, bed.admin.numsub(&channel("a")).await);
        becomes("waiters, and listeners", (1 + readers.len(), 2), held_back).await;
        assert!(!writer.is_finished() && readers.iter().all(|reader| !reader.is_finished()));
        if closes {
            writing.shutdown(bed::PATIENCE).await.unwrap();
            let closed = ends("the writer of a client that is closed", writer).await.unwrap();
            assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
        } else {
            writer.abort();
        }
        writers_wait(bed, 0).await;
        for reader in readers {
            served("a reader", reader).await;
        }
        first.unlock().await.unwrap();
        keys_gone(bed).await;
    })
    .await;
}

bed::cases!(on two threads, a_writer_that_waits_no_more_takes_its_mark_back:
    when_its_task_is_aborted = false,
    when_its_client_closes = true,
);

/// The key gets another type while the writer waits.
#[tokio::test]
async fn failed_writer_removes_its_mark() {
    rw(async |bed| {
        let writing = bed
            .connect(bed.builder().configure(|options| {
                options.prefer = Prefer::Writers;
                options.poll_cap = ms(200);
            }))
            .await;
        let reading = bed.client().await;
        let owner = reading.owner();
        let first = lease(&reading.rw("a").read(), &owner, HOUR).await;
        let lock = writing.rw("a").write();
        let writer = tokio::spawn(async move { lock.lock().await.map(drop) });
        writers_wait(bed, 1).await;
        let _: () = bed.admin.cmd(&["SET", "a", "x"]).await;
        let failed = ends("the writer", writer).await.unwrap();
        assert!(matches!(failed, Err(Error::WrongType { .. })), "{failed:?}");
        writers_wait(bed, 0).await;
        let _: u64 = bed.admin.cmd(&["DEL", "a"]).await;
        let lost = first.unlock().await;
        assert!(matches!(lost, Err(Error::Lost { .. } | Error::NotHeld { .. })), "{lost:?}");
        let _: u64 = bed.admin.cmd(&["DEL", &cover("a", &text(&owner), 1)]).await;
    })
    .await;
}

/// Readers may be preferred by the client's option or by the lock's option.
#[tokio::test]
async fn writer_with_try_lock_or_prefer_readers_leaves_no_mark() {
    rw(async |bed| {
        let (client, prefers) = (bed.client().await, preferring(bed).await);
        let first = client.rw("a").read().lock().await.unwrap();
        assert!(prefers.rw("a").write().try_lock().await.unwrap().is_none());
        assert!(!bed.admin.exists(&marks("a")).await);
        let plain = [client.rw("a"), prefers.rw("a").prefer(Prefer::Readers)];
        let writers = plain.map(|lock| passer(lock.write()));
        waits(bed, &client, "a", 1).await;
        waits(bed, &prefers, "a", 1).await;
        assert!(!bed.admin.exists(&marks("a")).await);
        let second = prefers.rw("a").read().try_lock().await.unwrap().expect("readers join");
        let marking = passer(client.rw("a").prefer(Prefer::Writers).write());
        // This writer queues behind another writer of its process, so it has no mark yet. It gets a mark when it
        // becomes the contender.
        unlock_all([first, second]).await;
        for writer in writers.into_iter().chain([marking]) {
            ends("a writer", writer).await.unwrap();
        }
    })
    .await;
}

/// Other marks may keep the key alive. The mark of a dead writer counts until it expires.
#[tokio::test]
async fn expired_mark_holds_no_reader_back() {
    rw(async |bed| {
        let client = bed.connect(bed.builder().configure(|options| options.max_reader_delay = ms(300))).await;
        let plant = async |score: f64| {
            let _: u64 = bed.admin.cmd(&["ZADD", &marks("a"), &score.to_string(), "dead:1"]).await;
            let _: u64 = bed.admin.cmd(&["PEXPIRE", &marks("a"), "3600000"]).await;
        };
        plant(1.0).await;
        let first = client.rw("a").read().try_lock().await.unwrap().expect("nobody waits");
        plant(9e15).await;
        assert!(client.rw("a").read().try_lock().await.unwrap().is_none());
        let second = ends("the reader, which is held back", client.rw("a").read().lock()).await.unwrap();
        unlock_all([first, second]).await;
        passes("writers take no notice of marks", &client.rw("a").write()).await;
        let _: u64 = bed.admin.cmd(&["DEL", &marks("a")]).await;
    })
    .await;
}
