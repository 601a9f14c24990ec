//! One server of a set, or one sentinel.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use futures::future::join_all;
use parking_lot::Mutex;

use super::login::Login;
use crate::ports::Port;
use crate::server::Builder;
use crate::{Admin, Proxy, RedisServer};

pub(crate) struct Wanted {
    pub(crate) server: Builder,
    /// Lines of configuration that override the others.
    pub(crate) config: Vec<String>,
    /// The option by which the server announces the port of its proxy, if there is a proxy.
    pub(crate) announced: Option<&'static str>,
    pub(crate) certificates: Option<PathBuf>,
    pub(crate) login: Option<Login>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running,
    Killed(Instant),
    Frozen(Instant),
}

/// A server or a sentinel, and an administrator's connection to it.
#[derive(Debug)]
pub struct Member {
    // Dropped first, because the proxy closes the connections to the server.
    proxy: Option<Proxy>,
    server: RedisServer,
    tls_port: Option<Port>,
    admin_url: String,
    admin: Admin,
    state: Mutex<State>,
}

struct Started {
    proxy: Option<Proxy>,
    server: RedisServer,
    tls_port: Option<Port>,
    admin_url: String,
}

impl Wanted {
    fn start(self) -> Started {
        assert!(self.announced.is_none() || self.certificates.is_none(), "a proxy does not speak TLS");
        let mut builder = self.server;
        // The proxy has to exist first, because the server announces its port. Nothing connects to it yet.
        let proxy = self.announced.map(|option| (option, Proxy::start(SocketAddr::from(([127, 0, 0, 1], 1)))));
        if let Some((option, proxy)) = &proxy {
            builder = builder.arg(option, &proxy.port().to_string());
        }
        let tls_port = self.certificates.as_ref().map(|_| builder.port());
        if let (Some(folder), Some(port)) = (&self.certificates, &tls_port) {
            builder = builder.tls(folder, port.number());
        }
        let server = self.config.iter().fold(builder, |builder, line| builder.line(line)).start();
        let proxy = proxy.map(|(_, proxy)| proxy);
        if let Some(proxy) = &proxy {
            proxy.set_upstream(server.addr());
        }
        let userinfo = self.login.as_ref().map(Login::userinfo).unwrap_or_default();
        let admin_url = format!("redis://{userinfo}{}", server.addr());
        Started { proxy, server, tls_port, admin_url }
    }
}

impl Member {
    /// Starts the members, all at once.
    pub(crate) async fn launch(all: Vec<Wanted>) -> Vec<Self> {
        let started: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = all.into_iter().map(|one| scope.spawn(|| one.start())).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        join_all(started.into_iter().map(Self::new)).await
    }

    async fn new(Started { proxy, server, tls_port, admin_url }: Started) -> Self {
        let admin = Admin::from_url(&admin_url).await;
        Self { proxy, server, tls_port, admin_url, admin, state: Mutex::new(State::Running) }
    }

    /// The address for clients and other members: the proxy's address if there is a proxy, otherwise the TLS address if
    /// there is one.
    pub fn addr(&self) -> SocketAddr {
        match (&self.proxy, &self.tls_port) {
            (Some(proxy), _) => proxy.addr(),
            (None, Some(port)) => SocketAddr::from(([127, 0, 0, 1], port.number())),
            (None, None) => self.server.addr(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls_port.is_some()
    }

    /// The port for TLS if there is one, otherwise the port for administrators.
    pub(crate) fn port(&self) -> u16 {
        self.tls_port.as_ref().map_or(self.server.port(), Port::number)
    }

    /// `redis://...` for an administrator, with user and password. Bypasses the proxy and TLS.
    pub fn admin_url(&self) -> &str {
        &self.admin_url
    }

    /// An administrator's connection, which bypasses the proxy.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The proxy in front of it with [`super::ReplicasOptions::proxies`].
    pub fn proxy(&self) -> &Proxy {
        match &self.proxy {
            Some(proxy) => proxy,
            None => panic!("{} has no proxy: see `proxies` of its options", self.addr()),
        }
    }

    /// The server, for its log and folder. To kill or freeze the server, use the methods here, which track the state.
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Whether the member is neither killed nor frozen.
    pub fn is_running(&self) -> bool {
        matches!(*self.state.lock(), State::Running)
    }

    /// When the member was killed or frozen. `None` while it runs.
    pub fn away_since(&self) -> Option<Instant> {
        match *self.state.lock() {
            State::Running => None,
            State::Killed(since) | State::Frozen(since) => Some(since),
        }
    }

    /// Whether the member is a primary in its own view.
    pub async fn is_primary(&self) -> bool {
        self.admin.field(&super::REPLICATION, "role").await == "master"
    }

    /// Kills the member (SIGKILL), even while it is frozen. Then [`Member::away_since`] stays the time of the freeze.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        *state = State::Killed(match *state {
            State::Running => Instant::now(),
            State::Killed(since) | State::Frozen(since) => since,
        });
        self.server.kill9();
    }

    /// Freezes the member (SIGSTOP): its connections stay open, but nothing is answered.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        assert!(matches!(*state, State::Running), "{} does not run", self.addr());
        *state = State::Frozen(Instant::now());
        self.server.stop();
    }

    pub fn cont(&self) {
        let mut state = self.state.lock();
        assert!(matches!(*state, State::Frozen(_)), "{} is not frozen", self.addr());
        self.server.cont();
        *state = State::Running;
    }

    /// Restarts the member at its port and with its configuration. Kills it first if it runs.
    pub fn restart(&self) {
        self.server.restart();
        *self.state.lock() = State::Running;
    }
}
