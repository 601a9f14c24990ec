//! The setup of these tests: a server with Java agents and our clients, and the leak check at the end.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use bed::{PATIENCE, eventually as until, ms};
use distlock::{Builder, Client, DistLock, Guard};
use distlock_support::agent::{Agent, AgentOptions, CallResult, JavaLock, Kind, Reply};
use distlock_support::leak::alive_tasks;
use distlock_support::{Admin, Baseline, RedisServer, assert_nothing_left};
use tokio::task::JoinHandle;

/// A poll cap or lease that outlasts every test: only a message can wake the waiter.
pub const NEVER: Duration = Duration::from_secs(3600);

/// The default watchdog of both sides. A holder renews every 10 s, so a process may be suspended for that long without
/// a loss.
pub const WATCHDOG: Duration = Duration::from_secs(30);

/// Our clients' `fair_wait`, the longest that a client accepts. A waiter that is suspended for this time keeps its
/// place.
pub const FAIR_WAIT: Duration = Duration::from_secs(300);
/// Longer than the default, for a busy machine: a waiter that confirms late would lose its turn.
const FAIR_GRACE: Duration = Duration::from_secs(5);

/// Prefix of Redisson's latches, which make its unlocks idempotent.
pub const LATCH: &str = "redisson_unlock_latch:";

/// The test's own server, with its agents.
pub struct Rig {
    pub server: RedisServer,
    pub admin: Admin,
    /// More independent servers, for locks over several servers.
    pub more: Vec<(RedisServer, Admin)>,
    pub agents: Vec<Agent>,
    latches_stay: bool,
    tasks: usize,
}

impl Rig {
    pub async fn start(agents: Vec<AgentOptions>) -> Self {
        Self::several(1, agents).await
    }

    /// Starts `servers` servers. Each agent has a client for each server.
    pub async fn several(servers: usize, agents: Vec<AgentOptions>) -> Self {
        let server = RedisServer::start();
        let admin = Admin::connect(&server).await;
        let (mut url, mut more) = (server.url(), Vec::new());
        for _ in 1..servers {
            let another = RedisServer::start();
            url = format!("{url},{}", another.url());
            let admin = Admin::connect(&another).await;
            more.push((another, admin));
        }
        let latches_stay = agents.iter().any(|options| options.version == "3.52.0");
        let agents = agents.into_iter().map(|options| Agent::start(&url, patient(options)));
        let agents = futures::future::join_all(agents).await;
        Self { server, admin, more, agents, latches_stay, tasks: alive_tasks() }
    }

    pub async fn with(version: &str) -> Self {
        Self::start(vec![AgentOptions::version(version)]).await
    }

    pub fn builder(&self) -> Builder {
        builder(&self.server.url())
    }

    /// A client of this crate whose leases outlast the test.
    pub async fn client(&self) -> Client {
        connect(self.builder()).await
    }

    /// A client of this crate with the default [`WATCHDOG`].
    pub async fn watched_client(&self) -> Client {
        connect(watched(self.builder())).await
    }

    pub fn java(&self, name: &str, thread: i64) -> JavaLock {
        self.agents[0].at(Kind::Reentrant, name, thread)
    }

    pub fn java_holder(&self, thread: i64) -> String {
        self.agents[0].holder(Kind::Reentrant, thread)
    }

    /// All keys except Redisson's unlock latches. 4.7.0 deletes latches without waiting for the reply. 3.52.0 leaves
    /// latches until they expire, after about 20 s.
    pub async fn keys(&self) -> Vec<String> {
        let mut all = Vec::new();
        for admin in self.admins() {
            let mut keys = admin.keys().await;
            keys.retain(|key| !key.starts_with(LATCH));
            all.append(&mut keys);
        }
        all
    }

    pub fn admins(&self) -> impl Iterator<Item = &Admin> {
        std::iter::once(&self.admin).chain(self.more.iter().map(|(_, admin)| admin))
    }

    pub fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        std::iter::once(&self.server).chain(self.more.iter().map(|(server, _)| server))
    }

    /// Waits until Redisson has deleted its latches. In versions that leave them, asserts that they have a TTL.
    pub async fn latches_gone(&self) {
        for admin in self.admins() {
            let latches = async || {
                let mut keys = admin.keys().await;
                keys.retain(|key| key.starts_with(LATCH));
                keys
            };
            if !self.latches_stay {
                until_is("latches", latches, Vec::is_empty).await;
            }
            for latch in latches().await {
                assert_ne!(admin.pttl(&latch).await, -1, "{latch:?}");
            }
        }
    }

    /// The number of scripts that the server was asked to run.
    pub async fn scripts(&self) -> u64 {
        self.admin.commandstats().await.get("evalsha").copied().unwrap_or(0)
    }

    /// Waits until this many scripts more than `before` were run.
    pub async fn scripts_since(&self, before: u64, more: u64) {
        until(&format!("{more} more scripts"), async || self.scripts().await >= before + more).await;
    }

    /// Sets a key that lives for this time. If the key has expired, this time has passed by the server's clock.
    pub async fn timer(&self, name: &str, time: Duration) {
        self.admin.cmd::<()>(&["SET", name, "1", "PX", &time.as_millis().to_string()]).await;
    }

    pub async fn now(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.admin.cmd(&["TIME"]).await;
        seconds * 1000 + micros / 1000
    }

    /// The end of this lock's lease, in ms of the server's time.
    pub async fn lease_end(&self, name: &str) -> i64 {
        let look = "local left, now = redis.call('pttl', KEYS[1]), redis.call('time') \
                    return left + now[1] * 1000 + math.floor(now[2] / 1000)";
        self.admin.cmd(&["EVAL", look, "1", name]).await
    }

    /// Waits until this many connections are subscribed to a lock's channel.
    pub async fn listeners(&self, channel: &str, count: u64) {
        until(&format!("{count} listeners on {channel:?}"), async || self.admin.numsub(channel).await == count).await;
    }

    pub async fn waiting(&self, client: &Client, count: usize) {
        until(&format!("{count} waiters"), async || client.stats().waiting == count).await;
    }

    /// Ends the test: nothing may be held or waited for, and neither our clients nor the agents may leave anything.
    pub async fn end(self, clients: impl IntoIterator<Item = Client>) {
        for client in clients {
            bed::end(client).await;
        }
        until_is("tasks", async || alive_tasks(), |tasks| *tasks <= self.tasks).await;
        until_is("keys", async || self.keys().await, Vec::is_empty).await;
        self.latches_gone().await;
        // Closes the agents before checking the channels, because a Redisson call that gave up may leave its
        // subscription behind.
        for agent in &self.agents {
            agent.close().await;
        }
        let baseline = Baseline::empty();
        let baseline = if self.latches_stay { baseline.allow_key(&format!("{LATCH}*")) } else { baseline };
        for admin in self.admins() {
            assert_nothing_left(admin, &baseline).await;
        }
    }
}

/// The options of our clients. Leases outlast a test, and a waiter for such a lock needs a message, because it never
/// polls. A subscription outlives a round of a test, but not the test. A woken waiter retries at once, without yielding
/// to other processes, because tests count attempts.
pub fn builder(url: &str) -> Builder {
    bed::builder(url).watchdog(NEVER).command_timeout(PATIENCE).configure(|options| {
        options.ack_timeout = PATIENCE;
        options.fair_wait = FAIR_WAIT;
        options.fair_grace = FAIR_GRACE;
        options.poll_cap = NEVER;
        options.subscription_linger = ms(300);
        options.yield_after_release = false;
    })
}

/// Sets the default watchdog, for tests of renewals and expiry.
pub fn watched(builder: Builder) -> Builder {
    builder.watchdog(WATCHDOG).command_timeout(WATCHDOG / 3)
}

pub async fn connect(builder: Builder) -> Client {
    builder.connect().await.expect("connect")
}

/// Waits until `fine` accepts the value of `look`.
pub async fn until_is<T: Debug>(what: &str, look: impl AsyncFn() -> T, fine: impl Fn(&T) -> bool) {
    let last = Cell::new(None);
    let fine = async {
        loop {
            let seen = look().await;
            if fine(&seen) {
                return;
            }
            last.set(Some(seen));
            tokio::time::sleep(ms(2)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, fine).await.is_err() {
        panic!("after {PATIENCE:?}, {what}: {:?}", last.take());
    }
}

/// Waits until the holder has renewed the lease of this key.
pub async fn renewed(admin: &Admin, key: &str) {
    let last = Cell::new(i64::MAX);
    let grew = async || {
        let now = admin.pttl(key).await;
        now > last.replace(now)
    };
    until(&format!("a renewal of {key:?}"), grew).await;
}

/// Sets command and acknowledgement timeouts that suffice on a slow machine.
pub fn patient(options: AgentOptions) -> AgentOptions {
    let (timeout, sync_timeout) = (options.timeout.or(Some(PATIENCE)), options.sync_timeout.or(Some(PATIENCE)));
    AgentOptions { timeout, sync_timeout, ..options }
}

/// An agent whose leases outlast the test: a waiter for such a lock needs a message.
pub fn lasting(version: &str) -> AgentOptions {
    AgentOptions { watchdog: Some(NEVER), ..AgentOptions::version(version) }
}

/// The channel of a lock whose name has no brace.
pub fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

pub fn wait_for(client: &Client, name: &str) -> JoinHandle<Guard> {
    wait_for_lock(Arc::new(client.reentrant(name)))
}

/// Waits for any lock of ours in a separate task.
pub fn wait_for_lock(lock: Arc<dyn DistLock>) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.expect("lock") })
}

/// Waits for a task or a call that the test has made ready to end.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    bed::ends("an event that this test has caused", what).await
}

pub async fn replied(call: impl Future<Output = CallResult>) -> Reply {
    soon(call).await.expect("an operation in Java")
}

/// The reply of a Java `tryLock` that acquired, otherwise `None`. A short wait may end before Redisson has received any
/// reply ("Unable to acquire subscription lock after 8ms").
pub fn had(answer: CallResult) -> Option<Reply> {
    match answer {
        Err(error) if error.message.contains("subscription lock") => None,
        answer => Some(answer.expect("a try in Java")).filter(|reply| reply.value != false && !reply.value.is_null()),
    }
}
