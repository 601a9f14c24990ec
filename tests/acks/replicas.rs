//! Replicas that are frozen, killed, brought up to date anew, and some of several.

use distlock::{Acks, Error};
use distlock_support::{Replicas, ReplicasOptions};

use crate::{FLAVOURS, builder, client, connected, end, granted, in_step, ms, over, refused, secs, servers};

#[tokio::test]
async fn what_a_frozen_replica_has_not_acknowledged_is_undone() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS {
        granted(&strict, flavour).await;
    }
    servers.node(1).stop();
    for flavour in FLAVOURS {
        refused(&servers, &strict, flavour, (0, 1)).await;
    }
    servers.node(1).cont();
    in_step(&servers).await;
    for flavour in FLAVOURS {
        granted(&strict, flavour).await;
    }
    end(strict).await;
}

/// It is waited for within the wait, and had as soon as the replica is back.
#[tokio::test]
async fn what_is_not_acknowledged_is_tried_again_within_the_wait() {
    let servers = servers(1).await;
    let strict = builder(&servers, Acks::AtLeast(1)).retry_attempts(100).connect().await.unwrap();
    let other = client(&servers, Acks::Off).await;
    servers.node(1).stop();
    let lock = strict.reentrant("again");
    let waiting = tokio::spawn(async move { lock.lock().await });
    tokio::time::sleep(ms(700)).await;
    assert!(!waiting.is_finished());
    // Undone between two tries, so that others may have it meanwhile.
    let free = async || match other.reentrant("again").try_lock().await.unwrap() {
        Some(guard) => guard.unlock().await.is_ok(),
        None => false,
    };
    bed::eventually("it is free now and then", free).await;
    servers.node(1).cont();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    end(strict).await;
    end(other).await;
}

#[tokio::test]
async fn a_replica_that_is_gone_is_too_few_in_the_strict_modes_only() {
    let servers = servers(1).await;
    servers.node(1).kill();
    connected(&servers, 0).await;
    for acks in [Acks::AtLeast(1), Acks::All] {
        let strict = client(&servers, acks).await;
        for flavour in FLAVOURS {
            refused(&servers, &strict, flavour, (0, 1)).await;
        }
        end(strict).await;
    }
    let off = client(&servers, Acks::Off).await;
    for flavour in FLAVOURS {
        granted(&off, flavour).await;
    }
    end(off).await;
}

/// It is connected, and has nothing yet.
#[tokio::test]
async fn a_replica_in_full_resync_acknowledges_nothing() {
    let servers = servers(1).await;
    let admin = servers.node(0).admin();
    // It is not begun with for so long.
    admin.config_set("repl-diskless-sync", "yes").await;
    admin.config_set("repl-diskless-sync-delay", "600").await;
    servers.node(1).kill();
    // Else it would begin where it was.
    let _ = std::fs::remove_file(servers.node(1).server().dir().join("dump.rdb"));
    servers.node(1).restart();
    let waits = async || {
        let info: String = admin.cmd(&["INFO", "replication"]).await;
        info.contains("connected_slaves:1") && info.contains("state=wait_bgsave")
    };
    bed::eventually("it waits for all data", waits).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS {
        refused(&servers, &strict, flavour, (0, 1)).await;
    }
    end(strict).await;
}

#[tokio::test]
async fn two_of_three_are_enough_for_two_and_not_for_all() {
    let servers = servers(3).await;
    let two = client(&servers, Acks::AtLeast(2)).await;
    let all = client(&servers, Acks::All).await;
    for flavour in FLAVOURS {
        granted(&all, flavour).await;
    }
    servers.node(3).stop();
    for flavour in FLAVOURS {
        granted(&two, flavour).await;
        refused(&servers, &all, flavour, (2, 3)).await;
    }
    // Those that are gone count on: one of them may be promoted.
    servers.node(3).kill();
    connected(&servers, 2).await;
    for flavour in FLAVOURS {
        granted(&two, flavour).await;
        refused(&servers, &all, flavour, (2, 3)).await;
    }
    servers.node(2).stop();
    refused(&servers, &two, FLAVOURS[0], (1, 2)).await;
    servers.node(2).cont();
    end(two).await;
    end(all).await;
}

#[tokio::test]
async fn a_server_without_wait_is_refused_at_connect_in_the_strict_modes_only() {
    let options = ReplicasOptions::default().replicas(1).config("rename-command WAIT \"\"");
    let servers = Replicas::start(options).await;
    let url = servers.node(0).admin_url();
    for acks in [Acks::AtLeast(1), Acks::All] {
        let refused = over(url, acks).connect().await;
        let text = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(matches!(refused, Err(Error::Unsupported { .. })) && text.contains("unknown command"), "{text}");
    }
    for acks in [Acks::Off, Acks::Redisson] {
        let client = over(url, acks).connect().await.unwrap();
        granted(&client, FLAVOURS[0]).await;
        end(client).await;
    }
}
