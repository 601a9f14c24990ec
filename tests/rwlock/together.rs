//! #1542, RW4: when a write hold ends, all waiting readers of all processes acquire together. When the last read hold
//! ends, a waiting writer acquires.

use std::time::Duration;

use distlock::{Client, Error, Flavour, Guard, Lost, Released};

use crate::rig::{granted, keys_gone, lease, served, sweep_covers, unlock_all, waiter, waits};
use bed::{Bed, ends, enter, rw, secs, with_longer_waits};

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Unlock,
    Downgrade,
    /// Unlocks the write half. The owner also reads at this client, and continues to read.
    GoesOnReading(usize),
    /// A release by owner, at this client.
    Release(usize),
    /// Force by a client that neither holds nor waits.
    Force,
    Lease,
}

const READS_END: [End; 4] = [End::Unlock, End::Release(0), End::Release(1), End::Force];

/// Three clients that never poll, so that only a message or the end of a lease wakes their waiters.
async fn clients(bed: &Bed) -> [Client; 3] {
    [bed.still_client().await, bed.still_client().await, bed.still_client().await]
}

/// Ends the hold. Returns its owner's remaining guards.
async fn end(clients: &[Client; 3], how: End, half: Flavour, guard: Guard, reading: Option<Guard>) -> Vec<Guard> {
    let lock = |n: usize| clients[n].lock(half, "a");
    match how {
        End::Unlock => assert_eq!(guard.unlock().await.unwrap(), Released::Free),
        End::Downgrade => return vec![guard.downgrade().await.unwrap()],
        End::GoesOnReading(_) => assert_eq!(guard.unlock().await.unwrap(), Released::Free),
        End::Release(by) => {
            let owner = guard.into_owner();
            assert_eq!(lock(by).release(&owner).await.unwrap(), Released::Free);
        }
        End::Force => {
            assert!(lock(2).force_unlock().await.unwrap());
            let lost = guard.unlock().await;
            assert!(matches!(lost, Err(Error::Lost { .. } | Error::NotHeld { .. })), "{lost:?}");
        }
        End::Lease => {
            ends("the lease", guard.lost()).await;
            let lost = guard.unlock().await;
            assert!(matches!(lost, Err(Error::Lost { why: Lost::Expired, .. })), "{lost:?}");
        }
    }
    reading.into_iter().collect()
}

/// `testWriteRead`, `…DiffThreadsWRR`: twenty readers wait, half of them in the writer's own client.
async fn end_of_write_hold_admits_all_readers(how: End) {
    rw(async |bed| {
        let clients = clients(bed).await;
        if how == End::Lease {
            with_longer_waits(secs(2), async |time| readers_come_in(bed, &clients, how, false, time).await).await;
            return;
        }
        for known in [false, true, false, true] {
            let in_time = readers_come_in(bed, &clients, how, known, secs(3600)).await;
            assert!(in_time.is_some(), "the hold of the writer ended before its readers waited");
        }
    })
    .await;
}

/// Returns `None` if the write hold, with a lease of `time`, ended before all readers waited for it.
async fn readers_come_in(bed: &Bed, clients: &[Client; 3], how: End, known: bool, time: Duration) -> Option<()> {
    let (lock, me) = (clients[0].rw("a"), clients[0].owner());
    if known {
        // Marks the owner as shared, so only the server knows the owner's holds.
        drop(me.to_string());
    }
    let writing = lease(&lock.write(), &me, time).await;
    let reading = match how {
        End::GoesOnReading(by) => Some(enter(&clients[by].rw("a").read(), &me).await),
        _ => None,
    };
    let readers: Vec<_> = (0..20).map(|n| waiter(&clients[n % 2], Flavour::Read, "a")).collect();
    let all_wait = async {
        waits(bed, &clients[0], "a", 10).await;
        waits(bed, &clients[1], "a", 10).await;
    };
    tokio::select! {
        _ = writing.lost() => {}
        () = all_wait => {}
    }
    let in_time = writing.is_held();
    let mut inside = end(clients, how, Flavour::Write, writing, reading).await;
    for reader in readers {
        inside.push(granted("a reader that leaves when all are in", reader).await);
    }
    assert!(inside.iter().all(Guard::is_held), "side by side");
    assert!(clients[2].rw("a").write().try_lock().await.unwrap().is_none(), "a writer beside readers");
    unlock_all(inside).await;
    keys_gone(bed).await;
    in_time.then_some(())
}

bed::cases!(on two threads, end_of_write_hold_admits_all_readers:
    by_unlock = End::Unlock,
    by_downgrade = End::Downgrade,
    by_unlock_of_an_owner_that_reads_on = End::GoesOnReading(0),
    by_unlock_of_an_owner_that_reads_on_elsewhere = End::GoesOnReading(1),
    by_release_by_owner = End::Release(0),
    by_release_by_owner_elsewhere = End::Release(1),
    by_force = End::Force,
    by_the_end_of_its_lease = End::Lease,
);

/// Each client has a reader. The first reader's release admits no waiter. The last reader's release admits a writer of
/// either client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_reader_admits_writer_however_its_hold_ends() {
    rw(async |bed| {
        let clients = clients(bed).await;
        for (round, how) in (0..6).flat_map(|round| READS_END.map(|how| (round, how))) {
            let first = clients[1].rw("a").read().lock().await.unwrap();
            let last = clients[0].rw("a").read().lock().await.unwrap();
            let waiting = &clients[round % 2];
            let writer = waiter(waiting, Flavour::Write, "a");
            waits(bed, waiting, "a", 1).await;
            first.unlock().await.unwrap();
            assert!(!writer.is_finished(), "{how:?}: a writer beside a reader");
            end(&clients, how, Flavour::Read, last, None).await;
            served(&format!("the writer, {how:?}"), writer).await;
            if how == End::Force {
                sweep_covers(bed, 1).await;
            }
        }
    })
    .await;
}
