//! A process of a fleet, of either language, as the parent sees it.
//!
//! No process outlives the parent: each exits when its standard input is closed. A frozen process cannot, so the
//! watchdog of `distlock_support::reaper` kills it when the parent ends.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use distlock_support::agent::{Agent, AgentOptions, Call, monotonic_ns};
use distlock_support::reaper::{self, Adopted};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::args::{Args, Language};
use crate::events::Trace;
use crate::judge::Fate;
use crate::locks::Job;
use crate::member::Setup;

/// The first argument of a process of ours.
pub const MARK: &str = "member";

/// Time limit of a start, on a machine that starts many Java machines at once.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// A process of a fleet. Dropping it kills the process.
#[derive(Debug)]
pub struct Member {
    /// Unique within a run.
    pub number: usize,
    pub language: Language,
    pub trace: Trace,
    pub fate: Fate,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Java { agent: Agent, job: Option<Call> },
    Ours(Box<Ours>),
}

#[derive(Debug)]
struct Ours {
    /// Empty once the process is dead. Dropped before `child` is reaped, after which the id may mean another process.
    adopted: Option<Adopted>,
    child: Child,
    pid: u32,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Member {
    /// Starts a process and waits until it is connected.
    pub async fn start(number: usize, language: Language, args: &Args, url: &str, folder: &Path) -> Self {
        let process = match language {
            Language::Java => {
                let watchdog = Some(args.watchdog());
                let options = AgentOptions { full_speed: true, watchdog, ..AgentOptions::version(&args.java) };
                Process::Java { agent: Agent::start(url, options).await, job: None }
            }
            Language::Ours => Process::Ours(Box::new(Ours::start(args, url).await)),
        };
        let trace = Trace::new(folder.join(format!("events-{number}")));
        Self { number, language, trace, fate: Fate::default(), process }
    }

    /// Starts a loop. Its events go to the file of [`Self::trace`] if `record`.
    pub async fn begin(&mut self, job: &Job, record: bool) {
        let file = if record { self.trace.path().display().to_string() } else { String::new() };
        let job = Job { file, seed: job.seed.wrapping_mul(1000) + self.number as u64, ..job.clone() };
        let request = serde_json::to_value(&job).unwrap_or_else(|error| panic!("{error} in {job:?}"));
        match &mut self.process {
            Process::Java { agent, job } => *job = Some(agent.start_call(request)),
            Process::Ours(ours) => ours.send(&format!("{request}\n")).await,
        }
    }

    /// Waits for the end of the loop, at most until `deadline` on the monotonic clock. Returns whether it has ended.
    ///
    /// # Panics
    /// If the process has failed.
    pub async fn ended(&mut self, deadline: u64) -> bool {
        let left = Duration::from_nanos(deadline.saturating_sub(monotonic_ns()));
        match &mut self.process {
            Process::Java { agent, job } => match job {
                None => true,
                Some(call) => match call.within(left).await {
                    Some(Ok(_)) => true,
                    Some(Err(error)) => panic!("a Java process: {error}\n{}", agent.log()),
                    None => false,
                },
            },
            Process::Ours(ours) => match tokio::time::timeout(left, ours.output.next_line()).await {
                Ok(Ok(Some(line))) if line == "done" => true,
                Ok(line) => panic!("a process of ours has ended or said something else: {line:?}"),
                Err(_) => false,
            },
        }
    }

    /// Stops the process and waits until all its threads stand still.
    pub fn stop(&self) {
        reaper::freeze(self.pid());
    }

    pub fn resume(&self) {
        reaper::signal(self.pid(), Signal::CONT);
    }

    /// Kills the process as `kill -9` does, and waits for its end. Does nothing if it is dead.
    pub async fn kill(&mut self) {
        match &mut self.process {
            Process::Java { agent, job } => {
                *job = None;
                agent.kill9().await;
            }
            Process::Ours(ours) => {
                if ours.adopted.take().is_some() {
                    let _ = ours.child.start_kill();
                    let _ = ours.child.wait().await;
                }
            }
        }
    }

    fn pid(&self) -> u32 {
        match &self.process {
            Process::Java { agent, .. } => agent.pid(),
            Process::Ours(ours) => ours.pid,
        }
    }
}

impl Ours {
    async fn start(args: &Args, url: &str) -> Self {
        let setup = Setup { url: url.to_owned(), watchdog: args.watchdog(), yield_after_release: !args.no_turns };
        let setup = serde_json::to_string(&setup).unwrap_or_else(|error| panic!("{error} in {setup:?}"));
        let program = std::env::current_exe().unwrap_or_else(|error| panic!("this program's path: {error}"));
        let mut child = Command::new(program)
            .args([MARK, &setup])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("a process of ours: {error}"));
        let (Some(input), Some(output), Some(pid)) = (child.stdin.take(), child.stdout.take(), child.id()) else {
            panic!("a process just started has pipes and an id")
        };
        let adopted = Adopted::new(pid);
        let mut output = BufReader::new(output).lines();
        let line = tokio::time::timeout(READY_WITHIN, output.next_line()).await;
        assert!(matches!(&line, Ok(Ok(Some(word))) if word == "ready"), "a process of ours did not start: {line:?}");
        Self { adopted: Some(adopted), child, pid, input, output }
    }

    async fn send(&mut self, line: &str) {
        let sent = self.input.write_all(line.as_bytes()).await;
        sent.unwrap_or_else(|error| panic!("a process of ours does not listen: {error}"));
    }
}
