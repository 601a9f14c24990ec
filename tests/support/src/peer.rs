//! Other libraries that use the common lock, `SET key value NX PX`. Each runs in its own process (agent), which takes
//! requests as lines of JSON. The agents and the protocol are in `interop/`.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;

use crate::reaper::Adopted;

mod build;

pub use build::build;

const READY_WITHIN: Duration = Duration::from_secs(180);

/// Time limit of a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// Go.
    Redsync,
    /// Node.
    Redlock,
    /// Python.
    RedisPy,
    /// Rust.
    Rslock,
}

impl Library {
    pub const ALL: [Self; 4] = [Self::Redsync, Self::Redlock, Self::RedisPy, Self::Rslock];

    /// The library's name in its package registry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redsync => "redsync",
            Self::Redlock => "redlock",
            Self::RedisPy => "redis-py",
            Self::Rslock => "rslock",
        }
    }

    /// The folder of its agent, below `interop/`.
    const fn folder(self) -> &'static str {
        match self {
            Self::Redsync => "go",
            Self::Redlock => "node",
            Self::RedisPy => "python",
            Self::Rslock => "rslock",
        }
    }

    /// Commands that succeed only if the required tools are installed.
    const fn tools(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Redsync => &[&["go", "version"]],
            Self::Redlock => &[&["node", "--version"], &["npm", "--version"]],
            Self::RedisPy => &[&["python3", "-c", "import venv, ensurepip"]],
            Self::Rslock => &[&["cargo", "--version"]],
        }
    }

    /// The first missing tool.
    pub fn missing(self) -> Option<String> {
        let is_there = |tool: &&[&str]| {
            let mut command = std::process::Command::new(tool[0]);
            let command = command.args(&tool[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        self.tools().iter().find(|tool| !is_there(tool)).map(|tool| tool.join(" "))
    }

    /// False if a tool of the library's language is missing. Then reports the skipped test, even if the harness
    /// captures output. In CI nothing is skipped.
    ///
    /// # Panics
    /// If its language is missing, and the environment has `CI`.
    pub fn is_here(self) -> bool {
        let Some(tool) = self.missing() else { return true };
        let name = self.name();
        assert!(std::env::var_os("CI").is_none(), "{name}: `{tool}` does not work, and in CI nothing is skipped");
        crate::skip(&format!("the tests beside {name}: `{tool}` does not work here"));
        false
    }
}

/// The waiting calls, by the number of their request.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// A running agent. Dropping it kills the process, which also ends with this process.
#[derive(Debug)]
pub struct Peer {
    library: Library,
    version: String,
    next: AtomicU64,
    input: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    reader: tokio::task::JoinHandle<()>,
    adopted: Adopted,
    child: Child,
}

impl Peer {
    /// Builds the agent unless it is built, starts it and waits until it is connected. Several URLs are independent
    /// servers, for a majority.
    pub async fn start(library: Library, urls: &[String]) -> Self {
        let program = tokio::task::spawn_blocking(move || build(library)).await.expect("building the agent");
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg(urls.join(","));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let adopted = Adopted::new(child.id().expect("a process just started has an id"));
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut lines = BufReader::new(output).lines();
        let ready = tokio::time::timeout(READY_WITHIN, lines.next_line()).await;
        let Ok(Ok(Some(line))) = ready else { panic!("the agent of {} did not get ready: {ready:?}", library.name()) };
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
        let waiting = Waiting::default();
        let told = Arc::clone(&waiting);
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
                let sender = answer["id"].as_u64().and_then(|id| told.lock().remove(&id));
                sender.map(|sender| sender.send(answer));
            }
            // Fails the waiting calls.
            told.lock().clear();
        });
        Self {
            library,
            version: ready["version"].as_str().unwrap_or_default().to_owned(),
            next: AtomicU64::new(1),
            input: tokio::sync::Mutex::new(input),
            waiting,
            reader,
            adopted,
            child,
        }
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its process, unless that has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a request, and returns the reply.
    pub async fn call(&self, op: &str, mut request: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        request["id"] = json!(id);
        request["op"] = json!(op);
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().insert(id, sender);
        let line = format!("{request}\n");
        let sent = self.input.lock().await.write_all(line.as_bytes()).await;
        let name = self.library.name();
        sent.unwrap_or_else(|error| panic!("{name}: {error}"));
        let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
        let Ok(Ok(answer)) = answer else { panic!("{name} gave no answer to {request}: {answer:?}") };
        assert_eq!(answer["ok"], true, "{name}: {answer} to {request}");
        answer["value"].clone()
    }

    /// Acquires a lock with this lease, by the library's own way of waiting. Returns the agent's handle of the lock.
    pub async fn lock(&self, name: &str, lease: Duration, wait: Duration) -> Option<u64> {
        let request = json!({"name": name, "ttl_ms": lease.as_millis(), "wait_ms": wait.as_millis()});
        self.call("lock", request).await.as_u64()
    }

    /// Sets a lock's remaining lease. Returns false if the lock is no longer held. `redsync` always sets the lease of
    /// the acquire.
    pub async fn extend(&self, handle: u64, lease: Duration) -> bool {
        self.call("extend", json!({"handle": handle, "ttl_ms": lease.as_millis()})).await == true
    }

    /// Releases a lock. Returns false if it was no longer held.
    pub async fn release(&self, handle: u64) -> bool {
        self.call("release", json!({"handle": handle})).await == true
    }

    /// Ends the process, and the task that reads from it.
    pub async fn end(mut self) {
        drop(self.adopted);
        let _ = self.child.kill().await;
        let _ = (&mut self.reader).await;
    }
}
