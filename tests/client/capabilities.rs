//! Tests of `Client::capabilities` against servers that lack commands or rights.

use std::collections::BTreeMap;

use bed::{Bed, at_one, is_cluster, reentrant};
use distlock::{Capabilities, Client, Flavour};
use distlock_support::server::Builder;
use distlock_support::{Admin, RedisServer};

/// Returns the commands that the client has sent since the last call, except the housekeeping of its connections.
async fn asked(bed: &Bed) -> BTreeMap<String, u64> {
    let mut stats = bed.admin.commandstats().await;
    bed.admin.reset_stats().await;
    stats.retain(|name, _| !["config", "client", "ping", "hello"].iter().any(|own| name.starts_with(own)));
    stats
}

#[tokio::test]
async fn capabilities_are_all_present_and_queried_once() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        asked(bed).await;
        let (one, other) = (client.clone(), client.clone());
        let (found, again) = tokio::join!(one.capabilities(), other.capabilities());
        let found = found.unwrap();
        assert_eq!(again.unwrap(), found);
        let each = if is_cluster() { 3 } else { 1 };
        let mut all = asked(bed).await;
        // The client also queries the slot map whenever the map is in doubt.
        let nodes = all.remove("cluster|nodes").unwrap_or(0);
        assert!(nodes == each || is_cluster() && nodes > each, "cluster|nodes: {nodes} of {each}");
        let once = ["info", "pubsub|shardnumsub", "eval", "evalsha", "publish", "subscribe", "unsubscribe"];
        assert_eq!(all, once.map(|command| (command.to_owned(), each)).into());
        assert_eq!(client.capabilities().await.unwrap(), found);
        let mut again = asked(bed).await;
        again.retain(|name, _| !is_cluster() || name != "cluster|nodes");
        assert_eq!(again, BTreeMap::new());
        assert_eq!(found.missing(), [""; 0]);
        let version = found.version.clone().expect("it tells");
        assert!(version.starts_with(|digit: char| digit.is_ascii_digit()), "{version}");
        assert!(matches!(found.server.as_deref(), Some("redis" | "valkey")), "{found:?}");
        assert_eq!((found.servers as u64, found.cluster, found.in_cluster), (each, is_cluster(), Some(is_cluster())));
        let knows_sharded = version.split('.').next().unwrap().parse::<u32>().unwrap() >= 7;
        assert_eq!(found.sharded_channels, Some(knows_sharded));
        let rest = [found.cluster_nodes, found.messages, found.scripts, found.script_cache];
        assert_eq!((rest, found.undeclared_keys), ([Some(true); 4], None));
        client.shutdown(bed::PATIENCE).await.unwrap();
        assert!(matches!(client.capabilities().await, Err(distlock::Error::Closed)));
    })
    .await;
}

/// A missing right makes exactly its own capability false.
#[tokio::test]
async fn capabilities_report_missing_rights_of_login() {
    reentrant(async |bed| {
        let sound = bed.client().await.capabilities().await.unwrap();
        let without = |change: fn(&mut Capabilities)| {
            let mut found = sound.clone();
            change(&mut found);
            found
        };
        let publish = if is_cluster() { "-spublish" } else { "-publish" };
        let subscribe = if is_cluster() { "-ssubscribe" } else { "-subscribe" };
        let unknown: fn(&mut Capabilities) =
            |found| (found.server, found.version, found.in_cluster) = (None, None, None);
        let all: fn(&mut Capabilities) =
            |found| (found.scripts, found.script_cache, found.messages) = (Some(false), Some(false), Some(false));
        for (rules, expected, missing) in [
            (&["-info"][..], without(unknown), 0),
            (&[publish], without(|found| found.messages = Some(false)), 1),
            (&[subscribe], without(|found| found.messages = Some(false)), 1),
            (&["-eval"], without(|found| found.scripts = Some(false)), 1),
            (&["-evalsha"], without(|found| found.script_cache = Some(false)), 1),
            (&["-evalsha", "-eval", publish], without(all), 3),
        ] {
            let user = ["ACL", "SETUSER", "proxy", "reset", "on", ">secret", "~*", "&*", "+@all"];
            let () = bed.admin.cmd(&[user.as_slice(), rules].concat()).await;
            let login =
                bed.builder().username("proxy").password("secret").configure(|options| options.preflight = false);
            let client = bed.connect(login).await;
            let found = client.capabilities().await.unwrap();
            assert_eq!((&found, found.missing().len()), (&expected, missing), "{rules:?}");
        }
    })
    .await;
}

async fn connect(server: &RedisServer) -> Client {
    bed::builder(&server.url()).configure(|options| options.preflight = false).connect().await.unwrap()
}

/// A login with few commands, as behind some proxies. Locks that need none of the missing commands work.
#[tokio::test]
async fn capabilities_report_unknown_commands_and_locks_still_work() {
    let without = |server: Builder, command| server.arg("--rename-command", command).arg("", "");
    let server = ["EVALSHA", "CLUSTER", "PUBSUB", "PUBLISH"].into_iter().fold(RedisServer::builder(), without).start();
    let client = bed::builder(&server.url())
        .configure(|options| {
            options.preflight = false;
            options.script_cache = false;
        })
        .connect()
        .await
        .unwrap();
    let found = client.capabilities().await.unwrap();
    assert_eq!([found.cluster_nodes, found.sharded_channels, found.in_cluster], [Some(false); 3]);
    assert_eq!((found.messages, found.scripts, found.script_cache), (Some(false), Some(true), Some(false)));
    assert_eq!(found.missing().len(), 2, "{:?}", found.missing());
    for flavour in Flavour::ALL.iter().copied() {
        client.lock(flavour, flavour.as_str()).lock().await.unwrap().unlock().await.unwrap();
    }
    bed::idle(&client).await;
    client.shutdown(bed::PATIENCE).await.unwrap();
}

#[tokio::test]
async fn capabilities_of_cluster_node_suggest_cluster_url() {
    let server = bed::cluster_node().await;
    let client = connect(&server).await;
    let found = client.capabilities().await.unwrap();
    assert_eq!((found.cluster, found.in_cluster, found.servers), (false, Some(true), 1));
    assert!(matches!(found.missing()[..], [why] if why.contains("redis-cluster://")), "{:?}", found.missing());
    client.shutdown(bed::PATIENCE).await.unwrap();
}

/// The first call returns an error. The next call repeats the query.
#[tokio::test]
async fn capabilities_are_queried_again_after_error() {
    at_one(
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let client = bed.quick().await;
            bed.server.kill9();
            let error = client.capabilities().await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            bed.server.restart();
            bed::eventually("the next call asks again", async || client.capabilities().await.is_ok()).await;
        },
    )
    .await;
}

/// A temporary refusal says nothing about what the server supports.
#[tokio::test]
async fn capabilities_are_queried_again_after_temporary_refusal() {
    let server = RedisServer::start();
    let (client, admin) = (connect(&server).await, Admin::connect(&server).await);
    admin.config_set("replica-serve-stale-data", "no").await;
    // No server listens on this port, so the link stays down.
    let () = admin.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let error = client.capabilities().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("MASTERDOWN"), "{error}");
    let () = admin.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    let found = client.capabilities().await.unwrap();
    assert_eq!(found.missing(), [""; 0]);
    client.shutdown(bed::PATIENCE).await.unwrap();
}
