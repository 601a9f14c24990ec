//! Servers that are out of memory answer reads and refuse writes. If the lock is held there, an attempt finds it busy,
//! and a wait is refused.

use distlock::{Error, Flavour};

use crate::rig::{Five, Path, by_all, five, long, patient};
use bed::{ends, eventually, secs};

async fn memory(five: &Five, at: &[usize], most: &str) {
    for at in at {
        five.admin(*at).await.config_set("maxmemory", most).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_refused_by_one_server_waits_at_another() {
    five(async |five| {
        let (holder, user) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let held = by_all(&holder.over(Flavour::Fair, "x"), long()).await;
        memory(five, &[0], "1").await;
        let before = five.calls("evalsha").await;
        let lock = user.over(Flavour::Fair, "x");
        let waiting = tokio::spawn(async move { lock.acquire(long().wait(secs(3600))).await });
        eventually("it waits at another", async || (1..5).any(|at| user.clients[at].stats().waiting == 1)).await;
        assert!(!waiting.is_finished());
        let asked = five.calls("evalsha").await - before;
        // One vote at each of five servers, two waits, and queries at five servers. The waiter does not spin.
        assert!(asked < 100, "{asked} scripts");
        memory(five, &[0], "0").await;
        held.unlock().await.unwrap();
        let guard = ends("the waiter", waiting).await.unwrap().unwrap().unwrap();
        guard.unlock().await.unwrap();
        user.idle().await;
    })
    .await;
}

/// The error is returned once the retries are used up. The waiter does not spin until the end of its wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_refused_by_all_servers_gets_no_quorum() {
    five(async |five| {
        let (holder, user) = (
            five.warm(Path::Direct, patient).await,
            five.warm(Path::Direct, |url| patient(url).retry_attempts(0)).await,
        );
        let held = by_all(&holder.over(Flavour::Fair, "x"), long()).await;
        memory(five, &five.all(), "1").await;
        let before = five.calls("evalsha").await;
        let waiting = user.over(Flavour::Fair, "x");
        let outcome = ends("a wait that is refused", waiting.acquire(long().wait(secs(3600)))).await;
        let asked = five.calls("evalsha").await - before;
        match outcome {
            Err(Error::NoQuorum { why, .. }) => {
                assert!(matches!(&*why, Error::Server { message, .. } if message.starts_with("OOM")), "{why}");
            }
            other => panic!("expected NoQuorum: {other:?}"),
        }
        assert!(asked < 100, "{asked} scripts");
        memory(five, &five.all(), "0").await;
        user.idle().await;
        held.unlock().await.unwrap();
    })
    .await;
}
