//! Changing credentials. The client queries the provider before each login, over both transports, with and without TLS.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bed::secs;
use distlock::{Builder, Credentials, Error};
use distlock_support::{Admin, RedisServer};
use parking_lot::Mutex;

use crate::pki::When;
use crate::rig::{BOTH, Secure, brisk, end, heals, kill, refusal, refusal_at_once, set_password, told, works};

const USER: &str = "tok\"en-user";

/// The provider's current reply, and the number of queries.
#[derive(Clone, Default)]
struct Tokens(Arc<Mutex<Says>>, Arc<AtomicUsize>);

#[derive(Clone, Default)]
enum Says {
    Password(String),
    Fails,
    Panics,
    #[default]
    Nothing,
}

impl Tokens {
    fn say(&self, says: Says) {
        *self.0.lock() = says;
    }

    fn builder(&self, builder: Builder) -> Builder {
        let tokens = self.clone();
        builder.credentials(move || {
            tokens.1.fetch_add(1, Ordering::Relaxed);
            let says = tokens.0.lock().clone();
            async move {
                match says {
                    Says::Password(password) => Ok(Credentials::new(USER, password)),
                    Says::Fails => Err(io::Error::other("the token service is away")),
                    Says::Panics => panic!("a provider of somebody else's"),
                    Says::Nothing => std::future::pending().await,
                }
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_reconnects_with_new_password_from_provider() {
    let secure = Secure::start("IP:127.0.0.1", When::Now, "no");
    let admin = Admin::connect(&secure.server).await;
    for (direct, by_tls) in BOTH.iter().flat_map(|direct| [(*direct, false), (*direct, true)]) {
        let tokens = Tokens::default();
        // The URL has another login, which is ignored.
        let builder = if by_tls {
            secure.builder(direct, secure.tls())
        } else {
            brisk(&format!("redis://nobody:hunter2@127.0.0.1:{}", secure.server.port()), direct)
        };
        let mut password = "hunter2 \"the' first\\".to_owned();
        set_password(&admin, USER, &password).await;
        tokens.say(Says::Password(password.clone()));
        works(tokens.builder(builder.clone())).await;
        let client = tokens.builder(builder).connect().await.unwrap();
        let held = client.reentrant("held").lock().await.unwrap();
        for n in 0..3 {
            let asked = tokens.1.load(Ordering::Relaxed);
            password = format!("hunter2 number {n}\r\n");
            set_password(&admin, USER, &password).await;
            tokens.say(Says::Password(password.clone()));
            kill(&admin).await;
            heals(&client, "a").await;
            assert!(tokens.1.load(Ordering::Relaxed) > asked, "asked anew");
        }
        // The lock has stayed held.
        client.renew_now().await;
        assert!(held.is_held());
        held.unlock().await.unwrap();
        end([client]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_credentials_provider_is_named_in_errors() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    set_password(&admin, USER, "hunter2").await;
    for direct in BOTH {
        for (says, part) in [
            (Says::Fails, "the token service is away"),
            (Says::Panics, "has panicked"),
            (Says::Nothing, "does not answer"),
        ] {
            let tokens = Tokens::default();
            tokens.say(says.clone());
            let error = refusal(tokens.builder(brisk(&server.url(), direct))).await;
            let Error::Connection { message, .. } = &error else { panic!("{error:?}") };
            assert!(message.contains("provider of credentials") && message.contains(part), "{message}");

            // At a later login the provider fails. Calls return its error, and the client recovers by itself.
            tokens.say(Says::Password("hunter2".to_owned()));
            let builder = tokens.builder(brisk(&server.url(), direct).command_timeout(secs(5)));
            let client = bed::with_longer_waits(secs(6), async |wait| {
                match builder.clone().connect_timeout(wait).connect().await {
                    Ok(client) => Some(client),
                    Err(Error::Timeout { .. } | Error::Connection { .. }) => None,
                    Err(error) => panic!("{error:?}"),
                }
            })
            .await;
            tokens.say(says);
            kill(&admin).await;
            told(&client, "a", part).await;
            tokens.say(Says::Password("hunter2".to_owned()));
            heals(&client, "a").await;
            end([client]).await;
        }
        // The server refuses the credentials.
        let tokens = Tokens::default();
        tokens.say(Says::Password("hunter2 the wrong one".to_owned()));
        let error = refusal_at_once(tokens.builder(brisk(&server.url(), direct))).await;
        assert!(matches!(&error, Error::Server { message, .. } if message.starts_with("WRONGPASS")), "{error:?}");
    }
}
