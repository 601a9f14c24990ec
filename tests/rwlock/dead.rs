//! A dead reader excludes writers until its lease ends, however many live readers there are. A client renews only its
//! own holds (`testMultiInstanceReadLockZombieCleanup`, #7098, #1604). `tests/sim/timing` covers dead holders without
//! other readers.

use distlock::Flavour;
use distlock_support::{Child, child};

use crate::rig::{HOUR, cover, granted, keys_gone, passes, served, waiter, waits};
use bed::{Bed, PATIENCE, becomes, builder, enter, rw, text};

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

/// Name, readers, and holds of each reader.
const DYING: [(&str, usize, usize); 2] = [("one", 1, 1), ("many", 20, 3)];

/// Another process, which reads until it is killed.
#[tokio::test]
async fn reading_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let builder = builder(&std::env::var("URL").unwrap()).watchdog(HOUR).command_timeout(PATIENCE);
    let client = builder.connect().await.unwrap();
    let mut guards = Vec::new();
    for (name, readers, holds) in DYING {
        let owners: Vec<_> = (0..readers).map(|_| client.owner()).collect();
        for owner in owners.iter().flat_map(|owner| std::iter::repeat_n(owner, holds)) {
            guards.push(enter(&client.rw(name).read(), owner).await);
        }
    }
    child::say(client.id());
    std::future::pending::<()>().await;
}

/// A process is killed with one reader, and with 20 readers of three holds each
/// (`testMultiInstanceZombieReadLockPerformance`). Live readers exist too. No client renews the covers (keys that live
/// as long as one read hold) of the dead readers. When these have expired, the last live reader's release admits the
/// writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_reader_stops_excluding_writers_when_its_lease_ends() {
    rw(async |bed| {
        let mut process = Child::spawn("dead::reading_process", &[("URL", &*bed.server.url())]);
        let (living, writing) = (bed.still_client().await, bed.still_client().await);
        let dead = process.line().await.unwrap_or_else(|| panic!("no process: {}", process.output()));
        let mut cases = Vec::new();
        for (name, readers, holds) in DYING {
            let covers = covers_of(bed, &dead).await.into_iter().filter(|key| key.starts_with(&format!("{{{name}}}:")));
            assert_eq!(covers.count(), readers * holds, "{name}: covers of the process");
            let live = [living.rw(name).read().lock().await.unwrap(), living.rw(name).read().lock().await.unwrap()];
            cases.push((name, live, waiter(&writing, Flavour::Write, name)));
        }
        waits(bed, &writing, "one", 2).await;
        process.kill9();
        // Makes the leases of the dead readers end soon.
        for cover in covers_of(bed, &dead).await {
            let left = bed.admin.pttl(&cover).await;
            assert!(0 < left && left <= HOUR.as_millis() as i64, "{cover} has {left} ms left of a lease of an hour");
            assert!(bed.admin.cmd::<bool>(&["PEXPIRE", &cover, "1000"]).await, "{cover} is gone");
        }
        assert_eq!(living.renew_now().await.renewed, 4, "renewed by the living");
        becomes("covers of the dead", Vec::<String>::new(), async || covers_of(bed, &dead).await).await;
        assert_eq!(covers_of(bed, living.id()).await.len(), 4, "covers of the living");
        for (name, [first, last], writer) in cases {
            assert!(bed.admin.pttl(name).await > 0, "{name}");
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
        for (expires, covered) in [(false, false), (true, false), (true, true)] {
            let endless = cover("a", ZOMBIE, 1);
            let plant = async || {
                let _: u64 = bed.admin.cmd(&["HSET", "a", "mode", "read", ZOMBIE, "3"]).await;
                if expires {
                    let _: u64 = bed.admin.cmd(&["PEXPIRE", "a", "600000"]).await;
                }
                if covered {
                    // This cover has no TTL. A script that was refused before its end left it, and its owner got an
                    // error.
                    let _: () = bed.admin.cmd(&["SET", &endless, "1"]).await;
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
            let _: u64 = bed.admin.cmd(&["DEL", &endless]).await;
            keys_gone(bed).await;
        }
    })
    .await;
}

/// A dead reader, and a reader with a longer lease that releases first. The writer knows the longer lease, and rarely
/// polls. The writer still acquires when the dead reader's lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_waits_only_for_lease_of_dead_reader() {
    rw(async |bed| {
        let client = bed.connect(bed.builder().configure(|options| options.poll_cap = HOUR)).await;
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
