//! What these tests stand on: a server, Java agents and clients of ours for each, and the check that nothing is left.

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

/// A poll cap or a lease that no test lives to see the end of: a waiter under it is woken by a message, or not at all.
pub const NEVER: Duration = Duration::from_secs(3600);

/// The default watchdog of both sides. A holder renews every 10 s, so that a process may stand still for that long and lose nothing.
pub const WATCHDOG: Duration = Duration::from_secs(30);

/// For how long a waiter of ours in a fair queue may stand still and keep its place: the longest that a client accepts.
pub const FAIR_WAIT: Duration = Duration::from_secs(300);

/// How the keys begin that make Redisson's unlocks idempotent.
pub const LATCH: &str = "redisson_unlock_latch:";

/// A server of the test's own, with what is connected to it.
pub struct Rig {
    pub server: RedisServer,
    pub admin: Admin,
    /// Further servers that know nothing of each other, for locks that are over several.
    pub more: Vec<(RedisServer, Admin)>,
    pub agents: Vec<Agent>,
    latches_stay: bool,
    tasks: usize,
}

impl Rig {
    /// A server with these agents.
    pub async fn start(agents: Vec<AgentOptions>) -> Self {
        Self::several(1, agents).await
    }

    /// So many servers, each agent with a client for each of them.
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

    /// With one agent of this version.
    pub async fn with(version: &str) -> Self {
        Self::start(vec![AgentOptions::version(version)]).await
    }

    /// The options of our clients ([`builder`]).
    pub fn builder(&self) -> Builder {
        builder(&self.server.url())
    }

    /// A client of ours whose leases outlast the test.
    pub async fn client(&self) -> Client {
        connect(self.builder()).await
    }

    /// A client of ours with the default [`WATCHDOG`].
    pub async fn watched_client(&self) -> Client {
        connect(watched(self.builder())).await
    }

    /// A reentrant lock in the first agent.
    pub fn java(&self, name: &str, thread: i64) -> JavaLock {
        self.agents[0].at(Kind::Reentrant, name, thread)
    }

    /// The first agent's holder for this thread.
    pub fn java_holder(&self, thread: i64) -> String {
        self.agents[0].holder(Kind::Reentrant, thread)
    }

    /// All keys but the latches of Redisson's unlocks. It deletes them without waiting for that (4.7.0), or leaves them to
    /// their lease of some 20 s (3.52.0).
    pub async fn keys(&self) -> Vec<String> {
        let mut all = Vec::new();
        for admin in self.admins() {
            let mut keys = admin.keys().await;
            keys.retain(|key| !key.starts_with(LATCH));
            all.append(&mut keys);
        }
        all
    }

    /// Of every server.
    pub fn admins(&self) -> impl Iterator<Item = &Admin> {
        std::iter::once(&self.admin).chain(self.more.iter().map(|(_, admin)| admin))
    }

    /// Of every server.
    pub fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        std::iter::once(&self.server).chain(self.more.iter().map(|(server, _)| server))
    }

    /// Waits until a version that deletes its latches has done so; in others, looks that they have an end.
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

    /// How many scripts the server was asked to run.
    pub async fn scripts(&self) -> u64 {
        self.admin.commandstats().await.get("evalsha").copied().unwrap_or(0)
    }

    /// Waits until this many scripts more than `before` were run.
    pub async fn scripts_since(&self, before: u64, more: u64) {
        until(&format!("{more} more scripts"), async || self.scripts().await >= before + more).await;
    }

    /// Sets a key that lives for this long. What comes after the key has gone comes later than this, by the server's clock.
    pub async fn timer(&self, name: &str, time: Duration) {
        self.admin.cmd::<()>(&["SET", name, "1", "PX", &time.as_millis().to_string()]).await;
    }

    /// The server's time in ms.
    pub async fn now(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.admin.cmd(&["TIME"]).await;
        seconds * 1000 + micros / 1000
    }

    /// When the lease of this lock ends, in ms of the server's time.
    pub async fn lease_end(&self, name: &str) -> i64 {
        let look = "local left, now = redis.call('pttl', KEYS[1]), redis.call('time') \
                    return left + now[1] * 1000 + math.floor(now[2] / 1000)";
        self.admin.cmd(&["EVAL", look, "1", name]).await
    }

    /// Waits until this many connections listen to a lock's channel.
    pub async fn listeners(&self, channel: &str, count: u64) {
        until(&format!("{count} listeners on {channel:?}"), async || self.admin.numsub(channel).await == count).await;
    }

    /// Waits for a client of ours to have so many waiters.
    pub async fn waiting(&self, client: &Client, count: usize) {
        until(&format!("{count} waiters"), async || client.stats().waiting == count).await;
    }

    /// Ends the test: nothing may be held or waited for, our clients leave nothing behind, and the agents neither.
    pub async fn end(self, clients: impl IntoIterator<Item = Client>) {
        for client in clients {
            bed::end(client).await;
        }
        until_is("tasks", async || alive_tasks(), |tasks| *tasks <= self.tasks).await;
        until_is("keys", async || self.keys().await, Vec::is_empty).await;
        self.latches_gone().await;
        // Closed before the look at channels: a call of Redisson that gave up may leave its subscription behind.
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

/// The options of our clients: their leases outlast a test, and a waiter for such a lock needs a message, for no waiter wakes of its
/// own impatience. A subscription outlives a round of a test, but not the test. A waiter asks at once, and lets nobody go first: its
/// questions are counted.
pub fn builder(url: &str) -> Builder {
    let builder = bed::builder(url).watchdog(NEVER).command_timeout(PATIENCE).ack_timeout(PATIENCE);
    builder.fair_wait(FAIR_WAIT).poll_cap(NEVER).subscription_linger(ms(300)).take_turns(false)
}

/// The same options with the default watchdog, where a lease is to be renewed or to end.
pub fn watched(builder: Builder) -> Builder {
    builder.watchdog(WATCHDOG).command_timeout(WATCHDOG / 3)
}

pub async fn connect(builder: Builder) -> Client {
    builder.connect().await.expect("connect")
}

/// Waits until what is looked at is fine.
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

/// The same options, but a slow machine does not cost a command or its acknowledgement.
pub fn patient(options: AgentOptions) -> AgentOptions {
    let (timeout, sync_timeout) = (options.timeout.or(Some(PATIENCE)), options.sync_timeout.or(Some(PATIENCE)));
    AgentOptions { timeout, sync_timeout, ..options }
}

/// An agent whose leases outlast the test: a waiter for such a lock needs a message.
pub fn lasting(version: &str) -> AgentOptions {
    AgentOptions { watchdog: Some(NEVER), ..AgentOptions::version(version) }
}

/// The channel of a plain lock whose name has no brace.
pub fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Waits for a lock of ours in a task of its own.
pub fn wait_for(client: &Client, name: &str) -> JoinHandle<Guard> {
    wait_for_lock(Arc::new(client.reentrant(name)))
}

/// The same for any lock.
pub fn wait_for_lock(lock: Arc<dyn DistLock>) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.expect("lock") })
}

/// Waits for a task or a call whose end something has caused.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    bed::ends("an event that this test has caused", what).await
}

/// The answer to a call that something lets end, and well.
pub async fn replied(call: impl Future<Output = CallResult>) -> Reply {
    soon(call).await.expect("an operation in Java")
}

/// The answer to a try of Java's that got the lock. A brief wait may be over before Redisson has heard anything ("Unable to acquire
/// subscription lock after 8ms").
pub fn had(answer: CallResult) -> Option<Reply> {
    match answer {
        Err(error) if error.message.contains("subscription lock") => None,
        answer => Some(answer.expect("a try in Java")).filter(|reply| reply.value != false && !reply.value.is_null()),
    }
}
