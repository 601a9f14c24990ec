//! Libraries of other languages that take the lock which everybody speaks, `SET key value NX PX`: each in a process of its own,
//! told what to do a JSON line at a time. Their side, and the protocol, are in `interop/`.

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

/// No operation takes longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// One of those libraries.
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Redsync, Self::Redlock, Self::RedisPy, Self::Rslock];

    /// Its name, as its registry has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redsync => "redsync",
            Self::Redlock => "redlock",
            Self::RedisPy => "redis-py",
            Self::Rslock => "rslock",
        }
    }

    /// Where its side of the agent is, below `interop/`.
    const fn folder(self) -> &'static str {
        match self {
            Self::Redsync => "go",
            Self::Redlock => "node",
            Self::RedisPy => "python",
            Self::Rslock => "rslock",
        }
    }

    /// What has to be there, and answers to these arguments.
    const fn tools(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Redsync => &[&["go", "version"]],
            Self::Redlock => &[&["node", "--version"], &["npm", "--version"]],
            Self::RedisPy => &[&["python3", "-c", "import venv, ensurepip"]],
            Self::Rslock => &[&["cargo", "--version"]],
        }
    }

    /// What is missing of that.
    pub fn missing(self) -> Option<String> {
        let is_there = |tool: &&[&str]| {
            let mut command = std::process::Command::new(tool[0]);
            let command = command.args(&tool[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        self.tools().iter().find(|tool| !is_there(tool)).map(|tool| tool.join(" "))
    }

    /// False where its language is missing, which is said past whatever keeps the output of tests. In CI nothing is skipped.
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

/// Those who wait for an answer, by the number of their request.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// A running agent. The process is killed when this is dropped, and ends with this one.
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
    /// Builds the agent unless that is done, starts it and waits until it is connected. Several urls are servers that know
    /// nothing of each other, for a majority.
    ///
    /// # Panics
    /// If it cannot be built, started or connected.
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
            // Whoever still waits learns of the end.
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

    /// Which library it is.
    pub const fn library(&self) -> Library {
        self.library
    }

    /// And which version of it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its process, unless that has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Asks something of it.
    ///
    /// # Panics
    /// If it fails, or the process has ended.
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

    /// Takes a lock for so long, waiting as that library waits: a number by which the agent knows it.
    pub async fn lock(&self, name: &str, lease: Duration, wait: Duration) -> Option<u64> {
        let request = json!({"name": name, "ttl_ms": lease.as_millis(), "wait_ms": wait.as_millis()});
        self.call("lock", request).await.as_u64()
    }

    /// Extends a lock to so long from now; false where it is not its own any more. `redsync` extends by the lease that the lock
    /// was taken for.
    pub async fn extend(&self, handle: u64, lease: Duration) -> bool {
        self.call("extend", json!({"handle": handle, "ttl_ms": lease.as_millis()})).await == true
    }

    /// Gives a lock back; false where it was not its own any more.
    pub async fn release(&self, handle: u64) -> bool {
        self.call("release", json!({"handle": handle})).await == true
    }

    /// Ends it; done when the process, and what reads from it, are gone.
    pub async fn end(mut self) {
        drop(self.adopted);
        let _ = self.child.kill().await;
        let _ = (&mut self.reader).await;
    }
}
