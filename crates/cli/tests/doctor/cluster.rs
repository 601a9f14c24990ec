//! Faults of a cluster.

use distlock_support::{Cluster, ClusterOptions};

use crate::report::doctor;

/// One cluster for all faults, because a cluster takes seconds to start.
#[tokio::test]
async fn faults_of_a_cluster_are_found_one_at_a_time() {
    let options = ClusterOptions::default().primaries(1).replicas(1).require_full_coverage(false);
    let cluster = Cluster::start(options.config("appendonly yes")).await;
    let primary = &cluster.nodes()[0];
    let report = doctor(&cluster.url()).await;
    report.assert_finds(&[]);
    assert_eq!(report.status, Some(0), "{report:?}");

    let report = doctor(&primary.url()).await;
    report.assert_finds(&["cluster-by-single-url"]);
    report.assert_severity("cluster-by-single-url", "breaks");

    primary.admin().config_set("cluster-node-timeout", "60000").await;
    let report = doctor(&cluster.url()).await;
    report.assert_finds(&["cluster-node-timeout"]);
    report.assert_severity("cluster-node-timeout", "risk");
    primary.admin().config_set("cluster-node-timeout", "1000").await;

    primary.admin().cmd::<()>(&["CLUSTER", "DELSLOTS", "100"]).await;
    let report = doctor(&cluster.url()).await;
    report.assert_finds(&["slots-uncovered"]);
    report.assert_severity("slots-uncovered", "breaks");
    assert_eq!(report.findings("slots-uncovered")[0]["found"], "16383 of 16384 slots covered");
}

#[tokio::test]
async fn primaries_without_replicas_are_a_risk_in_a_cluster() {
    let options = ClusterOptions::default().primaries(1).replicas(0);
    let cluster = Cluster::start(options.config("appendonly yes")).await;
    let report = doctor(&cluster.url()).await;
    report.assert_finds(&["no-replica"]);
    report.assert_severity("no-replica", "risk");
    let found = report.findings("no-replica")[0]["found"].as_str().unwrap();
    assert_eq!(found, "connected_slaves:0, and cluster-require-full-coverage yes stops all other locks too");
}
