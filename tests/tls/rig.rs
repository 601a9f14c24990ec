//! A server with TLS, and clients of it over both transports, in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bed::{PATIENCE, becomes, ends, eventually, ms, secs};
use distlock::{Builder, Client, Credentials, Error, Step, Tls};
use distlock_support::{Admin, RedisServer, ports};
use parking_lot::Mutex;

use crate::ears;
use crate::pki::{Authority, When};

pub const PASSWORD: &str = "hunter2 of the server";

/// A server that speaks TLS at one port, and plain at the other.
pub struct Secure {
    pub authority: Arc<Authority>,
    pub server: RedisServer,
    pub port: u16,
}

impl Secure {
    /// With a certificate for these names. `clients`: what `tls-auth-clients` is.
    pub fn start(names: &str, when: When, clients: &str) -> Self {
        let authority = Arc::new(Authority::new("ours"));
        authority.server(names, when);
        Self::of(authority, clients)
    }

    pub fn of(authority: Arc<Authority>, clients: &str) -> Self {
        let file = |name: &str| authority.file(name).to_str().unwrap().to_owned();
        let port = ports::free();
        let server = RedisServer::builder()
            .password(PASSWORD)
            .arg("--tls-port", &port.to_string())
            .arg("--tls-cert-file", &file("cert.pem"))
            .arg("--tls-key-file", &file("key.pem"))
            .arg("--tls-ca-cert-file", &file("ca.pem"))
            .arg("--tls-auth-clients", clients)
            .start();
        Self { authority, server, port }
    }

    pub fn ca(&self) -> PathBuf {
        self.authority.file("ca.pem")
    }

    /// Trusts its authority.
    pub fn tls(&self) -> Tls {
        Tls::new().ca_file(self.ca())
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    pub fn builder(&self, direct: bool, tls: Tls) -> Builder {
        brisk(&self.url(), direct).password(PASSWORD).tls(tls)
    }

    /// Has it use the certificate of another authority from now on.
    pub async fn use_files_of(&self, authority: &Authority) {
        let admin = Admin::connect(&self.server).await;
        let file = |name: &str| authority.file(name).to_str().unwrap().to_owned();
        let (certificate, key, trusted) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
        let words =
            ["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key, "tls-ca-cert-file", &trusted];
        let () = admin.cmd(&words).await;
    }

    pub async fn kill_clients(&self) {
        kill(&Admin::connect(&self.server).await).await;
    }
}

/// A builder of a client that retries nothing, and learns soon that connections are gone.
pub fn brisk(url: &str, direct: bool) -> Builder {
    ears::listen();
    Client::builder(url)
        .direct(direct)
        .command_timeout(secs(10))
        .connect_timeout(PATIENCE)
        .retry_attempts(0)
        .ping_interval(ms(500))
}

/// Over both transports.
pub const BOTH: [bool; 2] = [false, true];

/// One client takes a lock, another one waits for it, and is woken.
pub async fn works(builder: Builder) {
    let client = builder.clone().connect().await.unwrap_or_else(|error| panic!("{error}"));
    let other = builder.connect().await.unwrap();
    wakes(&client, &other, "works").await;
    end([client, other]).await;
}

/// A waiter is woken by a message: no poll comes for as long as the test waits.
pub async fn wakes(client: &Client, other: &Client, name: &str) {
    let guard = client.reentrant(name).lock().await.unwrap();
    let lock = other.reentrant(name);
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    becomes("waiting tasks and commands in flight", (1, 0), async || {
        let stats = other.stats();
        (stats.waiting, stats.under_way)
    })
    .await;
    guard.unlock().await.unwrap();
    ends("the waiter", waiter).await.unwrap().unlock().await.unwrap();
}

pub async fn end(clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        client.shutdown(PATIENCE).await.unwrap();
    }
}

/// Waits until the client can take and release a lock of this name.
pub async fn heals(client: &Client, name: &str) {
    let heals = async || match client.reentrant(name).try_lock().await {
        // None: the release of an earlier call is still in flight.
        Ok(Some(guard)) => guard.unlock().await.is_ok(),
        Ok(None) | Err(_) => false,
    };
    eventually("the client can lock again", heals).await;
}

/// Waits until operations fail with this message.
pub async fn told(client: &Client, name: &str, part: &str) {
    let fails = async || match client.reentrant(name).try_lock().await {
        Err(error) => error.to_string().contains(part),
        Ok(_) => false,
    };
    eventually(&format!("an operation fails with {part:?}"), fails).await;
}

/// Ends the connections of all clients but administrators'.
pub async fn kill(admin: &Admin) {
    admin.client_kill_type("normal").await;
    admin.client_kill_type("pubsub").await;
}

/// Sets the password of a user who may do everything.
pub async fn set_password(admin: &Admin, user: &str, password: &str) {
    let rule = format!(">{password}");
    let () = admin.cmd(&["ACL", "SETUSER", user, "on", "resetpass", &rule, "~*", "&*", "+@all"]).await;
}

/// A builder whose provider of credentials gives `locks` and the password of the moment.
pub fn changing(builder: Builder, password: &Arc<Mutex<String>>) -> Builder {
    let password = Arc::clone(password);
    builder.credentials(move || {
        let password = password.lock().clone();
        async move { Ok::<_, std::io::Error>(Credentials::new("locks", password)) }
    })
}

/// The error that connecting ends with, when its time is up or before.
pub async fn failure(builder: Builder, wait: Duration) -> Error {
    let connecting = tokio::time::timeout(wait + PATIENCE, builder.connect_timeout(wait).connect());
    connecting.await.expect("connecting ends in time").expect_err("it fails")
}

/// The error that a server refuses a connection with. After a mere timeout the server may not have been reached yet, so it connects again
/// with twice the time.
pub async fn refusal(builder: Builder) -> Error {
    bed::refusal(&builder, |error| !matches!(error, Error::Timeout { step: Step::Connect, .. })).await
}

/// What connecting fails with now: it does not wait for what does not heal.
pub async fn refusal_at_once(builder: Builder) -> Error {
    ends("a connect that is refused at once", builder.connect_timeout(secs(3600)).connect())
        .await
        .expect_err("it is refused")
}

/// The message of a connection that is refused.
pub async fn message(builder: Builder) -> String {
    match refusal(builder).await {
        Error::Connection { message, outcome_unknown: false, .. } => message,
        error => panic!("{error:?}"),
    }
}
