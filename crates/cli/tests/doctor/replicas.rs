//! Replicas in the wrong place, replicas that do not keep up, and too few replicas.

use distlock_support::{Replicas, ReplicasOptions};

use crate::report::{alone, doctor, info, until};
use crate::sound::pair;

/// As [`pair`], but the primary also writes without a replica.
fn loose_pair() -> ReplicasOptions {
    pair().config("min-replicas-to-write 0")
}

#[tokio::test]
async fn replica_instead_of_a_primary_is_found() {
    let servers = Replicas::start(pair()).await;
    let report = doctor(servers.node(1).admin_url()).await;
    report.assert_finds(&["not-a-primary"]);
    report.assert_severity("not-a-primary", "breaks");
    let primary = servers.node(0).addr();
    assert_eq!(report.findings("not-a-primary")[0]["found"], format!("a replica of {primary}"));
}

#[tokio::test]
async fn replica_that_lags_behind_is_found() {
    let servers = Replicas::start(loose_pair()).await;
    servers.node(1).stop();
    let admin = servers.node(0).admin();
    admin.cmd::<()>(&["SET", "big", &"x".repeat(17 << 20)]).await;
    let report = doctor(servers.node(0).admin_url()).await;
    report.assert_finds(&["replica-behind"]);
    report.assert_severity("replica-behind", "risk");
}

#[tokio::test]
async fn too_few_replicas_for_writes_are_found() {
    let server = alone().arg("--min-replicas-to-write", "1").start();
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "min-replicas-unmet"]);
    report.assert_severity("min-replicas-unmet", "breaks");
}

#[tokio::test]
async fn primary_that_writes_without_replicas_is_found() {
    let servers = Replicas::start(loose_pair()).await;
    let report = doctor(&servers.url()).await;
    report.assert_finds(&["min-replicas-off"]);
    report.assert_severity("min-replicas-off", "note");
}

#[tokio::test]
async fn dead_replica_is_found() {
    let servers = Replicas::start(loose_pair()).await;
    servers.node(1).kill();
    let admin = servers.node(0).admin();
    until("the primary to notice", async || info(admin, "replication", "connected_slaves").await == Some(0)).await;
    let report = doctor(&servers.url()).await;
    report.assert_finds(&["no-replica", "unreachable"]);
    report.assert_severity("unreachable", "risk");
    assert_eq!(report.findings("unreachable")[0]["server"], servers.node(1).addr().to_string());
}
