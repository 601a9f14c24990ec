//! Servers that may lose keys, or refuse to write them.

use distlock_support::RedisServer;

use crate::report::{alone, doctor, info, start, until};

#[tokio::test]
async fn policy_that_evicts_locks_is_found() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = alone().arg("--maxmemory", "1gb").arg("--maxmemory-policy", policy).start();
        let report = doctor(&server.url()).await;
        report.assert_finds(&["no-replica", "eviction"]);
        report.assert_severity("eviction", "breaks");
        let [finding] = report.findings("eviction")[..] else { panic!("{report:?}") };
        assert_eq!(finding["server"], server.addr().to_string());
        assert_eq!(finding["found"], format!("maxmemory-policy {policy}, maxmemory 1073741824"));
    }
}

#[tokio::test]
async fn nearly_full_memory_is_found() {
    let (server, admin) = start(alone()).await;
    // 20 MB, so that the connections of `doctor` do not matter.
    admin.cmd::<()>(&["SETRANGE", "big", "20000000", "x"]).await;
    let used = info(&admin, "memory", "used_memory").await.unwrap();
    admin.config_set("maxmemory", &(used * 100 / 95).to_string()).await;
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "memory-nearly-full"]);
    report.assert_severity("memory-nearly-full", "risk");
}

#[tokio::test]
async fn missing_persistence_is_found() {
    let server = RedisServer::start();
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "persistence-off"]);
    report.assert_severity("persistence-off", "risk");
}

#[tokio::test]
async fn file_that_is_never_synced_is_found() {
    let server = alone().arg("--appendfsync", "no").start();
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "fsync-off"]);
    report.assert_severity("fsync-off", "note");
}

#[tokio::test]
async fn failed_save_that_stops_writes_is_found() {
    let (server, admin) = start(alone()).await;
    admin.config_set("save", "3600 1").await;
    // The server cannot replace a folder by its file.
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    until("a failed save", async || {
        // Refused while the last save still runs.
        let _ = admin.raw(&["BGSAVE"]).await;
        admin.cmd::<String>(&["INFO", "persistence"]).await.contains("rdb_last_bgsave_status:err")
    })
    .await;
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "disk-writes-fail"]);
    report.assert_severity("disk-writes-fail", "breaks");
}
