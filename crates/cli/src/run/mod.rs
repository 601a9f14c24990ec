//! `distlock run`: runs a command while holding a lock.
//!
//! 1. Acquire the lock, or one of N permits.
//! 2. Start CMD in a process group of its own, led by a [guard]. Hand the terminal over to the group, if this process
//!    has it.
//! 3. Pass signals on to the group, until the group is empty. If the lock is lost, end the group.
//! 4. Release the lock, and shut the client down.
//!
//! A lock is released only after every process of the group has ended. If this process is killed, the guard kills the
//! group at once, and the lock ends with its lease.
//!
//! # Terminals
//!
//! ^C and ^Z of a terminal go to CMD's group. If CMD stops, so does this process, with its own group, and the shell
//! gets its prompt back. `fg` and `bg` continue this process, which continues CMD. A stopped process renews nothing: if
//! the lock is lost meanwhile, CMD is ended as soon as the job continues.

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use distlock::{Client, Error, Flavour};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use tokio::time::{Instant, sleep_until};

pub mod guard;
mod hold;
mod job;
mod signals;

use crate::connect::Target;
use crate::exit::{Failure, LOST, say, signalled};
use hold::Hold;
use job::{Change, Job};
use signals::Signals;

/// The variable with the label of the client, as for `Settings::from_env("DISTLOCK")`.
const LABEL: &str = "DISTLOCK_LABEL";
/// Time that a shutdown leaves for clean-ups in flight.
const SHUTDOWN: Duration = Duration::from_secs(1);
/// Time that the guard has to kill the group after the grace period. Then this process kills the group.
const GUARD_WITHIN: Duration = Duration::from_secs(5);
/// The longest duration of an option: ten years, as in the library.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Arguments of `run`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the lock
    name: String,
    /// Kind of lock
    #[arg(long, value_name = "FLAVOUR", default_value = "reentrant", value_parser = flavours())]
    flavour: Flavour,
    /// At most N commands at a time instead of one. Every caller must give the same N
    #[arg(long, value_name = "N", conflicts_with = "flavour", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// Longest wait for the lock, such as 10s or 500ms; 0 tries once. Default: no limit
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// End of the lock, and of CMD, even if CMD still runs. Default: the lock is renewed while CMD runs
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lease: Option<Duration>,
    /// Time between TERM and KILL when the lock is lost, and when CMD leaves processes behind
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    grace: Duration,
    /// The command with its arguments; no shell is involved
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Parses a flavour, with the list of all for help and completions.
pub fn flavours() -> impl clap::builder::TypedValueParser<Value = Flavour> {
    let names = Flavour::ALL.iter().map(|flavour| flavour.as_str());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Flavour>())
}

/// Parses a duration such as `1m 30s`. Zero needs no unit.
fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration > LONGEST { Err("at most ten years".to_owned()) } else { Ok(duration) }
}

/// Runs CMD under the lock, and returns CMD's exit status, or [`LOST`].
///
/// # Errors
///
/// [`Failure::Busy`] if the wait ran out, and the failures of connecting, acquiring and starting a process.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    let mut signals = Signals::catch(&[Signal::CHILD])?;
    let client = tokio::select! {
        biased;
        code = ending(&mut signals) => return Ok(code),
        client = connect(target) => client?,
    };
    let outcome = locked(&args, &client, &mut signals).await;
    if let Err(error) = client.shutdown(SHUTDOWN).await {
        say(format_args!("distlock: {error}"));
    }
    outcome
}

async fn connect(target: &Target) -> Result<Client, Failure> {
    let mut builder = target.builder()?;
    if let Some(label) = std::env::var(LABEL).ok().filter(|label| !label.is_empty()) {
        builder = builder.label(label);
    }
    Ok(builder.connect().await?)
}

async fn locked(args: &Args, client: &Client, signals: &mut Signals) -> Result<u8, Failure> {
    let acquired = tokio::select! {
        biased;
        code = ending(signals) => return Ok(code),
        acquired = Hold::acquire(args, client) => acquired?,
    };
    let Some(hold) = acquired else {
        let text = format!("{:?} is busy; `distlock inspect {0:?}` shows who holds it", args.name);
        return Err(Failure::Busy(text));
    };
    let outcome = work(args, &hold, signals).await;
    if matches!(outcome, Ok(LOST)) && !hold.is_held() {
        return outcome;
    }
    let released = tokio::select! {
        biased;
        released = hold.release() => released,
        // The client's shutdown waits a little longer for the release.
        _ = ending(signals) => Ok(()),
    };
    match released {
        Ok(()) => outcome,
        Err(error) => {
            say(format_args!("distlock: {error}"));
            // CMD has run, at least in part, without the lock.
            let is_lost = matches!(error, Error::Lost { .. } | Error::NotHeld { .. });
            if is_lost && outcome.is_ok() { Ok(LOST) } else { outcome }
        }
    }
}

/// Runs CMD, and returns its exit status when its whole group has ended.
async fn work(args: &Args, hold: &Hold, signals: &mut Signals) -> Result<u8, Failure> {
    let job = Job::start(&args.command, args.grace, &hold.env())?;
    let mut lost = pin!(hold.lost());
    let (mut is_lost, mut kill_at) = (false, Instant::now());
    let code = loop {
        tokio::select! {
            biased;
            error = &mut lost, if !is_lost => {
                // Before the message, because stderr may be blocked.
                job.end();
                (is_lost, kill_at) = (true, Instant::now() + args.grace + GUARD_WITHIN);
                let grace = humantime::format_duration(args.grace);
                say(format_args!("distlock: {error}. Sending TERM to the command, and KILL after {grace}"));
            }
            signal = signals.next() => {
                if let Some(code) = handle(signal, &job, hold).await {
                    break code;
                }
            }
            () = sleep_until(kill_at), if is_lost => {
                job.kill();
                kill_at = Instant::now() + GUARD_WITHIN;
            }
        }
    };
    Ok(if is_lost { LOST } else { code })
}

/// Handles a signal while CMD runs. Returns CMD's exit status if the group has ended.
async fn handle(signal: Signal, job: &Job, hold: &Hold) -> Option<u8> {
    if signal == Signal::CHILD {
        match job.change()? {
            Change::Ended(code) => return Some(code),
            Change::Unguarded(code) => {
                job.sweep().await;
                return Some(code);
            }
            Change::Stopped => {
                // As the terminal would do if CMD were in this process's group. This process gets the signal too.
                let _ = kill_current_process_group(Signal::TSTP);
            }
        }
    } else if signal == Signal::TSTP {
        job.pass_on(Signal::TSTP);
        stop();
        resume(job, hold);
    } else if signal == Signal::CONT {
        resume(job, hold);
    } else {
        job.pass_on(signal);
    }
    None
}

fn resume(job: &Job, hold: &Hold) {
    // If the lock was lost during the stop, `work` ends the group.
    if hold.is_held() {
        job.resume();
    }
}

/// Stops this process until it is continued. TTOU is not caught, so it stops the process. Unlike STOP, it has no effect
/// if no shell could continue the process.
fn stop() {
    let _ = kill_process(getpid(), Signal::TTOU);
}

/// Completes with an exit status when a signal asks this process to end. Called while no CMD runs.
async fn ending(signals: &mut Signals) -> u8 {
    loop {
        let signal = signals.next().await;
        if [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&signal) {
            return signalled(signal.as_raw());
        }
        if signal == Signal::TSTP {
            stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them_up_to_ten_years() {
        for (text, millis) in [("0", 0), ("0s", 0), ("500ms", 500), ("1m 30s", 90_000), ("2h", 7_200_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "-1s", "soon", "11years"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
