//! CMD's process group, as `run` sees it. `run` starts the group's guard, and tells the guard what to do.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpgrp, kill_process, kill_process_group, wait};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::exit::{Failure, signalled};

/// The signal by which `run` asks the guard to end the group: TERM, and KILL after the grace period.
pub const END: Signal = Signal::VTALARM;

/// Interval between the KILLs to a group that has lost its guard.
const SWEEP: Duration = Duration::from_millis(10);

/// CMD's process group. Its leader and first member is the [guard](super::guard).
pub struct Job {
    guard: Child,
    /// Children that this process had before: `exec distlock run` keeps the background jobs of a shell.
    others: Vec<Pid>,
}

/// A change of the guard's state.
pub enum Change {
    /// The group has ended, with this exit status of CMD.
    Ended(u8),
    /// A signal has killed the guard. Other processes of the group may still run.
    Unguarded(u8),
    /// The group was stopped from the terminal.
    Stopped,
}

impl Job {
    /// Starts the guard, which starts CMD.
    ///
    /// # Errors
    ///
    /// [`Failure::System`] if the guard cannot be started.
    pub fn start(command: &[OsString], grace: Duration, env: &[(&str, Option<String>)]) -> Result<Self, Failure> {
        // If the guard is killed, this process becomes the parent of its children, and so can reap them.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let others = children();
        let is_foreground = is_foreground();
        let mut guard = Command::new(this_program()?);
        guard.args(["guard-group", "--parent", &std::process::id().to_string()]);
        guard.args(["--grace", &format!("{}ms", grace.as_millis())]);
        if is_foreground {
            guard.arg("--foreground");
        }
        guard.arg("--").args(command).process_group(0);
        for (name, value) in env {
            match value {
                Some(value) => guard.env(name, value),
                None => guard.env_remove(name),
            };
        }
        let guard = guard.spawn().map_err(|error| Failure::System(format!("cannot start the guard: {error}")))?;
        let job = Self { guard, others };
        if is_foreground {
            // The guard waits for the terminal before it starts CMD.
            let _ = tcsetpgrp(io::stdin(), job.group());
        }
        Ok(job)
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.guard)
    }

    /// Returns the latest change of the guard's state. Also reaps other children: processes of the group whose guard
    /// was killed, and orphans if this process is the first one of a container.
    pub fn change(&self) -> Option<Change> {
        while let Ok(Some((pid, status))) = wait(options()) {
            if pid != self.group() {
                continue;
            }
            return Some(if status.stopped() {
                Change::Stopped
            } else if status.exited() {
                Change::Ended(code(status))
            } else {
                Change::Unguarded(code(status))
            });
        }
        None
    }

    /// Passes a signal on to the group.
    pub fn pass_on(&self, signal: Signal) {
        let _ = kill_process_group(self.group(), signal);
    }

    /// Asks the guard to end the group.
    pub fn end(&self) {
        let _ = kill_process(self.group(), END);
        // A stopped guard acts only when it is continued.
        self.pass_on(Signal::CONT);
    }

    /// Kills the group and its guard.
    pub fn kill(&self) {
        self.pass_on(Signal::KILL);
        // The guard may have left the group.
        let _ = kill_process(self.group(), Signal::KILL);
    }

    /// Kills what is left of a group whose guard was killed, and returns when nothing is left. CMD and orphans of the
    /// group are children of this process now. They are killed also if they have left the group.
    pub async fn sweep(&self) {
        loop {
            let is_empty = kill_process_group(self.group(), Signal::KILL) == Err(Errno::SRCH);
            let mut orphans = children();
            orphans.retain(|child| !self.others.contains(child));
            for orphan in &orphans {
                // Fails unless the orphan leads a group.
                let _ = kill_process_group(*orphan, Signal::KILL);
                let _ = kill_process(*orphan, Signal::KILL);
            }
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            if is_empty && orphans.is_empty() {
                return;
            }
            tokio::time::sleep(SWEEP).await;
        }
    }

    /// Continues the group after a stop. Hands the terminal over first, if this process has it.
    pub fn resume(&self) {
        if is_foreground() {
            let _ = tcsetpgrp(io::stdin(), self.group());
        }
        self.pass_on(Signal::CONT);
    }
}

/// Returns the children of this process. Empty if the operating system does not list them.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        let list = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    children
}

/// Options of a wait that returns at once. Stops are reported only if a shell at a terminal can continue the job.
pub fn options() -> WaitOptions {
    if io::stdin().is_terminal() { WaitOptions::NOHANG | WaitOptions::UNTRACED } else { WaitOptions::NOHANG }
}

/// Returns the exit status of a process that has ended, as shells report it.
pub fn code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => signalled(signal),
        (None, None) => u8::MAX,
    }
}

/// True if stdin is the terminal, and this process's group is its foreground.
fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()) == Ok(getpgrp())
}

/// Returns the path of this program, which stays valid if the file is replaced or deleted.
fn this_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}
