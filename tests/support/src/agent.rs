//! Java agents: real Redisson clients that carry out requests.
//!
//! All agents of one version share a Java process, unless their options ask for a process of their own. The Java side
//! and the protocol are in `interop/`. A Java process ends when its standard input closes, so it never outlives the
//! test process.

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

/// The newest and the oldest Redisson that distlock works with.
pub const VERSIONS: [&str; 2] = ["4.7.0", "3.52.0"];

const NEEDS: &str = "needs a JDK and Maven: ./x test gets them";
const READY_WITHIN: Duration = Duration::from_secs(180);

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes share. On Linux, Java's `System.nanoTime()` and thus
/// [`Reply::t0`] use the same clock.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[derive(Debug, Clone)]
pub struct Classpath {
    version: String,
    entries: String,
    /// The archive that lets the Java machine start faster (see `agent/build.rs`).
    archive: Option<PathBuf>,
}

impl Classpath {
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The value for `java -cp`.
    pub fn as_str(&self) -> &str {
        &self.entries
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The operation's result; `true` for `void`.
    pub value: Value,
    /// When the operation started, on the clock of [`monotonic_ns`].
    pub t0: u64,
    pub t1: u64,
}

impl Reply {
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

/// An exception of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    /// The exception's class, without its package. `AgentGone` if the process has ended.
    pub error: String,
    pub message: String,
}

impl std::fmt::Display for AgentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.error, self.message)
    }
}

impl std::error::Error for AgentError {}

pub type CallResult = Result<Reply, AgentError>;

/// A request in flight. The agent runs the request whether or not this future is polled. Dropping the future ignores
/// the reply.
#[derive(Debug)]
pub struct Call(oneshot::Receiver<CallResult>);

impl Future for Call {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(gone())))
    }
}

impl Call {
    /// The reply, if it arrives within this time. Otherwise the request continues.
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

/// A Redisson client in a Java process. Dropping the last clone shuts the client down, and ends the agent's own
/// process, if any. Locks stay held.
#[derive(Debug, Clone)]
pub struct Agent(Arc<Inner>);

impl Agent {
    /// Builds the agent with this version of Redisson, unless it is already built. Blocks, the first time for half a
    /// minute. Many threads and processes may call this at once: one of them builds.
    pub fn build(version: &str) -> Classpath {
        static BUILT: LazyLock<Mutex<HashMap<String, Arc<OnceLock<Classpath>>>>> = LazyLock::new(Mutex::default);
        let cell = BUILT.lock().entry(version.to_owned()).or_default().clone();
        cell.get_or_init(|| build::build(version)).clone()
    }

    /// Opens a client and waits until it is connected. Several URLs, separated by commas, are independent servers in
    /// mode `single`: each has its own client.
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

    /// Redisson's client id: a lock acquired on thread 7 is held by `<id>:7`.
    pub fn id(&self) -> &str {
        &self.0.ids[0]
    }

    /// The version of Redisson, from its jar.
    pub fn version(&self) -> &str {
        &self.0.machine.version
    }

    pub fn pid(&self) -> u32 {
        self.0.machine.pid
    }

    /// The last lines of the process's log.
    pub fn log(&self) -> String {
        self.0.machine.log()
    }

    /// The hash field or list entry of a holder: `<id>:<thread>`, with `:write` for a writer.
    pub fn holder(&self, kind: Kind, thread: i64) -> String {
        let suffix = if kind == Kind::Write { ":write" } else { "" };
        format!("{}:{thread}{suffix}", self.id())
    }

    /// Sends a request (an object, whose `id` is set here) and waits for the reply.
    pub async fn call(&self, request: Value) -> CallResult {
        self.start_call(request).await
    }

    /// Sends a request at once. The reply can be awaited later.
    pub fn start_call(&self, request: Value) -> Call {
        self.0.machine.send(self.0.client, request)
    }

    /// A lock as seen by one logical thread of this agent.
    pub fn at(&self, kind: Kind, name: &str, thread: i64) -> JavaLock {
        let base = json!({"flavour": kind.as_str(), "name": name, "thread": thread});
        JavaLock { agent: self.clone(), base }
    }

    /// A multi lock over several names, as seen by one logical thread. With `red`, a majority is enough.
    pub fn at_all(&self, red: bool, member: Kind, names: &[&str], thread: i64) -> JavaLock {
        let flavour = if red { "red" } else { "multi" };
        let base = json!({"flavour": flavour, "member": member.as_str(), "names": names, "thread": thread});
        JavaLock { agent: self.clone(), base }
    }

    /// Like [`Agent::at_all`], for names on several servers. The number is the server's position in the agent's URLs.
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

    /// Acquires `<prefix>0`, `<prefix>1`, … without a lease, for thread id `tid`, and keeps them.
    pub async fn hold_many(&self, prefix: &str, count: u64, tid: i64) -> CallResult {
        self.call(json!({"op": "hold_many", "prefix": prefix, "count": count, "tid": tid})).await
    }

    /// Releases the locks of [`hold_many`](Self::hold_many).
    pub async fn release_many(&self, prefix: &str, count: u64, tid: i64) -> CallResult {
        self.call(json!({"op": "release_many", "prefix": prefix, "count": count, "tid": tid})).await
    }

    /// Interrupts a logical thread. Returns false if it was idle.
    pub async fn interrupt(&self, thread: i64) -> Result<bool, AgentError> {
        Ok(self.call(json!({"op": "interrupt", "thread": thread})).await?.bool())
    }

    /// Bytes of heap in use after a collection.
    pub async fn mem(&self) -> u64 {
        let reply = self.call(json!({"op": "mem"})).await;
        reply.expect("mem").int() as u64
    }

    /// True if a logical thread sleeps until a message wakes it. The thread may miss a message that arrives after its
    /// last attempt and before this sleep.
    pub async fn sleeps(&self, thread: i64) -> bool {
        self.call(json!({"op": "sleeps", "thread": thread})).await.expect("a look at a thread").bool()
    }

    /// Shuts the client down and waits for the end. Unlocks nothing.
    pub async fn close(&self) {
        let _ = self.call(json!({"op": "close"})).await;
    }

    /// Kills the process as `kill -9` does, and waits until it is gone.
    pub async fn kill9(&self) {
        self.own_process().kill9().await;
    }

    /// Stops the process (`SIGSTOP`), and waits until all its threads stand still, as in a long pause of the garbage
    /// collector or of the machine.
    pub fn stop(&self) {
        crate::reaper::freeze(self.own_process().pid);
    }

    pub fn cont(&self) {
        crate::reaper::signal(self.own_process().pid, rustix::process::Signal::CONT);
    }

    fn own_process(&self) -> &Machine {
        assert!(self.0.machine.own, "other agents use this process: its options must ask for a process of its own");
        &self.0.machine
    }
}
