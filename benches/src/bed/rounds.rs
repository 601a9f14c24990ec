//! Rounds of measurements in which the subjects take turns, and the figures of each subject's median round.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Bed, Side};
use crate::cpu;
use crate::drive::{Kind, Plan, Sample};
use crate::report::Row;
use crate::subject::Who;

/// Time limit of a measurement, including its waits for the lock.
const SAMPLE_WITHIN: Duration = Duration::from_secs(120);

/// The figure by which a bench ranks its rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    Rate,
    Median,
}

/// The figures of one round of a subject.
struct Round {
    sample: Sample,
    commands: f64,
    scripts: f64,
    /// Processor time per pair in µs: of the clients, and of the server.
    cpu: (f64, f64),
}

impl Bed {
    /// Measures all sides in turn, round by round, after a warm-up round. Returns a row for each side: its median
    /// round.
    pub async fn rounds(
        &self,
        bench: &'static str,
        processes: usize,
        sides: &mut [(Who, Side)],
        plan: &Plan,
        rounds: usize,
        by: By,
    ) -> Vec<Row> {
        let mut found: HashMap<Who, Vec<Round>> = HashMap::new();
        for round in 0..=rounds {
            // Alternate the order, so that no side always runs before its neighbour.
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let (who, side) = &mut sides[index];
                let kind = if *who == Who::Reentrant { Kind::Reentrant } else { plan.kind };
                let mut plan = Plan { kind, name: format!("{bench}:{}", who.name()), ..plan.clone() };
                if round == 0 {
                    plan.length = (plan.length / 3).clamp(Duration::from_millis(100), Duration::from_millis(500));
                }
                let measured = self.measure(*who, side, &plan).await;
                if round > 0 {
                    assert!(measured.sample.pairs() > 0, "{}: nothing was measured in a round", plan.name);
                    found.entry(*who).or_default().push(measured);
                }
            }
        }
        let score_all = |rounds: &mut Vec<Round>| rounds.iter_mut().map(|round| score(&mut round.sample, by)).collect();
        let scores: HashMap<Who, Vec<f64>> = found.iter_mut().map(|(who, rounds)| (*who, score_all(rounds))).collect();
        let row = |(who, _): &(Who, Side)| {
            let (rounds, scores, ours) = (found.remove(who)?, &scores[who], scores.get(&Who::Distlock));
            Some(self.row((bench, processes, plan.tasks), *who, rounds, scores, ours))
        };
        sides.iter().filter_map(row).collect()
    }

    /// Measures a side once.
    async fn measure(&self, who: Who, side: &mut Side, plan: &Plan) -> Round {
        self.prepare(plan).await;
        let before = self.stats().await;
        let (pids, servers) = (side.pids(), self.servers());
        let (cpu, server_cpu) = (cpu::seconds_of(&pids), cpu::seconds_of(&servers));
        let sample = tokio::time::timeout(SAMPLE_WITHIN, side.run(plan)).await;
        let sample = sample.unwrap_or_else(|_| panic!("{}: does not end", plan.name));
        let used = (cpu::seconds_of(&pids) - cpu, cpu::seconds_of(&servers) - server_cpu);
        let after = self.stats().await;
        let pairs = sample.pairs() as f64;
        Round {
            commands: commands(who, plan.kind, &before, &after) as f64 / pairs,
            scripts: scripts(&before, &after) as f64 / pairs,
            cpu: (used.0 * 1e6 / pairs, used.1 * 1e6 / pairs),
            sample,
        }
    }

    /// Returns the figures of the median round, by the scores of the rounds. `ours`: the scores of distlock's rounds.
    fn row(
        &self,
        (bench, processes, tasks): (&'static str, usize, usize),
        who: Who,
        mut rounds: Vec<Round>,
        scores: &[f64],
        ours: Option<&Vec<f64>>,
    ) -> Row {
        let mut order: Vec<usize> = (0..rounds.len()).collect();
        order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        let distlock_ahead = ours.map(|ours| {
            let mut ratios: Vec<f64> = ours.iter().zip(scores).map(|(our, its)| our / its).collect();
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() / 2]
        });
        let Round { mut sample, commands, scripts, cpu } = rounds.swap_remove(order[order.len() / 2]);
        let [p50_us, p99_us, worst_us] = sample.times_us();
        let (share_min, share_max) = sample.shares();
        let pooled = matches!(who, Who::Distlock | Who::Direct | Who::Raw | Who::Reentrant);
        Row {
            bench,
            subject: who,
            processes,
            tasks,
            ops_per_s: sample.rate(),
            p50_us,
            p99_us,
            worst_us,
            share_min,
            share_max,
            commands_per_op: commands,
            scripts_per_op: Some(scripts),
            cpu_us_per_op: cpu.0,
            server_cpu_us_per_op: Some(cpu.1),
            pool: pooled.then_some(self.args.pool),
            distlock_ahead,
            held: None,
            fleet: None,
        }
    }
}

/// Scores a sample; a higher score is better.
fn score(sample: &mut Sample, by: By) -> f64 {
    match by {
        By::Rate => sample.rate(),
        By::Median => 1e6 / sample.times_us()[0].max(0.001),
    }
}

/// Returns the number of scripts that clients ran between two readings of the server's counters.
fn scripts(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    calls("eval") + calls("evalsha")
}

/// Returns the number of commands that clients sent between two readings of the server's counters. The counters
/// include the commands that scripts call, so a command that the subject calls only in scripts is left out.
pub fn commands(who: Who, kind: Kind, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    let messages = ["subscribe", "unsubscribe"].map(|name| ["", "s", "p"].map(|kind| format!("{kind}{name}")));
    let mut names = vec!["eval", "evalsha", "fcall", "script|load", "script|exists", "wait", "ping"];
    names.extend(messages.as_flattened().iter().map(String::as_str));
    let mut sum = 0;
    match who {
        // These acquire with a plain SET, and their scripts call no SET.
        Who::Rslock | Who::Rlock | Who::Redsync | Who::RedisPy => names.push("set"),
        // Redisson deletes its latch after each release. The release script itself calls DEL once and PUBLISH once.
        Who::Redisson => sum += calls("del").saturating_sub(calls("publish")),
        // Our scripts for semaphores and latches call SET.
        Who::Distlock | Who::Direct if matches!(kind, Kind::Permits(_) | Kind::Semaphore(_) | Kind::Latch) => {}
        // Our plain lock acquires with a plain SET too, except for waiters.
        Who::Distlock | Who::Direct if calls("set") > 0 => names.push("set"),
        Who::Distlock | Who::Direct | Who::Raw | Who::Reentrant | Who::Redlock | Who::DistributedLock => {}
    }
    sum + names.iter().map(|name| calls(name)).sum::<u64>()
}
