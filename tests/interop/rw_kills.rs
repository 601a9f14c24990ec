//! Killed readers and writers: their holds end with their own leases, and reads with their covers (see `rw_rig.rs`).
//! Dead readers do not exclude writers, and live readers do not count as dead.

use std::io::Write as _;
use std::time::Duration;

use distlock::{Client, Guard};
use distlock_support::agent::{AgentOptions, Kind};
use distlock_support::child::{self, Child};
use futures::future::join_all;

use crate::rig::{Rig, connect, ms, renewed, replied, soon};
use crate::rw_rig::{Doc, HALVES, Seen, enter, half_of, refused, sits, wait_for_half};

const AT: &str = "INTEROP_URL";
/// `<half> <name>` of each lock to take, separated by commas.
const TO_TAKE: &str = "INTEROP_HALVES";
/// Number of clients that acquire the locks. `HOLDS`: number of holds of each client on each lock.
const CLIENTS: &str = "INTEROP_CLIENTS";
const HOLDS: usize = 3;

/// A reader and a writer of each side are killed while their watchdog renews their holds and the other side waits.
pub async fn rw_waiter_acquires_after_holder_of_other_side_is_killed(version: &str) {
    let options = || AgentOptions::version(version);
    let rig = Rig::start(vec![options(), options().in_own_process()]).await;
    let client = rig.client().await;
    let name = |half: Kind, whose: &str| format!("{whose}:{}", half.as_str());
    let other = |half: Kind| if half == Kind::Read { Kind::Write } else { Kind::Read };

    let take = HALVES.map(|half| format!("{} {}", half.as_str(), name(half, "ours"))).join(",");
    let mut holder =
        Child::spawn("rw_kills::rw_holder_to_be_killed", &[(AT, &rig.server.url()), (TO_TAKE, &take), (CLIENTS, "1")]);
    holder.expect("held").await;
    for half in HALVES {
        replied(rig.agents[1].at(half, &name(half, "java"), 1).lock()).await;
    }
    let mut theirs = HALVES.map(|half| rig.agents[0].at(other(half), &name(half, "ours"), 1).start_lock());
    let mut ours = HALVES.map(|half| wait_for_half(&client, other(half), &name(half, "java")));
    rig.waiting(&client, 2).await;
    let names = HALVES.map(|half| ["ours", "java"].map(|whose| name(half, whose))).concat();
    join_all(names.iter().map(|name| renewed(&rig.admin, name))).await;
    for (call, task) in theirs.iter_mut().zip(&ours) {
        assert_eq!(call.within(ms(0)).await, None, "Java is in beside us");
        assert!(!task.is_finished(), "we are in beside Java");
    }

    holder.kill9();
    rig.agents[1].kill9().await;
    for (half, call) in HALVES.into_iter().zip(theirs) {
        replied(call).await;
        replied(rig.agents[0].at(other(half), &name(half, "ours"), 1).unlock()).await;
    }
    for task in &mut ours {
        soon(task).await.expect("the waiter").unlock().await.expect("unlock");
    }
    rig.end([client]).await;
}

/// The process that is killed.
#[tokio::test]
async fn rw_holder_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let (take, clients) = (set(TO_TAKE), set(CLIENTS).parse::<usize>().expect("a number"));
    let holds = join_all((0..clients).map(|_| async {
        let client = connect(bed::builder(&set(AT))).await;
        let mut guards: Vec<Guard> = Vec::new();
        for (half, name) in take.split(',').filter_map(|one| one.split_once(' ')) {
            let half = if half == "write" { Kind::Write } else { Kind::Read };
            let owner = client.owner();
            for _ in 0..HOLDS {
                guards.push(enter(&client, half, name, &owner, None).await);
            }
        }
        (client, guards)
    }));
    let holds = holds.await;
    child::say("held");
    let _ = std::io::stdout().flush();
    let lost = holds[0].1[0].lost().await;
    panic!("held until killed: {lost}");
}

/// The dead readers' covers expire although another reader stays. Then the dead readers no longer count.
pub async fn rw_dead_readers_do_not_exclude_writers(version: &str) {
    let options = || AgentOptions::version(version);
    let rig = Rig::start(vec![options(), options().in_own_process()]).await;
    let client = rig.watched_client().await;
    tokio::join!(java_died(&rig, &client), ours_died(&rig, &client));
    rig.end([client]).await;
}

const DEAD: usize = 20;

async fn java_died(rig: &Rig, client: &Client) {
    let (doc, dead) = (Doc::new(rig, "java died"), &rig.agents[1]);
    let guard = enter(client, Kind::Read, doc.name, &client.owner(), None).await;
    let reads = (1..=DEAD as i64).flat_map(|thread| {
        let lock = dead.at(Kind::Read, doc.name, thread);
        (0..HOLDS).map(move |_| replied_owned(lock.clone()))
    });
    join_all(reads).await;
    assert_eq!(doc.look().await.covers_of(dead.id()).count(), DEAD * HOLDS);
    dead.kill9().await;
    doc.until("the covers of the dead gone", |seen| seen.covers_of(dead.id()).count() == 0).await;
    let mut theirs = doc.java_waits(0, Kind::Write, 1).await;
    renewed(&rig.admin, doc.name).await;
    assert_eq!(theirs.within(ms(0)).await, None, "our reader was taken for dead");
    refused(client, Kind::Write, doc.name).await;
    assert!(guard.is_held());
    assert_eq!(doc.look().await.fields.len(), DEAD + 2);
    guard.unlock().await.expect("unlock");
    replied(theirs).await;
    replied(doc.java(0, Kind::Write, 1).unlock()).await;
}

async fn replied_owned(lock: distlock_support::agent::JavaLock) {
    replied(lock.lock()).await;
}

async fn ours_died(rig: &Rig, client: &Client) {
    let doc = Doc::new(rig, "ours died");
    let take = format!("read {}", doc.name);
    let clients = DEAD.to_string();
    let env = [(AT, rig.server.url()), (TO_TAKE, take), (CLIENTS, clients)];
    let mut holder =
        Child::spawn("rw_kills::rw_holder_to_be_killed", &env.each_ref().map(|(name, value)| (*name, value.as_str())));
    holder.expect("held").await;
    let java = doc.java(0, Kind::Read, 101);
    replied(java.lock()).await;
    let owner = doc.java_owner(0, 101);
    let of_others = |seen: &Seen| seen.covers.len() - seen.covers_of(&owner).count();
    assert_eq!(of_others(&doc.look().await), DEAD * HOLDS);
    holder.kill9();
    doc.until("the covers of the dead gone", |seen| of_others(seen) == 0).await;
    let waiter = wait_for_half(client, Kind::Write, doc.name);
    rig.waiting(client, 1).await;
    renewed(&rig.admin, doc.name).await;
    assert!(!waiter.is_finished(), "Java's reader was taken for dead");
    replied(java.unlock()).await;
    soon(waiter).await.expect("the waiter").unlock().await.expect("unlock");
}

/// Before 4.0.0, Redisson's watchdog fails if any reader has re-entered. Redisson loses its own holds. Ours stay.
pub async fn rw_old_redisson_loses_only_its_own_holds(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let doc = Doc::new(&rig, "old");
    let owner = client.owner();
    let guard = enter(&client, Kind::Read, doc.name, &owner, None).await;
    let again = enter(&client, Kind::Read, doc.name, &owner, None).await;
    let java = doc.java(0, Kind::Read, 1);
    replied(java.lock()).await;
    let theirs = doc.java_owner(0, 1);
    doc.until("Java's cover over: it has learnt to renew", |seen| seen.covers_of(&theirs).count() == 0).await;
    let mut writer = doc.java(0, Kind::Write, 2).start_lock();
    renewed(&rig.admin, doc.name).await;
    assert_eq!(writer.within(ms(0)).await, None, "our reader was lost with Java's");
    assert!(guard.is_held() && doc.look().await.covers_of(owner.as_str()).count() == 2);
    again.unlock().await.expect("unlock");
    sits(&rig.agents[0], 2).await;
    guard.unlock().await.expect("unlock");
    replied(writer).await;
    assert!(java.unlock().await.is_err());
    replied(doc.java(0, Kind::Write, 2).unlock()).await;
    rig.end([client]).await;
}

/// The last reader of one side releases. The other side's reader keeps the lock for exactly as long as its cover lives.
pub async fn rw_lock_lasts_as_long_as_its_readers_are_covered(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let secs = |number: u64| Duration::from_secs(1000 * number);
    for (number, (java, ours)) in [(10, 30), (30, 10), (20, 20)].into_iter().enumerate() {
        for java_leaves in [true, false] {
            let name = format!("last:{number}:{java_leaves}");
            let doc = Doc::new(&rig, &name);
            let reader = doc.java(0, Kind::Read, 1);
            // Java has two holds, and we have three. Java's first hold has its longest lease, and our second hold has
            // ours.
            for lease in [secs(java), secs(java / 2)] {
                replied(reader.lock_for(lease)).await;
            }
            let owner = client.owner();
            let mut guards = Vec::new();
            for lease in [secs(ours / 2), secs(ours), secs(ours / 5)] {
                guards.push(enter(&client, Kind::Read, &name, &owner, Some(lease)).await);
            }
            doc.look().await.assert_as_long_as_covered(&name);
            // Adds a dead reader.
            rig.admin.cmd::<()>(&["HSET", &name, "ffffffff-ffff-4fff-8fff-ffffffffffff:1", "3"]).await;
            if java_leaves {
                for left in [1, 0] {
                    replied(reader.unlock()).await;
                    let seen = doc.look().await;
                    seen.assert_as_long_as_covered(&format!("{name}, Java has {left}"));
                    assert_eq!(seen.count(&doc.java_owner(0, 1)), left);
                }
                assert_eq!(doc.look().await.count(owner.as_str()), 3);
                assert!(guards.iter().all(Guard::is_held));
                assert_eq!(doc.java(0, Kind::Write, 2).try_lock().await, Ok(false));
                refused(&client, Kind::Write, &name).await;
            }
            while let Some(guard) = guards.pop() {
                guard.unlock().await.expect("unlock");
                let seen = doc.look().await;
                if seen.mode().is_some() {
                    seen.assert_as_long_as_covered(&format!("{name}, we have {}", guards.len()));
                }
                assert_eq!(seen.count(owner.as_str()), guards.len() as u64);
            }
            if !java_leaves {
                let seen = doc.look().await;
                assert_eq!((seen.count(&doc.java_owner(0, 1)), seen.covers.len()), (2, 2));
                assert_eq!(reader.hold_count().await, Ok(2));
                assert_eq!(doc.java(0, Kind::Write, 2).try_lock().await, Ok(false));
                refused(&client, Kind::Write, &name).await;
                for _ in 0..2 {
                    replied(reader.unlock()).await;
                }
            }
            // The last release removes the dead reader, too.
            doc.is_gone().await;
            let guard = half_of(&client, Kind::Write, &name).try_lock().await.expect("try_lock");
            guard.expect("nobody reads").unlock().await.expect("unlock");
        }
    }
    rig.end([client]).await;
}
