//! Locks over several servers or names: ours next to Java's.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, DistLock, Guard, RedLock};
use distlock_support::agent::{JavaLock, Kind};
use futures::future::join_all;

use crate::reentry::Step;
use crate::rig::{PATIENCE, Rig, builder, connect, ms, until_is};

pub async fn clients_of(rig: &Rig) -> Vec<Client> {
    join_all(rig.servers().map(|server| connect(builder(&server.url())))).await
}

/// Our RedLock over these clients' servers. A slow server does not count as unreachable.
pub fn red(clients: &[Client], name: &str) -> Arc<dyn DistLock> {
    Arc::new(RedLock::new(clients.iter().cloned(), name).node_timeout(PATIENCE))
}

pub fn java_red(rig: &Rig, agent: usize, name: &str, thread: i64) -> JavaLock {
    let names: Vec<_> = (0..rig.servers().count()).map(|server| (server, name)).collect();
    rig.agents[agent].at_servers(true, Kind::Reentrant, &names, thread)
}

pub async fn waiting(clients: &[Client], count: usize) {
    let waiting = async || clients.iter().map(|client| client.stats().waiting).sum::<usize>();
    until_is("our waiters", waiting, |waiting| *waiting == count).await;
}

/// Closes the agents. On a busy machine, a Redisson wait may end before its subscription is confirmed, and leave the
/// subscription behind.
pub async fn hang_up(rig: &Rig) {
    rig.latches_gone().await;
    for agent in &rig.agents {
        agent.close().await;
    }
}

/// Returns true if this `lock()` of Redisson may have retried. A retry first releases the members, which sends
/// messages. An attempt at three members takes 4.5 s, and longer with more members.
pub fn may_have_retried(step: Step, took: Duration) -> bool {
    step == Step::Lock && took >= ms(4000)
}

pub async fn take(lock: &dyn DistLock) -> Guard {
    lock.try_lock().await.expect("try_lock").expect("a free lock")
}

/// Waits until exactly this number of servers has a holder of the name, each with one holder that `is_it` accepts.
pub async fn held_by(rig: &Rig, name: &str, servers: usize, is_it: impl Fn(&str) -> bool) {
    let holders = async || {
        let mut all: Vec<Vec<String>> = Vec::new();
        for admin in rig.admins() {
            all.push(admin.hgetall(name).await.into_keys().collect());
        }
        all
    };
    let fine = |all: &Vec<Vec<String>>| {
        let held: Vec<_> = all.iter().flatten().collect();
        held.len() == servers && held.iter().all(|holder| is_it(holder)) && all.iter().all(|one| one.len() < 2)
    };
    until_is(&format!("{servers} holders of {name:?}"), holders, fine).await;
}

/// Returns true if the UUID version of the owner is the one that this crate uses.
pub fn is_ours(owner: &str) -> bool {
    owner.as_bytes().get(14) == Some(&b'8')
}

pub fn is_javas(owner: &str) -> bool {
    owner.as_bytes().get(14) == Some(&b'4')
}
