//! `Acks::All` counts unreachable replicas, whichever source lists them.

use bed::fault::refused_by;
use distlock::{Acks, Flavour};
use distlock_support::proxy::{Action, Matcher};
use distlock_support::{Proxy, Sentinels, SentinelsOptions};

use crate::{connected, end, had, ms, over, servers};

/// A service behind one name lists connected replicas only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_all_counts_disconnected_replicas_behind_one_name() {
    let servers = servers(2).await;
    let all = over(&format!("redis-replicated://{}", servers.node(0).addr()), Acks::All).connect().await.unwrap();
    had(&all.reentrant("a")).await.unlock().await.unwrap();
    servers.node(2).kill();
    connected(servers.node(0).admin(), 1).await;
    // The result is the same after the client has queried the primary's replicas again.
    let queries = async || servers.node(0).admin().calls("role").await + servers.node(0).admin().calls("info").await;
    let before = queries().await;
    bed::eventually("the client looks again", async || queries().await > before + 4).await;
    refused_by(&all, Flavour::Reentrant, "b", (1, 2)).await;
    servers.node(2).restart();
    let whole = async || matches!(all.reentrant("c").try_lock().await, Ok(Some(_)));
    bed::eventually("all acknowledge", whole).await;
    end(all).await;
}

/// Sentinels list an unreachable replica. No acquire is granted until a sentinel has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_all_counts_replicas_listed_late_by_sentinels() {
    let bed = Sentinels::start(SentinelsOptions::default().down_after(60_000)).await;
    let primary = bed.primary().await;
    let away = (0..3).find(|n| *n != primary).unwrap();
    bed.server(away).kill();
    connected(bed.server(primary).admin(), 1).await;
    let proxies: Vec<Proxy> = bed.sentinels().iter().map(|sentinel| Proxy::start(sentinel.addr())).collect();
    let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
    // Sentinels name the primary at once, but their lists of replicas arrive late.
    for proxy in &proxies {
        proxy.on_request(Matcher::command("SENTINEL").nth(2), Action::DelayReply(ms(400)));
    }
    let url = format!("redis-sentinel://{}/{}", hosts.join(","), bed.name());
    let all = over(&url, Acks::All).connect().await.unwrap();
    refused_by(&all, Flavour::Reentrant, "a", (1, 2)).await;
    end(all).await;
}
