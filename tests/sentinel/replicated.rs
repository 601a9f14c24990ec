//! Servers of which somebody makes another one the primary.

use distlock::{Acquire, Flavour, Guard};
use distlock_support::{Proxy, Replicas, ReplicasOptions, undisturbed};
use tokio::time::Instant;

use crate::{TURN, client, end, lock, ms, secs};

/// So long after the promotion the first acquire is done, at the latest.
const FIRST: u64 = 1_200;

/// Time after time a replica is made the primary behind one that is killed, or stops, or is made a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_lock_is_had_soon_after_a_promotion() {
    let _turn = TURN.lock().await;
    undisturbed(async || promotions().await).await;
}

async fn promotions() {
    let servers = Replicas::start(ReplicasOptions::default()).await;
    let one = bed::builder(&servers.url()).command_timeout(secs(1)).connect().await.unwrap();
    let kept = lock(&one, Flavour::Reentrant, "kept").lock().await.unwrap();
    for (round, how) in ["killed", "stopped", "demoted"].into_iter().enumerate() {
        servers.synced().await;
        let (old, new) = (servers.primary(), (servers.primary() + 1) % 3);
        // One of the two has acknowledged it, and this is perhaps the other one.
        bed::eventually("it knows of the hold", async || servers.node(new).admin().exists("kept").await)
            .await;
        match how {
            "killed" => servers.node(old).kill(),
            "stopped" => servers.node(old).stop(),
            _ => {}
        }
        // As long as somebody takes to find out.
        tokio::time::sleep(ms(500)).await;
        let waiter = lock(&one, Flavour::Reentrant, &format!("first:{round}"));
        let waiting = tokio::spawn(async move {
            let guard = waiter.acquire(Acquire::new().wait(secs(60))).await.unwrap().unwrap();
            (std::time::Instant::now(), guard)
        });
        tokio::time::sleep(ms(100)).await;
        let at = servers.promote(new).await;
        let (had, guard) = waiting.await.unwrap();
        let took = had.saturating_duration_since(at);
        println!("{how}: had {took:.1?} after the promotion");
        assert!(took < ms(FIRST), "{how}: {took:?}");
        drop(guard);
        match how {
            "killed" => servers.node(old).restart(),
            "stopped" => servers.node(old).cont(),
            _ => {}
        }
        servers.follow(old).await;
        bed::eventually("the hold is confirmed", async || one.renew_now().await.renewed == 1).await;
        assert!(kept.is_held());
    }
    kept.unlock().await.unwrap();
    end(one).await;
}

/// Two that call themselves primary: that of before is kept, whoever else comes.
#[tokio::test]
async fn of_two_primaries_that_of_before_is_kept() {
    let servers = Replicas::start(ReplicasOptions::default().replicas(1)).await;
    let one = client(&servers.url()).await;
    let guard: Guard = lock(&one, Flavour::Reentrant, "x").lock().await.unwrap();
    servers.detach(1).await;
    let began = Instant::now();
    while began.elapsed() < secs(3) {
        let name = format!("y:{}", began.elapsed().as_millis());
        lock(&one, Flavour::Reentrant, &name).lock().await.unwrap().unlock().await.unwrap();
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(servers.node(1).admin().calls("evalsha").await, 0, "asked of the other one");
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    end(one).await;
}

/// One name for whoever is the primary, as managed services have it: it leads to another server from one moment to the next, and
/// connections that stand lead to the one of before.
#[tokio::test]
async fn a_name_that_leads_to_another_server_is_looked_up_anew() {
    let servers = Replicas::start(ReplicasOptions::default().replicas(1)).await;
    let name = Proxy::start(servers.node(0).addr());
    let one = client(&name.url().replace("redis://", "redis-replicated://")).await;
    let kept = lock(&one, Flavour::Reentrant, "kept").lock().await.unwrap();
    servers.synced().await;
    for new in [1, 0, 1] {
        name.set_upstream(servers.node(new).addr());
        let at = servers.promote(new).await;
        let guard = lock(&one, Flavour::Reentrant, "x").acquire(Acquire::new().wait(secs(60))).await.unwrap().unwrap();
        println!("had {:.1?} after the promotion", at.elapsed());
        guard.unlock().await.unwrap();
        assert!(servers.node(new).admin().calls("evalsha").await > 0, "asked of the new one");
        bed::eventually("the hold is confirmed", async || one.renew_now().await.renewed == 1).await;
        assert!(kept.is_held());
        servers.synced().await;
    }
    kept.unlock().await.unwrap();
    end(one).await;
}
