//! Servers that cannot be reached, or do not let us in.

use std::time::Instant;

use distlock::{Client, Error, Lost, Step};
use distlock_support::RedisServer;

use bed::fault::{WATCHDOG, brisk, refused};
use bed::harm::TIMEOUT;
use bed::{eventually, ms, reentrant, secs};

/// A login or a database that does not exist is told at once, in the server's words.
#[tokio::test]
async fn a_refused_login_is_told_at_once() {
    let server = RedisServer::builder().password("right").start();
    let open = RedisServer::start();
    let cases = [
        (brisk(&server.url().replace("right", "wrong")), "WRONGPASS"),
        (brisk(&server.url()).password("wrong"), "WRONGPASS"),
        (brisk(&server.url()).username("nobody"), "WRONGPASS"),
        (brisk(&server.url().replace(":right@", "")), "NOAUTH"),
        (brisk(&open.url()).database(99), "ERR DB index"),
    ];
    for (builder, code) in cases {
        let start = Instant::now();
        refused(builder.connect_timeout(secs(20)).connect().await, code);
        assert!(start.elapsed() < secs(10), "{code}: {:?}", start.elapsed());
    }
}

/// Any password will do: fred sends it on a line of its own, where blanks and quotes have a meaning.
#[tokio::test]
async fn any_password_logs_in() {
    let odd = [
        "two words",
        " ",
        "quo\"te",
        "it's",
        "back\\slash",
        "line\r\nSHUTDOWN\r\n",
        "\0\u{1}\x7f",
        "ünï☃",
        "%41",
        "@:/?#",
    ];
    for password in odd {
        reentrant(async |bed| {
            let () = bed.admin.cmd(&["CONFIG", "SET", "requirepass", password]).await;
            let client = bed.connect(bed.builder().password(password)).await;
            client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
            let (name, rule) = ("o'b\"r\\ien", format!(">{password}"));
            let () = bed.admin.cmd(&["ACL", "SETUSER", name, "on", &rule, "~*", "&*", "+@all"]).await;
            let client = bed.connect(bed.builder().username(name).password(password)).await;
            client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
        })
        .await;
    }
}

/// Login and password stand percent-encoded in URLs of either kind.
#[tokio::test]
async fn urls_are_decoded() {
    let password = "p@ss:w/o?r#d% ü";
    let encoded = "p%40ss%3aw%2Fo%3Fr%23d%25%20%C3%BC";
    let server = RedisServer::builder().unix_socket(true).start();
    let admin = distlock_support::Admin::connect(&server).await;
    let rule = format!(">{password}");
    let () = admin.cmd(&["ACL", "SETUSER", "o'brien", "on", &rule, "~*", "&*", "+@all"]).await;
    let () = admin.cmd(&["CONFIG", "SET", "requirepass", password]).await;
    let socket = server.unix_path();
    for user in ["", "o%27brien"] {
        for url in [
            format!("redis://{user}:{encoded}@{}", server.addr()),
            format!("unix://{user}:{encoded}@{}", socket.display()),
        ] {
            let client = Client::connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
            client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
            client.shutdown(secs(1)).await.unwrap();
        }
    }
}

/// Nobody there: tried until the time for connecting is up, then the last reason is told.
#[tokio::test]
async fn a_server_that_is_away_is_tried_until_the_time_is_up() {
    let within = ms(600);
    let full = RedisServer::builder().arg("--maxclients", "1").start();
    let frozen = RedisServer::start();
    frozen.stop();
    let gone = RedisServer::start();
    gone.kill9();
    let cases = [
        (gone.url(), Some("refused")),
        ("unix:///no/such.sock".to_owned(), Some("No such file")),
        ("unix:///no/at@such.sock".to_owned(), Some("No such file")),
        (full.url(), Some("max number of clients")),
        (frozen.url(), None),
    ];
    let tasks = distlock_support::leak::alive_tasks();
    for (url, reason) in cases {
        let start = Instant::now();
        let error = brisk(&url).connect_timeout(within).connect().await.unwrap_err();
        let took = start.elapsed();
        println!("{error}");
        match (&error, reason) {
            (Error::Connection { message, outcome_unknown: false, .. }, Some(reason)) => {
                assert!(message.contains(reason), "{error:?}");
            }
            (Error::Timeout { step: Step::Connect }, None) => {}
            _ => panic!("{url}: {error:?}"),
        }
        assert!(error.is_retryable() && !error.outcome_unknown());
        assert!(took >= within && took < within + secs(1), "{url}: {took:?}");
    }
    frozen.cont();
    let ended = async || distlock_support::leak::alive_tasks() <= tasks;
    eventually("every task has ended", ended).await;
}

#[tokio::test]
async fn a_unix_socket_has_a_path_and_no_query() {
    let dir = std::env::temp_dir().join(format!("distlock @ {}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let socket = dir.join("r?.sock");
    let server = RedisServer::builder().arg("--unixsocket", socket.to_str().unwrap()).start();
    let path = socket.to_str().unwrap().replace(' ', "%20").replace('?', "%3F");
    let client = brisk(&format!("unix://{path}")).connect().await.unwrap();
    client.reentrant("x").lock().await.unwrap().unlock().await.unwrap();
    client.shutdown(secs(5)).await.unwrap();
    let error = brisk(&format!("unix://{path}?db=1")).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Config { what } if what.contains("query")), "{error:?}");
    drop(server);
    std::fs::remove_dir_all(dir).unwrap();
}

/// A server that comes up while a client connects to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_waits_for_a_server_that_is_starting() {
    reentrant(async |bed| {
        bed.server.kill9();
        let builder = brisk(&bed.server.url()).connect_timeout(secs(10));
        let connecting = tokio::spawn(builder.connect());
        tokio::time::sleep(ms(200)).await;
        assert!(!connecting.is_finished());
        tokio::task::block_in_place(|| bed.server.restart());
        let client = connecting.await.unwrap().unwrap();
        client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
        client.shutdown(secs(1)).await.unwrap();
    })
    .await;
}

/// The password is changed under a running client. Connections that stand are not touched; once they break, every
/// operation tells why, locks that are held are lost by their leases, and connecting is tried again in peace until the
/// password is right once more.
#[tokio::test]
async fn a_changed_password_is_told_and_heals() {
    reentrant(async |bed| {
        let () = bed.admin.cmd(&["CONFIG", "SET", "requirepass", "old"]).await;
        let client = bed.connect(brisk(&bed.server.url()).password("old")).await;
        let held = client.reentrant("held").lock().await.unwrap();
        let () = bed.admin.cmd(&["CONFIG", "SET", "requirepass", "new"]).await;
        client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
        let url = bed.server.url().replace("redis://", "redis://:new@");
        let admin = distlock_support::Admin::from_url(&url).await;
        admin.client_kill_type("normal").await;
        admin.client_kill_type("pubsub").await;
        let told = async |client: &Client| {
            let error = client.reentrant("a").try_lock().await.unwrap_err();
            let Error::Connection { message, .. } = &error else { panic!("{error:?}") };
            assert!(error.is_retryable() && !message.contains("old"));
            message.starts_with("WRONGPASS")
        };
        eventually("the reason is told", async || told(&client).await).await;
        let start = Instant::now();
        assert!(told(&client).await);
        let took = start.elapsed();
        assert!(took >= TIMEOUT && took < TIMEOUT + secs(1), "{took:?}");
        let connections = async || {
            let info: String = admin.cmd(&["INFO", "stats"]).await;
            let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
            count.and_then(|count| count.trim().parse::<u64>().ok()).expect("INFO stats")
        };
        let before = connections().await;
        let lost = tokio::time::timeout(WATCHDOG, held.lost()).await.expect("by the lease");
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }) && start.elapsed() < WATCHDOG);
        let tries = connections().await - before;
        println!("{tries} connections in {:?}", start.elapsed());
        assert!(tries < 40, "a storm of {tries} connections");
        let () = admin.cmd(&["CONFIG", "SET", "requirepass", "old"]).await;
        let guard = client.reentrant("a").lock_for(secs(10)).await.unwrap().expect("healed");
        println!("healed {:?} after the kill", start.elapsed());
        guard.unlock().await.unwrap();
        drop(held);
        let () = admin.cmd(&["CONFIG", "SET", "requirepass", ""]).await;
    })
    .await;
}
