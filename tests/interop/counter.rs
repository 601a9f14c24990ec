//! Clients of both languages increment a counter that only the lock protects.

use std::sync::Arc;

use distlock::{DistLock, Flavour};
use distlock_support::Admin;
use distlock_support::agent::{AgentOptions, Kind};
use futures::future::join_all;

use crate::rig::Rig;

const ROUNDS: u64 = 200;
pub const COUNTER: &str = "counter";
const NAME: &str = "till";

pub async fn counter_is_exact_with_four_clients_of_each_language(version: &str) {
    count(version, 4).await;
}

pub async fn counter_is_exact_with_two_clients_of_each_language(version: &str) {
    count(version, 2).await;
}

async fn count(version: &str, each: usize) {
    let rig = Rig::start(vec![AgentOptions::version(version); each]).await;
    let mut clients = Vec::new();
    for _ in 0..each {
        clients.push(rig.client().await);
    }
    let java = rig.agents.iter().map(|agent| agent.counter_loop(&agent.at(Kind::Reentrant, NAME, 5), COUNTER, ROUNDS));
    let url = rig.server.url();
    let ours = clients
        .iter()
        .map(|client| tokio::spawn(count_here(client.lock(Flavour::Reentrant, NAME), url.clone(), ROUNDS)));
    let (java, ours) = futures::join!(join_all(java), join_all(ours));
    for answer in java {
        assert_eq!(answer.expect("the loop in Java").value["rounds"], ROUNDS);
    }
    for ended in ours {
        ended.expect("our loop");
    }
    let counted: u64 = rig.admin.cmd(&["GET", COUNTER]).await;
    let total = 2 * each as u64 * ROUNDS;
    assert_eq!(counted, total, "{version}: updates were lost: two had the lock at once");
    rig.admin.cmd::<()>(&["DEL", COUNTER]).await;
    rig.end(clients).await;
}

/// Like the agent's loop: read, add one, write.
pub async fn count_here(lock: Arc<dyn DistLock>, url: String, rounds: u64) {
    let admin = Admin::from_url(&url).await;
    for _ in 0..rounds {
        let guard = lock.lock().await.expect("lock");
        let old: Option<u64> = admin.cmd(&["GET", COUNTER]).await;
        admin.cmd::<()>(&["SET", COUNTER, &(old.unwrap_or(0) + 1).to_string()]).await;
        guard.unlock().await.expect("unlock");
    }
}
