//! A server with TLS, and clients of it over both transports, in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bed::{PATIENCE, becomes, ends, eventually, ms, secs};
use distlock::{Builder, Client, Credentials, Error, Step, Tls};
use distlock_support::ports::Port;
use distlock_support::{Admin, RedisServer};
use parking_lot::Mutex;

use crate::ears;
use crate::pki::{Authority, When};

pub const PASSWORD: &str = "hunter2 of the server";

/// A server with a TLS port and a plain port.
pub struct Secure {
    pub authority: Arc<Authority>,
    pub server: RedisServer,
    pub port: Port,
}

impl Secure {
    /// Starts with a certificate for these names. `clients`: the value of `tls-auth-clients`.
    pub fn start(names: &str, when: When, clients: &str) -> Self {
        let authority = Arc::new(Authority::new("ours"));
        authority.server(names, when);
        Self::of(authority, clients)
    }

    pub fn of(authority: Arc<Authority>, clients: &str) -> Self {
        let file = |name: &str| authority.file(name).display().to_string();
        let port = Port::reserve();
        let server = RedisServer::builder()
            .password(PASSWORD)
            .arg("--tls-port", &port.number().to_string())
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

    /// Options that trust the server's authority.
    pub fn tls(&self) -> Tls {
        Tls::new().ca_file(self.ca())
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port.number())
    }

    pub fn builder(&self, direct: bool, tls: Tls) -> Builder {
        brisk(&self.url(), direct).password(PASSWORD).tls(tls)
    }

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

/// A client that does not retry, and soon notices closed connections.
pub fn brisk(url: &str, direct: bool) -> Builder {
    ears::listen();
    Client::builder(url).command_timeout(secs(10)).connect_timeout(PATIENCE).retry_attempts(0).configure(|options| {
        options.use_fred = !direct;
        options.ping_interval = ms(500);
    })
}

pub const BOTH: [bool; 2] = [false, true];

/// One client takes a lock. Another client waits for it and is woken.
pub async fn works(builder: Builder) {
    let client = builder.clone().connect().await.unwrap_or_else(|error| panic!("{error}"));
    let other = builder.connect().await.unwrap();
    wakes(&client, &other, "works").await;
    end([client, other]).await;
}

/// Asserts that a message wakes a waiter. Its next poll is later than the end of the test.
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

pub async fn heals(client: &Client, name: &str) {
    let heals = async || match client.reentrant(name).try_lock().await {
        // The acquire returns `None` while the release of an earlier call is in flight.
        Ok(Some(guard)) => guard.unlock().await.is_ok(),
        Ok(None) | Err(_) => false,
    };
    eventually("the client can lock again", heals).await;
}

pub async fn told(client: &Client, name: &str, part: &str) {
    let fails = async || match client.reentrant(name).try_lock().await {
        Err(error) => error.to_string().contains(part),
        Ok(_) => false,
    };
    eventually(&format!("an operation fails with {part:?}"), fails).await;
}

pub async fn kill(admin: &Admin) {
    admin.client_kill_type("normal").await;
    admin.client_kill_type("pubsub").await;
}

pub async fn set_password(admin: &Admin, user: &str, password: &str) {
    let rule = format!(">{password}");
    let () = admin.cmd(&["ACL", "SETUSER", user, "on", "resetpass", &rule, "~*", "&*", "+@all"]).await;
}

/// A builder whose credentials provider returns `locks` and the current password.
fn changing(builder: Builder, password: &Arc<Mutex<String>>) -> Builder {
    let password = Arc::clone(password);
    builder.credentials(move || {
        let password = password.lock().clone();
        async move { Ok::<_, std::io::Error>(Credentials::new("locks", password)) }
    })
}

/// A waiter of each of the names is woken. Then the password of the servers changes, and all connections are closed. The
/// client locks each of the names again.
pub async fn follows_a_changed_password(admins: &[&Admin], builder: Builder, names: &[String]) {
    let token = Arc::new(Mutex::new(String::new()));
    let set = async |password: &str| {
        for admin in admins {
            set_password(admin, "locks", password).await;
        }
        password.clone_into(&mut token.lock());
    };
    set("hunter2 of yesterday").await;
    let builder = changing(builder, &token);
    let (client, other) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    for name in names {
        wakes(&client, &other, name).await;
    }
    set("hunter2 of today").await;
    for admin in admins {
        kill(admin).await;
    }
    for name in names {
        heals(&client, name).await;
    }
    end([client, other]).await;
}

/// Returns the error of a connect, which must come within `wait`.
pub async fn failure(builder: Builder, wait: Duration) -> Error {
    let connecting = tokio::time::timeout(wait + PATIENCE, builder.connect_timeout(wait).connect());
    connecting.await.expect("connecting ends in time").expect_err("it fails")
}

/// Returns the error with which a server refuses a connection. If the error is a timeout, the server may not have been
/// reached, so the function connects again with twice the time.
pub async fn refusal(builder: Builder) -> Error {
    bed::refusal(&builder, |error| !matches!(error, Error::Timeout { step: Step::Connect, .. })).await
}

/// Returns the error of a connect that must fail at once, because a retry cannot help.
pub async fn refusal_at_once(builder: Builder) -> Error {
    ends("a connect that is refused at once", builder.connect_timeout(secs(3600)).connect())
        .await
        .expect_err("it is refused")
}

pub async fn message(builder: Builder) -> String {
    match refusal(builder).await {
        Error::Connection { message, outcome_unknown: false, .. } => message,
        error => panic!("{error:?}"),
    }
}
