//! The admin connection, the leak check and the TTL sampler against a real server.

use std::time::{Duration, Instant};

use distlock_support::leak::{alive_tasks, what_is_left};
use distlock_support::{Admin, Baseline, RedisServer, TtlSampler, assert_nothing_left};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A bare client that has sent one inline command and read one reply.
async fn client(server: &RedisServer, command: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr()).await.expect("connect");
    let line = format!("{command}\r\n");
    stream.write_all(line.as_bytes()).await.expect("write");
    let n = stream.read(&mut [0; 1024]).await.expect("read");
    assert!(n > 0);
    stream
}

#[tokio::test]
async fn admin_reads_keys_hashes_and_ttls() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    for n in 0..2500 {
        let key = format!("k{n:04}");
        admin.cmd::<()>(&["SET", &key, "v"]).await;
    }
    let keys = admin.keys().await;
    assert_eq!(keys.len(), 2500);
    assert_eq!(keys[7], "k0007");
    admin.cmd::<()>(&["HSET", "h", "f", "1"]).await;
    admin.cmd::<()>(&["PEXPIRE", "h", "60000"]).await;
    assert_eq!(admin.hash_keys().await, ["h"]);
    assert_eq!(admin.hgetall("h").await["f"], "1");
    assert!((50_000..=60_000).contains(&admin.pttl("h").await));
    assert_eq!(admin.pttl("k0000").await, -1);
    assert_eq!(admin.pttl("none").await, -2);
    assert!(admin.exists("h").await && !admin.exists("none").await);
    assert!(admin.hgetall("none").await.is_empty());
}

#[tokio::test]
async fn admin_lists_clients_and_counts_commands() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    assert!(admin.others().await.is_empty());
    let _normal = client(&server, "PING").await;
    let mut sub = client(&server, "SUBSCRIBE ch").await;
    let _shard = client(&server, "SSUBSCRIBE sch").await;
    assert_eq!(admin.channels().await, ["ch"]);
    assert_eq!(admin.shard_channels().await, ["sch"]);
    assert_eq!(admin.numsub("ch").await, 1);
    assert_eq!(admin.others().await.len(), 3);
    assert_eq!(admin.client_list().await.len(), 4);
    let list = admin.others().await;
    assert_eq!((list[0].cmd.as_str(), list[0].flags.as_str()), ("ping", "N"));
    assert_eq!((list[1].sub, list[1].flags.as_str()), (1, "P"));
    assert_eq!(admin.publish("ch", b"\xff\0").await, 1);
    let mut message = [0; 64];
    let n = sub.read(&mut message).await.expect("read");
    assert!(message[..n].ends_with(b"$2\r\n\xff\0\r\n"));

    admin.reset_stats().await;
    let _again = client(&server, "EVAL 'return 1' 0").await;
    let stats = admin.commandstats().await;
    assert_eq!((stats.get("eval"), stats.get("ping")), (Some(&1), None));

    assert_eq!(admin.client_kill_type("pubsub").await, 2);
    assert_eq!(sub.read(&mut message).await.expect("read"), 0);
    assert_eq!(admin.client_kill_type("normal").await, 2);
    assert!(admin.others().await.is_empty());
}

#[tokio::test]
async fn pause_delays_writes_and_admin_survives_restarts() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    admin.script_flush().await;
    admin.config_set("maxmemory-policy", "noeviction").await;
    let start = Instant::now();
    admin.pause(600, "WRITE").await;
    assert!(!admin.exists("k").await);
    admin.cmd::<()>(&["SET", "k", "v"]).await;
    assert!(start.elapsed() >= Duration::from_millis(595));
    for _ in 0..3 {
        server.restart();
        assert!(!admin.exists("k").await);
        admin.cmd::<()>(&["SET", "k", "v"]).await;
    }
    let error = admin.raw(&["EVAL", "nonsense", "0"]).await;
    assert!(error.is_err_and(|e| e.to_string().contains("compiling script")));
}

#[tokio::test]
async fn leak_check_waits_until_leftovers_are_gone() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    admin.cmd::<()>(&["SET", "old:1", "v"]).await;
    admin.cmd::<()>(&["SET", "short", "v"]).await;
    let before = client(&server, "PING").await;
    let baseline = Baseline::take(&admin).await.allow_key("old:*");
    let later = client(&server, "SUBSCRIBE ch").await;
    let left = what_is_left(&admin, &baseline).await;
    assert_eq!(left.len(), 3, "{left:?}");
    admin.cmd::<()>(&["PEXPIRE", "short", "200"]).await;
    let end = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(later);
    });
    assert_eq!(alive_tasks(), 2);
    assert_nothing_left(&admin, &baseline).await;
    assert!(end.is_finished());
    drop(before);
}

#[tokio::test]
#[should_panic(expected = "key \"leak\" (string, pttl -1 ms)")]
async fn leak_check_names_leftover_key() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    admin.cmd::<()>(&["SET", "leak", "v"]).await;
    let bound = Duration::from_millis(50);
    assert_nothing_left(&admin, &Baseline::empty().within(bound)).await;
}

#[tokio::test]
async fn sampler_names_hashes_without_ttl() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    let sampler = TtlSampler::start(&server.url()).await;
    admin.cmd::<()>(&["SET", "string", "v"]).await;
    admin.cmd::<()>(&["EVAL", "redis.call('hset', 'good', 'f', 1) redis.call('pexpire', 'good', 500)", "0"]).await;
    admin.cmd::<()>(&["HSET", "bad", "f", "1"]).await;
    // Each sample has two hashes at most.
    admin.reset_stats().await;
    crate::until("three samples", async || admin.calls("pttl").await >= 6).await;
    admin.cmd::<()>(&["PEXPIRE", "bad", "100"]).await;
    let found = sampler.stop().await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].key, "bad");
    assert!(found[0].samples >= 2, "{found:?}");
}
