//! How a primary and its replicas are to be.

use std::path::{Path, PathBuf};

use super::login::Login;
use super::member::Wanted;
use crate::RedisServer;

/// What [`super::Replicas::start`] is to start.
#[derive(Clone, Debug)]
#[must_use]
pub struct ReplicasOptions {
    pub(super) count: usize,
    pub(crate) login: Option<Login>,
    proxies: bool,
    repl_timeout_s: u64,
    config: Vec<String>,
    pub(crate) certificates: Option<PathBuf>,
}

impl Default for ReplicasOptions {
    /// A primary and two replicas, with a `repl-timeout` of 10 s.
    fn default() -> Self {
        Self { count: 3, login: None, proxies: false, repl_timeout_s: 10, config: Vec::new(), certificates: None }
    }
}

impl ReplicasOptions {
    /// How many replicas the primary has; 0 is allowed.
    pub fn replicas(mut self, n: usize) -> Self {
        self.count = n + 1;
        self
    }

    /// The password of the default user, without which nobody comes in.
    pub fn password(mut self, password: &str) -> Self {
        self.login = Some(Login { user: None, password: password.to_owned() });
        self
    }

    /// The only user who comes in; the default one is off.
    pub fn user(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login { user: Some(user.to_owned()), password: password.to_owned() });
        self
    }

    /// Whether clients, replicas and sentinels reach every server through a [`crate::Proxy`] of its own, whose port it
    /// announces. Past it, by [`super::Member::server`], is the way of who is on the server's side of a partition.
    pub fn proxies(mut self, on: bool) -> Self {
        self.proxies = on;
        self
    }

    /// One more line of configuration for every server, such as `min-replicas-to-write 1`; its words stand between blanks.
    /// These come last, so they win over what this fixture sets.
    pub fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// Clients, replicas and sentinels speak TLS, by `cert.pem`, `key.pem` and `ca.pem` of this folder; sentinels then have it
    /// among themselves and towards clients, too. Administrators do not. Not together with proxies.
    pub fn tls(mut self, certificates: &Path) -> Self {
        self.certificates = Some(certificates.to_owned());
        self
    }

    pub(super) fn is_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// One server.
    pub(super) fn server(&self) -> Wanted {
        let mut server = RedisServer::builder()
            // With a file, what happens to a server can be kept for its restart.
            .config(&self.login.as_ref().map(Login::config).unwrap_or_default())
            .arg("--replica-announce-ip", "127.0.0.1")
            // A replica gets its data at once, not only when others may have come as well.
            .arg("--repl-diskless-sync-delay", "0")
            .arg("--repl-ping-replica-period", "1")
            .arg("--repl-timeout", &self.repl_timeout_s.to_string());
        if let Some(Login { user, password }) = &self.login {
            server = server.arg("--masterauth", password);
            if let Some(user) = user {
                server = server.arg("--masteruser", user);
            }
        }
        Wanted {
            server,
            config: self.config.clone(),
            announced: self.proxies.then_some("--replica-announce-port"),
            certificates: self.certificates.clone(),
            login: self.login.clone(),
        }
    }
}
