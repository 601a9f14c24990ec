//! A watchdog that ends what a test process started, even when that process is killed by SIGKILL.
//!
//! One `sh` per test process reads a pipe whose write end only the test process holds (it is
//! close-on-exec, so no child keeps it open). When the pipe closes without a farewell, the shell
//! kills every process still registered and removes its directory. The shell has its own process
//! group and ignores the polite signals, so a signal to the group of the tests leaves it at work.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// Only directories of this prefix are ever removed by the watchdog.
pub(crate) const DIR_PREFIX: &str = "distlock-test-";

/// Each entry of `$list` is one line `PID DIR`; a line is dropped again by `del PID`.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT PIPE
nl='
'
list=
while read -r op pid dir; do
    new=
    IFS=$nl
    for e in $list; do
        [ "${e%% *}" = "$pid" ] || new=$new$e$nl
    done
    unset IFS
    list=$new
    [ "$op" = add ] && list="$list$pid $dir$nl"
done
IFS=$nl
for e in $list; do kill -9 "${e%% *}"; done
for e in $list; do
    dir=${e#* }
    case $dir in
        */distlock-test-*) rm -rf -- "$dir" || { sleep 1; rm -rf -- "$dir"; } ;;
    esac
done
"#;

/// The shell and the write end of its pipe; a static is never dropped, so that only the end of
/// the process closes the pipe.
fn watchdog() -> &'static Mutex<Child> {
    static WATCHDOG: OnceLock<Mutex<Child>> = OnceLock::new();
    WATCHDOG.get_or_init(|| {
        let child = Command::new("sh")
            .args(["-c", SCRIPT])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start the watchdog shell `sh`: {e}"));
        Mutex::new(child)
    })
}

fn tell(line: &str) {
    let mut watchdog = watchdog().lock();
    let written = match watchdog.stdin.as_mut() {
        Some(pipe) => pipe.write_all(line.as_bytes()),
        None => Err(std::io::ErrorKind::BrokenPipe.into()),
    };
    if let Err(e) = written {
        panic!("the watchdog shell has died: {e}");
    }
}

/// Has process `pid` killed, and `dir` removed, when this process ends.
pub fn adopt(pid: u32, dir: Option<&Path>) {
    let dir = dir.map(|d| d.display().to_string()).unwrap_or_default();
    tell(&format!("add {pid} {dir}\n"));
}

/// Takes `pid` off the watchdog's list; call it before the process is reaped, so that the number
/// cannot mean another process yet.
pub fn release(pid: u32) {
    tell(&format!("del {pid}\n"));
}

/// Sends a signal to a process that this process started and has not reaped.
///
/// # Panics
/// When the process does not exist.
pub fn signal(pid: u32, signal: Signal) {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(target) = target else { panic!("{pid} is no process id") };
    if let Err(e) = rustix::process::kill_process(target, signal) {
        panic!("cannot send {signal:?} to process {pid}: {e}");
    }
}

/// Freezes a process that this process started (SIGSTOP), and waits until all its threads stand
/// still: the signal alone leaves them running for some moments more.
///
/// # Panics
/// When the process does not exist.
pub fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    // NOWAIT: look only; the end of the process is for its owner to collect.
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    if let Err(e) = rustix::process::waitid(WaitId::Pid(target), stopped) {
        panic!("cannot wait for process {pid} to stop: {e}");
    }
}

/// Whether a process runs no more: it has gone, or only waits to be reaped by its parent.
pub fn has_ended(pid: u32) -> bool {
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return true;
    };
    if rustix::process::test_kill_process(target).is_err() {
        return true;
    }
    // `PID (name) STATE ...`: the name may hold anything, the last `)` ends it.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|s| s.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned()))
        .is_some_and(|rest| rest.starts_with(['Z', 'X']))
}
