//! Errors while connecting to sentinels and replicated servers.

use distlock::{Credentials, Error};
use distlock_support::{RedisServer, Replicas, ReplicasOptions, SentinelsOptions};

use crate::{Sentinels, all_connections, client, connections, end, secs, still_sentinels, turn};

async fn refused(url: &str, because: &str) -> Error {
    bed::refusal(&bed::builder(url), |error| error.to_string().contains(because)).await
}

#[tokio::test]
async fn servers_of_another_role_or_name_are_refused() {
    let (bed, servers) = (still_sentinels().await, Replicas::start(ReplicasOptions::default().replicas(1)).await);
    let other_name = bed.url().replace("/locks", "/other");
    let no_sentinel = format!("redis-sentinel://{}/locks", bed.server(0).addr());
    for (url, because) in [(other_name, "\"other\""), (no_sentinel, "is no sentinel")] {
        let error = refused(&url, because).await;
        assert!(matches!(&error, Error::Config { what } if what.contains(because)), "{url}: {error}");
    }
    for address in [bed.sentinel(0).addr(), servers.node(1).addr()] {
        let error = refused(&format!("redis-replicated://{address}"), "is no primary").await;
        assert!(matches!(&error, Error::Connection { message, .. } if message.contains("is no primary")), "{error}");
    }
    let error = refused("redis-sentinel://127.0.0.1:1,127.0.0.1:2/locks", "").await;
    assert!(matches!(error, Error::Connection { .. } | Error::Timeout { .. }), "{error}");
    // A primary without replicas is enough.
    let alone = RedisServer::start();
    end(client(&alone.url().replace("redis://", "redis-replicated://")).await).await;
}

#[tokio::test]
async fn sentinels_that_are_away_are_not_needed() {
    let bed = still_sentinels().await;
    bed.sentinel(0).kill();
    bed.sentinel(1).kill();
    let one = client(&bed.url()).await;
    turn(&one, "x").await;
    // Without any sentinel the client keeps its primary.
    bed.sentinel(2).kill();
    // The pause is longer than several scan intervals.
    tokio::time::sleep(secs(3)).await;
    assert_eq!(
        all_connections(bed.servers()).await,
        connections(bed.server(bed.servers().primary())).await,
        "no connection to a replica"
    );
    turn(&one, "x").await;
    end(one).await;
    bed.sentinel(1).restart();
    end(client(&bed.url()).await).await;
}

#[tokio::test]
async fn sentinels_and_servers_have_their_own_logins() {
    let servers = ReplicasOptions::default().replicas(1).password("of-servers");
    let options = SentinelsOptions::default().servers(servers).down_after(60_000);
    let bed = Sentinels::start(options.user("watcher", "of-sentinels")).await;
    let url = bed.url();
    let with = |user: &str, password: &str| bed::builder(&url).sentinel_login(Credentials::new(user, password));
    let one = with("watcher", "of-sentinels").connect().await.unwrap();
    turn(&one, "x").await;
    end(one).await;
    for builder in [bed::builder(&url), with("watcher", "of-servers")] {
        let shown = format!("{builder:?}");
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(&error, Error::Server { .. }), "{error:?}");
        let shown = format!("{shown} {error:?} {error}");
        assert!(!shown.contains("of-servers") && !shown.contains("of-sentinels"), "{shown}");
    }
    let error = with("watcher", "of-sentinels").password("wrong one").connect().await.unwrap_err();
    assert!(matches!(&error, Error::Server { message, .. } if message.contains("WRONGPASS")), "{error:?}");
}
