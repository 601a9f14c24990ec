//! Strict modes where data is lost all the same: a slot moves and its new primary dies, or a primary restarts empty. Holders are told,
//! and fencing tokens go on rising.

use bed::{ends, eventually};
use distlock::{Acks, Acquire, Client, Error, Guard, Lost};
use distlock_support::{Admin, Cluster, ClusterOptions, Sentinels, SentinelsOptions, slot_of};

use crate::{end, had, had_as, ms, over, secs, servers};

const TAG: &str = "{a}";

fn name(lock: &str) -> String {
    format!("{TAG}:{lock}")
}

/// Three primaries with a replica each, which takes over however old its data is.
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

/// Nobody follows this primary any more; on the bus its replicas hear of it as before.
async fn loses_its_replicas(primary: &Admin) {
    primary.cmd::<()>(&["ACL", "SETUSER", "default", "-psync", "-sync"]).await;
    primary.cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
}

async fn client(url: &str, acks: Acks) -> Client {
    over(url, acks).watchdog(secs(300)).connect().await.unwrap()
}

/// What a client holds, by explicit leases and by the watchdog, and the token of its fenced lock.
async fn holds(client: &Client) -> (Vec<Guard>, u64) {
    let leased = || Acquire::new().lease(secs(600));
    let fenced = had_as(&client.fenced(&name("fenced")), leased).await;
    let token = fenced.fencing_token().unwrap();
    let plain = had_as(&client.plain(&name("plain")), leased).await;
    (vec![fenced, plain, had(&client.reentrant(&name("watched"))).await], token)
}

/// Every guard is told, whatever its lease; the next holder has a larger token.
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

/// The slot moves to a primary that no replica follows, and that primary dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_that_moved_before_its_new_primary_died_repeats_no_token_and_tells_its_holders() {
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
    cluster.promotion(target).await;
    // The promoted one needs a replica of its own.
    cluster.restart(target);
    told_and_followed(held, &other).await;
    end(one).await;
    end(other).await;
}

/// The keys have moved and the slot has not when the source dies: nobody looks for them at the target any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_moved_slot_whose_source_died_repeats_no_token_and_tells_its_holders() {
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
    cluster.promotion(source).await;
    cluster.restart(source);
    told_and_followed(held, &other).await;
    end(one).await;
    end(other).await;
}

/// The primary is restarted empty before sentinels take it for down, and its replicas follow it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn primary_that_restarts_empty_repeats_no_token_and_its_holders_are_told() {
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

/// A counter that was deleted, and one that came back from a backup. Clients of other modes count on from there, as Redisson does.
#[tokio::test]
async fn fencing_tokens_rise_where_the_counter_was_lost() {
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
    // Sections of the last millisecond have counted ahead of the time.
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
    // Ahead of the time, it counts.
    let ahead = last + 1_000_000_000;
    admin.cmd::<()>(&["SET", &counter, &ahead.to_string()]).await;
    assert_eq!([section(&strict).await, section(&default).await], [ahead + 1, ahead + 2]);
    // Of the other modes each first section behind a loss is number 1.
    passed().await;
    admin.cmd::<()>(&["DEL", &counter]).await;
    assert_eq!(section(&default).await, 1);
    assert!(section(&strict).await > last);
    end(strict).await;
    end(default).await;
}
