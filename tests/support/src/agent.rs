//! Java agents: processes with a real Redisson inside, told what to do a request at a time.
//!
//! The Java side and the protocol are in `interop/`. An agent ends with its handle, and with this process however that
//! ends: its standard input closes.

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
mod options;
mod pipes;

pub use configs::Configs;
pub use lock::JavaLock;
pub use options::{AgentOptions, Kind};

use pipes::{command, joined, keep_log, next_answer, write_requests};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};

/// The newest Redisson and the oldest one distlock works with.
pub const VERSIONS: [&str; 2] = ["4.7.0", "3.52.0"];

const NEEDS: &str = "needs a JDK and Maven: ./x test gets them";
const READY_WITHIN: Duration = Duration::from_secs(60);

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

/// Those who wait for an answer, by the number of their request; `None` once no more answers come.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<CallResult>>>>>;
type Log = Arc<Mutex<VecDeque<String>>>;

#[derive(Debug)]
struct Inner {
    ids: Vec<String>,
    version: String,
    pid: u32,
    started_in: Duration,
    next: AtomicU64,
    requests: mpsc::UnboundedSender<String>,
    waiting: Waiting,
    ended: watch::Receiver<bool>,
    log: Log,
    // The process is killed when this goes.
    child: Mutex<Child>,
}

/// A running agent: one Redisson client in a process of its own. The process is killed with the last clone.
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

    /// Starts an agent and waits until it is connected. Several urls, with commas between, are servers that know nothing of
    /// each other (unless the mode is another): each has a client of its own.
    ///
    /// # Panics
    /// If it cannot be built, started or connected.
    pub async fn start(url: &str, options: AgentOptions) -> Agent {
        let version = options.version.clone();
        let classpath = tokio::task::spawn_blocking(move || Self::build(&version)).await.expect("building the agent");
        let began = std::time::Instant::now();
        let mut child = command(&classpath, url, &options).spawn().unwrap_or_else(|e| panic!("java: {e}; {NEEDS}"));
        let pid = child.id().expect("a process just started has an id");
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let log = Log::default();
        tokio::spawn(keep_log(BufReader::new(child.stderr.take().expect("piped")).lines(), log.clone()));

        let first = tokio::time::timeout(READY_WITHIN, next_answer(&mut out, &log)).await;
        let ready: Value = match &first {
            Ok(Some(line)) => serde_json::from_str(line).unwrap_or_default(),
            _ => Value::Null,
        };
        let (Some(true), Some(ids)) = (ready["ready"].as_bool(), ready["ids"].as_array()) else {
            // What it has to say may lag behind.
            tokio::time::sleep(Duration::from_millis(200)).await;
            panic!("the agent did not get ready on {url}: {first:?}\n{}", joined(&log));
        };

        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (requests, queue) = mpsc::unbounded_channel();
        let (ended_tx, ended) = watch::channel(false);
        tokio::spawn(write_requests(child.stdin.take().expect("piped"), queue));
        let (readers, said) = (waiting.clone(), log.clone());
        tokio::spawn(async move {
            while let Some(line) = next_answer(&mut out, &said).await {
                deliver(&readers, &line);
            }
            // Whoever still waits learns from the dropped sender.
            drop(readers.lock().take());
            let _ = ended_tx.send(true);
        });
        Agent(Arc::new(Inner {
            ids: ids.iter().map(|id| id.as_str().expect("an id").to_owned()).collect(),
            version: ready["version"].as_str().unwrap_or_default().to_owned(),
            pid,
            started_in: began.elapsed(),
            next: AtomicU64::new(1),
            requests,
            waiting,
            ended,
            log,
            child: Mutex::new(child),
        }))
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
        &self.0.version
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// From the start of the process to the connected client.
    pub fn started_in(&self) -> Duration {
        self.0.started_in
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        joined(&self.0.log)
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
    pub fn start_call(&self, mut request: Value) -> Call {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        let (sender, receiver) = oneshot::channel();
        if let Some(waiting) = self.0.waiting.lock().as_mut() {
            waiting.insert(id, sender);
        }
        let _ = self.0.requests.send(request.to_string());
        Call(receiver)
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

    /// Closes Redisson in good order and waits for the process to end.
    pub async fn shutdown(&self) {
        let _ = self.call(json!({"op": "shutdown"})).await;
        self.wait_ended().await;
    }

    /// Kills the process as `kill -9` does and waits until it is gone.
    pub async fn kill9(&self) {
        let _ = self.0.child.lock().start_kill();
        self.wait_ended().await;
    }

    /// Stops the process in its tracks (`SIGSTOP`), and waits until all its threads stand still: a long pause of the
    /// collector, or of the machine.
    pub fn stop(&self) {
        crate::reaper::freeze(self.0.pid);
    }

    /// Lets a stopped process go on.
    pub fn cont(&self) {
        crate::reaper::signal(self.0.pid, rustix::process::Signal::CONT);
    }

    async fn wait_ended(&self) {
        let mut ended = self.0.ended.clone();
        let _ = ended.wait_for(|ended| *ended).await;
        while matches!(self.0.child.lock().try_wait(), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn deliver(waiting: &Waiting, line: &str) {
    let answer: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in the agent's answer {line}"));
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let Some(id) = answer["id"].as_u64() else {
        panic!("the agent did not understand: {line}");
    };
    let result = if answer["ok"] == true {
        let time = |name: &str| answer[name].as_u64().unwrap_or_default();
        Ok(Reply { value: answer["value"].clone(), t0: time("t0"), t1: time("t1") })
    } else {
        Err(AgentError { error: text("error"), message: text("message") })
    };
    let sender = waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id));
    if let Some(sender) = sender {
        let _ = sender.send(result);
    }
}
