//! Java agents: real Redisson clients, told what to do a request at a time.
//!
//! All agents of one version share a Java process, unless their options ask for one of their own. The Java side and the protocol are
//! in `interop/`. A Java process never outlives this process, however that ends: its standard input closes.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

mod build;
mod configs;
mod lock;
mod machine;
mod options;
mod pipes;

pub use configs::Configs;
pub use lock::JavaLock;
pub use options::{AgentOptions, Kind};

use machine::Machine;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};

/// The newest Redisson and the oldest one distlock works with.
pub const VERSIONS: [&str; 2] = ["4.7.0", "3.52.0"];

const NEEDS: &str = "needs a JDK and Maven: ./x test gets them";
const READY_WITHIN: Duration = Duration::from_secs(180);

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of Java's `System.nanoTime()` on Linux, so of [`Reply::t0`] too, whatever
/// the process.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A built agent.
#[derive(Debug, Clone)]
pub struct Classpath {
    version: String,
    entries: String,
    /// The classes that an agent loads, for the Java machine to map.
    archive: Option<PathBuf>,
}

impl Classpath {
    /// The version of Redisson.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The value for `java -cp`.
    pub fn as_str(&self) -> &str {
        &self.entries
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// What the operation returned; `true` where Java returns nothing.
    pub value: Value,
    /// When it started, on the clock of [`monotonic_ns`].
    pub t0: u64,
    /// When it ended.
    pub t1: u64,
}

impl Reply {
    /// How long the operation took.
    pub fn took(&self) -> Duration {
        Duration::from_nanos(self.t1.saturating_sub(self.t0))
    }

    fn bool(&self) -> bool {
        self.value.as_bool().unwrap_or_else(|| panic!("not a boolean: {self:?}"))
    }

    fn int(&self) -> i64 {
        self.value.as_i64().unwrap_or_else(|| panic!("not a whole number: {self:?}"))
    }
}

/// An operation that threw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    /// The exception's class, without its package. `AgentGone` if the process has ended.
    pub error: String,
    /// The exception's message.
    pub message: String,
}

impl std::fmt::Display for AgentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.error, self.message)
    }
}

impl std::error::Error for AgentError {}

/// What a request comes to.
pub type CallResult = Result<Reply, AgentError>;

/// A request under way. It is with the agent whether or not this is polled; to drop it is to ignore the answer.
#[derive(Debug)]
pub struct Call(oneshot::Receiver<CallResult>);

impl Future for Call {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(gone())))
    }
}

impl Call {
    /// The answer, if it comes within this time; the request goes on if not.
    pub async fn within(&mut self, limit: Duration) -> Option<CallResult> {
        tokio::time::timeout(limit, self).await.ok()
    }
}

fn gone() -> AgentError {
    AgentError { error: "AgentGone".to_owned(), message: "the agent's process has ended".to_owned() }
}

#[derive(Debug)]
struct Inner {
    machine: Arc<Machine>,
    /// The client's number in its process.
    client: u64,
    ids: Vec<String>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.machine.send(self.client, json!({"op": "close"}));
    }
}

/// A Redisson client in a Java process. With the last clone the client is shut down, and its process too if it is the agent's own.
/// Neither unlocks anything.
#[derive(Debug, Clone)]
pub struct Agent(Arc<Inner>);

impl Agent {
    /// Builds the agent with this version of Redisson, unless it is built already. Blocks, the first time for half a
    /// minute. To be called from many threads and processes at once is fine: one of them builds.
    ///
    /// # Panics
    /// If there is no Maven or no JDK, or the build fails.
    pub fn build(version: &str) -> Classpath {
        static BUILT: LazyLock<Mutex<HashMap<String, Arc<OnceLock<Classpath>>>>> = LazyLock::new(Mutex::default);
        let cell = BUILT.lock().entry(version.to_owned()).or_default().clone();
        cell.get_or_init(|| build::build(version)).clone()
    }

    /// Opens a client and waits until it is connected. Several urls, with commas between, are servers that know nothing of
    /// each other (unless the mode is another): each has a client of its own.
    ///
    /// # Panics
    /// If it cannot be built, started or connected.
    pub async fn start(url: &str, options: AgentOptions) -> Agent {
        static CLIENTS: AtomicU64 = AtomicU64::new(1);
        let machine = if options.wants_a_process() {
            Machine::start(&options).await
        } else {
            Machine::shared(&options.version).await
        };
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let open = json!({"op": "open", "args": options.arguments(url)});
        let ids = match tokio::time::timeout(READY_WITHIN, machine.send(client, open)).await {
            Ok(Ok(reply)) => serde_json::from_value(reply.value).expect("the ids of the client"),
            failed => panic!("no Redisson client on {url}: {failed:?}\n{}", machine.log()),
        };
        Agent(Arc::new(Inner { machine, client, ids }))
    }

    /// Redisson's client id: a lock taken on thread 7 is held by `<id>:7`.
    pub fn id(&self) -> &str {
        &self.0.ids[0]
    }

    /// The ids of its clients, where it has one for each of several servers.
    pub fn ids(&self) -> &[String] {
        &self.0.ids
    }

    /// The version of Redisson, as its jar says.
    pub fn version(&self) -> &str {
        &self.0.machine.version
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.machine.pid
    }

    /// The last lines of its process's log.
    pub fn log(&self) -> String {
        self.0.machine.log()
    }

    /// The field or list member that stands for a holder: `<id>:<thread>`, with `:write` for a writer.
    pub fn holder(&self, kind: Kind, thread: i64) -> String {
        let suffix = if kind == Kind::Write { ":write" } else { "" };
        format!("{}:{thread}{suffix}", self.id())
    }

    /// Sends a request (an object; its `id` is put in here) and waits for the answer.
    pub async fn call(&self, request: Value) -> CallResult {
        self.start_call(request).await
    }

    /// Sends a request at once; the answer can be awaited later.
    pub fn start_call(&self, request: Value) -> Call {
        self.0.machine.send(self.0.client, request)
    }

    /// A lock seen from one logical thread of this agent.
    pub fn at(&self, kind: Kind, name: &str, thread: i64) -> JavaLock {
        let base = json!({"flavour": kind.as_str(), "name": name, "thread": thread});
        JavaLock { agent: self.clone(), base }
    }

    /// A multi-lock over several names (`red`: a majority of them is enough), seen from one logical thread.
    pub fn at_all(&self, red: bool, member: Kind, names: &[&str], thread: i64) -> JavaLock {
        let flavour = if red { "red" } else { "multi" };
        let base = json!({"flavour": flavour, "member": member.as_str(), "names": names, "thread": thread});
        JavaLock { agent: self.clone(), base }
    }

    /// The same over names on several servers, each given by its number: one for each url the agent was started with.
    pub fn at_servers(&self, red: bool, member: Kind, names: &[(usize, &str)], thread: i64) -> JavaLock {
        let (servers, names): (Vec<_>, Vec<_>) = names.iter().copied().unzip();
        let mut lock = self.at_all(red, member, &names, thread);
        lock.base["servers"] = servers.into();
        lock
    }

    /// `rounds` times: lock, read the string key `counter`, add one, write it back, unlock.
    pub fn counter_loop(&self, lock: &JavaLock, counter: &str, rounds: u64) -> Call {
        self.start_call(lock.request("counter_loop", json!({"counter": counter, "rounds": rounds})))
    }

    /// Takes `<prefix>0`, `<prefix>1`, … without a lease, for thread id `tid`, and keeps them.
    pub async fn hold_many(&self, prefix: &str, count: u64, tid: i64) -> CallResult {
        self.call(json!({"op": "hold_many", "prefix": prefix, "count": count, "tid": tid})).await
    }

    /// Gives back what [`hold_many`](Self::hold_many) took.
    pub async fn release_many(&self, prefix: &str, count: u64, tid: i64) -> CallResult {
        self.call(json!({"op": "release_many", "prefix": prefix, "count": count, "tid": tid})).await
    }

    /// Interrupts what a logical thread is doing; false if it was idle.
    pub async fn interrupt(&self, thread: i64) -> Result<bool, AgentError> {
        Ok(self.call(json!({"op": "interrupt", "thread": thread})).await?.bool())
    }

    /// Bytes of heap in use after a collection.
    pub async fn mem(&self) -> u64 {
        let reply = self.call(json!({"op": "mem"})).await;
        reply.expect("mem").int() as u64
    }

    /// Whether a logical thread sleeps until a message wakes it. A message that comes between its last look at the lock and
    /// this sleep may be lost on it.
    ///
    /// # Panics
    /// If the process has ended.
    pub async fn sleeps(&self, thread: i64) -> bool {
        self.call(json!({"op": "sleeps", "thread": thread})).await.expect("a look at a thread").bool()
    }

    /// Shuts the client down and waits for that. It unlocks nothing.
    pub async fn close(&self) {
        let _ = self.call(json!({"op": "close"})).await;
    }

    /// Kills the process as `kill -9` does and waits until it is gone.
    ///
    /// # Panics
    /// If the process is shared.
    pub async fn kill9(&self) {
        self.own_process().kill9().await;
    }

    /// Stops the process in its tracks (`SIGSTOP`), and waits until all its threads stand still: a long pause of the
    /// collector, or of the machine.
    ///
    /// # Panics
    /// If the process is shared.
    pub fn stop(&self) {
        crate::reaper::freeze(self.own_process().pid);
    }

    /// Lets a stopped process go on.
    pub fn cont(&self) {
        crate::reaper::signal(self.own_process().pid, rustix::process::Signal::CONT);
    }

    fn own_process(&self) -> &Machine {
        assert!(self.0.machine.own, "other agents use this process: its options must ask for a process of its own");
        &self.0.machine
    }
}
