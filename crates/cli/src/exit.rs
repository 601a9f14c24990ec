//! Exit statuses and failures of the command.

use std::fmt;
use std::io::Write as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// `doctor` found something, or `bench` had errors. `diff` uses the same status for a difference.
pub const FOUND: u8 = 1;
/// The lock is not held.
pub const NOT_HELD: u8 = 1;
/// Wrong arguments or an impossible option (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// No server can be reached, or none answers in time (`EX_UNAVAILABLE`).
pub const UNREACHABLE: u8 = 69;
/// A server refused a command (`EX_SOFTWARE`).
pub const SERVER: u8 = 70;
/// The operating system refused something: a process, a file, a signal handler (`EX_OSERR`).
pub const SYSTEM: u8 = 71;
/// The lock stayed busy for the whole wait (`EX_TEMPFAIL`: try again later).
pub const BUSY: u8 = 75;
/// The lock was lost while the command ran.
pub const LOST: u8 = 76;
/// The command of `run` exists, but cannot be executed. As in shells.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command of `run` does not exist. As in shells.
pub const NO_COMMAND: u8 = 127;
/// Added to the number of the signal that ended a process. As in shells.
pub const SIGNALLED: u8 = 128;

/// Longest wait for stderr.
const STDERR_WITHIN: Duration = Duration::from_secs(1);

/// Why a command failed. Each kind has its own exit status ([`code`](Self::code)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Wrong arguments or an impossible option.
    Usage(String),
    /// No server can be reached, or none answers in time.
    Unreachable(String),
    /// The lock stayed busy for the whole wait.
    Busy(String),
    /// The lock was lost.
    Lost(String),
    /// The lock is not held.
    NotHeld(String),
    /// A server refused a command. The text begins with the server's error.
    Server(String),
    /// The operating system refused something.
    System(String),
}

impl Failure {
    /// Returns the exit status.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Unreachable(_) => UNREACHABLE,
            Self::Busy(_) => BUSY,
            Self::Lost(_) => LOST,
            Self::NotHeld(_) => NOT_HELD,
            Self::Server(_) => SERVER,
            Self::System(_) => SYSTEM,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(text) => write!(f, "{text}; check --url or DISTLOCK_URL, and whether the server runs"),
            Self::Usage(text)
            | Self::Busy(text)
            | Self::Lost(text)
            | Self::NotHeld(text)
            | Self::Server(text)
            | Self::System(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

impl From<distlock::Error> for Failure {
    fn from(error: distlock::Error) -> Self {
        use distlock::Error;

        let text = error.to_string();
        match error {
            Error::Config { .. } | Error::WouldDeadlock { .. } | Error::WrongType { .. } => Self::Usage(text),
            Error::Connection { .. } | Error::Timeout { .. } | Error::ReleasePending { .. } => Self::Unreachable(text),
            Error::Lost { .. } => Self::Lost(text),
            Error::NotHeld { .. } => Self::NotHeld(text),
            _ => Self::Server(text),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::System(error.to_string())
    }
}

/// Writes a line to stderr. Unlike `eprintln!`, it does not panic if nobody reads stderr any more, and it returns after
/// a second if stderr is blocked: by a full pipe, or by ^S at a terminal.
pub fn say(line: fmt::Arguments<'_>) {
    let line = line.to_string();
    let (written, is_written) = mpsc::channel();
    let write = move || {
        let _ = writeln!(std::io::stderr(), "{line}");
        let _ = written.send(());
    };
    if thread::Builder::new().spawn(write).is_ok() {
        let _ = is_written.recv_timeout(STDERR_WITHIN);
    }
}

/// Returns the exit status of a process that a signal has ended.
pub fn signalled(signal: i32) -> u8 {
    SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or_default())
}
