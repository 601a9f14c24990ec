//! A child process of the same test binary, which can be killed or frozen.
//!
//! The parent's test spawns *another* test of its binary by name. The spawned test returns at once unless
//! [`is_child`], so an ordinary run skips it:
//!
//! ```no_run
//! use distlock_support::child::{self, Child};
//!
//! // #[test]
//! fn holder_process() {
//!     if !child::is_child() {
//!         return;
//!     }
//!     child::init();
//!     child::say("holding");
//!     std::thread::park();
//! }
//!
//! // #[tokio::test]
//! async fn killed_holder() {
//!     let mut holder = Child::spawn("holder_process", &[("URL", "redis://...")]);
//!     assert_eq!(holder.line().await.as_deref(), Some("holding"));
//!     holder.kill9();
//! }
//! ```
//!
//! The child does not outlive its parent. It exits when its stdin closes. If it is frozen, the watchdog kills it (see
//! [`crate::reaper`]).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::sync::mpsc;

use crate::reaper;

const MARK: &str = "DISTLOCK_CHILD";
/// Time limit of [`Child::line`]. A child that is silent for this long has failed.
const LINE_WITHIN: Duration = Duration::from_secs(120);

type Heard = mpsc::UnboundedReceiver<String>;

/// Whether [`Child::spawn`] started this process.
pub fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Ties the life of this process to its parent's. A child calls this first.
pub fn init() {
    assert!(is_child(), "child::init() outside a child process");
    told();
}

/// Sends a line to [`Child::line`].
pub fn say(line: &str) {
    // The harness may have left a line unfinished ("test name ... "), so start a new one.
    let mut out = std::io::stdout().lock();
    let sent = out.write_all(format!("\n@{line}\n").as_bytes());
    if sent.and_then(|()| out.flush()).is_err() {
        die();
    }
}

/// The next line of [`Child::tell`].
pub async fn hear() -> String {
    let line = told().lock().await.recv().await;
    line.unwrap_or_else(|| panic!("the parent process has gone"))
}

fn told() -> &'static tokio::sync::Mutex<Heard> {
    static TOLD: OnceLock<tokio::sync::Mutex<Heard>> = OnceLock::new();
    TOLD.get_or_init(|| {
        let (tx, rx) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let _ = tx.send(line);
            }
            die();
        });
        tokio::sync::Mutex::new(rx)
    })
}

/// Ends this process at once without any cleanup, because its parent is dead.
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

/// A child process that runs one test of this binary. Dropping it kills the process.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    ended: Option<ExitStatus>,
    lines: Heard,
    output: Arc<Mutex<String>>,
}

impl Child {
    /// Runs the test with this full name (`module::name`) and these environment variables.
    pub fn spawn(test_name: &str, env: &[(&str, &str)]) -> Self {
        let exe = std::env::current_exe().unwrap_or_else(|e| panic!("the path of this test binary is unknown: {e}"));
        let mut process = Command::new(&exe)
            .args([test_name, "--exact", "--nocapture", "--include-ignored"])
            .env(MARK, "1")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", exe.display()));
        reaper::adopt(process.id());
        let Some(stdout) = process.stdout.take() else { panic!("the child was started with a piped stdout") };
        let (tx, lines) = mpsc::unbounded_channel();
        let output = Arc::new(Mutex::new(String::new()));
        let other = output.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                match line.strip_prefix('@') {
                    Some(line) => drop(tx.send(line.to_owned())),
                    None => *other.lock() += &(line + "\n"),
                }
            }
        });
        Self { process, ended: None, lines, output }
    }

    /// The next line of [`say`]; `None` when the child has ended.
    pub async fn line(&mut self) -> Option<String> {
        match tokio::time::timeout(LINE_WITHIN, self.lines.recv()).await {
            Ok(line) => line,
            Err(_) => {
                panic!("child {} said nothing for {LINE_WITHIN:?}; its other output: {}", self.pid(), self.output())
            }
        }
    }

    /// Checks that the next line is `expected`.
    pub async fn expect(&mut self, expected: &str) {
        let line = self.line().await;
        assert_eq!(line.as_deref(), Some(expected), "child {}; its other output: {}", self.pid(), self.output());
    }

    /// Sends a line to [`hear`].
    pub fn tell(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut();
        let sent = stdin.map(|s| s.write_all(format!("{line}\n").as_bytes()));
        assert!(matches!(sent, Some(Ok(()))), "child {} does not listen", self.process.id());
    }

    /// The standard output of the child, without lines of [`say`].
    pub fn output(&self) -> String {
        self.output.lock().clone()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the child by SIGKILL and waits for its end. Does nothing if it is dead.
    pub fn kill9(&mut self) {
        if self.ended.is_none() {
            let _ = self.process.kill();
            self.reap();
        }
    }

    /// Freezes the child (SIGSTOP) and waits until all its threads stand still.
    pub fn stop(&self) {
        assert!(self.ended.is_none(), "the child has ended");
        reaper::freeze(self.pid());
    }

    pub fn cont(&self) {
        assert!(self.ended.is_none(), "the child has ended");
        reaper::signal(self.pid(), Signal::CONT);
    }

    /// Waits until the child ends by itself.
    pub async fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.ended {
                return status;
            }
            match self.process.try_wait() {
                Ok(None) => tokio::time::sleep(Duration::from_millis(5)).await,
                Ok(Some(_)) | Err(_) => self.reap(),
            }
        }
    }

    fn reap(&mut self) {
        reaper::release(self.process.id());
        match self.process.wait() {
            Ok(status) => self.ended = Some(status),
            Err(e) => panic!("cannot wait for child {}: {e}", self.process.id()),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill9();
    }
}
