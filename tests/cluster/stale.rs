//! Stale slot maps, and subscriptions that must follow a slot nevertheless.

use bed::{becomes, eventually};
use distlock::{Acquire, Flavour};
use distlock_support::{Action, Cluster, ClusterOptions, Matcher, Mode, slot_of};

use crate::{client, end, lock, ms, secs, turn, waiter, woken, woken_by_messages};

/// All primaries fail, and one of them keeps its connections open. Their replicas take over without a vote. The client
/// must read the map of another server, although this primary is silent.
#[tokio::test]
async fn silent_server_does_not_keep_the_map_stale() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let quick = bed::builder(&cluster.url())
        .command_timeout(secs(1))
        .configure(|options| options.retry_delay = (ms(10), ms(100)));
    let one = quick.retry_attempts(1000).connect().await.unwrap();
    let names: Vec<String> = (0..12).map(|n| format!("silent:{n}")).collect();
    for name in &names {
        turn(&one, Flavour::Reentrant, name).await;
    }
    cluster.stop(&cluster.nodes()[0]).await;
    cluster.kill(&cluster.nodes()[1]).await;
    cluster.kill(&cluster.nodes()[2]).await;
    // During this wait the client queries every known server, and no server has a newer map.
    let got = lock(&one, Flavour::Reentrant, &names[0]).acquire(Acquire::new().wait(secs(2))).await;
    assert!(!matches!(got, Ok(Some(_))), "no server serves the slot: {got:?}");
    let replicas = &cluster.nodes()[3..];
    for replica in replicas {
        replica.admin().cmd::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    }
    becomes("replicas that serve all slots", 3, async || {
        let mut well = 0;
        for replica in replicas {
            let info: String = replica.admin().cmd(&["CLUSTER", "INFO"]).await;
            well += u32::from(info.contains("cluster_state:ok"));
        }
        well
    })
    .await;
    for name in &names {
        let guard = lock(&one, Flavour::Reentrant, name).acquire(Acquire::new().wait(secs(90))).await;
        guard.unwrap().expect("the slot is served again").unlock().await.unwrap();
    }
    end(one).await;
}

/// A slot moves to a server that does not confirm subscriptions, and then back to the first server. A release at the
/// first server wakes the waiter. `reconnect`: the connections to the first server break after the slot has returned.
async fn release_wakes_waiter_after_slot_returned(reconnect: bool) {
    let cluster = Cluster::start(ClusterOptions::default().primaries(2).replicas(0).proxies(true)).await;
    let one = client(&cluster).await;
    let other =
        woken_by_messages(&cluster).configure(|options| options.scan_interval = Some(ms(100))).connect().await.unwrap();
    let name = "there:and:back";
    let slot = slot_of(name);
    let from = cluster.primary_of(name).await;
    let to = cluster.other_primary(from).await;
    let guard = lock(&one, Flavour::Reentrant, name).lock().await.unwrap();
    let waiting = waiter(&other, Flavour::Reentrant, name).await;
    let subscribing = to.proxy().on_request(Matcher::command("SSUBSCRIBE"), Action::HangReply);
    cluster.open_slot(slot, to).await;
    cluster.move_keys(slot, &[name]).await;
    if reconnect {
        // The client learns of the move from the target. Later the source reports that the subscription has ended.
        from.proxy().set_downstream_mode(Mode::Delay(ms(600)));
    }
    for node in [to, from] {
        node.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", to.id()]).await;
    }
    eventually("the client subscribes at the new server", async || subscribing.has_fired()).await;
    from.proxy().heal();
    cluster.move_slot(slot, from).await;
    let subscribed = async || from.admin().shard_channels().await.len() == 1;
    eventually("the client subscribes at the first server again", subscribed).await;
    if reconnect {
        from.proxy().close_all();
        eventually("the client subscribes over a new connection", subscribed).await;
    }
    guard.unlock().await.unwrap();
    woken("after its slot came back", waiting).await.unlock().await.unwrap();
    end(one).await;
    end(other).await;
}

bed::cases!(on two threads, release_wakes_waiter_after_slot_returned: on_standing_connections = false, after_a_reconnect = true);
