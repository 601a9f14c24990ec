//! Callers who share commands and servers with others.

use std::sync::Arc;

use distlock::{Acquire, DistLock as _, Error, Flavour};
use distlock_support::{Cluster, ClusterOptions, slot_of};
use futures::future::join_all;
use tokio::time::Instant;

use crate::{FLAVOURS, client, end, lock, ms, primaries, secs};

/// Names of the share of one of three primaries.
fn names_at(node: usize, prefix: &str, count: usize) -> Vec<String> {
    let is_there = |name: &String| usize::from(slot_of(name)) * 3 / 16_384 == node;
    (0..).map(|n| format!("{prefix}:{n}")).filter(is_there).take(count).collect()
}

/// A login that may touch some names only: their callers share commands with those of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_touch_a_name_keeps_nobody_else_out() {
    let cluster = primaries(1).await;
    let node = &cluster.nodes()[0];
    let user = ["ACL", "SETUSER", "some", "on", ">secret", "~mine:*", "~redisson*", "~*mine:*", "&*", "+@all"];
    node.admin().cmd::<()>(&user).await;
    let url = cluster.url().replace("://", "://some:secret@");
    let one = bed::builder(&url).connect().await.unwrap();
    for flavour in FLAVOURS {
        let all = (0..120).map(|n| {
            let is_mine = n % 3 > 0;
            let name = format!("{}:{flavour}:{n}", if is_mine { "mine" } else { "his" });
            let lock = lock(&one, flavour, &name);
            async move {
                for _ in 0..10 {
                    match lock.try_lock().await {
                        Ok(Some(guard)) if is_mine => drop(guard.unlock().await.unwrap()),
                        Err(Error::Server { message })
                            if !is_mine && (message.contains("NOPERM") || message.contains("access")) => {}
                        odd => panic!("{} {odd:?}", lock.name()),
                    }
                }
            }
        });
        join_all(all).await;
    }
    node.admin().reset_stats().await;
    let guards = join_all((0..300).map(|n| {
        let lock = lock(&one, Flavour::Reentrant, &format!("mine:{n}"));
        async move { lock.lock().await.unwrap() }
    }))
    .await;
    let calls = node.admin().calls("evalsha").await;
    assert_eq!(one.renew_now().await.renewed, 300);
    let renewals = node.admin().calls("evalsha").await - calls;
    println!("300 acquires by {calls} scripts, renewed by {renewals}");
    // One of them is taken from it: the others are renewed.
    let user = ["ACL", "SETUSER", "some", "resetkeys", "~mine:1*", "~*mine:1*"];
    node.admin().cmd::<()>(&user).await;
    let kept = guards.iter().filter(|guard| guard.name().starts_with("mine:1")).count();
    for _ in 0..12 {
        let round = one.renew_now().await;
        assert_eq!((round.renewed, round.lost), (kept, 0), "{round:?}");
    }
    node.admin().cmd::<()>(&["ACL", "SETUSER", "some", "allkeys"]).await;
    assert_eq!(one.renew_now().await.renewed, 300);
    let calls = node.admin().calls("evalsha").await;
    assert_eq!(one.renew_now().await.renewed, 300);
    let renewals = node.admin().calls("evalsha").await - calls;
    assert!(
        renewals < 20,
        "{renewals} scripts to renew 300 holds: the server is not sent shared ones any more, for good"
    );
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    end(one).await;
}

/// Odd names and words, many at a time, so that they share commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_share_commands() {
    let cluster = primaries(2).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let long = "x".repeat(4_000);
    let names = [
        "0",
        "1",
        "-1",
        "1e3",
        "!",
        "nil",
        "false",
        " ",
        "\n",
        "\r\n",
        "a\0b",
        "\0",
        "ü€𝄞",
        "{a}",
        "{a}1",
        "{a}{b}",
        "x{y}z",
        "'\"\\",
        "%d%s",
        "[[",
        "]]--",
        &long,
        "ERR",
        "MOVED 1 127.0.0.1:1",
        "ASK 1 127.0.0.1:1",
        "READONLY",
        "user_script:1: x",
        "CROSSSLOT",
    ];
    for flavour in [
        Flavour::Reentrant,
        Flavour::Spin,
        Flavour::Plain,
        Flavour::Fair,
        Flavour::Fenced,
        Flavour::Write,
        Flavour::Read,
    ] {
        let all = names.iter().flat_map(|name| std::iter::repeat_n(name, 4)).enumerate().map(|(n, name)| {
            let client = if n % 2 == 0 { one.clone() } else { other.clone() };
            let name = name.to_string();
            async move {
                let lock = lock(&client, flavour, &name);
                let name: String = name.chars().take(20).collect();
                for _ in 0..5 {
                    let guard = lock.acquire(Acquire::new().wait(secs(50))).await;
                    let guard =
                        guard.unwrap_or_else(|e| panic!("{flavour} {name:?}: {e}")).unwrap_or_else(|| panic!("{name}"));
                    guard.unlock().await.unwrap_or_else(|e| panic!("{flavour} {name:?}: {e}"));
                }
            }
        });
        join_all(all).await;
    }
    end(one).await;
    end(other).await;
}

/// A multi lock over three servers of which one stands still: it fails in time, and leaves nothing held at the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_with_a_member_that_stands_still_leaves_nothing() {
    let cluster =
        Cluster::start(ClusterOptions::default().replicas(0).require_full_coverage(false).node_timeout(60_000)).await;
    let one = bed::builder(&cluster.url()).command_timeout(secs(1)).connect().await.unwrap();
    let names: Vec<String> = (0..3).map(|node| names_at(node, "multi", 1).remove(0)).collect();
    let multi = one.multi(&names);
    multi.lock().await.unwrap().unlock().await.unwrap();
    cluster.stop(&cluster.nodes()[1]).await;
    for _ in 0..3 {
        let began = Instant::now();
        let got = multi.acquire(Acquire::new().wait(secs(2))).await;
        println!("{:?} after {:?}", got.as_ref().map(Option::is_some), began.elapsed());
        assert!(!matches!(got, Ok(Some(_))));
        assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
    }
    let began = Instant::now();
    for node in [0, 2] {
        while !cluster.nodes()[node].admin().keys().await.is_empty() {
            assert!(began.elapsed() < secs(3), "left at {node}: {:?}", cluster.nodes()[node].admin().keys().await);
            tokio::time::sleep(ms(20)).await;
        }
    }
    cluster.cont(&cluster.nodes()[1]);
    bed::idle(&one).await;
    let began = Instant::now();
    while !cluster.nodes()[1].admin().keys().await.is_empty() {
        assert!(began.elapsed() < secs(8), "left at 1: {:?}", cluster.nodes()[1].admin().keys().await);
        tokio::time::sleep(ms(20)).await;
    }
    end(one).await;
}

/// The runtime that the client was made on is gone.
#[test]
fn a_runtime_that_is_gone_is_told() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cluster = other.block_on(primaries(2));
    let first = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let one = first.block_on(client(&cluster));
    let guards = first.block_on(async {
        join_all((0..20).map(|n| {
            let lock = lock(&one, Flavour::Reentrant, &format!("gone:{n}"));
            async move { lock.lock().await.unwrap() }
        }))
        .await
    });
    let waiting = lock(&one, Flavour::Reentrant, "gone:3");
    let waiting: Arc<_> = waiting;
    first.spawn(async move { waiting.lock().await });
    std::thread::sleep(ms(200));
    first.shutdown_background();
    std::thread::sleep(ms(200));
    other.block_on(async {
        let began = Instant::now();
        let name = "other".to_owned();
        for flavour in FLAVOURS {
            let got = lock(&one, flavour, &name).acquire(Acquire::new().wait(secs(2))).await;
            assert!(got.is_err(), "{got:?}");
        }
        for guard in guards {
            println!("{:?}", guard.unlock().await.map(|_| ()));
        }
        println!("{:?}", one.shutdown(secs(1)).await);
        assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
    });
}
