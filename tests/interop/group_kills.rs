//! Killed holders of locks of several kinds: the waiters of the other side acquire when the leases end.

use std::sync::Arc;

use distlock::{Client, DistLock};
use distlock_support::agent::{AgentOptions, JavaLock, Kind};
use distlock_support::child::{self, Child};
use futures::future::join_all;

use crate::fenced::forget;
use crate::multi::{java_multi, multi, named};
use crate::rig::{Rig, connect, ms, renewed, replied, soon, until, wait_for_lock};
use crate::several::{clients_of, held_by, is_javas, is_ours, java_red, red, waiting};
use crate::sides::flavour;

const SERVERS: usize = 3;
const AT: &str = "INTEROP_URLS";
const RED: &str = "killed:red";

/// Kinds of the holder and of the waiter, for locks of one name on one server. The fenced lock is the last.
const SINGLE: [(Kind, Kind); 4] = [
    (Kind::Reentrant, Kind::Reentrant),
    (Kind::Read, Kind::Write),
    (Kind::Write, Kind::Read),
    (Kind::Fenced, Kind::Fenced),
];

fn name_of(held: Kind) -> String {
    format!("killed:{}", held.as_str())
}

/// A RedLock over three servers, a multi lock of two names, and the single locks, as the holder or the waiter uses
/// them.
fn java_locks(rig: &Rig, waits: bool) -> Vec<JavaLock> {
    let members = named("killed", "ab");
    let mut locks = vec![java_red(rig, 0, RED, 1), java_multi(rig, 0, Kind::Reentrant, &members, 2)];
    for ((held, waiter), thread) in SINGLE.into_iter().zip(3..) {
        locks.push(rig.agents[0].at(if waits { waiter } else { held }, &name_of(held), thread));
    }
    locks
}

fn our_locks(clients: &[Client], waits: bool) -> Vec<Arc<dyn DistLock>> {
    let mut locks = vec![red(clients, RED), multi(&clients[0], &named("killed", "ab"))];
    for (held, waiter) in SINGLE {
        locks.push(clients[0].lock(flavour(if waits { waiter } else { held }), &name_of(held)));
    }
    locks
}

/// Waits until every lock of the first server has been renewed.
async fn all_renewed(rig: &Rig) {
    let mut names = named("killed", "ab");
    names.push(RED.to_owned());
    names.extend(SINGLE.map(|(held, _)| name_of(held)));
    join_all(names.iter().map(|name| renewed(&rig.admin, name))).await;
}

pub async fn our_waiters_acquire_after_java_holders_are_killed(version: &str) {
    let rig = Rig::several(SERVERS, vec![AgentOptions::version(version).in_own_process()]).await;
    let clients = clients_of(&rig).await;
    for lock in java_locks(&rig, false) {
        replied(lock.lock()).await;
    }
    let ours: Vec<_> = our_locks(&clients, true).into_iter().map(wait_for_lock).collect();
    waiting(&clients, ours.len()).await;
    all_renewed(&rig).await;
    assert!(ours.iter().all(|waiter| !waiter.is_finished()), "we are in beside Java");
    held_by(&rig, RED, SERVERS, is_javas).await;
    rig.agents[0].kill9().await;
    let mut token = None;
    for waiter in ours {
        let guard = soon(waiter).await.expect("the waiter");
        token = guard.fencing_token().ok();
        guard.unlock().await.expect("unlock");
    }
    assert_eq!(token, Some(2), "the fenced lock's");
    forget(&rig, &[&name_of(Kind::Fenced)]).await;
    rig.end(clients).await;
}

pub async fn java_waiters_acquire_after_our_holders_are_killed(version: &str) {
    let rig = Rig::several(SERVERS, vec![AgentOptions::version(version)]).await;
    let urls: Vec<_> = rig.servers().map(|server| server.url()).collect();
    let mut holder = Child::spawn("group_kills::group_holder_to_be_killed", &[(AT, &urls.join(","))]);
    holder.expect("held").await;
    held_by(&rig, RED, SERVERS, is_ours).await;
    let before = rig.scripts().await;
    let theirs = java_locks(&rig, true);
    let mut calls: Vec<_> = theirs.iter().map(JavaLock::start_lock).collect();
    rig.scripts_since(before, 2 * theirs.len() as u64).await;
    all_renewed(&rig).await;
    held_by(&rig, RED, SERVERS, is_ours).await;
    for call in &mut calls {
        assert_eq!(call.within(ms(0)).await, None, "Java is in beside us");
    }
    holder.kill9();
    join_all(calls.into_iter().map(replied)).await;
    assert_eq!(theirs[theirs.len() - 1].token().await, Ok(2));
    for lock in &theirs {
        replied(lock.unlock()).await;
    }
    until("free locks", async || rig.admin.hash_keys().await.is_empty()).await;
    forget(&rig, &[&name_of(Kind::Fenced)]).await;
    rig.end([]).await;
}

/// The process that [`java_waiters_acquire_after_our_holders_are_killed`] kills.
#[tokio::test]
async fn group_holder_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let urls = std::env::var(AT).expect("set by the parent");
    let clients = join_all(urls.split(',').map(|url| connect(bed::builder(url)))).await;
    let guards = join_all(our_locks(&clients, false).iter().map(|lock| lock.lock())).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("a free lock")).collect();
    child::say("held");
    let (lost, ..) = futures::future::select_all(guards.iter().map(|guard| Box::pin(guard.lost()))).await;
    panic!("held until killed: {lost}");
}
