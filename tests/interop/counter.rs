//! Clients of both languages increment a counter that only the lock protects.

use std::sync::Arc;

use distlock::{DistLock, Flavour};
use distlock_support::Admin;
use distlock_support::agent::{AgentOptions, JavaLock, Kind};
use futures::future::join_all;

use crate::rig::Rig;

const COUNTER: &str = "counter";
/// Clients of each language.
const CLIENTS: usize = 4;

pub async fn counter_is_exact_with_clients_of_both_languages(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); CLIENTS]).await;
    let java: Vec<_> = rig.agents.iter().map(|agent| agent.at(Kind::Reentrant, "till", 5)).collect();
    let (mut clients, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let client = rig.client().await;
        ours.push(client.lock(Flavour::Reentrant, "till"));
        clients.push(client);
    }
    count_together(&format!("{version}, reentrant locks"), &rig, &java, ours, (200, 200)).await;
    rig.end(clients).await;
}

/// Java and our tasks increment a counter on the first server. `rounds`: rounds of each Java lock and of each of ours.
pub async fn count_together(
    what: &str,
    rig: &Rig,
    java: &[JavaLock],
    ours: Vec<Arc<dyn DistLock>>,
    rounds: (u64, u64),
) {
    let total = java.len() as u64 * rounds.0 + ours.len() as u64 * rounds.1;
    let theirs =
        java.iter().map(|lock| lock.start("counter_loop", serde_json::json!({"counter": COUNTER, "rounds": rounds.0})));
    let theirs = join_all(theirs.collect::<Vec<_>>());
    let url = rig.server.url();
    let tasks: Vec<_> = ours.into_iter().map(|lock| tokio::spawn(count_here(lock, url.clone(), rounds.1))).collect();
    let (theirs, ours) = futures::join!(theirs, join_all(tasks));
    for answer in theirs {
        assert_eq!(answer.expect("the loop in Java").value["rounds"], rounds.0);
    }
    for ended in ours {
        ended.expect("our loop");
    }
    let counted: u64 = rig.admin.cmd(&["GET", COUNTER]).await;
    assert_eq!(counted, total, "{what}: updates were lost: two had the lock at once");
    rig.admin.cmd::<()>(&["DEL", COUNTER]).await;
}

/// Like the agent's loop: read, add one, write.
async fn count_here(lock: Arc<dyn DistLock>, url: String, rounds: u64) {
    let admin = Admin::from_url(&url).await;
    for _ in 0..rounds {
        let guard = lock.lock().await.expect("lock");
        let old: Option<u64> = admin.cmd(&["GET", COUNTER]).await;
        admin.cmd::<()>(&["SET", COUNTER, &(old.unwrap_or(0) + 1).to_string()]).await;
        guard.unlock().await.expect("unlock");
    }
}
