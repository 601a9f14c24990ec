//! Options of a server, and its start.

use std::ffi::OsString;
use std::path::Path;

use parking_lot::Mutex;

use super::{RedisServer, Refused, START_ATTEMPTS, find_program};
use crate::ports::Port;
use crate::reaper::Folder;

#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    pub(super) aof: bool,
    pub(super) bus: bool,
    pub(super) password: Option<String>,
    pub(super) config: Option<String>,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl Builder {
    pub fn env(mut self, name: &str, value: &std::ffi::OsStr) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Whether data survives [`RedisServer::restart`] (append-only file); off by default.
    pub fn aof(mut self, on: bool) -> Self {
        self.aof = on;
        self
    }

    /// Whether the cluster bus port must be free, too.
    pub(crate) fn bus(mut self, on: bool) -> Self {
        self.bus = on;
        self
    }

    /// Reserves a port. With [`Builder::bus`], its bus port is free, too.
    pub(crate) fn port(&self) -> Port {
        if self.bus { Port::reserve_for_node() } else { Port::reserve() }
    }

    /// The password of the default user (`requirepass`).
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// One more command line option, such as `("--maxmemory", "1mb")`. An empty value is left out. These options come
    /// last, so they override this fixture's settings.
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.push(name.into());
        if !value.is_empty() {
            self.args.push(value.into());
        }
        self
    }

    /// One line of configuration as command line options. Blanks separate its words, and `""` is an empty word.
    pub(crate) fn line(mut self, line: &str) -> Self {
        for (n, word) in line.split_whitespace().enumerate() {
            self.args.push(match (n, word) {
                (0, name) => format!("--{name}").into(),
                (_, "\"\"") => OsString::new(),
                (_, word) => word.into(),
            });
        }
        self
    }

    /// TLS at its own port and for connections to other servers, with `cert.pem`, `key.pem` and `ca.pem` of this
    /// folder.
    pub(crate) fn tls(self, certificates: &Path, port: u16) -> Self {
        let file = |name: &str| certificates.join(name).display().to_string();
        self.arg("--tls-port", &port.to_string())
            .arg("--tls-cert-file", &file("cert.pem"))
            .arg("--tls-key-file", &file("key.pem"))
            .arg("--tls-ca-cert-file", &file("ca.pem"))
            .arg("--tls-auth-clients", "no")
            .arg("--tls-replication", "yes")
    }

    /// Text of a configuration file. A sentinel needs one (with `.arg("--sentinel", "")`), and so does an option with
    /// an empty value.
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> RedisServer {
        let program = find_program();
        let dir = Folder::new();
        if let Some(text) = &self.config
            && let Err(e) = std::fs::write(dir.path().join("redis.conf"), text)
        {
            panic!("cannot write redis.conf: {e}");
        }
        let mut server =
            RedisServer { port: self.port(), options: self.clone(), program, dir, child: Mutex::new(None) };
        let mut why = String::new();
        for _ in 0..START_ATTEMPTS {
            match server.launch() {
                Ok(()) => return server,
                Err(Refused::PortTaken(w)) => (server.port, why) = (self.port(), w),
                Err(Refused::Other(w)) => panic!("redis-server did not start: {w}"),
            }
        }
        panic!("redis-server found no free port in {START_ATTEMPTS} attempts: {why}");
    }
}
