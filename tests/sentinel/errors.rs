//! Errors while connecting to sentinels and replicated servers.

use distlock::{Client, Error};
use distlock_support::{RedisServer, Replicas, ReplicasOptions, SentinelsOptions};

use crate::{Sentinels, all_connections, client, connections, end, lock, secs, still_sentinels};

async fn refused(url: &str, because: &str) -> Error {
    bed::refusal(&bed::builder(url), |error| error.to_string().contains(because)).await
}

#[tokio::test]
async fn server_that_is_no_sentinel_of_the_name_is_an_error() {
    let bed = still_sentinels().await;
    let url = bed.url();
    let error = refused(&url.replace("/locks", "/other"), "\"other\"").await;
    assert!(matches!(&error, Error::Config { what } if what.contains("\"other\"")), "{error}");
    let server = bed.server(0).addr();
    let error = refused(&format!("redis-sentinel://{server}/locks"), "is no sentinel").await;
    assert!(matches!(&error, Error::Config { what } if what.contains("is no sentinel")), "{error}");
    let sentinel = bed.sentinel(0).addr();
    let error = refused(&format!("redis-replicated://{sentinel}"), "is no primary").await;
    assert!(matches!(&error, Error::Connection { message, .. } if message.contains("is no primary")), "{error}");
    let error = refused("redis-sentinel://127.0.0.1:1,127.0.0.1:2/locks", "").await;
    assert!(matches!(error, Error::Connection { .. } | Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn sentinels_that_are_away_are_not_needed() {
    let bed = still_sentinels().await;
    bed.sentinel(0).kill();
    bed.sentinel(1).kill();
    let one = client(&bed.url()).await;
    lock(&one, distlock::Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
    // Without any sentinel the client keeps its primary.
    bed.sentinel(2).kill();
    // The pause is longer than several scan intervals.
    tokio::time::sleep(secs(3)).await;
    assert_eq!(
        all_connections(bed.servers()).await,
        connections(bed.server(bed.servers().primary())).await,
        "no connection to a replica"
    );
    lock(&one, distlock::Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
    end(one).await;
    bed.sentinel(1).restart();
    let one = client(&bed.url()).await;
    end(one).await;
}

#[tokio::test]
async fn sentinels_and_servers_have_their_own_logins() {
    let servers = ReplicasOptions::default().replicas(1).password("of-servers");
    let options = SentinelsOptions::default().servers(servers).down_after(60_000);
    let bed = Sentinels::start(options.user("watcher", "of-sentinels")).await;
    let url = bed.url();
    let with = |user: &str, password: &str| bed::builder(&url).sentinel_username(user).sentinel_password(password);
    let one = with("watcher", "of-sentinels").connect().await.unwrap();
    lock(&one, distlock::Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
    end(one).await;
    for builder in [bed::builder(&url), with("watcher", "of-servers")] {
        let shown = format!("{builder:?}");
        assert!(!shown.contains("of-servers") && !shown.contains("of-sentinels"), "{shown}");
        let Err(error) = builder.connect().await else { panic!("connected") };
        assert!(matches!(&error, Error::Server { .. }), "{error:?}");
        let shown = format!("{error:?} {error}");
        assert!(!shown.contains("of-servers") && !shown.contains("of-sentinels"), "{shown}");
    }
    let Err(error) = with("watcher", "of-sentinels").password("wrong one").connect().await else { panic!("connected") };
    assert!(matches!(&error, Error::Server { message, .. } if message.contains("WRONGPASS")), "{error:?}");
}

#[tokio::test]
async fn servers_without_a_primary_are_refused() {
    let servers = Replicas::start(ReplicasOptions::default().replicas(1)).await;
    let replica = servers.node(1).addr();
    let error = refused(&format!("redis-replicated://{replica}"), "is no primary").await;
    assert!(matches!(&error, Error::Connection { message, .. } if message.contains("is no primary")), "{error}");
    let alone = RedisServer::start();
    let one = Client::connect(&alone.url().replace("redis://", "redis-replicated://")).await.unwrap();
    end(one).await;
}
