//! Options of an agent, and kinds of locks.

use super::*;

/// How to start an agent. Redisson's defaults apply to options that are `None` or empty.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    pub version: String,
    /// `single`, `cluster`, `sentinel` or `replicated`. All but the first allow several URLs, separated by commas. A
    /// URL such as `redis-sentinel://user:password@host:port,host:port/name` sets this, the master's name, the user
    /// and the password.
    pub mode: String,
    /// A file of Redisson's own configuration. If set, only this file counts.
    pub yaml: Option<PathBuf>,
    /// The values of variables in that file.
    pub variables: Vec<(String, String)>,
    /// The master's name, for `sentinel`.
    pub master: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// The user for sentinels.
    pub sentinel_username: Option<String>,
    /// The password for sentinels.
    pub sentinel_password: Option<String>,
    /// `checkLockSyncedSlaves`: whether an acquire succeeds only if a replica has the lock. Ignored without replicas.
    pub check_synced: Option<bool>,
    /// `slavesSyncTimeout`.
    pub sync_timeout: Option<Duration>,
    /// A name mapper that puts this prefix before every name, including the counter of [`Agent::counter_loop`].
    pub prefix: Option<String>,
    /// `lockWatchdogTimeout`.
    pub watchdog: Option<Duration>,
    /// `fairLockWaitTimeout`.
    pub fair_wait: Option<Duration>,
    /// The time limit of a command.
    pub timeout: Option<Duration>,
    pub retries: Option<u32>,
    /// Whether the agent has its own Java process, which can be killed and stopped. `variables`, `full_speed` and
    /// `jvm` imply this.
    pub own_process: bool,
    /// For measurements: Redisson's own thread and connection counts and the full just-in-time compiler, instead of
    /// settings for a quick start.
    pub full_speed: bool,
    /// The heap limit of its own process, in MB.
    pub heap_mb: u32,
    /// Further arguments of the Java machine.
    pub jvm: Vec<String>,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            version: VERSIONS[0].to_owned(),
            mode: "single".to_owned(),
            yaml: None,
            variables: Vec::new(),
            master: None,
            username: None,
            password: None,
            sentinel_username: None,
            sentinel_password: None,
            check_synced: None,
            sync_timeout: None,
            prefix: None,
            watchdog: None,
            fair_wait: None,
            timeout: None,
            retries: None,
            own_process: false,
            full_speed: false,
            heap_mb: 256,
            jvm: Vec::new(),
        }
    }
}

impl AgentOptions {
    /// The defaults, for this version of Redisson.
    pub fn version(version: &str) -> Self {
        Self { version: version.to_owned(), ..Self::default() }
    }

    /// Gives the agent its own Java process, which can be killed and stopped.
    #[must_use]
    pub fn in_own_process(self) -> Self {
        Self { own_process: true, ..self }
    }

    pub(super) fn wants_a_process(&self) -> bool {
        self.own_process || self.full_speed || !self.jvm.is_empty() || !self.variables.is_empty()
    }

    /// The arguments of the Java side for a client.
    pub(super) fn arguments(&self, url: &str) -> Vec<String> {
        let mut words: Vec<_> = ["--url", url, "--mode", &self.mode].map(str::to_owned).into();
        if !self.full_speed {
            words
                .extend(["--threads", "4", "--netty-threads", "4", "--idle", "2", "--scan", "1000"].map(str::to_owned));
        }
        let ms = |time: Option<Duration>| time.map(|time| time.as_millis().to_string());
        let given = [
            ("--yaml", self.yaml.as_ref().map(|path| path.display().to_string())),
            ("--master", self.master.clone()),
            ("--username", self.username.clone()),
            ("--password", self.password.clone()),
            ("--sentinel-username", self.sentinel_username.clone()),
            ("--sentinel-password", self.sentinel_password.clone()),
            ("--check-synced", self.check_synced.map(|on| on.to_string())),
            ("--sync-timeout", ms(self.sync_timeout)),
            ("--prefix", self.prefix.clone()),
            ("--watchdog", ms(self.watchdog)),
            ("--fair-wait", ms(self.fair_wait)),
            ("--timeout", ms(self.timeout)),
            ("--retries", self.retries.map(|times| times.to_string())),
        ];
        words.extend(given.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?])).flatten());
        words
    }
}

/// A kind of lock with one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Reentrant,
    Fair,
    Read,
    Write,
    Spin,
    Fenced,
    /// Redisson 4.4.0 and newer.
    NonReentrant,
    /// Redisson 4.4.0 and newer.
    NonReentrantFair,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Reentrant => "reentrant",
            Kind::Fair => "fair",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Spin => "spin",
            Kind::Fenced => "fenced",
            Kind::NonReentrant => "nonreentrant",
            Kind::NonReentrantFair => "nonreentrant_fair",
        }
    }
}
