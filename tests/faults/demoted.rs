//! An endpoint that is switched to a new primary, while the old primary stays up as a replica whose link is down.

use distlock::Flavour;
use distlock_support::{Admin, RedisServer};

use crate::rig::{HOUR, patient};
use bed::{Bed, becomes, end, ends, reentrant};

/// Only a message wakes the waiter, so the connection for messages has to follow the connection for commands.
#[tokio::test]
async fn messages_follow_an_endpoint_that_leads_to_a_new_primary() {
    let channel = "redisson_lock__channel:{x}";
    reentrant(async |bed: &Bed| {
        let (proxy, new) = (bed.proxy(), RedisServer::start());
        let admin = Admin::connect(&new).await;
        let other = bed::builder(&new.url()).connect().await.unwrap();
        for direct in [false, true] {
            let client = bed.connect(patient(&proxy.url()).direct(direct).ping_interval(HOUR)).await;
            let lock = client.lock(Flavour::Reentrant, "x");
            // A first wait connects to the old primary, for commands and for messages.
            let before = bed.client().await.reentrant("x").lock_leased(HOUR).await.unwrap();
            let waiting = tokio::spawn({
                let lock = client.lock(Flavour::Reentrant, "x");
                async move { lock.lock().await }
            });
            becomes("subscribers at the old primary", 1, async || bed.admin.numsub(channel).await).await;
            before.unlock().await.unwrap();
            ends("the first waiter", waiting).await.unwrap().unwrap().unlock().await.unwrap();
            // No server listens on this port, so the link stays down.
            bed.admin.cmd::<String>(&["REPLICAOF", "127.0.0.1", "1"]).await;
            proxy.set_upstream(new.addr());
            let held = other.reentrant("x").lock_leased(HOUR).await.unwrap();
            let waiting = tokio::spawn(async move { lock.lock().await });
            becomes("subscribers at the new primary", 1, async || admin.numsub(channel).await).await;
            held.unlock().await.unwrap();
            ends("the waiter", waiting).await.unwrap().unwrap().unlock().await.unwrap();
            end(client).await;
            proxy.set_upstream(bed.server.addr());
            bed.admin.cmd::<String>(&["REPLICAOF", "NO", "ONE"]).await;
        }
        end(other).await;
    })
    .await;
}
