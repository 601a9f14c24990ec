//! Read-write locks: the lease of the hash, the messages, and dead readers.

use super::{NAME, Sight};
use crate::prelude::*;

/// Waiters know when the lease will end. If the lock is free more than a second earlier, waiters get one message.
#[test]
fn read_release_publishes_if_lock_ends_over_a_second_sooner() {
    virtually(async || {
        let sight = Sight::new().await;
        let (lock, a, b) = (sight.us.client.rw(NAME).read(), sight.us.client.owner(), sight.us.client.owner());
        for (lease, told) in [(5001, ""), (5002, "0")] {
            let short = enter(&lock, &a, 4000).await;
            let long = enter(&lock, &b, lease - 1).await;
            assert_eq!(sight.keys(&[&a, &b]), format!("l (A 1, B 1, mode read): {0}; A:1: 4000; B:1: {0}", lease - 1));
            long.unlock().await.unwrap();
            assert_eq!((&*sight.keys(&[&a, &b]), &*sight.told()), ("l (A 1, mode read): 4000; A:1: 4000", told));
            short.unlock().await.unwrap();
            assert_eq!((&*sight.keys(&[]), &*sight.told()), ("", "0"));
        }
    });
}

/// While its owner writes, the hash has the lease of the write hold. Afterwards it has the lease of the owner's read
/// hold, if that hold is alive.
#[test]
fn read_hold_of_writer_does_not_change_write_lease() {
    virtually(async || {
        let sight = Sight::new().await;
        let (lock, a) = (sight.us.client.rw(NAME), sight.us.client.owner());
        let writes = enter(&lock.write(), &a, 10_000).await;
        let reads = enter(&lock.read(), &a, 3000).await;
        reads.unlock().await.unwrap();
        assert_eq!((&*sight.keys(&[&a]), &*sight.told()), ("l (A:write 1, mode write): 10000", ""));
        let reads = enter(&lock.read(), &a, 20_000).await;
        writes.unlock().await.unwrap();
        assert_eq!((&*sight.keys(&[&a]), &*sight.told()), ("l (A 1, mode read): 20000; A:1: 20000", "1"));
        reads.unlock().await.unwrap();
        assert_eq!((&*sight.keys(&[&a]), &*sight.told()), ("", "0"));
        // A dead read hold does not keep the hash alive.
        let writes = enter(&lock.write(), &a, 10_000).await;
        let reads = enter(&lock.read(), &a, 10).await;
        sleep(ms(11)).await;
        writes.unlock().await.unwrap();
        assert_eq!((&*sight.keys(&[&a]), &*sight.told()), ("", "1"));
        drop(reads);
    });
}

/// A force frees only its own half, notifies the waiters that may acquire, and does not change locks of another kind.
#[test]
fn force_unlock_frees_only_its_own_half() {
    virtually(async || {
        let sight = Sight::new().await;
        let lock = sight.us.client.rw(NAME);
        let (read, write) = (lock.read(), lock.write());
        let halves: [(&dyn DistLock, &dyn DistLock, &str); 2] = [(&read, &write, "0"), (&write, &read, "1")];
        for (mine, other, message) in halves {
            assert!(!mine.force_unlock().await.unwrap());
            assert_eq!(sight.told(), "");
            let a = sight.us.client.owner();
            let guard = enter(mine, &a, 5000).await;
            let before = sight.keys(&[&a]);
            assert!(!other.force_unlock().await.unwrap());
            assert_eq!((sight.keys(&[&a]), sight.told()), (before, String::new()));
            assert!(mine.force_unlock().await.unwrap());
            assert_eq!((sight.left(), &*sight.told()), (-2, message));
            // Covers are left to expire.
            drop(guard);
            sleep(ms(5000)).await;
            sight.told();
        }
        sight.server.command(&[b"hset", NAME.as_bytes(), b"somebody", b"1"]);
        for (half, _, _) in halves {
            assert!(matches!(half.force_unlock().await, Err(Error::WrongType { .. })));
            assert!(matches!(half.state().await, Err(Error::WrongType { .. })));
            assert!(matches!(half.try_lock().await, Err(Error::WrongType { .. })));
        }
        assert_eq!(sight.keys(&[]), "l (somebody 1): -1");
    });
}

#[test]
fn readers_are_notified_when_last_waiting_writer_gives_up() {
    virtually(async || {
        let sight = Sight::new().await;
        let [one, two] = [(); 2].map(|()| Sight::party(&sight.server, Prefer::Writers));
        let reader = sight.us.client.rw(NAME).read().lock_leased(ms(60_000)).await.unwrap();
        let waits = [writer(&one.client, NAME, ms(1000)), writer(&two.client, NAME, ms(2000))];
        sleep(ms(500)).await;
        assert_eq!(sight.told(), "");
        sleep(ms(1000)).await;
        assert_eq!(sight.told(), "", "another one waits still");
        sleep(ms(1000)).await;
        assert_eq!(sight.told(), "1");
        assert_eq!(all(waits).await, [false; 2]);
        reader.unlock().await.unwrap();
        // While a writer holds the lock no reader can acquire, so no reader is notified.
        let writes = sight.us.client.rw(NAME).write().lock_leased(ms(60_000)).await.unwrap();
        sight.told();
        assert!(!writer(&one.client, NAME, ms(1000)).await.unwrap());
        sleep(ms(100)).await;
        assert_eq!((&*sight.told(), sight.server.keys().len()), ("", 1));
        writes.unlock().await.unwrap();
        assert_eq!(sight.keys(&[]), "");
    });
}

/// Dead readers are not reported as holders, and no writer waits for them, although Java's watchdog renews their hash.
#[test]
fn dead_readers_exclude_no_writer_and_are_not_reported() {
    virtually(async || {
        let sight = Sight::new().await;
        let other = Sight::party(&sight.server, Prefer::Readers);
        let (lock, a, b) = (sight.us.client.rw(NAME), sight.us.client.owner(), other.client.owner());
        let dead = enter(&lock.read(), &a, 1000).await;
        let live = enter(&lock.read(), &b, 2000).await;
        sight.server.command(&[b"pexpire", NAME.as_bytes(), b"90000"]);
        sleep(ms(1001)).await;
        let state = lock.read().state().await.unwrap();
        assert_eq!((state.holders, state.remaining), (vec![(text(&b), 1)], Some(ms(999))));
        assert!(!lock.write().is_locked().await.unwrap());
        // The writer sleeps until the last reader's lease ends.
        let began = Instant::now();
        let writes = enter(&other.client.rw(NAME).write(), &a, 5000).await;
        assert!(began.elapsed() <= ms(1100), "{:?}", began.elapsed());
        assert_eq!(sight.keys(&[&a, &b]), "l (A:write 1, mode write): 5000");
        let state = lock.write().state().await.unwrap();
        assert_eq!((state.holders, state.remaining), (vec![(text(&a), 1)], Some(ms(5000))));
        assert!(!lock.read().is_locked().await.unwrap());
        // The owner of the write half may read. Its read hold is reported separately.
        let reads = enter(&other.client.rw(NAME).read(), &a, 3000).await;
        let state = lock.read().state().await.unwrap();
        assert_eq!((state.holders, state.remaining), (vec![(text(&a), 1)], Some(ms(3000))));
        writes.unlock().await.unwrap();
        let up = lock.write().acquire(Acquire::new().owner(&a)).await;
        assert!(matches!(up, Err(Error::WouldDeadlock { .. })), "{up:?}");
        reads.unlock().await.unwrap();
        drop((dead, live));
    });
}

/// A waiting writer of the same process retries only after the last reader's release, because each failed try costs a
/// command.
#[test]
fn waiting_writer_tries_only_after_last_reader_released() {
    virtually(async || {
        let sight = Sight::new().await;
        let lock = sight.us.client.rw(NAME);
        let [first, last] = [lock.read().lock().await.unwrap(), lock.read().lock().await.unwrap()];
        let writer = waiter(Arc::new(lock.write()));
        sleep(ms(500)).await;
        let before = sight.server.commands_run();
        first.unlock().await.unwrap();
        sleep(ms(500)).await;
        assert_eq!(sight.server.commands_run() - before, 1, "the release alone");
        assert!(!writer.is_finished());
        last.unlock().await.unwrap();
        writer.await.unwrap();
    });
}

/// An owner's newest read hold may end first. The owner still reads.
#[test]
fn owner_still_reads_after_its_newest_read_hold_expired() {
    virtually(async || {
        let sight = Sight::new().await;
        let other = Sight::party(&sight.server, Prefer::Readers);
        let (lock, a) = (sight.us.client.rw(NAME), sight.us.client.owner());
        let writes = enter(&lock.write(), &a, 5000).await;
        let reads = [enter(&lock.read(), &a, 20_000).await, enter(&lock.read(), &a, 1000).await];
        sleep(ms(1001)).await;
        writes.unlock().await.unwrap();
        assert!(sight.keys(&[&a]).contains("mode read"), "{}", sight.keys(&[&a]));
        let up = other.client.rw(NAME).write().acquire(Acquire::new().owner(&elsewhere(&a))).await;
        assert!(matches!(up, Err(Error::WouldDeadlock { .. })), "{up:?}");
        drop(reads);
    });
}

/// The newest hold does not determine for how long its owner reads.
#[test]
fn longest_read_hold_of_owner_determines_lease() {
    virtually(async || {
        let sight = Sight::new().await;
        let other = Sight::party(&sight.server, Prefer::Readers);
        let (lock, theirs) = (sight.us.client.rw(NAME), other.client.rw(NAME));
        let (a, b) = (sight.us.client.owner(), other.client.owner());
        // Under a writer whose lease is shortened by an extension and by a release.
        let (first, second) = (enter(&lock.write(), &a, 40_000).await, enter(&lock.write(), &a, 50_000).await);
        let reads = [enter(&lock.read(), &a, 20_000).await, enter(&lock.read(), &a, 3000).await];
        assert_eq!(lock.read().state().await.unwrap().remaining, Some(ms(20_000)));
        first.extend(ms(5000)).await.unwrap();
        assert!(sight.left() >= 50_000, "the other hold's");
        second.extend(ms(5000)).await.unwrap();
        assert_eq!(sight.left(), 20_000, "by an extension");
        second.extend(ms(50_000)).await.unwrap();
        second.unlock().await.unwrap();
        assert_eq!(sight.left(), 20_000, "by a release");
        first.unlock().await.unwrap();
        for read in reads {
            read.unlock().await.unwrap();
        }
        let mine = enter(&lock.read(), &a, 9000).await;
        let beside = [enter(&theirs.read(), &b, 8000).await, enter(&theirs.read(), &b, 3000).await];
        mine.extend(ms(2000)).await.unwrap();
        assert_eq!(sight.left(), 8000, "by another reader's extension");
        drop((mine, beside));
    });
}
