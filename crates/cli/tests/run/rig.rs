//! A server, and programs that run against it.

use std::process::Stdio;

use distlock_support::reaper::{self, Adopted};
pub use distlock_support::wait::{ends, until};
use distlock_support::{Admin, RedisServer};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// The command under test.
pub const DISTLOCK: &str = env!("CARGO_BIN_EXE_distlock");

/// Words in front of CMD: none, which leaves CMD in the group that `distlock run` makes, and `setsid`, which gives CMD
/// a session of its own.
pub const WRAPPERS: [&[&str]; 2] = [&[], &["setsid"]];

/// Words in front of `distlock`. They undo ignored signals, which a background job of a script inherits.
const DEFAULT_SIGNALS: [&str; 2] = ["env", "--default-signal"];

/// A server, and an administrator's connection.
pub struct Bed {
    pub server: RedisServer,
    pub admin: Admin,
}

impl Bed {
    pub async fn new() -> Self {
        let server = RedisServer::start();
        let admin = Admin::connect(&server).await;
        Self { server, admin }
    }

    /// Starts `distlock run` with these arguments and `sh -c SCRIPT`.
    pub fn run(&self, args: &[&str], script: &str) -> Program {
        self.run_command(args, &["sh", "-c", script])
    }

    /// Starts `distlock run` with these arguments and this command.
    pub fn run_command(&self, args: &[&str], command: &[&str]) -> Program {
        Program::start(&self.server.url(), &[&["run"][..], args, &["--"], command].concat())
    }

    /// Checks that no key is left.
    pub async fn assert_free(&self) {
        assert_eq!(self.admin.keys().await, [""; 0], "keys that are left");
    }
}

/// A running `distlock`. Dropping it kills it, and so everything that it runs.
pub struct Program {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    errors: JoinHandle<String>,
    adopted: Adopted,
}

/// The outcome of a program.
#[derive(Debug)]
pub struct Ended {
    /// The exit status. `None` if a signal ended the program.
    pub code: Option<i32>,
    /// The lines of stdout that were not read before.
    pub lines: Vec<String>,
    pub errors: String,
}

impl Program {
    pub fn start(url: &str, args: &[&str]) -> Self {
        Self::start_with(url, args, Stdio::piped())
    }

    /// As [`start`](Self::start), with this stderr.
    pub fn start_with(url: &str, args: &[&str], stderr: Stdio) -> Self {
        Self::spawn(url, &[&[DISTLOCK][..], args].concat(), stderr)
    }

    /// Starts a program that becomes `distlock`.
    pub fn spawn(url: &str, command: &[&str], stderr: Stdio) -> Self {
        let [env, option] = DEFAULT_SIGNALS;
        let mut process = Command::new(env)
            .arg(option)
            .args(command)
            .env("DISTLOCK_URL", url)
            .env("HELD_LOCK_TOKEN", "of an outer run")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stderr = process.stderr.take();
        let errors = tokio::spawn(async move {
            let mut all = String::new();
            if let Some(mut stderr) = stderr {
                stderr.read_to_string(&mut all).await.unwrap();
            }
            all
        });
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let adopted = Adopted::new(process.id().unwrap());
        Self { stdin: process.stdin.take(), process, lines, errors, adopted }
    }

    /// Returns the next line of stdout.
    pub async fn line(&mut self) -> String {
        let line = ends("a line", self.lines.next_line()).await.unwrap();
        line.unwrap_or_else(|| panic!("stdout has ended"))
    }

    pub async fn expect(&mut self, expected: &str) {
        assert_eq!(self.line().await, expected);
    }

    /// Writes a line to the stdin of CMD.
    pub async fn tell(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Sends a signal to `distlock`.
    pub fn signal(&self, signal: Signal) {
        reaper::signal(self.process.id().unwrap(), signal);
    }

    /// Waits for the end of `distlock` and of every process that has its stdout.
    pub async fn ended(self) -> Ended {
        let Self { mut process, stdin: _stdin, mut lines, errors, adopted } = self;
        let rest = async {
            let mut rest = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                rest.push(line);
            }
            rest
        };
        let lines = ends("the end of stdout", rest).await;
        drop(adopted);
        let code = ends("the end of distlock", process.wait()).await.unwrap().code();
        Ended { code, lines, errors: ends("the end of stderr", errors).await.unwrap() }
    }

    /// Checks the exit status, and returns the outcome.
    pub async fn ends_with(self, code: i32) -> Ended {
        let ended = self.ended().await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        ended
    }
}
