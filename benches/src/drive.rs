//! The measured loop: tasks that lock and unlock for a given time.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::subject::{Lock as _, Subject};
use crate::timer::Timer;

/// The time that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timed {
    /// A lock and its unlock together.
    Pair,
    /// The time from the call until the lock is held. For a latch: from the count-down until the last waiter returns.
    Wait,
}

/// The kind of lock that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Reentrant,
    Fair,
    Read,
    Write,
    /// Both halves of a read-write lock; the number is the percentage of acquires that read.
    Mix(u8),
    Fenced,
    Spin,
    Plain,
    /// A multi lock over this many names in one slot. Every other task lists them in reverse order.
    Multi(usize),
    /// A RedLock over this many servers.
    Red(usize),
    /// A striped lock with this many segments.
    Striped(usize),
    /// This many permits with leases.
    Permits(u32),
    /// A semaphore with this many permits, which have no leases.
    Semaphore(u32),
    /// Latches, see [`crate::latch`].
    Latch,
}

impl Kind {
    /// Returns the Java agent's word for this kind.
    pub const fn flavour(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Mix(_) => "mix",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::Plain => "plain",
            Self::Multi(_) => "multi",
            Self::Red(_) => "red",
            Self::Striped(_) => "striped",
            Self::Permits(_) => "permits",
            Self::Semaphore(_) => "semaphore",
            Self::Latch => "latch",
        }
    }

    /// Returns the number of permits that all tasks share, or 0.
    pub const fn permits(self) -> u32 {
        match self {
            Self::Permits(permits) | Self::Semaphore(permits) => permits,
            _ => 0,
        }
    }
}

/// Returns the names of a multi lock, all in one slot.
pub fn names(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{{{name}}}:{number}")).collect()
}

/// The plan of one measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub tasks: usize,
    pub kind: Kind,
    /// The lock's name. With `own`, the prefix of each task's name.
    pub name: String,
    /// Whether every task has its own name.
    pub own: bool,
    pub timed: Timed,
    pub hold: Duration,
    pub length: Duration,
}

/// The result of one measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time from the common start until the last task ended.
    pub seconds: f64,
    /// Number of pairs, for each task.
    pub counts: Vec<u64>,
    /// The measured times in ns, unordered. Empty if only `told` is known.
    pub times: Vec<u64>,
    /// Median, 99th percentile and longest time in µs, as another process computed them.
    pub told: Option<[f64; 3]>,
}

impl Sample {
    pub fn pairs(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn rate(&self) -> f64 {
        self.pairs() as f64 / self.seconds
    }

    /// Returns the median, the 99th percentile and the longest time, in µs.
    pub fn times_us(&mut self) -> [f64; 3] {
        if let Some(told) = self.told {
            return told;
        }
        self.times.sort_unstable();
        [0.5, 0.99, 1.0].map(|share| at(&self.times, share))
    }

    /// Returns the smallest and the largest share of a task, relative to an even share.
    pub fn shares(&self) -> (f64, f64) {
        let even = self.pairs() as f64 / self.counts.len() as f64;
        let least = self.counts.iter().min().copied().unwrap_or(0);
        let most = self.counts.iter().max().copied().unwrap_or(0);
        (least as f64 / even, most as f64 / even)
    }

    /// Merges the samples of several processes that ran at the same time.
    pub fn together(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        let pairs: u64 = parts.iter().map(Self::pairs).sum();
        let mut told = [0.0_f64; 3];
        for part in parts {
            all.seconds = all.seconds.max(part.seconds);
            if let Some(figures) = part.told {
                // Percentiles cannot be merged exactly. This is their mean, weighted by the number of pairs.
                let weight = part.pairs() as f64 / pairs as f64;
                told = [told[0] + figures[0] * weight, told[1] + figures[1] * weight, told[2].max(figures[2])];
                all.told = Some(told);
            }
            all.counts.extend(part.counts);
            all.times.extend(part.times);
        }
        all
    }
}

fn at(sorted: &[u64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).map_or(0.0, |nanos| *nanos as f64 / 1e3)
}

/// Runs the plan's tasks, all from the same moment on. A task starts no pair after the plan's length. A started pair
/// still counts, with its time.
pub async fn run<S: Subject>(subject: &S, plan: &Plan) -> Sample {
    let timer = Timer::start();
    let begin = Instant::now() + Duration::from_millis(5) + Duration::from_micros(10) * plan.tasks as u32;
    let end = begin + plan.length;
    let tasks: Vec<_> = (0..plan.tasks)
        .map(|number| {
            let name = if plan.own { format!("{}:{number}", plan.name) } else { plan.name.clone() };
            let mut lock = subject.lock(name);
            let (timer, timed, hold) = (timer.clone(), plan.timed, plan.hold);
            let mut times = Vec::with_capacity(1024);
            tokio::spawn(async move {
                tokio::time::sleep_until(begin.into()).await;
                loop {
                    let asked = Instant::now();
                    if asked >= end {
                        return times;
                    }
                    let guard = lock.acquire().await;
                    let waited = asked.elapsed();
                    if !hold.is_zero() {
                        timer.sleep(hold).await;
                    }
                    lock.release(guard).await;
                    let took = if timed == Timed::Wait { waited } else { asked.elapsed() };
                    times.push(took.as_nanos() as u64);
                }
            })
        })
        .collect();
    let mut sample = Sample::default();
    for task in tasks {
        let times = task.await.unwrap_or_else(|error| panic!("a measuring task failed: {error}"));
        sample.counts.push(times.len() as u64);
        sample.times.extend(times);
    }
    sample.seconds = begin.elapsed().as_secs_f64();
    sample
}
