//! Killed readers: their covers expire (see `rw_rig.rs`), and live readers of the other side do not count as dead.

use std::io::Write as _;

use distlock::{Client, Guard};
use distlock_support::agent::{AgentOptions, Kind};
use distlock_support::child::{self, Child};
use futures::future::join_all;

use crate::rig::{Rig, connect, ms, renewed, replied, soon};
use crate::rw_rig::{Doc, Seen, enter, refused, wait_for_half};

const AT: &str = "INTEROP_URL";
const NAME: &str = "INTEROP_NAME";
/// Readers, and holds of each.
const DEAD: usize = 20;
const HOLDS: usize = 3;

/// The dead readers' covers expire although another reader stays. Then the dead readers no longer count.
pub async fn rw_dead_readers_do_not_exclude_writers(version: &str) {
    let options = || AgentOptions::version(version);
    let rig = Rig::start(vec![options(), options().in_own_process()]).await;
    let client = rig.watched_client().await;
    tokio::join!(java_died(&rig, &client), ours_died(&rig, &client));
    rig.end([client]).await;
}

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
    let env = [(AT, &*rig.server.url()), (NAME, doc.name)];
    let mut holder = Child::spawn("rw_kills::rw_readers_to_be_killed", &env);
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

/// The process that is killed.
#[tokio::test]
async fn rw_readers_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let holds = join_all((0..DEAD).map(|_| async {
        let client = connect(bed::builder(&set(AT))).await;
        let owner = client.owner();
        let mut guards: Vec<Guard> = Vec::new();
        for _ in 0..HOLDS {
            guards.push(enter(&client, Kind::Read, &set(NAME), &owner, None).await);
        }
        (client, guards)
    }));
    let holds = holds.await;
    child::say("held");
    let _ = std::io::stdout().flush();
    let lost = holds[0].1[0].lost().await;
    panic!("held until killed: {lost}");
}
