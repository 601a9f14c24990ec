//! Acknowledgement by one of two replicas: the other replica is promoted while the old primary still runs.

use bed::fault::refused_by;
use distlock::{Acks, Error, Flavour};
use distlock_support::{Replicas, ReplicasOptions};

use crate::{ms, secs};

/// The same happens by `SENTINEL FAILOVER`, and by a partition that leaves the primary with one replica.
#[tokio::test]
async fn acks_of_one_of_two_replicas_allow_overlap_with_rising_tokens() {
    let servers = Replicas::start(ReplicasOptions::default()).await;
    let client = async |server: usize, acks, ack_timeout| {
        let builder = bed::builder(servers.node(server).admin_url())
            .acks(acks)
            .configure(|options| options.ack_timeout = ack_timeout);
        // The long watchdog avoids renewals, which would wait for the removed replica.
        builder.retry_attempts(1).watchdog(secs(3600)).connect().await.unwrap()
    };
    // A replica may acknowledge late on a busy machine. A refused acquire would use up a token, so the timeout is long.
    let one = client(0, Acks::AtLeast(1), secs(600)).await;
    let all = client(0, Acks::All, ms(300)).await;
    // Now the client knows both replicas.
    bed::eventually("both acknowledge", async || match all.fenced("known").lock().await {
        Ok(guard) => guard.unlock().await.is_ok(),
        Err(Error::Replicas { .. }) => false,
        Err(error) => panic!("{error:?}"),
    })
    .await;
    servers.detach(1).await;
    let first = one.fenced("name").lock().await.unwrap();
    refused_by(&all, Flavour::Fenced, "other", (1, 2)).await;
    // The replica with the lock now follows the new primary, which does not have the lock.
    let leader = servers.node(1).addr();
    let (host, port) = (leader.ip().to_string(), leader.port().to_string());
    servers.node(2).admin().cmd::<()>(&["REPLICAOF", &host, &port]).await;
    // Waits until the replica follows. An earlier acquire would be refused for a late acknowledgement, and use up a
    // token.
    bed::eventually("it follows the new one", async || {
        let told: String = servers.node(2).admin().cmd(&["INFO", "replication"]).await;
        let here: String = servers.node(1).admin().cmd(&["INFO", "replication"]).await;
        told.contains("master_link_status:up") && here.contains("state=online")
    })
    .await;
    let other = client(1, Acks::AtLeast(1), secs(600)).await;
    let second = other.fenced("name").lock().await.unwrap();
    assert!(first.is_held() && second.is_held());
    // Exclusion is broken, but tokens still rise: the storage refuses the first holder.
    assert!(first.fencing_token().unwrap() < second.fencing_token().unwrap());
    for guard in [first, second] {
        guard.unlock().await.unwrap();
    }
    for client in [one, all, other] {
        bed::end(client).await;
    }
}
