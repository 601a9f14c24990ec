//! How an agent is started, and what kind of lock it is asked about.

use super::*;

/// How to start an agent. What is `None` or empty is left to Redisson.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The version of Redisson.
    pub version: String,
    /// `single`, `cluster`, `sentinel` or `replicated`; with all but the first the url may be several, with commas between. A URL
    /// such as `redis-sentinel://user:password@host:port,host:port/name` says this, the master's name, the user and the password
    /// by itself.
    pub mode: String,
    /// A file of Redisson's own configuration, which alone counts then.
    pub yaml: Option<PathBuf>,
    /// The values of variables in that file.
    pub variables: Vec<(String, String)>,
    /// The master's name, for `sentinel`.
    pub master: Option<String>,
    /// The user to log in as.
    pub username: Option<String>,
    /// The password to log in with.
    pub password: Option<String>,
    /// The user to log in as at sentinels.
    pub sentinel_username: Option<String>,
    /// The password to log in with at sentinels.
    pub sentinel_password: Option<String>,
    /// `checkLockSyncedSlaves`: whether a lock is only taken when a replica has it, where there are any.
    pub check_synced: Option<bool>,
    /// `slavesSyncTimeout`.
    pub sync_timeout: Option<Duration>,
    /// A name mapper that puts this before every name (the counter's of [`Agent::counter_loop`] too).
    pub prefix: Option<String>,
    /// `lockWatchdogTimeout`.
    pub watchdog: Option<Duration>,
    /// `fairLockWaitTimeout`.
    pub fair_wait: Option<Duration>,
    /// The time a command may take.
    pub timeout: Option<Duration>,
    /// How often a command is tried again.
    pub retries: Option<u32>,
    /// Whether the agent has a Java process of its own, which can be killed and stopped. Variables, full speed and words for the
    /// Java machine ask for one too.
    pub own_process: bool,
    /// For measuring: Redisson's own thread and connection counts and the full just-in-time compiler, in place of settings
    /// for a quick start.
    pub full_speed: bool,
    /// The most heap that a process of its own may use.
    pub heap_mb: u32,
    /// More words for the Java machine.
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

    /// The same with a Java process of its own, which can be killed and stopped.
    #[must_use]
    pub fn in_own_process(self) -> Self {
        Self { own_process: true, ..self }
    }

    pub(super) fn wants_a_process(&self) -> bool {
        self.own_process || self.full_speed || !self.jvm.is_empty() || !self.variables.is_empty()
    }

    /// What the Java side reads as the options of a client.
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

/// A lock of a kind that has one name.
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
    /// Its name in a request.
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
