//! Servers without cluster mode, and incomplete clusters.

use distlock::{Client, Error, Flavour};
use distlock_support::{Admin, RedisServer};
use tokio::io::AsyncWriteExt as _;

use crate::{FLAVOURS, client, end, lock, ms, primaries, secs, turn};

#[tokio::test]
async fn error_of_single_server_client_in_a_cluster_names_the_right_scheme() {
    let cluster = primaries(2).await;
    let single =
        bed::builder(&cluster.nodes()[0].url()).configure(|options| options.preflight = false).connect().await.unwrap();
    let mut elsewhere = None;
    for n in 0..64 {
        match lock(&single, Flavour::Reentrant, &format!("single:{n}")).try_lock().await {
            Ok(guard) => guard.expect("the lock is free").unlock().await.map(drop).unwrap(),
            Err(error) => elsewhere = Some(error),
        }
    }
    let error = elsewhere.expect("half of the names are on the other server");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
    end(single).await;
}

/// The seeds (the addresses in the URL) are servers of a cluster, a server without cluster mode, and dead. If several
/// seeds fail for different reasons, the error names the reason that a server gave, even if other failures come later.
#[tokio::test]
async fn one_seed_of_the_cluster_is_enough_and_none_is_an_error() {
    let (single, cluster) = (RedisServer::start(), primaries(2).await);
    let [dead, gone] = [RedisServer::start(), RedisServer::start()].map(|server| server.addr());
    let (single_at, node) = (single.addr(), cluster.nodes()[1].addr());
    let at = |seeds: &str| bed::builder(&format!("redis-cluster://{seeds}"));
    let names_scheme = |error: &Error| matches!(error, Error::Config { what } if what.contains("use redis://"));
    for seeds in [single_at.to_string(), format!("{single_at},{dead}"), format!("{dead},{single_at}")] {
        let error = bed::refusal(&at(&seeds), names_scheme).await;
        assert!(names_scheme(&error), "{seeds}: {error}");
    }
    let is_refused = |error: &Error| matches!(error, Error::Connection { message, .. } if message.contains("refused"));
    let error = bed::refusal(&at(&format!("{dead},{gone}")), is_refused).await;
    assert!(is_refused(&error), "{error:?}");
    for seeds in [format!("{single_at},{dead},{node}"), format!("{dead},{node},{gone}")] {
        let found = at(&seeds).connect().await.unwrap();
        for n in 0..12 {
            turn(&found, Flavour::Reentrant, &format!("seed:{n}")).await;
        }
        end(found).await;
    }
    assert_eq!(Admin::connect(&single).await.keys().await, [""; 0]);
}

/// The seed is a web server, a socket that never answers, or a host that does not exist.
#[tokio::test]
async fn address_without_a_redis_server_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let web = listener.local_addr().unwrap().to_string();
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    for at in [web, silent.local_addr().unwrap().to_string(), "no-such-host.invalid:6379".to_owned()] {
        let connecting = bed::builder(&format!("redis-cluster://{at}")).connect_timeout(secs(1)).connect();
        let error = bed::ends(&at, connecting).await.unwrap_err();
        assert!(
            matches!(error, Error::Connection { .. } | Error::Timeout { .. } | Error::Server { .. }),
            "{at}: {error:?}"
        );
    }
    answering.abort();
}

#[tokio::test]
async fn node_without_a_cluster_is_an_error() {
    let alone = RedisServer::builder().arg("--cluster-enabled", "yes").start();
    let url = alone.url().replace("redis://", "redis-cluster://");
    let has_no_slot = |error: &Error| error.to_string().contains("has a slot");
    let error = bed::refusal(&bed::builder(&url), has_no_slot).await;
    assert!(matches!(&error, Error::Connection { .. }) && has_no_slot(&error), "{error:?}");
}

fn is_refused_the_map(error: &Error) -> bool {
    matches!(error, Error::Server { message, .. } if message.contains("CLUSTER NODES"))
}

/// Some hosted services hide `CLUSTER` from their users.
#[tokio::test]
async fn server_with_a_renamed_cluster_command_is_an_error() {
    let server = RedisServer::builder()
        .arg("--cluster-enabled", "yes")
        .arg("--rename-command", "CLUSTER")
        .arg("HIDDEN", "")
        .start();
    Admin::connect(&server).await.cmd::<()>(&["HIDDEN", "ADDSLOTSRANGE", "0", "16383"]).await;
    let builder = bed::builder(&server.url().replace("redis://", "redis-cluster://"));
    for outcome in [builder.clone().connect().await, builder.connect_lazily().await] {
        let error = outcome.unwrap_err();
        assert!(is_refused_the_map(&error), "{error:?}");
    }
}

#[tokio::test]
async fn login_without_rights_to_the_map_is_an_error() {
    let cluster = primaries(1).await;
    let user = ["ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-cluster"];
    cluster.nodes()[0].admin().cmd::<()>(&user).await;
    let login = |login: &str| bed::builder(&cluster.url().replace("://", &format!("://{login}@"))).connect();
    let error = login("blind:secret").await.unwrap_err();
    assert!(is_refused_the_map(&error), "{error:?}");
    let error = login("blind:wrong").await.unwrap_err();
    assert!(matches!(&error, Error::Server { .. }) && !error.to_string().contains("wrong@"), "{error:?}");
}

#[tokio::test]
async fn names_in_two_slots_and_other_databases_are_refused() {
    let cluster = primaries(1).await;
    let one = client(&cluster).await;
    for name in ["a{b", "a{}b", "x}y"] {
        for flavour in FLAVOURS {
            let error = lock(&one, flavour, name).try_lock().await.unwrap_err();
            assert!(matches!(&error, Error::Config { what } if what.contains("brace")), "{flavour}: {error}");
        }
    }
    for name in ["{a}b", "a", "b{a}"] {
        turn(&one, Flavour::Fair, name).await;
    }
    end(one).await;
    let error = Client::builder(&cluster.url()).database(1).connect().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
}

/// The router retries a refused command for one command timeout. A shorter wait ends before that.
#[tokio::test]
async fn short_wait_at_a_refusing_primary_reports_the_refusal() {
    let cluster = primaries(2).await;
    let client = client(&cluster).await;
    let all = async |replicas: &str| {
        for node in cluster.nodes() {
            node.admin().config_set("min-replicas-to-write", replicas).await;
        }
    };
    all("5").await;
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write] {
        let outcome = bed::with_longer_waits(ms(300), async |wait| {
            let outcome = lock(&client, flavour, "refused").lock_for(wait).await;
            // The server did not answer at the end of the wait, so the test tries again.
            (!matches!(outcome, Err(Error::Timeout { .. }))).then_some(outcome)
        })
        .await;
        let is_refused = matches!(&outcome, Err(Error::Server { message, .. }) if message.starts_with("NOREPLICAS"));
        assert!(is_refused && !outcome.as_ref().unwrap_err().outcome_unknown(), "{flavour}: {outcome:?}");
    }
    all("0").await;
    turn(&client, Flavour::Reentrant, "refused").await;
    end(client).await;
}
