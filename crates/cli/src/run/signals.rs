//! The signals that `run` and its guard catch.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Signals that a supervisor or a terminal sends, and that are passed on to CMD.
const PASSED: [Signal; 9] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// Streams of caught signals.
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Catches the signals that are passed on, and `own`.
    ///
    /// A signal that was ignored when this process started (`nohup`) is neither caught nor passed on, so CMD ignores it
    /// too.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn catch(own: &[Signal]) -> io::Result<Self> {
        let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
        let passed = PASSED.iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
        let mut caught = Vec::new();
        for signal in passed.chain(own) {
            caught.push((*signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        }
        Ok(Self(caught))
    }

    /// Returns the next signal. May be dropped: no signal is lost.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Returns the mask of ignored signals in the text of `/proc/self/status`. Bit 0 is signal 1.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let status = "Name:\tdistlock\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t2\n";
        assert_eq!(ignored(status), 1 | 1 << (Signal::PIPE.as_raw() - 1));
        assert_eq!(ignored("Name:\tdistlock\n"), 0);
    }
}
