//! A dead reader frees writers within its lease, however many others read on; a client renews its own holds and
//! nobody else's (`testMultiInstanceReadLockZombieCleanup`, #7098, #1604).

use distlock::{Acquire, DistLock as _};

use crate::peer::Peer;
use crate::rig::{keys_gone, waits};
use bed::{Bed, PATIENCE, QUICK, ends, eventually, ms, rw, secs, waiter};

/// An owner of a Java process that is no more.
const ZOMBIE: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:1";

/// The fields of readers in the hash.
async fn readers(bed: &Bed, name: &str) -> Vec<String> {
    bed.admin.hgetall(name).await.into_keys().filter(|field| field != "mode").collect()
}

/// The live covers of a client's readers.
async fn covers_of(bed: &Bed, client: &str) -> usize {
    let keys = bed.admin.keys().await;
    keys.iter().filter(|key| key.contains(":rwlock_timeout:") && key.contains(client)).count()
}

/// A killed process, with one reader or with 20 of three holds each (`testMultiInstanceZombieReadLockPerformance`), beside
/// others that are renewed for three leases: its covers run out in time and nobody else's does, and the last live reader's
/// release lets the writer in at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_reader_is_gone_within_its_lease() {
    rw(async |bed| {
        let watchdog = QUICK.as_millis().to_string();
        let mut peers = Peer::several(bed, 2, &[("WATCHDOG", &watchdog)]).await;
        let (living, writing) = (bed.client().await, bed.client().await);
        let names = ["one", "many"];
        let mut cases = Vec::new();
        for (peer, (name, tasks, holds)) in peers.iter_mut().zip([(names[0], 1, 1), (names[1], 20, 3)]) {
            peer.take("read", name, tasks, holds);
            peer.taken().await;
            assert_eq!(covers_of(bed, &peer.id).await, tasks * holds);
            let live = [living.rw(name).read().lock().await.unwrap(), living.rw(name).read().lock().await.unwrap()];
            let writer = waiter(writing.rw(name).write());
            cases.push((name, live, writer));
        }
        waits(bed, &writing, names[0], 2).await;
        for peer in &mut peers {
            peer.child.kill9();
        }
        for peer in &peers {
            eventually("the covers of the dead are gone", async || covers_of(bed, &peer.id).await == 0).await;
        }
        assert_eq!(covers_of(bed, living.id()).await, 4, "covers of the living");
        for name in names {
            assert!(bed.admin.pttl(name).await > 0, "{name}");
        }
        for (name, live, writer) in cases {
            let [first, last] = live;
            assert!(!writer.is_finished() && first.is_held() && last.is_held());
            first.unlock().await.unwrap();
            assert!(!writer.is_finished());
            // Of few readers the dead stand in the hash still; of many some may have been taken out.
            assert!(name == "many" || readers(bed, name).await.len() > 1);
            last.unlock().await.unwrap();
            let (guard, _) = ends("the writer, when the last live reader has left", writer).await.unwrap();
            guard.unlock().await.unwrap();
        }
        keys_gone(bed).await;
    })
    .await;
}

/// Nobody but the dead: the writer is in when their lease is over, by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_costs_its_lease_and_no_more() {
    rw(async |bed| {
        let watchdog = QUICK.as_millis().to_string();
        let mut peer = Peer::start(bed, &[("WATCHDOG", &watchdog)]).await;
        let client = bed.client().await;
        let mut cases = Vec::new();
        for (half, other) in [("read", "write"), ("write", "read"), ("write", "write")] {
            let name = format!("{half}_{other}");
            peer.take(half, &name, 1, 1);
            peer.taken().await;
            let lock = client.lock(other.parse().unwrap(), &name);
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            cases.push((name, waiting));
        }
        eventually("all wait", async || client.stats().waiting == 3).await;
        // Through two renewals.
        tokio::time::sleep(QUICK).await;
        assert!(cases.iter().all(|(_, waiting)| !waiting.is_finished()));
        peer.child.kill9();
        for (name, waiting) in cases {
            let guard = ends(&name, waiting).await.unwrap();
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A field without covers is a dead reader's, whatever the hash's own lease is. Beside a live reader: its release frees the
/// lock, and tells it.
#[tokio::test]
async fn fields_without_covers_keep_nobody_out() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (lasts, cover) in [("PERSIST", false), ("PEXPIRE", false), ("PEXPIRE", true)] {
            let plant = async || {
                let _: u64 = bed.admin.cmd(&["HSET", "a", "mode", "read", ZOMBIE, "3"]).await;
                if lasts == "PEXPIRE" {
                    let _: u64 = bed.admin.cmd(&["PEXPIRE", "a", "600000"]).await;
                }
                if cover {
                    // Without an end: of a script that was refused half way. Its owner got an error.
                    let _: () = bed.admin.cmd(&["SET", &format!("{{a}}:{ZOMBIE}:rwlock_timeout:1"), "1"]).await;
                }
            };
            plant().await;
            let state = client.rw("a").read().state().await.unwrap();
            assert!(state.holders.is_empty() && state.remaining.is_none(), "{state:?}");
            // A try_lock, a re-entry-free lease, and a reader that joins.
            client.rw("a").write().try_lock().await.unwrap().expect("all are dead").unlock().await.unwrap();
            plant().await;
            let reading = client.rw("a").read().try_lock().await.unwrap().expect("shared");
            let writer = waiter(other.rw("a").write());
            waits(bed, &other, "a", 1).await;
            reading.unlock().await.unwrap();
            let (guard, _) = ends("the writer", writer).await.unwrap();
            let fields = bed.admin.hgetall("a").await;
            assert!(!fields.contains_key(ZOMBIE), "{fields:?}");
            guard.unlock().await.unwrap();
            if cover {
                let _: u64 = bed.admin.cmd(&["DEL", &format!("{{a}}:{ZOMBIE}:rwlock_timeout:1")]).await;
            }
            keys_gone(bed).await;
        }
    })
    .await;
}

/// A writer that comes while a dead reader is covered still has the lock right after, though others came and went.
#[tokio::test]
async fn a_writer_sleeps_until_the_longest_cover_ends() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        // Left by its owner, and nobody will release it.
        let left = client.rw("a").read().lock_leased(ms(1_200)).await.unwrap();
        let _ = left.into_owner();
        let live = client.rw("a").read().lock_leased(ms(600)).await.unwrap();
        // The hash itself is to outlive both, as after a Java watchdog's round.
        let _: u64 = bed.admin.cmd(&["PEXPIRE", "a", "3600000"]).await;
        // The hash itself stays for an hour.
        let guard = ends("in when both leases are over", other.rw("a").write().lock()).await.unwrap();
        assert!(!live.is_held());
        guard.unlock().await.unwrap();
        assert!(live.unlock().await.is_err());
    })
    .await;
}

/// A client that was shut down with readers and writers leaves nothing (`…ZombieCleanup`: its first half).
#[tokio::test]
async fn a_shutdown_leaves_nothing() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let held = [
            me.scope(lock.read().lock()).await.unwrap(),
            me.scope(lock.read().lock_leased(secs(60))).await.unwrap(),
            lock.read().lock().await.unwrap(),
            me.scope(client.rw("b").write().lock()).await.unwrap(),
            me.scope(client.rw("b").read().lock()).await.unwrap(),
        ];
        let staying = other.rw("a").read().lock().await.unwrap();
        let reader = waiter(other.rw("b").read());
        waits(bed, &other, "b", 1).await;
        client.shutdown(PATIENCE).await.unwrap();
        assert!(held.iter().all(|guard| !guard.is_held()));
        let (reading, _) = ends("the reader", reader).await.unwrap();
        assert_eq!(covers_of(bed, client.id()).await, 0);
        assert_eq!(readers(bed, "a").await.len(), 1);
        staying.unlock().await.unwrap();
        reading.unlock().await.unwrap();
        for guard in held {
            assert!(matches!(guard.unlock().await, Err(distlock::Error::Closed)));
        }
    })
    .await;
}

/// A dead reader beside one with a longer lease, which leaves first: the writer, which was told of the longer one, is in as
/// soon as the dead one's lease is over, however seldom it looks for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_reader_costs_its_own_lease_and_not_that_of_one_who_left() {
    rw(async |bed| {
        let client = bed.connect(bed.builder().poll_cap(secs(3600))).await;
        let lock = client.rw("x");
        let dead = Acquire::new().lease(secs(3));
        let dead = lock.read().acquire(dead).await.unwrap().unwrap().into_owner();
        let living = lock.read().lock_leased(secs(3600)).await.unwrap();
        let writer = waiter(lock.write());
        waits(bed, &client, "x", 1).await;
        living.unlock().await.unwrap();
        let (guard, _) = ends("the writer, when the dead one's lease is over", writer).await.unwrap();
        guard.unlock().await.unwrap();
        drop(dead);
    })
    .await;
}
