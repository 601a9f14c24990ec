//! `Prefer::Writers`: a writer that waits holds back readers that come after it, for a while, and nobody who is in already.

use std::time::Duration;

use distlock::{Acquire, Client, Prefer};

use crate::peer::Peer;
use crate::rig::{keys_gone, marks, waits};
use bed::cost::sent;
use bed::{Bed, ends, enter, eventually, ms, passer, rw, secs, waiter};

/// Far longer than anybody is held back in these tests unless by mistake.
const LONG: Duration = secs(3600);

/// Whoever comes for reading in such a client is held back for so long.
async fn patient(bed: &Bed, hold_back: Duration) -> Client {
    bed.connect(bed.builder().hold_back(hold_back)).await
}

async fn marked(bed: &Bed, name: &str) {
    eventually("a writer is known to wait", async || bed.admin.exists(&marks(name)).await).await;
}

/// Readers of other clients, and of its own; whatever they prefer themselves, and however they ask.
#[tokio::test]
async fn new_readers_are_held_back() {
    rw(async |bed| {
        let own = bed.connect(bed.builder().prefer(Prefer::Writers).hold_back(LONG)).await;
        let (client, other) = (patient(bed, LONG).await, patient(bed, LONG).await);
        let me = client.owner();
        let first = enter(&client.rw("a").read(), &me).await;
        let writer = waiter(own.rw("a").write());
        marked(bed, "a").await;
        waits(bed, &own, "a", 1).await;
        for reader in [&own, &client, &other] {
            for prefer in [Prefer::Readers, Prefer::Writers] {
                let lock = reader.rw("a").prefer(prefer).read();
                assert!(lock.try_lock().await.unwrap().is_none());
                assert!(lock.lock_for(ms(50)).await.unwrap().is_none());
                let leased = Acquire::new().owner(&reader.owner()).lease(secs(1)).wait(ms(50));
                assert!(lock.acquire(leased).await.unwrap().is_none());
            }
        }
        // Who is in comes in again, as often as it likes.
        for _ in 0..3 {
            let again = Acquire::new().owner(&me).wait(ms(0));
            client.rw("a").read().acquire(again).await.unwrap().expect("in already").unlock().await.unwrap();
        }
        let waiting = [waiter(other.rw("a").read()), waiter(own.rw("a").read()), waiter(other.rw("a").read())];
        waits(bed, &other, "a", 2).await;
        first.unlock().await.unwrap();
        let (writing, _) = ends("the writer", writer).await.unwrap();
        assert!(!bed.admin.exists(&marks("a")).await, "it waits no more");
        assert!(waiting.iter().all(|reader| !reader.is_finished()));
        writing.unlock().await.unwrap();
        for reader in waiting {
            ends("a reader", reader).await.unwrap().0.unlock().await.unwrap();
        }
    })
    .await;
}

/// Who writes may read, although another writer waits; and after its downgrade again.
#[tokio::test]
async fn who_writes_is_not_held_back() {
    rw(async |bed| {
        let client = bed.connect(bed.builder().prefer(Prefer::Writers).hold_back(LONG)).await;
        let (other, me) = (bed.connect(bed.builder().prefer(Prefer::Writers)).await, client.owner());
        let lock = client.rw("a");
        let writing = enter(&lock.write(), &me).await;
        let writer = waiter(other.rw("a").write());
        marked(bed, "a").await;
        let again = Acquire::new().owner(&me).wait(ms(0));
        let reading = lock.read().acquire(again.clone()).await.unwrap().expect("it writes");
        let more = writing.downgrade().await.unwrap();
        let third = lock.read().acquire(again).await.unwrap().expect("it reads");
        // Readers that come are held back by the one that waits still.
        assert!(lock.read().try_lock().await.unwrap().is_none());
        for guard in [reading, more, third] {
            assert!(!writer.is_finished());
            guard.unlock().await.unwrap();
        }
        writer.await.unwrap().0.unlock().await.unwrap();
    })
    .await;
}

/// For `hold_back` of the reader's client, and no longer; a wait that is shorter runs out.
#[tokio::test]
async fn nobody_is_held_back_for_longer_than_told() {
    rw(async |bed| {
        let own = bed.connect(bed.builder().prefer(Prefer::Writers)).await;
        let first = own.rw("a").read().lock().await.unwrap();
        let writer = waiter(own.rw("a").write());
        marked(bed, "a").await;
        let bounds = [ms(0), ms(300), ms(700)].map(async |hold_back| {
            let client = patient(bed, hold_back).await;
            let guard = ends("a reader", client.rw("a").read().lock()).await.unwrap();
            // As long as it is in, its owner comes in again.
            let again = Acquire::new().owner(guard.owner()).wait(ms(0));
            client.rw("a").read().acquire(again).await.unwrap().expect("in already").unlock().await.unwrap();
            guard.unlock().await.unwrap();
            if !hold_back.is_zero() {
                // Many at a time, of one client: they are held back side by side.
                let readers: Vec<_> = (0..10).map(|_| waiter(client.rw("a").read())).collect();
                for reader in readers {
                    ends("one of ten readers", reader).await.unwrap().0.unlock().await.unwrap();
                }
                let wait = Acquire::new().wait(hold_back / 3);
                assert!(client.rw("a").read().acquire(wait).await.unwrap().is_none());
            }
        });
        futures::future::join_all(bounds).await;
        assert!(!writer.is_finished());
        first.unlock().await.unwrap();
        writer.await.unwrap().0.unlock().await.unwrap();
    })
    .await;
}

/// A task that reads twice under two owners, with a writer that waits in between: held up for a while, never for good.
#[tokio::test]
async fn nested_reads_around_a_waiting_writer_do_not_deadlock() {
    rw(async |bed| {
        for known in [false, true] {
            let client = bed.connect(bed.builder().prefer(Prefer::Writers)).await;
            let other = bed.connect(bed.builder().prefer(Prefer::Writers)).await;
            let lock = client.rw("a").read();
            let outer = lock.lock().await.unwrap();
            let writer = waiter(other.rw("a").write());
            marked(bed, "a").await;
            let inner = if known { enter(&lock, &client.owner()).await } else { lock.lock().await.unwrap() };
            assert!(!writer.is_finished());
            inner.unlock().await.unwrap();
            outer.unlock().await.unwrap();
            writer.await.unwrap().0.unlock().await.unwrap();
        }
    })
    .await;
}

/// A process that was killed while its writer waited: its mark holds nobody back for longer than a live one's, and is gone
/// when its own time is over.
#[tokio::test]
async fn a_dead_writers_mark_holds_nobody_back_for_long() {
    rw(async |bed| {
        let client = patient(bed, ms(400)).await;
        let first = client.rw("a").read().lock().await.unwrap();
        let mut peer = Peer::start(bed, &[("WRITERS", "1"), ("POLL_CAP", "1000")]).await;
        peer.take("write", "a", 1, 1);
        marked(bed, "a").await;
        peer.waits(1).await;
        // A live one sets its mark anew: it outlives the first one.
        tokio::time::sleep(ms(2_300)).await;
        assert!(bed.admin.exists(&marks("a")).await);
        peer.child.kill9();
        let second = ends("a reader behind the mark of the dead", client.rw("a").read().lock()).await.unwrap();
        let gone = async || !bed.admin.exists(&marks("a")).await;
        eventually("the mark runs out", gone).await;
        let third = client.rw("a").read().try_lock().await.unwrap().expect("nobody waits");
        for guard in [first, second, third] {
            guard.unlock().await.unwrap();
        }
        keys_gone(bed).await;
    })
    .await;
}

/// W2: who waits sleeps, in both halves: writers behind a reader that is renewed, readers that are held back by them. A look
/// a poll cap, and none for the others of a process.
#[tokio::test]
async fn who_waits_sleeps() {
    rw(async |bed| {
        let holder = bed.still_client().await;
        let builder = || bed.still_builder().prefer(Prefer::Writers).hold_back(LONG).poll_cap(LONG);
        let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
        let first = holder.rw("a").read().lock().await.unwrap();
        let writers: Vec<_> = (0..10).map(|n| passer(clients[n % 2].rw("a").write())).collect();
        marked(bed, "a").await;
        let readers: Vec<_> = (0..10).map(|n| passer(clients[n % 2].rw("a").read())).collect();
        for client in &clients {
            waits(bed, client, "a", 10).await;
        }
        bed.admin.reset_stats().await;
        // Nobody's poll comes within the hour, nor does a message.
        tokio::time::sleep(ms(500)).await;
        let stats = sent(bed).await;
        assert_eq!(stats.get("evalsha"), None, "{stats:?}");
        first.unlock().await.unwrap();
        for task in writers.into_iter().chain(readers) {
            task.await.unwrap();
        }
    })
    .await;
}
