//! Servers without a fault that deserves more than a note.

use std::collections::BTreeSet;

use distlock_support::{RedisServer, Replicas, ReplicasOptions};

use crate::report::{alone, distlock, doctor, doctor_with, output, start};

/// A primary with one replica, an append-only file and `noeviction`.
pub fn pair() -> ReplicasOptions {
    let lines = [
        "appendonly yes",
        "maxmemory 1gb",
        "maxmemory-policy noeviction",
        "min-replicas-to-write 1",
        // A replica on a busy machine still counts.
        "min-replicas-max-lag 3600",
    ];
    lines.into_iter().fold(ReplicasOptions::default().replicas(1), ReplicasOptions::config)
}

#[tokio::test]
async fn sound_servers_have_no_finding_and_keep_no_key() {
    let servers = Replicas::start(pair()).await;
    let report = doctor_with(&servers.url(), &["--fail-on", "note"]).await;
    report.assert_finds(&[]);
    assert_eq!((report.status, report.not_checked()), (Some(0), BTreeSet::new()), "{report:?}");
    assert_eq!(report.json["servers"].as_array().map(Vec::len), Some(2), "{report:?}");
    assert_eq!(servers.node(0).admin().keys().await, [""; 0]);
}

/// The list of `docs/acl.md` has no right to `CONFIG`.
#[tokio::test]
async fn sound_servers_have_no_finding_for_the_login_of_the_docs() {
    let servers = Replicas::start(pair()).await;
    for node in servers.nodes() {
        let mut setuser = vec!["ACL", "SETUSER"];
        setuser.extend(crate::rights::page_rules());
        setuser.extend(["+wait", "+role"]);
        node.admin().cmd::<()>(&setuser).await;
    }
    let url = servers.url().replace("://", "://locks:SECRET@");
    let report = doctor_with(&url, &["--prefix", "app:", "--flavour", "fair", "--flavour", "permits"]).await;
    report.assert_finds(&[]);
    assert_eq!((report.status, report.not_checked()), (Some(0), BTreeSet::from(["settings"])), "{report:?}");
    assert_eq!(servers.node(0).admin().keys().await, [""; 0]);
}

#[tokio::test]
async fn server_for_development_has_notes_and_passes() {
    let (server, admin) = start(RedisServer::builder()).await;
    admin.config_set("save", "3600 1 300 100 60 10000").await;
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "persistence-snapshots"]);
    assert_eq!(report.status, Some(0));
    let strict = doctor_with(&server.url(), &["--fail-on", "note"]).await;
    assert_eq!(strict.status, Some(1));
}

#[tokio::test]
async fn refused_config_is_not_checked_and_no_failure() {
    let server = alone().config("rename-command CONFIG \"\"\n").start();
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica"]);
    assert_eq!((report.status, report.not_checked()), (Some(0), BTreeSet::from(["settings"])), "{report:?}");
    let why = report.json["not_checked"][0]["why"].as_str().unwrap_or_default();
    assert!(why.starts_with("CONFIG is refused: "), "{why}");
}

#[tokio::test]
async fn text_report_names_server_reason_and_fix() {
    let (server, admin) = start(alone()).await;
    admin.config_set("tcp-keepalive", "0").await;
    let output = output(distlock(&server.url(), &["doctor", "--latency-limit", "600000"])).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("primary {} (", server.addr())), "{text}");
    let finding = format!("note: keepalive-off\n  found  {}: tcp-keepalive 0\n  why    ", server.addr());
    assert!(text.contains(&finding), "{text}");
    assert!(text.contains("\n  do     CONFIG SET tcp-keepalive 300, "), "{text}");
    assert!(text.ends_with("\nfindings: 0 breaks locks, 0 risk, 2 note\n"), "{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal: {text}");
}
