//! Sentinels that come and go.

use distlock::Flavour;
use distlock_support::{Sentinels, SentinelsOptions};

use crate::{client, connections, end, lock, secs, sentinels};

/// A set of other sentinels than those that the client was told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_come_and_go_are_followed() {
    let bed = sentinels().await;
    let one = client(&bed.url()).await;
    let added = bed.add_sentinel().await;
    bed::eventually("it is listened to", secs(30), async || connections(&bed.sentinel(added)).await == 2).await;
    // Those of the start go, one by one.
    bed.remove_sentinel(0).await;
    bed.add_sentinel().await;
    bed.remove_sentinel(0).await;
    bed.add_sentinel().await;
    bed.remove_sentinel(0).await;
    for n in 0..3 {
        bed::eventually("it is listened to", secs(30), async || connections(&bed.sentinel(n)).await == 2).await;
    }
    let old = bed.primary().await;
    bed.server(old).kill();
    lock(&one, Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
    end(one).await;
}

/// A set whose primary was replaced before the client came, and one sentinel that slept through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_of_the_moment_is_connected_to_at_the_start() {
    let bed = Sentinels::start(SentinelsOptions::default()).await;
    let old = bed.primary().await;
    bed.sentinel(2).stop();
    bed.server(old).kill();
    bed.promotion(old).await;
    bed.sentinel(2).cont();
    for _ in 0..10 {
        let one = client(&bed.url()).await;
        lock(&one, Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
        end(one).await;
    }
}
