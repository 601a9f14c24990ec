//! Servers that answer what is asked and refuse what writes: a vote finds the lock busy there, and a wait is refused.

use std::time::Instant;

use distlock::{Acquire, DistLock as _, Error, Flavour};

use crate::rig::{Five, Path, SOON, five, long, patient};
use bed::{eventually, secs};

/// Scripts run at all servers.
async fn scripts(five: &Five) -> u64 {
    let mut all = 0;
    for at in 0..five.servers.len() {
        all += five.admin(at).await.calls("evalsha").await;
    }
    all
}

async fn memory(five: &Five, at: &[usize], most: &str) {
    for at in at {
        five.admin(*at).await.config_set("maxmemory", most).await;
    }
}

/// One server of five has no memory: a waiter waits in the queue of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_wait_is_refused_one_waits_elsewhere() {
    five(async |five| {
        let (holder, user) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let held = holder.over(Flavour::Fair, "x").acquire(long()).await.unwrap().unwrap();
        eventually("all have granted it", async || held.members().len() == 5).await;
        memory(five, &[0], "1").await;
        let before = scripts(five).await;
        let lock = user.over(Flavour::Fair, "x");
        let waiter = tokio::spawn(async move { lock.acquire(long().wait(secs(60))).await });
        tokio::time::sleep(secs(3)).await;
        assert!(!waiter.is_finished(), "{:?}", waiter.await);
        let asked = scripts(five).await - before;
        println!("{asked} scripts in 3 s");
        // A vote of five, two waits and their refreshes, and a look of five a second.
        assert!(asked < 100, "{asked} scripts in 3 s");
        eventually("it waits at another", async || (1..5).any(|at| user.clients[at].stats().waiting == 1))
            .await;
        memory(five, &[0], "0").await;
        held.unlock().await.unwrap();
        let guard = tokio::time::timeout(secs(20), waiter).await.expect("never served").unwrap().unwrap().unwrap();
        guard.unlock().await.unwrap();
        user.idle_at(&[0, 1, 2, 3, 4]).await;
    })
    .await;
}

/// Nobody can wait anywhere: that is told at once, and nobody spins until the end of the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_refuse_the_wait_it_is_told() {
    five(async |five| {
        let (holder, user) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let held = holder.over(Flavour::Fair, "x").acquire(long()).await.unwrap().unwrap();
        eventually("all have granted it", async || held.members().len() == 5).await;
        memory(five, &[0, 1, 2, 3, 4], "1").await;
        let before = scripts(five).await;
        let began = Instant::now();
        let lock = user.over(Flavour::Fair, "x");
        let outcome = lock.acquire(Acquire::new().lease(secs(60)).wait(secs(10))).await;
        let asked = scripts(five).await - before;
        println!("{asked} scripts in {:?}", began.elapsed());
        match outcome {
            Err(Error::NoQuorum { why, .. }) => {
                assert!(matches!(&*why, Error::Server { message } if message.starts_with("OOM")), "{why}");
            }
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
        assert!(asked < 100, "{asked} scripts");
        memory(five, &[0, 1, 2, 3, 4], "0").await;
        user.idle_at(&[0, 1, 2, 3, 4]).await;
        held.unlock().await.unwrap();
        five.clean(SOON).await;
    })
    .await;
}
