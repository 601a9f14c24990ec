//! A dead reader excludes writers until its lease ends, however many live readers there are. A client renews only its
//! own holds (`testMultiInstanceReadLockZombieCleanup`, #7098, #1604). `tests/sim/timing` covers dead holders without
//! other readers.

use distlock::{DistLock as _, Flavour};

use crate::peer::Peer;
use crate::rig::{HOUR, cover, granted, keys_gone, passes, served, unlock_all, waiter, waits};
use bed::{Bed, becomes, rw, secs, text};

/// An owner of a Java process that has died.
const ZOMBIE: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:1";

async fn readers(bed: &Bed, name: &str) -> Vec<String> {
    bed.admin.hgetall(name).await.into_keys().filter(|field| field != "mode").collect()
}

async fn covers_of(bed: &Bed, client: &str) -> Vec<String> {
    let mut keys = bed.admin.keys().await;
    keys.retain(|key| key.contains(":rwlock_timeout:") && key.contains(client));
    keys
}

/// A process is killed with one reader, or with 20 readers of three holds each
/// (`testMultiInstanceZombieReadLockPerformance`). Live readers exist too. No client renews the covers (keys that live
/// as long as one read hold) of the dead readers. When these have expired, the last live reader's release admits the
/// writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_reader_stops_excluding_writers_when_its_lease_ends() {
    rw(async |bed| {
        let mut peers = Peer::several(bed, 2).await;
        let (living, writing) = (bed.still_client().await, bed.still_client().await);
        let names = ["one", "many"];
        let mut cases = Vec::new();
        for (peer, (name, tasks, holds)) in peers.iter_mut().zip([(names[0], 1, 1), (names[1], 20, 3)]) {
            peer.take("read", name, tasks, holds);
            peer.taken().await;
            assert_eq!(covers_of(bed, &peer.id).await.len(), tasks * holds, "{name}: covers of the peer");
            let live = [living.rw(name).read().lock().await.unwrap(), living.rw(name).read().lock().await.unwrap()];
            let writer = waiter(&writing, Flavour::Write, name);
            cases.push((name, live, writer));
        }
        waits(bed, &writing, names[0], 2).await;
        for peer in &mut peers {
            peer.child.kill9();
        }
        // Makes the leases of the dead readers end soon.
        for peer in &peers {
            for cover in covers_of(bed, &peer.id).await {
                let left = bed.admin.pttl(&cover).await;
                assert!(
                    0 < left && left <= HOUR.as_millis() as i64,
                    "{cover} has {left} ms left of a lease of an hour"
                );
                assert!(bed.admin.cmd::<bool>(&["PEXPIRE", &cover, "1000"]).await, "{cover} is gone");
            }
        }
        assert_eq!(living.renew_now().await.renewed, 4, "renewed by the living");
        for peer in &peers {
            becomes("covers of the dead", Vec::<String>::new(), async || covers_of(bed, &peer.id).await).await;
        }
        assert_eq!(covers_of(bed, living.id()).await.len(), 4, "covers of the living");
        for name in names {
            assert!(bed.admin.pttl(name).await > 0, "{name}");
        }
        for (name, live, writer) in cases {
            let [first, last] = live;
            assert!(!writer.is_finished() && first.is_held() && last.is_held());
            first.unlock().await.unwrap();
            assert!(!writer.is_finished());
            let readers = readers(bed, name).await;
            assert!(readers.contains(&text(last.owner())), "{name}: a live reader is not among {readers:?}");
            // A few dead readers stay in the hash. If there are many, some may have been removed.
            assert!(name == "many" || readers.len() == 2, "{name}: {readers:?}");
            last.unlock().await.unwrap();
            served("the writer, when the last live reader has left", writer).await;
        }
        keys_gone(bed).await;
    })
    .await;
}

/// A field without covers belongs to a dead reader, whatever the hash's own lease is. The release of the last live
/// reader frees the lock, and returns `Free`.
#[tokio::test]
async fn dead_reader_field_excludes_no_writer() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (lasts, cover) in [("PERSIST", false), ("PEXPIRE", false), ("PEXPIRE", true)] {
            let plant = async || {
                let _: u64 = bed.admin.cmd(&["HSET", "a", "mode", "read", ZOMBIE, "3"]).await;
                if lasts == "PEXPIRE" {
                    let _: u64 = bed.admin.cmd(&["PEXPIRE", "a", "600000"]).await;
                }
                if cover {
                    // This cover has no TTL. A script that was refused before its end left it, and its owner got an
                    // error.
                    let _: () = bed.admin.cmd(&["SET", &format!("{{a}}:{ZOMBIE}:rwlock_timeout:1"), "1"]).await;
                }
            };
            plant().await;
            let state = client.rw("a").read().state().await.unwrap();
            assert!(state.holders.is_empty() && state.remaining.is_none(), "{state:?}");
            // One writer attempts once, and another writer waits for a live reader.
            passes("all are dead", &client.rw("a").write()).await;
            plant().await;
            let reading = client.rw("a").read().try_lock().await.unwrap().expect("shared");
            let writer = waiter(&other, Flavour::Write, "a");
            waits(bed, &other, "a", 1).await;
            reading.unlock().await.unwrap();
            let guard = granted("the writer", writer).await;
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

/// A client that was shut down with readers and writers leaves nothing (the first half of `…ZombieCleanup`).
#[tokio::test]
async fn shutdown_releases_readers_and_writers() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let held = [
            me.scope(lock.read().lock()).await.unwrap(),
            me.scope(lock.read().lock_leased(secs(3600))).await.unwrap(),
            lock.read().lock().await.unwrap(),
            me.scope(client.rw("b").write().lock()).await.unwrap(),
            me.scope(client.rw("b").read().lock()).await.unwrap(),
        ];
        let staying = other.rw("a").read().lock().await.unwrap();
        let reader = waiter(&other, Flavour::Read, "b");
        waits(bed, &other, "b", 1).await;
        client.shutdown(std::time::Duration::ZERO).await.unwrap();
        assert!(held.iter().all(|guard| !guard.is_held()));
        let reading = granted("the reader", reader).await;
        assert_eq!(covers_of(bed, client.id()).await, [""; 0], "covers after the shutdown");
        assert_eq!(readers(bed, "a").await.len(), 1, "readers of another client");
        unlock_all([staying, reading]).await;
        for guard in held {
            assert!(matches!(guard.unlock().await, Err(distlock::Error::Closed)));
        }
    })
    .await;
}

/// A dead reader, and a reader with a longer lease that releases first. The writer knows the longer lease, and rarely
/// polls. The writer still acquires when the dead reader's lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_waits_only_for_lease_of_dead_reader() {
    rw(async |bed| {
        let client = bed.connect(bed.builder().poll_cap(secs(3600))).await;
        let lock = client.rw("x");
        let dead = lock.read().lock_leased(HOUR / 2).await.unwrap().into_owner();
        let living = lock.read().lock_leased(HOUR).await.unwrap();
        let writer = waiter(&client, Flavour::Write, "x");
        waits(bed, &client, "x", 1).await;
        // Makes the dead reader's lease end soon. The writer does not know this, and waits for the longer lease.
        let cover = cover("x", &text(&dead), 1);
        assert!(bed.admin.cmd::<bool>(&["PEXPIRE", &cover, "1000"]).await, "{cover} is gone");
        assert!(!writer.is_finished());
        living.unlock().await.unwrap();
        served("the writer, when the dead one's lease is over", writer).await;
        drop(dead);
    })
    .await;
}
