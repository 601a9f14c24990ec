//! A server with TLS, and clients of it over both transports, in this process.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Builder, Client, Error, Tls};
use distlock_support::RedisServer;

use crate::ears;
use crate::pki::{Authority, When};

pub const PASSWORD: &str = "hunter2 of the server";

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

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
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
        let admin = distlock_support::Admin::connect(&self.server).await;
        let file = |name: &str| authority.file(name).to_str().unwrap().to_owned();
        let (certificate, key, trusted) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
        let words =
            ["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key, "tls-ca-cert-file", &trusted];
        let () = admin.cmd(&words).await;
    }

    /// Ends the connections of all clients but the administrator's.
    pub async fn kill_clients(&self) {
        let admin = distlock_support::Admin::connect(&self.server).await;
        admin.client_kill_type("normal").await;
        admin.client_kill_type("pubsub").await;
    }
}

/// A builder of a client that gives up soon.
pub fn brisk(url: &str, direct: bool) -> Builder {
    ears::listen();
    Client::builder(url)
        .direct(direct)
        .watchdog(secs(6))
        .command_timeout(ms(1500))
        .connect_timeout(secs(3))
        .retry_attempts(0)
        .subscribe_timeout(secs(1))
        .ping_interval(ms(500))
}

/// Over both transports.
pub const BOTH: [bool; 2] = [false, true];

/// One client takes a lock, another one waits for it, and is woken.
pub async fn works(builder: Builder) {
    let client = builder.clone().connect().await.unwrap_or_else(|error| panic!("{error}"));
    let other = builder.connect().await.unwrap();
    let guard = client.reentrant("works").lock().await.unwrap();
    let lock = other.reentrant("works");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    bed::eventually("it waits", async || other.stats().waiting == 1 && other.stats().under_way == 0).await;
    guard.unlock().await.unwrap();
    waiter.await.unwrap().unlock().await.unwrap();
    for client in [client, other] {
        client.shutdown(secs(5)).await.unwrap();
    }
}

/// What connecting fails with.
pub async fn refusal(builder: Builder) -> Error {
    match builder.connect().await {
        Ok(_) => panic!("connected"),
        Err(error) => error,
    }
}

/// The message of a connection that is refused.
pub async fn message(builder: Builder) -> String {
    match refusal(builder).await {
        Error::Connection { message, outcome_unknown: false, .. } => message,
        error => panic!("{error:?}"),
    }
}
