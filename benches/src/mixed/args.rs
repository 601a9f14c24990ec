//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser as _;
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// The language of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Java,
    Ours,
}

impl Language {
    pub const ALL: [Self; 2] = [Self::Java, Self::Ours];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Ours => "ours",
        }
    }
}

/// The processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Fleet {
    /// Half of the processes are Java, half are ours
    #[value(name = "both")]
    Mixed,
    /// Our processes alone
    Ours,
    /// Java processes alone
    Java,
}

impl Fleet {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Ours => "ours",
            Self::Java => "java",
        }
    }

    /// Returns how many of these processes are Java.
    pub const fn java_of(self, processes: usize) -> usize {
        match self {
            Self::Mixed => processes / 2,
            Self::Ours => 0,
            Self::Java => processes,
        }
    }
}

/// The kind of lock. Redisson has no lock like our plain lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    Fair,
    Rw,
    Reentrant,
    Fenced,
    Spin,
    /// Three names of one slot
    Multi,
}

impl Flavour {
    /// Returns the Java agent's word for this kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Rw => "rw",
            Self::Reentrant => "reentrant",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::Multi => "multi",
        }
    }
}

/// The processes that are killed or frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kill {
    Java,
    Ours,
    /// The seed draws the language of each victim
    Random,
    None,
}

/// Measures fleets of processes that contend for one lock: of Java, of ours, and of both.
///
/// The exit status is 1 if two processes held the lock at the same time. Waits of killed processes, and waits during a
/// freeze of the same process, are not counted.
#[derive(Clone, Debug, Parser, Serialize)]
pub struct Args {
    /// Kind of lock
    #[arg(long, value_enum, default_value = "fair")]
    pub flavour: Flavour,
    /// Version of Redisson
    #[arg(long, value_name = "VERSION", default_value = distlock_support::agent::VERSIONS[0])]
    pub java: String,
    /// Only this fleet; all three, one after the other, if not given
    #[arg(long, value_enum, value_name = "FLEET")]
    pub only: Option<Fleet>,
    /// Length of the measurement
    #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Workers per process
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub threads: u64,
    /// Processes of a fleet
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u8).range(2..=64).map(usize::from))]
    pub processes: usize,
    /// Language of the victims in the mixed fleet. In the other fleets, any value but none has victims
    #[arg(long, value_enum, value_name = "WHO", default_value = "random")]
    pub kill: Kill,
    /// Victims per run, at random moments
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=64).map(usize::from))]
    pub kills: usize,
    /// Freeze each victim for 7 s instead of killing it
    #[arg(long)]
    pub freeze: bool,
    /// Choose the victims among the processes that hold the lock
    #[arg(long)]
    pub holders: bool,
    /// rw: percentage of the acquires that read
    #[arg(long, value_name = "PERCENT", default_value = "80", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub reads: u8,
    /// Turn off the option `yield_after_release` of our clients
    #[arg(long)]
    pub no_turns: bool,
    /// Longest hold; each hold is random, from 0 to this
    #[arg(long, value_name = "MS", default_value = "4", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub hold_ms: u64,
    /// Lease of the watchdog of both sides
    #[arg(long, value_name = "MS", default_value = "3000", value_parser = clap::value_parser!(u64).range(300..=600_000))]
    pub watchdog_ms: u64,
    /// Runs of each fleet; the seed grows by 1 from run to run
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub runs: u64,
    /// Seed of the holds, the victims and their moments
    #[arg(long, value_name = "S", default_value = "1", value_parser = clap::value_parser!(u64).range(0..=1 << 40))]
    pub seed: u64,
    /// File for the same figures as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Args {
    pub const fn fleets(&self) -> &[Fleet] {
        match &self.only {
            Some(fleet) => std::slice::from_ref(fleet),
            None => &[Fleet::Java, Fleet::Ours, Fleet::Mixed],
        }
    }

    pub const fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub const fn watchdog(&self) -> Duration {
        Duration::from_millis(self.watchdog_ms)
    }

    /// Describes the runs in one line.
    pub fn summary(&self) -> String {
        let Self { processes, threads, seconds, watchdog_ms, kills, .. } = self;
        let (flavour, java) = (self.flavour.name(), &self.java);
        let reads = if self.flavour == Flavour::Rw { format!(", {} % reads", self.reads) } else { String::new() };
        let turns = if self.no_turns { ", yield_after_release off" } else { "" };
        let faults = if self.kill == Kill::None || *kills == 0 {
            "no faults".to_owned()
        } else {
            let what = if self.freeze { "freezes" } else { "kills" };
            let whom = if self.holders { "holders" } else { "any process" };
            format!("{kills} {what} ({whom})")
        };
        format!(
            "{flavour}{reads}, Redisson {java}, {processes} processes of {threads} workers, {seconds} s, holds of \
             0-{} ms, lease {watchdog_ms} ms{turns}, {faults}",
            self.hold_ms
        )
    }
}
