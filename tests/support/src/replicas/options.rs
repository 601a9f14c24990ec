use std::path::{Path, PathBuf};

use super::login::Login;
use super::member::Wanted;
use crate::RedisServer;

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
    /// Number of replicas; 0 is allowed.
    pub fn replicas(mut self, n: usize) -> Self {
        self.count = n + 1;
        self
    }

    /// The password of the default user, which every login needs.
    pub fn password(mut self, password: &str) -> Self {
        self.login = Some(Login { user: None, password: password.to_owned() });
        self
    }

    /// The only user. The default user is off.
    pub fn user(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login { user: Some(user.to_owned()), password: password.to_owned() });
        self
    }

    /// Whether clients, replicas and sentinels reach each server through its own [`crate::Proxy`]. The server announces
    /// the proxy's port. A client on the server's side of a partition uses the address of [`super::Member::server`].
    pub fn proxies(mut self, on: bool) -> Self {
        self.proxies = on;
        self
    }

    /// One more line of configuration for every server, such as `min-replicas-to-write 1`, with blanks between its
    /// words. These lines come last, so they override this fixture's settings.
    pub fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// Clients, replicas and sentinels use TLS, with `cert.pem`, `key.pem` and `ca.pem` of this folder. Sentinels then
    /// also use it among themselves and for clients. Administrators do not. Cannot be combined with proxies.
    pub fn tls(mut self, certificates: &Path) -> Self {
        self.certificates = Some(certificates.to_owned());
        self
    }

    pub(super) fn is_tls(&self) -> bool {
        self.certificates.is_some()
    }

    pub(super) fn server(&self) -> Wanted {
        let mut server = RedisServer::builder()
            // A configuration file keeps changes over a restart.
            .config(&self.login.as_ref().map(Login::config).unwrap_or_default())
            .arg("--replica-announce-ip", "127.0.0.1")
            // A replica gets its data at once, without a wait for other replicas.
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
