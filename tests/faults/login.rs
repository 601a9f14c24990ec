//! Servers that are unreachable, or that refuse the login.

use distlock::{Client, Error, Lost, Step};
use distlock_support::leak::alive_tasks;
use distlock_support::reaper::Folder;
use distlock_support::{Admin, RedisServer};

use crate::rig::{HOUR, heals, stubborn};
use bed::fault::{brisk, refused};
use bed::{builder, end, ends, eventually, ms, reentrant, refusal, secs};

async fn is_in(client: &Client) {
    client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
}

/// An invalid login or database is reported at once, with the server's text, however long `connect_timeout` is.
#[tokio::test]
async fn refused_login_fails_connect_at_once() {
    let server = RedisServer::builder().password("right").start();
    let open = RedisServer::start();
    let cases = [
        (builder(&server.url().replace("right", "wrong")), "WRONGPASS"),
        (builder(&server.url()).password("wrong"), "WRONGPASS"),
        (builder(&server.url()).username("nobody"), "WRONGPASS"),
        (builder(&server.url().replace(":right@", "")), "NOAUTH"),
        (builder(&open.url()).database(99), "ERR DB index"),
    ];
    for (builder, code) in cases {
        refused(ends(code, builder.connect_timeout(HOUR).connect()).await, code);
    }
}

/// Any password works. fred sends the password in an inline command, in which blanks and quotes have a meaning.
#[tokio::test]
async fn passwords_with_special_characters_log_in() {
    const ODD: [&str; 10] = [
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
    reentrant(async |bed| {
        for password in ODD {
            let () = bed.admin.cmd(&["CONFIG", "SET", "requirepass", password]).await;
            is_in(&bed.connect(bed.builder().password(password)).await).await;
            let (name, rule) = ("o'b\"r\\ien", format!(">{password}"));
            let () = bed.admin.cmd(&["ACL", "SETUSER", name, "on", "resetpass", &rule, "~*", "&*", "+@all"]).await;
            is_in(&bed.connect(bed.builder().username(name).password(password)).await).await;
        }
    })
    .await;
}

/// Login, database and the path of a socket, in both kinds of URLs. `src/transport/endpoint.rs` and `src/config/url.rs`
/// test how URLs are read.
#[tokio::test]
async fn login_and_database_in_a_url_are_used() {
    let dir = Folder::new();
    let socket = dir.path().join("a @ r?.sock");
    let server = RedisServer::builder().arg("--unixsocket", socket.to_str().unwrap()).start();
    let admin = Admin::connect(&server).await;
    let () = admin.cmd(&["ACL", "SETUSER", "o'brien", "on", ">p@ss:w/o?r#d% ü", "~*", "&*", "+@all"]).await;
    let holder = builder(&server.url()).database(3).connect().await.unwrap();
    let held = holder.reentrant("a").lock().await.unwrap();
    let login = "o%27brien:p%40ss%3aw%2Fo%3Fr%23d%25%20%C3%BC";
    let path = socket.to_str().unwrap().replace(' ', "%20").replace('?', "%3F");
    for url in [
        format!("redis://{login}@{}/3", server.addr()),
        format!("redis://{login}@{}?db=3", server.addr()),
        format!("unix://{login}@{path}?database=3"),
    ] {
        for direct in [false, true] {
            let connecting = builder(&url).configure(|options| options.use_fred = !direct).connect();
            let client = connecting.await.unwrap_or_else(|error| panic!("{url}: {error}"));
            assert!(client.reentrant("a").try_lock().await.unwrap().is_none(), "{url}");
            end(client).await;
        }
    }
    held.unlock().await.unwrap();
    end(holder).await;
    let error = builder(&format!("unix://{path}?timeout=1")).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Config { what } if what.contains("query")), "{error:?}");
}

/// The error has the last reason, or says that the server did not answer.
#[tokio::test]
async fn connect_to_unavailable_server_reports_last_reason_or_timeout() {
    let full = RedisServer::builder().arg("--maxclients", "1").start();
    let frozen = RedisServer::start();
    frozen.stop();
    let cases = [
        ("unix:///no/such.sock".to_owned(), Some("No such file")),
        ("unix:///no/at@such.sock".to_owned(), Some("No such file")),
        (full.url(), Some("max number of clients")),
        (frozen.url(), None),
    ];
    let tasks = alive_tasks();
    let connecting = cases.map(async |(url, reason)| {
        let is_expected = |error: &Error| match (error, reason) {
            (Error::Connection { message, outcome_unknown: false, .. }, Some(reason)) => message.contains(reason),
            (Error::Timeout { step: Step::Connect, .. }, None) => true,
            _ => false,
        };
        let error = refusal(&brisk(&url), is_expected).await;
        assert!(is_expected(&error), "{url}: {error:?}");
        assert!(error.is_retryable() && !error.outcome_unknown(), "{url}: {error:?}");
    });
    futures::future::join_all(connecting).await;
    frozen.cont();
    eventually("every task has ended", async || alive_tasks() <= tasks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_waits_for_a_server_that_is_starting() {
    reentrant(async |bed| {
        bed.server.kill9();
        let connecting = tokio::spawn(bed.builder().connect());
        tokio::time::sleep(ms(200)).await;
        assert!(!connecting.is_finished(), "connecting ended while the server was away");
        tokio::task::block_in_place(|| bed.server.restart());
        let client = connecting.await.unwrap().unwrap();
        is_in(&client).await;
        end(client).await;
    })
    .await;
}

/// The password changes. Open connections are not affected. When they break, every operation reports the reason, and
/// locks end with their leases.
#[tokio::test]
async fn client_reports_changed_password_and_recovers() {
    reentrant(async |bed| {
        let () = bed.admin.cmd(&["CONFIG", "SET", "requirepass", "old"]).await;
        let client = bed.connect(stubborn(&bed.server.url()).password("old")).await;
        let held = client.reentrant("held").lock_leased(secs(2)).await.unwrap();
        let () = bed.admin.cmd(&["CONFIG", "SET", "requirepass", "new"]).await;
        is_in(&client).await;
        let url = bed.server.url().replace("redis://", "redis://:new@");
        let admin = Admin::from_url(&url).await;
        admin.client_kill_type("normal").await;
        admin.client_kill_type("pubsub").await;
        let place = bed.server.addr().to_string();
        let told = async || {
            let error = client.reentrant("a").try_lock().await.expect_err("the password is wrong");
            if matches!(error, Error::Timeout { .. }) {
                return false;
            }
            let Error::Connection { message, outcome_unknown, .. } = &error else { panic!("{error:?}") };
            assert!(error.is_retryable() && !message.contains("old"), "{error:?}");
            // The last command on the old connection may have run. A command that waits for a new connection has not
            // been sent.
            message.contains("WRONGPASS") && message.contains(&place) && !outcome_unknown
        };
        eventually("the reason is told", told).await;
        let lost = ends("the signal that the lease is over", held.lost()).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        eventually("the reason is told still", told).await;
        let () = admin.cmd(&["CONFIG", "SET", "requirepass", "old"]).await;
        heals(&client).await;
        drop(held);
        let () = admin.cmd(&["CONFIG", "SET", "requirepass", ""]).await;
    })
    .await;
}

/// A single word before the `@` is a user name, although users mostly mean a password.
#[tokio::test]
async fn user_without_a_password_is_refused_before_connecting() {
    for builder in
        [Client::builder("redis://secret@127.0.0.1:1"), Client::builder("redis://127.0.0.1:1").username("app")]
    {
        let error = builder.connect().await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Config { .. }) && text.contains("redis://:password@host"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
