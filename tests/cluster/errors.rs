//! What is no cluster, or not all of one.

use distlock::{Client, Error, Flavour};
use distlock_support::RedisServer;

use crate::{client, end, lock, primaries, secs};

#[tokio::test]
async fn a_single_server_is_no_cluster_and_a_cluster_no_single_server() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "redis-cluster://");
    let error = bed::builder(&url).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Config { .. }) && error.to_string().contains("use redis://"), "{error}");

    let cluster = primaries(2).await;
    let single = bed::builder(&cluster.nodes()[0].url()).preflight(false).connect().await.unwrap();
    let mut elsewhere = None;
    for n in 0..64 {
        match lock(&single, Flavour::Reentrant, &format!("single:{n}")).try_lock().await {
            Ok(guard) => guard.expect("it is free").unlock().await.map(drop).unwrap(),
            Err(error) => elsewhere = Some(error),
        }
    }
    let error = elsewhere.expect("half of the names are at the other one");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
    end(single).await;
}

#[tokio::test]
async fn half_of_the_seeds_are_enough_and_none_is_told() {
    let cluster = primaries(3).await;
    let nobody = [RedisServer::start(), RedisServer::start()].map(|server| server.addr().to_string());
    let url = format!("redis-cluster://{},{},{}", nobody[0], cluster.nodes()[1].addr(), nobody[1]);
    let found = bed::builder(&url).connect().await.unwrap();
    for n in 0..12 {
        lock(&found, Flavour::Reentrant, &format!("seed:{n}")).lock().await.unwrap().unlock().await.unwrap();
    }
    end(found).await;
    let url = format!("redis-cluster://{},{}", nobody[0], nobody[1]);
    let error = bed::builder(&url).connect_timeout(secs(1)).connect().await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. } | Error::Timeout { .. }), "{error}");
}

/// Who may not ask for the nodes is told so.
#[tokio::test]
async fn a_login_that_may_not_see_the_cluster_is_told() {
    let cluster = primaries(1).await;
    let user = ["ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-cluster"];
    cluster.nodes()[0].admin().cmd::<()>(&user).await;
    let url = cluster.url().replace("://", "://blind:secret@");
    let error = bed::builder(&url).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Server { message } if message.contains("CLUSTER NODES")), "{error:?}");
    let url = cluster.url().replace("://", "://blind:wrong@");
    let error = bed::builder(&url).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Server { .. }) && !error.to_string().contains("wrong@"), "{error:?}");
}

#[tokio::test]
async fn names_in_two_slots_and_other_databases_are_refused() {
    let cluster = primaries(1).await;
    let one = client(&cluster).await;
    for name in ["a{b", "a{}b", "x}y"] {
        for flavour in crate::FLAVOURS {
            let error = lock(&one, flavour, name).try_lock().await.unwrap_err();
            assert!(
                matches!(&error, Error::Config { .. }) && error.to_string().contains("brace"),
                "{flavour}: {error}"
            );
        }
    }
    for name in ["{a}b", "a", "b{a}"] {
        lock(&one, Flavour::Fair, name).try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
    }
    end(one).await;
    let error = Client::builder(&cluster.url()).database(1).connect().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
}
