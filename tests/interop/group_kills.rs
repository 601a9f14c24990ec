//! Killed holders of RedLocks, multi locks and fenced locks: the other side acquires when the lease ends.

use std::sync::Arc;

use distlock::{Client, DistLock, Flavour};
use distlock_support::agent::{AgentOptions, JavaLock, Kind};
use distlock_support::child::{self, Child};
use futures::future::join_all;

use crate::fenced::forget;
use crate::multi::{java_multi, multi, named};
use crate::rig::{Rig, connect, renewed, replied, soon, until, wait_for_lock};
use crate::several::{clients_of, held_by, is_javas, is_ours, java_red, red, waiting};

const SERVERS: usize = 3;
const AT: &str = "INTEROP_URLS";
const FENCED: &str = "killed:fenced";

/// The same three locks for both sides: a RedLock over three servers, a multi lock of two names, and a fenced lock.
fn java_locks(rig: &Rig, agent: usize) -> [JavaLock; 3] {
    [
        java_red(rig, agent, "killed:red", 1),
        java_multi(rig, agent, Kind::Reentrant, &named("killed", "ab"), 2),
        rig.agents[agent].at(Kind::Fenced, FENCED, 3),
    ]
}

fn our_locks(clients: &[Client]) -> [Arc<dyn DistLock>; 3] {
    [red(clients, "killed:red"), multi(&clients[0], &named("killed", "ab")), clients[0].lock(Flavour::Fenced, FENCED)]
}

pub async fn our_group_waiters_acquire_after_java_holders_are_killed(version: &str) {
    let rig = Rig::several(SERVERS, vec![AgentOptions::version(version).in_own_process()]).await;
    let clients = clients_of(&rig).await;
    for lock in java_locks(&rig, 0) {
        replied(lock.lock()).await;
    }
    let ours = our_locks(&clients).map(wait_for_lock);
    waiting(&clients, 3).await;
    renewed(&rig.admin, "killed:red").await;
    assert!(ours.iter().all(|waiter| !waiter.is_finished()), "we are in beside Java");
    held_by(&rig, "killed:red", SERVERS, is_javas).await;
    rig.agents[0].kill9().await;
    for (waiter, what) in ours.into_iter().zip(["RedLock", "multi", "fenced"]) {
        let guard = soon(waiter).await.expect("the waiter");
        if what == "fenced" {
            assert_eq!(guard.token(), Some(2));
        }
        guard.unlock().await.expect("unlock");
    }
    forget(&rig, &[FENCED]).await;
    rig.end(clients).await;
}

pub async fn java_group_waiters_acquire_after_our_holders_are_killed(version: &str) {
    let rig = Rig::several(SERVERS, vec![AgentOptions::version(version)]).await;
    let urls: Vec<_> = rig.servers().map(|server| server.url()).collect();
    let mut holder = Child::spawn("group_kills::group_holder_to_be_killed", &[(AT, &urls.join(","))]);
    holder.expect("held").await;
    held_by(&rig, "killed:red", SERVERS, is_ours).await;
    let before = rig.scripts().await;
    let theirs = java_locks(&rig, 0);
    let waiting: Vec<_> = theirs.iter().map(JavaLock::start_lock).collect();
    rig.scripts_since(before, 6).await;
    renewed(&rig.admin, "killed:red").await;
    held_by(&rig, "killed:red", SERVERS, is_ours).await;
    holder.kill9();
    join_all(waiting.into_iter().map(replied)).await;
    assert_eq!(theirs[2].token().await, Ok(2));
    for lock in &theirs {
        replied(lock.unlock()).await;
    }
    until("free locks", async || rig.admin.hash_keys().await.is_empty()).await;
    forget(&rig, &[FENCED]).await;
    rig.end([]).await;
}

/// The process that [`java_group_waiters_acquire_after_our_holders_are_killed`] kills.
#[tokio::test]
async fn group_holder_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let urls = std::env::var(AT).expect("set by the parent");
    let clients = join_all(urls.split(',').map(|url| connect(bed::builder(url)))).await;
    let guards = join_all(our_locks(&clients).iter().map(|lock| lock.lock())).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("a free lock")).collect();
    child::say("held");
    let (lost, ..) = futures::future::select_all(guards.iter().map(|guard| Box::pin(guard.lost()))).await;
    panic!("held until killed: {lost}");
}
