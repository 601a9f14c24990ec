//! The guard of CMD's process group: a small process between `distlock run` and CMD.
//!
//! `distlock run` cannot end CMD when it is itself killed by KILL. So it starts this process (`distlock guard-group`),
//! which leads the process group, starts CMD in it, and lives until the rest of the group has ended:
//!
//! 1. When CMD has ended, the other processes of the group get TERM, and KILL after the grace period.
//! 2. When `distlock run` asks for the end of the group ([`END`]), all get TERM, and KILL after the grace period.
//! 3. When `distlock run` is dead, all get KILL at once, because the lock ends with its lease.
//!
//! The exit status is CMD's. The process catches every signal that the group gets, so that only CMD acts on it.
//!
//! Before KILL, the guard moves to the group of `distlock run`, so that it survives and reports CMD's status. Its own
//! process id stays the group's id, so a signal to the group cannot hit a foreign group.
//!
//! If CMD makes a group of its own (`timeout`, `bash -i`, `setsid`), the guard treats it like the first group. Other
//! groups and sessions are out of reach: a process that CMD starts there outlives the lock.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, getpgrp, getpid, getppid, kill_process, kill_process_group, setpgid,
    test_kill_process_group, wait, waitpgid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use tokio::time::{Instant, MissedTickBehavior};

use super::job::{END, code, options};
use super::signals::Signals;
use crate::exit::{Failure, NO_COMMAND, NOT_EXECUTABLE, say, signalled};

/// Interval between the checks that `distlock run` lives.
const CHECK: Duration = Duration::from_millis(100);
/// Time after CMD's start in which a signal counts as older than CMD.
const EARLY: Duration = Duration::from_millis(1);

/// Arguments of the guard. `distlock run` passes them.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Process id of `distlock run`
    #[arg(long)]
    parent: i32,
    /// Time between TERM and KILL
    #[arg(long, value_parser = super::duration)]
    grace: Duration,
    /// Wait for the terminal before CMD starts
    #[arg(long)]
    foreground: bool,
    /// The command with its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Starts CMD, and returns its exit status when its whole group has ended.
///
/// # Errors
///
/// [`Failure::System`] if signals cannot be caught.
pub async fn main(args: Args) -> Result<u8, Failure> {
    let parent = Pid::from_raw(args.parent.max(0));
    // Orphans of the group become children of this process, which can wait for their end.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
    let mut signals = Signals::catch(&[Signal::CHILD, Signal::TTIN, END])?;
    let (own, home) = (getpgrp(), getpgid(parent).unwrap_or_else(|_| getpgrp()));
    while args.foreground && getppid() == parent && tcgetpgrp(io::stdin()) == Ok(home) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if getppid() != parent {
        return Ok(signalled(Signal::KILL.as_raw()));
    }
    let (program, words) = args.command.split_first().ok_or_else(|| Failure::Usage("no command".to_owned()))?;
    let cmd = match Command::new(program).args(words).spawn() {
        Ok(cmd) => cmd,
        Err(error) => {
            return_terminal(own, home);
            say(format_args!("distlock: {}: {error}", program.display()));
            return Ok(if error.kind() == io::ErrorKind::NotFound { NO_COMMAND } else { NOT_EXECUTABLE });
        }
    };
    let mut group = Group { own, home, cmd, grace: args.grace, code: None, has_left: false, kill_at: None };
    let mut check = tokio::time::interval_at(Instant::now() + EARLY, CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A signal that arrived before CMD's start has not reached CMD. The first tick comes after all such signals,
    // because the runtime reads signals before timers. A signal between CMD's start and the tick reaches CMD twice.
    let mut is_early = true;
    loop {
        let signal = tokio::select! {
            biased;
            signal = signals.next() => Some(signal),
            _ = check.tick() => None,
        };
        is_early &= signal.is_some();
        if getppid() != parent {
            group.signal(Signal::KILL);
            return Ok(signalled(Signal::KILL.as_raw()));
        }
        match signal {
            Some(signal) if signal == END => group.end(),
            Some(signal) if signal == Signal::CHILD || signal == Signal::TTIN => {}
            Some(signal) if is_early => group.pass_on_early(signal),
            Some(signal) => group.pass_on(signal),
            None => {}
        }
        if let Some(code) = group.advance() {
            return Ok(code);
        }
    }
}

/// The groups to end: `own`, and the group of CMD's process id, if CMD has made one.
struct Group {
    /// The group that this process leads, or has led.
    own: Pid,
    /// The group of `distlock run`.
    home: Pid,
    cmd: Child,
    grace: Duration,
    /// CMD's exit status, once CMD has ended.
    code: Option<u8>,
    /// True if this process has moved to `home`.
    has_left: bool,
    /// When the group gets KILL. `None` while the group need not end.
    kill_at: Option<Instant>,
}

impl Group {
    fn cmd(&self) -> Pid {
        Pid::from_child(&self.cmd)
    }

    /// Acts on children that have ended or stopped, and on the end of the grace period. Returns CMD's exit status if
    /// both groups are empty.
    fn advance(&mut self) -> Option<u8> {
        while let Ok(Some((pid, status))) = wait(options()) {
            if pid != self.cmd() {
                continue;
            }
            if status.stopped() {
                // `distlock run` notices the stop, and stops the user's job as the terminal would.
                let _ = kill_process(getpid(), Signal::STOP);
            } else {
                self.code = Some(code(status));
                self.leave();
                self.end();
            }
        }
        if self.kill_at.is_some_and(|kill_at| kill_at <= Instant::now()) {
            self.leave();
            self.signal(Signal::KILL);
        }
        self.code.filter(|_| self.is_empty())
    }

    /// Sends TERM to the group, unless it got TERM before. KILL follows after the grace period.
    fn end(&mut self) {
        if self.kill_at.is_none() {
            self.kill_at = Some(Instant::now() + self.grace);
            self.signal(Signal::TERM);
            // A stopped process acts on TERM when it is continued.
            self.signal(Signal::CONT);
        }
    }

    /// Moves this process to the group of `distlock run`, with the terminal.
    fn leave(&mut self) {
        if !self.has_left {
            return_terminal(self.own, self.home);
            self.has_left = setpgid(None, Some(self.home)).is_ok();
        }
    }

    /// Sends a signal to both groups. Unless this process has left its group, it gets the signal last.
    fn signal(&self, signal: Signal) {
        self.pass_on(signal);
        let _ = kill_process_group(self.own, signal);
    }

    /// Sends a signal to the group that CMD has made, if there is one.
    fn pass_on(&self, signal: Signal) {
        // Another process cannot get CMD's process id while CMD is not reaped, or while a child of this process is in
        // CMD's group.
        if self.code.is_none() || has_children(self.cmd()) {
            let _ = kill_process_group(self.cmd(), signal);
        }
    }

    /// Sends a signal to the group that CMD has made, or to CMD alone.
    fn pass_on_early(&self, signal: Signal) {
        if self.code.is_none() && kill_process_group(self.cmd(), signal).is_err() {
            let _ = kill_process(self.cmd(), signal);
        }
    }

    /// True if both groups are empty. Called only after CMD's end.
    fn is_empty(&self) -> bool {
        self.has_left && test_kill_process_group(self.own) == Err(Errno::SRCH) && !has_children(self.cmd())
    }
}

/// True if living children of this process are in the group. Reaps dead children.
fn has_children(group: Pid) -> bool {
    loop {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Gives the terminal back to the group `home`, if this process's group `own` has it.
fn return_terminal(own: Pid, home: Pid) {
    if tcgetpgrp(io::stdin()) == Ok(own) {
        let _ = tcsetpgrp(io::stdin(), home);
    }
}
