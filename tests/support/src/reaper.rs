//! A watchdog that ends what a test process started, even if SIGKILL kills that process.
//!
//! One `sh` for each test process reads a pipe whose write end only the test process holds. The write end is
//! close-on-exec, so no child keeps it open. If the pipe closes without a farewell, the shell kills every registered
//! process and removes every directory. The shell has its own process group and ignores catchable signals, so a signal
//! to the tests' group does not end the shell.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tempfile::TempDir;

/// The watchdog removes only directories with this prefix.
const DIR_PREFIX: &str = "distlock-test-";

/// Keeps two lists, one entry a line: processes to kill, and directories to remove.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT PIPE
nl='
'
pids= dirs=
# The list $1 without the entry $2.
without() {
    new=
    IFS=$nl
    for e in $1; do
        [ "$e" = "$2" ] || new=$new$e$nl
    done
    unset IFS
}
while IFS= read -r line; do
    what=${line#* }
    case $line in
        'add '*) pids=$pids$what$nl ;;
        'del '*) without "$pids" "$what"; pids=$new ;;
        'keep '*) dirs=$dirs$what$nl ;;
        'drop '*) without "$dirs" "$what"; dirs=$new ;;
    esac
done
IFS=$nl
for pid in $pids; do kill -9 "$pid"; done
for dir in $dirs; do
    case $dir in
        */distlock-test-*) rm -rf -- "$dir" || { sleep 1; rm -rf -- "$dir"; } ;;
    esac
done
"#;

/// The shell and the write end of its pipe. A static is never dropped, so only the end of the process closes the pipe.
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

/// Kills process `pid` when this process ends.
pub fn adopt(pid: u32) {
    tell(&format!("add {pid}\n"));
}

/// Removes `pid` from the watchdog's list. Call this before the process is reaped, because afterwards the pid may
/// belong to another process.
pub fn release(pid: u32) {
    tell(&format!("del {pid}\n"));
}

/// Kills a process when the test process ends, unless this value was dropped before. Drop it before the process is
/// reaped, because afterwards the pid may belong to another process.
#[derive(Debug)]
pub struct Adopted(u32);

impl Adopted {
    pub fn new(pid: u32) -> Self {
        adopt(pid);
        Self(pid)
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        release(self.0);
    }
}

/// Runs a command to its end and returns its output. The command does not outlive this process.
pub fn output(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let _adopted = Adopted::new(child.id());
    child.wait_with_output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// A directory that is removed when this is dropped, or when this process ends.
#[derive(Debug)]
pub struct Folder(Option<TempDir>);

impl Folder {
    #[expect(clippy::new_without_default, reason = "it makes something on the disk")]
    pub fn new() -> Self {
        let made = tempfile::Builder::new().prefix(DIR_PREFIX).tempdir();
        let dir = made.unwrap_or_else(|e| panic!("cannot create a directory: {e}"));
        tell(&format!("keep {}\n", dir.path().display()));
        Self(Some(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.as_ref().map(TempDir::path).unwrap_or_else(|| unreachable!("there until it is dropped"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let path = self.path().to_owned();
        drop(self.0.take());
        tell(&format!("drop {}\n", path.display()));
    }
}

/// Sends a signal to a process that this process started and has not reaped.
pub fn signal(pid: u32, signal: Signal) {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(target) = target else { panic!("{pid} is no process id") };
    if let Err(e) = rustix::process::kill_process(target, signal) {
        panic!("cannot send {signal:?} to process {pid}: {e}");
    }
}

/// Freezes a process that this process started (SIGSTOP), and waits until all its threads stand still. After the
/// signal alone they run on for some moments.
pub fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    // `NOWAIT` does not reap the process. Its owner does that.
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    if let Err(e) = rustix::process::waitid(WaitId::Pid(target), stopped) {
        panic!("cannot wait for process {pid} to stop: {e}");
    }
}

/// Whether a process has ended. It may still wait to be reaped by its parent.
pub fn has_ended(pid: u32) -> bool {
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return true;
    };
    if rustix::process::test_kill_process(target).is_err() {
        return true;
    }
    // `PID (name) STATE ...`: the name may contain anything, and the last `)` ends it.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|s| s.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned()))
        .is_some_and(|rest| rest.starts_with(['Z', 'X']))
}
