//! Data loss despite a strict mode. A slot moves and its new primary dies, or a primary restarts empty. Holders learn
//! of the loss, and fencing tokens keep rising.

use bed::{ends, eventually};
use distlock::{Acks, Acquire, Client, Error, Guard, Lost};
use distlock_support::{Admin, Cluster, ClusterOptions, Sentinels, SentinelsOptions, slot_of};

use crate::{end, had, had_as, ms, over, secs, servers};

const TAG: &str = "{a}";

fn name(lock: &str) -> String {
    format!("{TAG}:{lock}")
}

/// Three primaries with a replica each. A replica may take over even if its data is old.
async fn cluster() -> Cluster {
    let options = ClusterOptions::default().primaries(3).replicas(1).node_timeout(15_000);
    let cluster = Cluster::start(options.config("cluster-replica-validity-factor 0")).await;
    for node in cluster.nodes() {
        if node.is_primary().await {
            let acknowledges = async || node.admin().cmd::<usize>(&["WAIT", "1", "5000"]).await == 1;
            eventually("replicas acknowledge", acknowledges).await;
        }
    }
    cluster
}

/// Stops the replication from this primary. The primary and its replicas are still connected by the cluster bus.
async fn loses_its_replicas(primary: &Admin) {
    primary.cmd::<()>(&["ACL", "SETUSER", "default", "-psync", "-sync"]).await;
    primary.cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
}

async fn client(url: &str, acks: Acks) -> Client {
    over(url, acks).watchdog(secs(300)).connect().await.unwrap()
}

/// Acquires two locks with explicit leases and one that the watchdog renews. Returns the guards, and the token of the
/// fenced lock.
async fn holds(client: &Client) -> (Vec<Guard>, u64) {
    let leased = || Acquire::new().lease(secs(600));
    let fenced = had_as(&client.fenced(&name("fenced")), leased).await;
    let token = fenced.fencing_token().unwrap();
    let plain = had_as(&client.plain(&name("plain")), leased).await;
    (vec![fenced, plain, had(&client.reentrant(&name("watched"))).await], token)
}

/// Asserts that every guard learns of the loss, whatever its lease, and that the next holder has a higher token.
async fn told_and_followed((guards, token): (Vec<Guard>, u64), other: &Client) {
    for guard in &guards {
        let lost = ends("the signal of the loss", guard.lost()).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{}: {lost:?}", guard.name());
        assert!(!guard.is_held(), "{}", guard.name());
    }
    let (lock, mut next) = (other.fenced(&name("fenced")), None);
    eventually("the lock is granted again", async || {
        next = lock.try_lock().await.ok().flatten();
        next.is_some()
    })
    .await;
    let next = next.expect("eventually() has ended");
    let after = next.fencing_token().unwrap();
    assert!(after > token, "token {after} after {token}");
    next.unlock().await.unwrap();
}

/// The slot moves to a primary whose replication is stopped, and that primary dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_of_the_loss_and_tokens_rise_when_a_moved_slots_new_primary_dies() {
    let cluster = cluster().await;
    let [one, other] = [client(&cluster.url(), Acks::AtLeast(1)).await, client(&cluster.url(), Acks::AtLeast(1)).await];
    let held = holds(&one).await;
    let slot = slot_of(TAG);
    let target = cluster.other_primary(cluster.owner(slot).await).await;
    loses_its_replicas(target.admin()).await;
    cluster.move_slot(slot, target).await;
    let refused = other.fenced(&name("more")).try_lock().await;
    assert!(!matches!(refused, Ok(Some(_))), "granted without a replica: {refused:?}");
    cluster.kill(target).await;
    let promoted = cluster.promotion(target).await.node;
    // The promoted server needs a replica of its own.
    cluster.restart_behind(target, promoted).await;
    told_and_followed(held, &other).await;
    end(one).await;
    end(other).await;
}

/// The source dies after the keys have moved, but before the slot has. After that, no client looks for the keys at the
/// target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_of_the_loss_and_tokens_rise_when_a_half_moved_slots_source_dies() {
    let cluster = cluster().await;
    let [one, other] = [client(&cluster.url(), Acks::AtLeast(1)).await, client(&cluster.url(), Acks::AtLeast(1)).await];
    let held = holds(&one).await;
    let slot = slot_of(TAG);
    let source = cluster.owner(slot).await;
    cluster.open_slot(slot, cluster.other_primary(source).await).await;
    let keys = cluster.keys_in_slot(slot).await;
    cluster.move_keys(slot, &keys).await;
    let replica = cluster.replicas_of(source).await[0];
    eventually("the replica has lost the keys as well", async || {
        replica.admin().cmd::<u64>(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).await == 0
    })
    .await;
    cluster.kill(source).await;
    let promoted = cluster.promotion(source).await.node;
    cluster.restart_behind(source, promoted).await;
    told_and_followed(held, &other).await;
    end(one).await;
    end(other).await;
}

/// The primary restarts empty before the sentinels consider it down, and its replicas copy the empty data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_of_the_loss_and_tokens_rise_when_a_primary_restarts_empty() {
    let bed = Sentinels::start(SentinelsOptions::default().down_after(600_000)).await;
    bed.servers().synced().await;
    let [one, other] = [client(&bed.url(), Acks::All).await, client(&bed.url(), Acks::All).await];
    let held = holds(&one).await;
    let primary = bed.server(bed.primary().await);
    primary.kill();
    primary.restart();
    told_and_followed(held, &other).await;
    end(one).await;
    end(other).await;
}

/// The token counter is deleted, or restored from a backup. Clients in other modes continue from a strict client's
/// token, as Redisson does.
#[tokio::test]
async fn strict_modes_issue_rising_tokens_after_the_counter_was_lost() {
    let servers = servers(1).await;
    let strict = crate::client(&servers, Acks::AtLeast(1)).await;
    let default = crate::client(&servers, Acks::Off).await;
    let (admin, counter) = (servers.node(0).admin(), format!("{}{{rises}}", bed::COUNTER));
    let section = async |client: &Client| {
        let guard = had(&client.fenced("rises")).await;
        let token = guard.fencing_token().unwrap();
        guard.unlock().await.unwrap();
        token
    };
    // Several sections (holds of the lock) within a millisecond push the counter ahead of the server's time. The pause
    // lets the server's time pass the counter.
    let passed = || tokio::time::sleep(ms(20));
    assert_eq!(section(&default).await, 1);
    let mut last = section(&strict).await;
    assert!(last > 1_600_000_000_000, "the server's time in ms: {last}");
    let old = (last - 1_000).to_string();
    for lost in [vec!["DEL", &counter], vec!["SET", &counter, &old], vec!["SET", &counter, "7"]] {
        passed().await;
        admin.raw(&lost).await.unwrap();
        let next = section(&strict).await;
        assert!(next > last, "{lost:?}: token {next} after {last}");
        let behind = section(&default).await;
        assert_eq!(behind, next + 1, "{lost:?}");
        last = behind;
        assert_eq!(admin.pttl(&counter).await, -1);
    }
    // A counter ahead of the server's time is incremented by one.
    let ahead = last + 1_000_000_000;
    admin.cmd::<()>(&["SET", &counter, &ahead.to_string()]).await;
    assert_eq!([section(&strict).await, section(&default).await], [ahead + 1, ahead + 2]);
    // In the other modes, the first section after a loss gets token 1.
    passed().await;
    admin.cmd::<()>(&["DEL", &counter]).await;
    assert_eq!(section(&default).await, 1);
    assert!(section(&strict).await > last);
    end(strict).await;
    end(default).await;
}
