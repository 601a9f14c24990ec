//! The marks of writers that wait (`{name}:rwlock_waiting`): whoever waits no more takes its mark back at once, and readers
//! go on.

use distlock::{Client, Error, Prefer};

use crate::rig::{keys_gone, lease, marks, waits};
use bed::{Bed, ends, eventually, in_vain, ms, passer, rw, secs, waiter};

/// A client whose writers are preferred, and whose readers wait for them for ever.
async fn preferring(bed: &Bed) -> Client {
    bed.connect(bed.builder().prefer(Prefer::Writers).hold_back(secs(3600)).poll_cap(secs(3600))).await
}

async fn marked(bed: &Bed) -> u64 {
    bed.admin.cmd(&["ZCARD", &marks("a")]).await
}

/// Given up, dropped, aborted: the mark is gone, and a reader that was held back is in at once; on its own it would look
/// after an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_gives_up_takes_its_mark_back() {
    rw(async |bed| {
        let (writing, reading) = (preferring(bed).await, preferring(bed).await);
        for way in ["timeout", "abort", "drop", "owner"] {
            let first = reading.rw("a").read().lock().await.unwrap();
            let lock = writing.rw("a").write();
            let owner = writing.owner();
            let task = tokio::spawn(async move {
                match way {
                    "timeout" => assert!(in_vain(&lock.lock_for(secs(4)).await)),
                    "drop" => assert!(tokio::time::timeout(secs(4), lock.lock()).await.is_err()),
                    "owner" => assert!(in_vain(&owner.scope(lock.lock_for(secs(4))).await)),
                    _ => drop(lock.lock().await.unwrap()),
                }
            });
            eventually("it waits", async || marked(bed).await == 1).await;
            let readers = [waiter(reading.rw("a").read()), waiter(writing.rw("a").read())];
            waits(bed, &reading, "a", 1).await;
            if way == "abort" {
                assert!(readers.iter().all(|reader| !reader.is_finished()));
                task.abort();
            } else {
                task.await.unwrap();
            }
            eventually("its mark is gone", async || !bed.admin.exists(&marks("a")).await).await;
            for reader in readers {
                let (guard, _) = ends(way, reader).await.unwrap();
                guard.unlock().await.unwrap();
            }
            first.unlock().await.unwrap();
            keys_gone(bed).await;
        }
    })
    .await;
}

/// An error on the way: the key becomes something else while it waits.
#[tokio::test]
async fn a_writer_that_fails_takes_its_mark_back() {
    rw(async |bed| {
        let writing = bed.connect(bed.builder().prefer(Prefer::Writers).poll_cap(ms(200))).await;
        let reading = bed.client().await;
        let first = lease(&reading.rw("a").read(), &reading.owner(), secs(1)).await;
        let task = waiter_result(&writing);
        eventually("it waits", async || marked(bed).await == 1).await;
        let _: () = bed.admin.cmd(&["SET", "a", "x"]).await;
        let failed = task.await.unwrap();
        assert!(matches!(failed, Err(Error::WrongType { .. })), "{failed:?}");
        eventually("its mark is gone", async || !bed.admin.exists(&marks("a")).await).await;
        let _: u64 = bed.admin.cmd(&["DEL", "a"]).await;
        assert!(first.unlock().await.is_err());
    })
    .await;
}

fn waiter_result(client: &Client) -> tokio::task::JoinHandle<Result<(), Error>> {
    let lock = client.rw("a").write();
    tokio::spawn(async move { lock.lock().await.map(drop) })
}

/// The client of a waiting writer is shut down.
#[tokio::test]
async fn a_writer_whose_client_closes_takes_its_mark_back() {
    rw(async |bed| {
        let (writing, reading) = (preferring(bed).await, preferring(bed).await);
        let first = reading.rw("a").read().lock().await.unwrap();
        let task = waiter_result(&writing);
        eventually("it waits", async || marked(bed).await == 1).await;
        let reader = waiter(reading.rw("a").read());
        waits(bed, &reading, "a", 1).await;
        writing.shutdown(bed::PATIENCE).await.unwrap();
        assert!(matches!(task.await.unwrap(), Err(Error::Closed)));
        eventually("its mark is gone", async || !bed.admin.exists(&marks("a")).await).await;
        ends("the reader", reader).await.unwrap().0.unlock().await.unwrap();
        first.unlock().await.unwrap();
    })
    .await;
}

/// Two that wait: the one that goes leaves the other's mark.
#[tokio::test]
async fn each_writer_has_its_own_mark() {
    rw(async |bed| {
        let (one, two, reading) = (preferring(bed).await, preferring(bed).await, preferring(bed).await);
        let first = reading.rw("a").read().lock().await.unwrap();
        let writers = [waiter(one.rw("a").write()), waiter(two.rw("a").write())];
        eventually("both wait", async || marked(bed).await == 2).await;
        let reader = waiter(reading.rw("a").read());
        waits(bed, &reading, "a", 1).await;
        let [gone, staying] = writers;
        gone.abort();
        eventually("one waits", async || marked(bed).await == 1).await;
        tokio::time::sleep(ms(100)).await;
        assert!(!reader.is_finished() && !staying.is_finished());
        first.unlock().await.unwrap();
        let (guard, _) = staying.await.unwrap();
        assert!(!bed.admin.exists(&marks("a")).await && !reader.is_finished());
        guard.unlock().await.unwrap();
        reader.await.unwrap().0.unlock().await.unwrap();
    })
    .await;
}

/// Many writers of one process: one at a time speaks for all, and there is a mark as long as any waits. All are served, and
/// the reader that came after them as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_one_process_follow_each_other() {
    rw(async |bed| {
        let (writing, reading) = (preferring(bed).await, preferring(bed).await);
        let first = reading.rw("a").read().lock().await.unwrap();
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let lock = writing.rw("a").write();
                tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    tokio::time::sleep(ms(5)).await;
                    guard.unlock().await.unwrap();
                })
            })
            .collect();
        waits(bed, &writing, "a", 8).await;
        assert_eq!(marked(bed).await, 1);
        // It may come in between: a lock that is handed over in a process is not asked for, nor marked.
        let reader = passer(reading.rw("a").read());
        waits(bed, &reading, "a", 1).await;
        first.unlock().await.unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
        reader.await.unwrap();
        keys_gone(bed).await;
    })
    .await;
}

/// A writer that asks once leaves none; nor does one that prefers readers, whom nobody gives way to.
#[tokio::test]
async fn who_does_not_wait_or_prefers_readers_leaves_no_mark() {
    rw(async |bed| {
        let (client, prefers) = (bed.client().await, preferring(bed).await);
        let first = client.rw("a").read().lock().await.unwrap();
        assert!(prefers.rw("a").write().try_lock().await.unwrap().is_none());
        assert!(!bed.admin.exists(&marks("a")).await);
        // By the client's option, and by the lock's own.
        let plain = [client.rw("a"), prefers.rw("a").prefer(Prefer::Readers)];
        let writers = plain.map(|lock| passer(lock.write()));
        waits(bed, &client, "a", 1).await;
        waits(bed, &prefers, "a", 1).await;
        assert!(!bed.admin.exists(&marks("a")).await);
        let second = prefers.rw("a").read().try_lock().await.unwrap().expect("readers join");
        let marking = passer(client.rw("a").prefer(Prefer::Writers).write());
        // It queues behind the one of its process that leaves none: from its turn on it is known.
        first.unlock().await.unwrap();
        second.unlock().await.unwrap();
        for writer in writers.into_iter().chain([marking]) {
            writer.await.unwrap();
        }
    })
    .await;
}

/// Marks whose time is over count for nothing, though the key is there for others; those of the dead count until then.
#[tokio::test]
async fn old_marks_count_for_nothing() {
    rw(async |bed| {
        let client = bed.connect(bed.builder().hold_back(ms(300))).await;
        let plant = async |score: f64| {
            let _: u64 = bed.admin.cmd(&["ZADD", &marks("a"), &score.to_string(), "dead:1"]).await;
            let _: u64 = bed.admin.cmd(&["PEXPIRE", &marks("a"), "20000"]).await;
        };
        plant(1.0).await;
        let first = client.rw("a").read().try_lock().await.unwrap().expect("nobody waits");
        plant(9e15).await;
        assert!(client.rw("a").read().try_lock().await.unwrap().is_none());
        let second = ends("the reader, which is held back", client.rw("a").read().lock()).await.unwrap();
        // Writers do not mind.
        first.unlock().await.unwrap();
        second.unlock().await.unwrap();
        client.rw("a").write().try_lock().await.unwrap().expect("free").unlock().await.unwrap();
        let _: u64 = bed.admin.cmd(&["DEL", &marks("a")]).await;
    })
    .await;
}
