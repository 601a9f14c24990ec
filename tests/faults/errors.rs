//! Errors name the server and the cause. They also say whether a command may have been carried out, and what to do.

use distlock::{Error, Flavour};
use distlock_support::RedisServer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::fake::Fake;
use crate::rig::{HOUR, heals};
use bed::fault::brisk;
use bed::{PATIENCE, builder, ends, eventually, reentrant, refusal, secs};

/// The URL has a port without a server, or a host that does not exist. Both transports are tested.
#[tokio::test]
async fn connect_error_names_unreachable_server() {
    let gone = RedisServer::start();
    gone.kill9();
    for direct in [false, true] {
        for (place, why) in [(gone.addr().to_string(), "refused"), ("no-such-host.invalid:6379".to_owned(), "")] {
            let is_named = |error: &Error| {
                let text = error.to_string();
                text.contains(&place) && text.contains(why) && text.matches(&place).count() == 1
            };
            for scheme in ["redis", "redis-cluster", "redis-replicated"] {
                let url = format!("{scheme}://{place}");
                let error = refusal(&brisk(&url).configure(|options| options.use_fred = !direct), is_named).await;
                assert!(is_named(&error), "{url}: {error}");
                assert!(!error.outcome_unknown() && error.is_retryable(), "{url}: {error:?}");
            }
        }
    }
}

/// While a server refuses connections, the client sends nothing. So no command is in doubt, and each error names the
/// server and the cause, also after a wait that is shorter than `command_timeout`. The error of `unlock` is not
/// retryable, because `unlock` consumes the guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_waits_for_a_refused_connection_is_not_in_doubt() {
    reentrant(async |bed| {
        for direct in [false, true] {
            let client = bed
                .connect(brisk(&bed.server.url()).retry_attempts(0).configure(|options| options.use_fred = !direct))
                .await;
            let slow = bed.connect(builder(&bed.server.url()).configure(|options| options.use_fred = !direct)).await;
            let guard = client.reentrant("held").lock_leased(HOUR).await.unwrap();
            let place = bed.server.addr().to_string();
            bed.server.kill9();
            let error = guard.unlock().await.unwrap_err();
            assert!(!error.is_retryable(), "{error:?}");
            // The first command may have been in flight when the connection broke, so its error may differ.
            let told = async || {
                let Err(error) = client.reentrant("a").try_lock().await else { panic!("no server is up") };
                let text = error.to_string();
                text.contains(&place) && text.contains("refused") && !error.outcome_unknown()
            };
            eventually("the error names the refusal and is not in doubt", told).await;
            let error = client.reentrant("a").try_lock().await.unwrap_err();
            assert!(!error.to_string().contains("carried out"), "{error}");
            let told = async || match slow.reentrant("a").lock_for(secs(1)).await {
                Err(error) => error.to_string().contains("refused"),
                Ok(_) => false,
            };
            eventually("the error of a wait names the refusal", told).await;
            tokio::task::block_in_place(|| bed.server.restart());
            heals(&client).await;
            heals(&slow).await;
        }
    })
    .await;
}

/// The server does not know `HELLO`. A connect over fred fails at once. This crate's own connections work without
/// `HELLO`.
#[tokio::test]
async fn connecting_without_hello_fails_at_once_and_names_the_transport_that_works() {
    let server = RedisServer::builder().config("rename-command HELLO \"\"\n").start();
    let connecting =
        builder(&server.url()).configure(|options| options.use_fred = true).connect_timeout(HOUR).connect();
    let error = ends("connecting", connecting).await.unwrap_err();
    let Error::Unsupported { what } = &error else { panic!("{error:?}") };
    assert!(what.contains("use_fred = false") && what.contains(&server.addr().to_string()), "{what}");
    let client = builder(&server.url()).configure(|options| options.use_fred = false).connect().await.unwrap();
    client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
    client.shutdown(PATIENCE).await.unwrap();
}

/// A server completes the handshake and then falls silent. This delays `connect` by at most `connect_timeout`, although
/// the command that checks the login's rights has a longer timeout.
#[tokio::test]
async fn connect_succeeds_when_server_falls_silent_after_handshake() {
    let server = Fake::start().await;
    server.set(|_| None);
    for direct in [false, true] {
        let connecting = builder(&server.url())
            .configure(|options| options.use_fred = !direct)
            .watchdog(HOUR * 24)
            .command_timeout(HOUR)
            .connect_timeout(secs(1));
        let client = ends("connecting", connecting.connect()).await.unwrap();
        // The check has no result. The first command reports that the server is silent.
        assert!(client.reentrant("a").lock_for(secs(1)).await.is_err());
    }
}

#[tokio::test]
async fn connecting_to_a_server_of_another_protocol_fails_at_once_and_says_so() {
    let greetings: [&[u8]; 4] = [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2",
        b"J\0\0\0\n8.0.36\0",
        b"\x15\x03\x01\0\x02\x02F",
    ];
    for greeting in greetings {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(greeting).await.unwrap();
                // Some servers keep the connection open.
                open.push(stream);
            }
        });
        for direct in [false, true] {
            for scheme in ["redis", "redis-cluster"] {
                let connecting = builder(&format!("{scheme}://{place}"))
                    .configure(|options| options.use_fred = !direct)
                    .connect_timeout(HOUR)
                    .connect();
                let error = ends("connecting", connecting).await.unwrap_err();
                let text = error.to_string();
                let is_told = text.contains(&place) && text.contains("does not speak Redis's protocol");
                assert!(is_told && !error.outcome_unknown(), "{direct} {scheme} {greeting:?}: {text}");
            }
        }
        server.abort();
    }
}

/// The server is frozen, or refuses commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_the_lock_and_the_server() {
    reentrant(async |bed| {
        for direct in [false, true] {
            let client = bed
                .connect(brisk(&bed.server.url()).configure(|options| options.use_fred = !direct).retry_attempts(0))
                .await;
            let place = bed.server.addr().to_string();
            let told = |error: Error| {
                let text = error.to_string();
                assert!(text.starts_with("the lock \"orders\": ") && text.matches(&place).count() == 1, "{text}");
                let origin = error.origin().unwrap();
                assert_eq!((origin.lock(), origin.server()), (Some("orders"), Some(&*place)));
            };
            let lock = client.reentrant("orders");
            bed.admin.config_set("min-replicas-to-write", "1").await;
            let refused = lock.try_lock().await.unwrap_err();
            assert!(matches!(&refused, Error::Server { .. }), "{refused:?}");
            told(refused);
            bed.admin.config_set("min-replicas-to-write", "0").await;
            bed.server.stop();
            let silent = lock.try_lock().await.unwrap_err();
            assert!(matches!(&silent, Error::Timeout { .. } | Error::Connection { .. }), "{silent:?}");
            told(silent);
            bed.server.cont();
            heals(&client).await;
            // The acquire without an answer may have run. It is undone in the background.
            eventually("the acquire in doubt is undone", async || !bed.admin.exists("orders").await).await;
        }
    })
    .await;
}

/// The error names the kind of lock and the type of the key, and does not mention our scripts.
#[tokio::test]
async fn error_for_a_key_of_another_type_names_the_types_and_no_script() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let held = client.reentrant("hash").lock().await.unwrap();
        let () = bed.admin.cmd(&["SET", "string", "x"]).await;
        for (flavour, name) in [(Flavour::Plain, "hash"), (Flavour::Reentrant, "string"), (Flavour::Fair, "string")] {
            let kind = format!("another type ({name})");
            let error = client.lock(flavour, name).lock().await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::WrongType { .. }), "{flavour}: {error:?}");
            assert!(text.contains("every other lock is a hash"), "{flavour}: {text}");
            assert!(text.contains(&kind), "{flavour}: {text}");
            assert!(!text.contains("script") && !text.contains("is not a lock"), "{flavour}: {text}");
        }
        held.unlock().await.unwrap();
        let () = bed.admin.cmd(&["DEL", "string"]).await;
    })
    .await;
}
