//! Some or all replicas are frozen, killed or resynchronizing.

use distlock::{Acks, Builder, Error};
use distlock_support::{Replicas, ReplicasOptions};

use crate::{
    FLAVOURS, builder, client, connected, end, granted, in_step, ms, nothing_left, over, refused, secs, servers,
};

#[tokio::test]
async fn acquire_that_a_frozen_or_missing_replica_does_not_acknowledge_is_refused_and_undone() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS {
        granted(&strict, flavour).await;
    }
    servers.node(1).stop();
    for flavour in FLAVOURS {
        refused(&servers, &strict, flavour, (0, 1)).await;
    }
    waits_until_the_replica_resumes(&servers).await;
    in_step(&servers).await;
    for flavour in FLAVOURS {
        granted(&strict, flavour).await;
    }
    end(strict).await;
    servers.node(1).kill();
    connected(servers.node(0).admin(), 0).await;
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

/// A waiting acquire is retried while the replica is frozen. Failed attempts are undone, so another client can acquire
/// between them. The acquire succeeds after the replica resumes.
async fn waits_until_the_replica_resumes(servers: &Replicas) {
    let strict = builder(servers, Acks::AtLeast(1)).retry_attempts(100).connect().await.unwrap();
    let other = client(servers, Acks::Off).await;
    let lock = strict.reentrant("again");
    let waiting = tokio::spawn(async move { lock.lock().await });
    for _ in 0..2 {
        let taken = async || servers.node(0).admin().exists("again").await;
        bed::eventually("an attempt is on the primary", taken).await;
        let free = async || match other.reentrant("again").try_lock().await.unwrap() {
            Some(guard) => guard.unlock().await.is_ok(),
            None => false,
        };
        bed::eventually("the lock is free between two attempts", free).await;
    }
    assert!(!waiting.is_finished(), "no replica has acknowledged");
    servers.node(1).cont();
    let guard = bed::ends("the waiter", waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    end(strict).await;
    end(other).await;
}

/// The replica is connected, but has no data yet.
#[tokio::test]
async fn replica_in_full_resync_acknowledges_nothing() {
    let servers = servers(1).await;
    let admin = servers.node(0).admin();
    // This delays the resync until after the test.
    admin.config_set("repl-diskless-sync", "yes").await;
    admin.config_set("repl-diskless-sync-delay", "600").await;
    servers.node(1).kill();
    // Without its file the replica needs a full resync.
    let _ = std::fs::remove_file(servers.node(1).server().dir().join("dump.rdb"));
    servers.node(1).restart();
    let waits = async || {
        let info: String = admin.cmd(&["INFO", "replication"]).await;
        info.contains("connected_slaves:1") && info.contains("state=wait_bgsave")
    };
    bed::eventually("the replica waits for a full resync", waits).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS {
        refused(&servers, &strict, flavour, (0, 1)).await;
    }
    end(strict).await;
}

#[tokio::test]
async fn two_of_three_replicas_are_enough_for_two_and_not_for_all() {
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
    // `All` counts lost replicas, because one of them may be promoted.
    servers.node(3).kill();
    connected(servers.node(0).admin(), 2).await;
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
async fn server_without_wait_is_refused_at_connect_in_the_strict_modes_only() {
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

/// A client with the default rule: one replica must acknowledge, if one is up to date.
fn by_default(servers: &Replicas) -> Builder {
    bed::builder(&servers.url()).configure(|options| options.retry_delay = (ms(10), ms(20)))
}

/// No client holds these locks, and the replica does not acknowledge.
#[tokio::test]
async fn wait_that_ends_before_a_frozen_replica_acknowledges_reports_missing_replicas() {
    let servers = servers(1).await;
    let builder = by_default(&servers)
        .watchdog(secs(3600))
        .configure(|options| options.ack_timeout = secs(600))
        .command_timeout(secs(600));
    let client = builder.connect().await.unwrap();
    for flavour in FLAVOURS {
        granted(&client, flavour).await;
    }
    servers.node(1).stop();
    for flavour in FLAVOURS {
        let lock = client.lock(flavour, &format!("free:{flavour}"));
        let outcome = lock.lock_for(ms(500)).await;
        assert!(matches!(outcome, Err(Error::Replicas { .. })), "{flavour}: {outcome:?}");
    }
    let lock = client.reentrant("crowd");
    let crowd = (0..15).map(|_| lock.lock_for(secs(2)));
    for outcome in futures::future::join_all(crowd).await {
        assert!(matches!(outcome, Err(Error::Replicas { .. })), "{outcome:?}");
    }
    servers.node(1).cont();
    in_step(&servers).await;
    nothing_left(&servers).await;
    end(client).await;
}

/// The primary reports the frozen replica as online until `repl-timeout`. Clients with the default rule do not wait for
/// it.
#[tokio::test]
async fn replica_that_is_silent_for_seconds_is_not_waited_for_by_default() {
    let options = ReplicasOptions::default().replicas(1).config("repl-timeout 3600");
    let servers = Replicas::start(options).await;
    in_step(&servers).await;
    let client = by_default(&servers)
        .configure(|options| options.ack_timeout = ms(200))
        .retry_attempts(1_000)
        .connect()
        .await
        .unwrap();
    granted(&client, FLAVOURS[0]).await;
    servers.node(1).stop();
    for flavour in FLAVOURS {
        let lock = client.lock(flavour, &format!("silent:{flavour}"));
        let guard = bed::ends("an acquire beside a silent replica", lock.lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    connected(servers.node(0).admin(), 1).await;
    servers.node(1).cont();
    end(client).await;
}
