use crate::RedisServer;
use crate::replicas::{Login, ReplicasOptions, Wanted};

#[derive(Clone, Debug)]
#[must_use]
pub struct SentinelsOptions {
    pub(super) servers: ReplicasOptions,
    pub(super) count: usize,
    pub(super) name: String,
    pub(super) failover_timeout_ms: u64,
    quorum: usize,
    down_after_ms: u64,
    login: Option<Login>,
    config: Vec<String>,
    pub(super) periods: Vec<(String, u64)>,
}

impl Default for SentinelsOptions {
    /// Three sentinels with a quorum of two over a primary and two replicas, named `locks`. A server counts as down
    /// after 2 s without a reply. The failover timeout is 3 s, so the next failover can start after 6 s. All replicas
    /// follow a new primary at once.
    fn default() -> Self {
        Self {
            servers: ReplicasOptions::default(),
            count: 3,
            name: "locks".to_owned(),
            failover_timeout_ms: 3_000,
            quorum: 2,
            down_after_ms: 2_000,
            login: None,
            config: Vec::new(),
            periods: Vec::new(),
        }
    }
}

impl SentinelsOptions {
    /// The watched servers. Sentinels log in with the servers' password or user, and use TLS if the servers do.
    pub fn servers(mut self, servers: ReplicasOptions) -> Self {
        self.servers = servers;
        self
    }

    /// The number of sentinels, and the number that must agree that a primary is down.
    pub fn sentinels(mut self, n: usize, quorum: usize) -> Self {
        (self.count, self.quorum) = (n, quorum);
        self
    }

    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// `down-after-milliseconds`: after this time a silent server is suspected. Below 2 s, a new primary may be
    /// suspected too: its promotion closes the sentinels' connections, and they need up to 1 s (`ping-period`) to
    /// reconnect.
    pub fn down_after(mut self, ms: u64) -> Self {
        self.down_after_ms = ms;
        self
    }

    /// The password of the sentinels' default user, which every login needs.
    pub fn password(mut self, password: &str) -> Self {
        self.login = Some(Login { user: None, password: password.to_owned() });
        self
    }

    /// The only user of the sentinels. The default user is off.
    pub fn user(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login { user: Some(user.to_owned()), password: password.to_owned() });
        self
    }

    /// Adds a line of configuration for every sentinel, such as `sentinel master-reboot-down-after-period locks 0`.
    pub fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// Shortens periods of the sentinels. Servers before 7.0 keep the defaults, and so does a sentinel that is
    /// restarted.
    ///
    /// - An old primary that returned becomes a replica after 4 to 5 s (default 8 to 18 s).
    /// - A replica is seen to follow a new primary at once (default up to 10 s).
    /// - A sentinel that stood still takes part again after 1 s (default 30 s).
    /// - Connections that a promotion closed are restored after 250 ms (default 1 s).
    pub fn swift(self) -> Self {
        // With a much shorter period, a sentinel that has not heard of a promotion yet would revert the promotion.
        self.period("publish-period", 1_000)
            .period("info-period", 500)
            .period("tilt-period", 1_000)
            .period("ping-period", 250)
    }

    /// Sets a period of `SENTINEL DEBUG` in ms for every sentinel. Examples are `publish-period` (a quarter of the
    /// time after which an old primary that returned is made a replica) and `tilt-period` (how long a sentinel that
    /// was frozen stays passive). Servers before 7.0 do not have these, and keep their defaults.
    pub fn period(mut self, name: &str, ms: u64) -> Self {
        self.periods.push((name.to_owned(), ms));
        self
    }

    /// One sentinel that watches the primary at this port.
    pub(super) fn sentinel(&self, port: u16) -> Wanted {
        let name = &self.name;
        let mut config = self.login.as_ref().map(Login::config).unwrap_or_default();
        let mut add = |line: String| {
            config += &line;
            config.push('\n');
        };
        add(format!("sentinel monitor {name} 127.0.0.1 {port} {}", self.quorum));
        add(format!("sentinel down-after-milliseconds {name} {}", self.down_after_ms));
        add(format!("sentinel failover-timeout {name} {}", self.failover_timeout_ms));
        add(format!("sentinel parallel-syncs {name} 5"));
        if let Some(Login { user, password }) = &self.servers.login {
            add(format!("sentinel auth-pass {name} {password}"));
            if let Some(user) = user {
                add(format!("sentinel auth-user {name} {user}"));
            }
        }
        if let Some(Login { user, password }) = &self.login {
            add(format!("sentinel sentinel-pass {password}"));
            if let Some(user) = user {
                add(format!("sentinel sentinel-user {user}"));
            }
        }
        for line in &self.config {
            add(line.clone());
        }
        Wanted {
            server: RedisServer::builder().config(&config).arg("--sentinel", ""),
            config: Vec::new(),
            announced: None,
            certificates: self.servers.certificates.clone(),
            login: self.login.clone(),
        }
    }
}
