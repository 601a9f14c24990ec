//! `Acks::All` counts the replicas that are away, whoever tells of them.

use distlock::{Acks, Client};
use distlock_support::proxy::{Action, Matcher};
use distlock_support::{Proxy, Sentinels, SentinelsOptions};

use crate::{end, ms, over, secs, servers};

async fn is_refused(client: &Client, name: &str) {
    let outcome = client.reentrant(name).try_lock().await;
    assert!(matches!(outcome, Err(distlock::Error::Replicas { got: 1, wanted: 2 })), "{outcome:?}");
}

/// A service behind one name tells of those that are connected alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_replicated_servers_by_one_name() {
    let servers = servers(2).await;
    let all = over(&format!("redis-replicated://{}", servers.node(0).addr()), Acks::All).connect().await.unwrap();
    all.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
    servers.node(2).kill();
    // Longer than it takes to be asked again.
    tokio::time::sleep(secs(3)).await;
    is_refused(&all, "b").await;
    servers.node(2).restart();
    let whole = async || matches!(all.reentrant("c").try_lock().await, Ok(Some(_)));
    bed::eventually("all acknowledge", whole).await;
    end(all).await;
}

/// Sentinels know of one that is away; until one of them has said so, nobody is connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_sentinels_that_are_slow_to_list() {
    let bed = Sentinels::start(SentinelsOptions::default()).await;
    let primary = bed.primary().await;
    let away = (0..3).find(|n| *n != primary).unwrap();
    bed.server(away).kill();
    let gone = async || {
        let info: String = bed.server(primary).admin().cmd(&["INFO", "replication"]).await;
        info.contains("connected_slaves:1")
    };
    bed::eventually("the primary knows that one is away", gone).await;
    let proxies: Vec<Proxy> = bed.sentinels().iter().map(|sentinel| Proxy::start(sentinel.addr())).collect();
    let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
    // Who is the primary is told at once, what else there is too late.
    for proxy in &proxies {
        proxy.on_request(Matcher::command("SENTINEL").nth(2), Action::DelayReply(ms(400)));
    }
    let url = format!("redis-sentinel://{}/{}", hosts.join(","), bed.name());
    let all = over(&url, Acks::All).connect().await.unwrap();
    is_refused(&all, "a").await;
    end(all).await;
}
