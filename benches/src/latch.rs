//! Latches, compared with Redisson's: the time from the count-down to zero until the last of many waiters returns.
//!
//! In a round, all waiters of all processes wait for one latch after the other. One process counts the latches down, at
//! equal intervals that are long enough for all waiters to wait again. All processes share the clock of the machine,
//! which Java has as `System.nanoTime()`.

use std::time::Duration;

use distlock::Latch;
use distlock_support::agent::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, By, Side};
use crate::drive::{Kind, Plan, Sample, Timed};
use crate::fair::WITH;
use crate::report::Row;
use crate::subject::{Any, Who};
use crate::worker::Worker;

const PROCESSES: usize = 5;
/// Waiters of each process.
pub const WAITERS: usize = 20;

/// Time for the processes to receive their work.
const LEAD: Duration = Duration::from_millis(200);
/// Time between two count-downs.
const PERIOD: Duration = Duration::from_millis(100);
/// A latch counts only if every waiter had called at least this long before the count-down.
const SETTLED: Duration = Duration::from_millis(20);

/// The work of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    /// The latches are `<name>:0` and up.
    name: String,
    latches: usize,
    waiters: usize,
    begin_ns: u64,
    period_ns: u64,
    counts_down: bool,
}

/// Observations of a process, one for each latch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// When the last of its waiters called.
    called: Vec<u64>,
    /// When the last of its waiters went on.
    went_on: Vec<u64>,
    /// When it counted down; empty if it does not.
    downs: Vec<u64>,
}

/// Five processes with 20 waiters each.
pub async fn opened(bed: &Bed) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (3, 1000) } else { (5, 4000) };
    let five = Bed::over(bed.args.clone(), 1, PROCESSES).await;
    let subjects: Vec<Who> = WITH.into_iter().filter(|who| bed.args.subjects.contains(who)).collect();
    let mut sides = five.apart(&subjects, &[Kind::Latch]).await;
    let plan = Plan {
        tasks: WAITERS,
        kind: Kind::Latch,
        name: String::new(),
        own: false,
        timed: Timed::Wait,
        hold: Duration::ZERO,
        length: Duration::from_millis(length),
    };
    let rows = five.rounds("latch", PROCESSES, &mut sides, &plan, rounds, By::Median).await;
    five.close(sides).await;
    rows
}

/// Returns the number of latches of a plan.
fn count(plan: &Plan) -> usize {
    (plan.length.as_nanos() / PERIOD.as_nanos()).max(1) as usize
}

/// Returns the names of a plan's latches.
pub fn names(plan: &Plan) -> Vec<String> {
    (0..count(plan)).map(|number| name(&plan.name, number)).collect()
}

fn name(prefix: &str, number: usize) -> String {
    format!("{prefix}:{number}")
}

/// Measures the processes of a side once. The latches have been set.
pub async fn run(side: &mut Side, plan: &Plan) -> Sample {
    let begin_ns = monotonic_ns() + LEAD.as_nanos() as u64;
    let work = |process: usize| Work {
        name: plan.name.clone(),
        latches: count(plan),
        waiters: plan.tasks,
        begin_ns,
        period_ns: PERIOD.as_nanos() as u64,
        counts_down: process == 0,
    };
    let seen = match side {
        Side::Apart(workers) => Worker::watch_all(workers, work).await,
        Side::Java(java) => java.watch(work).await,
        Side::Here(_) | Side::Peer(_) => panic!("latches are measured between processes"),
    };
    let times = times(&seen);
    // The pauses between the latches do not count.
    let seconds = times.iter().sum::<u64>() as f64 / 1e9;
    Sample { seconds, counts: vec![times.len() as u64], times, told: None }
}

/// Returns the time of each latch that all waiters waited for.
fn times(seen: &[Seen]) -> Vec<u64> {
    let downs = seen.iter().flat_map(|part| &part.downs);
    let mut times = Vec::new();
    for (latch, &down) in downs.enumerate() {
        let (called, went_on) = (last(seen, latch, |part| &part.called), last(seen, latch, |part| &part.went_on));
        assert!(went_on > down, "latch {latch} was open before the count-down");
        if called + SETTLED.as_nanos() as u64 <= down {
            times.push(went_on - down);
        }
    }
    times
}

/// Returns the latest of these times of a latch.
fn last(seen: &[Seen], latch: usize, of: fn(&Seen) -> &[u64]) -> u64 {
    seen.iter().map(|part| of(part)[latch]).max().unwrap_or(0)
}

/// Does the work of this process.
pub async fn watch(client: &Any, work: &Work) -> Seen {
    let Any::Distlock(client) = client else { panic!("only distlock and Redisson have latches") };
    let latches: Vec<Latch> = (0..work.latches).map(|number| client.latch(&name(&work.name, number))).collect();
    let wait = |_: usize| tokio::spawn(wait_for_all(latches.clone(), work.begin_ns));
    let waiters: Vec<_> = (0..work.waiters).map(wait).collect();
    let mut seen = Seen { called: vec![0; latches.len()], went_on: vec![0; latches.len()], downs: Vec::new() };
    if work.counts_down {
        for (number, latch) in (1..).zip(&latches) {
            sleep_until(work.begin_ns + number * work.period_ns).await;
            seen.downs.push(monotonic_ns());
            let left = latch.count_down(1).await.unwrap_or_else(|error| panic!("distlock: count down: {error}"));
            assert_eq!(left, 0, "a count of 1 is down at once");
        }
    }
    for waiter in waiters {
        let times = waiter.await.unwrap_or_else(|error| panic!("a waiting task failed: {error}"));
        for (latch, (called, went_on)) in times.into_iter().enumerate() {
            seen.called[latch] = seen.called[latch].max(called);
            seen.went_on[latch] = seen.went_on[latch].max(went_on);
        }
    }
    seen
}

/// Waits for one latch after the other. Returns the times of each call and of its return.
async fn wait_for_all(latches: Vec<Latch>, begin_ns: u64) -> Vec<(u64, u64)> {
    let mut times = Vec::with_capacity(latches.len());
    sleep_until(begin_ns).await;
    for latch in &latches {
        let called = monotonic_ns();
        latch.wait().await.unwrap_or_else(|error| panic!("distlock: wait for a latch: {error}"));
        times.push((called, monotonic_ns()));
    }
    times
}

async fn sleep_until(ns: u64) {
    tokio::time::sleep(Duration::from_nanos(ns.saturating_sub(monotonic_ns()))).await;
}
