//! `distlock bench`: counts and state. No test asserts a speed.

use std::process::Stdio;

use distlock_support::reaper::{self, Adopted};
use distlock_support::{Admin, RedisServer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::report::{distlock, ends, output, until};

fn parsed(stdout: &[u8]) -> Value {
    serde_json::from_slice(stdout).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(stdout)))
}

#[tokio::test]
async fn bench_counts_pairs_and_leaves_no_key() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    for args in [&["--flavour", "reentrant"][..], &["--flavour", "fair", "--contended"], &["--flavour", "read"]] {
        let bench = [&["bench", "--seconds", "1", "--tasks", "4", "--json"], args].concat();
        let output = output(distlock(&server.url(), &bench)).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = parsed(&output.stdout);
        let count = |name: &str| report[name]["count"].as_u64().unwrap();
        assert!(count("release") > 0 && count("acquire") >= count("release"), "{report:#}");
        assert_eq!((&report["pairs"], &report["errors"]), (&report["release"]["count"], &json!(0)), "{report:#}");
        assert_eq!(admin.keys().await, [""; 0], "{args:?}");
    }
}

#[tokio::test]
async fn counters_of_fenced_locks_expire_after_a_bench() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    admin.cmd::<()>(&["SET", "redisson_lock_token:{mine}", "7"]).await;
    let args = ["bench", "--seconds", "1", "--tasks", "2", "--flavour", "fenced"];
    let output = output(distlock(&server.url(), &args)).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let keys = admin.keys().await;
    assert_eq!(keys.len(), 3, "{keys:?}");
    for key in keys {
        let is_of_bench = key.starts_with("redisson_lock_token:{distlock-bench:");
        assert_eq!(admin.pttl(&key).await > 0, is_of_bench, "{key}");
    }
}

#[tokio::test]
async fn interrupted_bench_reports_and_leaves_no_key() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    let contended = ["--contended"];
    for args in [&contended[..0], &contended[..]] {
        let bench = [&["bench", "--seconds", "3600", "--json"], args].concat();
        let process = distlock(&server.url(), &bench).stdout(Stdio::piped()).spawn().unwrap();
        let pid = process.id().unwrap();
        let adopted = Adopted::new(pid);
        until("the first lock", async || !admin.keys().await.is_empty()).await;
        reaper::signal(pid, Signal::INT);
        drop(adopted);
        let output = ends("the end of bench", process.wait_with_output()).await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(parsed(&output.stdout)["errors"], 0, "{output:?}");
        assert_eq!(admin.keys().await, [""; 0], "{args:?}");
    }
}
