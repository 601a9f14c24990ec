//! One private server, its clients, and rounds of measurements in which the subjects take turns.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use distlock_support::peer::Peer;
use distlock_support::{Admin, RedisServer};
use serde_json::json;

use crate::args::Args;
use crate::benches::HOLD;
use crate::cpu;
use crate::drive::{Kind, Plan, Sample, Timed};
use crate::java::{Java, told};
use crate::report::Row;
use crate::subject::{Any, LEASE, Who};
use crate::worker::Worker;

/// Number of processes in the benches with several processes.
pub const PROCESSES: usize = 8;

/// Time limit of a measurement, including its waits for the lock.
const SAMPLE_WITHIN: Duration = Duration::from_secs(120);

/// A subject that is ready to be measured.
pub enum Side {
    /// A client in this process.
    Here(Any),
    /// Clients in separate processes.
    Apart(Vec<Worker>),
    /// Java processes.
    Java(Java),
    /// A process that runs a library of another language.
    Peer(Box<Peer>),
}

impl Side {
    async fn run(&mut self, plan: &Plan) -> Sample {
        match self {
            Self::Here(client) => client.run(plan).await,
            Self::Apart(workers) => Worker::run_all(workers, plan).await,
            Self::Java(java) => java.run(plan).await,
            Self::Peer(peer) => ask(peer, plan).await,
        }
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Self::Here(_) => vec![std::process::id()],
            Self::Apart(workers) => workers.iter().filter_map(Worker::pid).collect(),
            Self::Java(java) => java.0.iter().map(|agent| agent.pid()).collect(),
            Self::Peer(peer) => peer.pid().into_iter().collect(),
        }
    }

    async fn close(self) {
        match self {
            Self::Here(client) => client.close().await,
            Self::Apart(workers) => {
                for worker in workers {
                    worker.close().await;
                }
            }
            Self::Java(java) => java.close().await,
            Self::Peer(peer) => peer.end().await,
        }
    }
}

/// Measures pairs on separate names in a process of another language.
async fn ask(peer: &Peer, plan: &Plan) -> Sample {
    assert!(plan.own && plan.timed == Timed::Pair && plan.kind == Kind::Plain, "the agent cannot do that");
    let request = json!({
        "name": format!("{}:", plan.name),
        "tasks": plan.tasks,
        "seconds": plan.length.as_secs_f64(),
        "ttl_ms": LEASE.as_millis(),
    });
    told(&peer.call("bench", request).await)
}

pub type Sides = Vec<(Who, Side)>;

/// The servers and everything that observes them.
pub struct Bed {
    pub args: Args,
    pub server: RedisServer,
    pub admin: Admin,
    /// Further servers, for a lock over several servers.
    pub others: Vec<(RedisServer, Admin)>,
    /// The number of servers at the end of `others` that are down.
    pub away: usize,
    /// The URLs for clients: of the servers, or of lines to them.
    pub urls: Vec<String>,
    /// Number of processes in the benches with several processes.
    pub processes: usize,
}

/// The results of a subject's rounds.
#[derive(Default)]
struct Rounds {
    samples: Vec<Sample>,
    commands: Vec<f64>,
    scripts: Vec<f64>,
    /// Processor time per pair in µs: of the clients, and of the server.
    cpu: Vec<(f64, f64)>,
}

/// The figure by which a bench ranks its rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    Rate,
    Median,
}

impl Bed {
    pub async fn new(args: Args) -> Self {
        let server = RedisServer::start();
        let admin = Admin::connect(&server).await;
        let urls = vec![server.url()];
        Self { args, server, admin, others: Vec::new(), away: 0, urls, processes: PROCESSES }
    }

    /// Starts several independent servers.
    pub async fn over(args: Args, servers: usize, processes: usize) -> Self {
        let mut bed = Self { processes, ..Self::new(args).await };
        for _ in 1..servers {
            let server = RedisServer::start();
            let admin = Admin::connect(&server).await;
            bed.urls.push(server.url());
            bed.others.push((server, admin));
        }
        bed
    }

    /// Returns the URLs for clients, with commas between.
    pub fn url(&self) -> String {
        self.urls.join(",")
    }

    /// Returns the number of calls of each command, summed over the servers that are up.
    async fn stats(&self) -> BTreeMap<String, u64> {
        let mut sum = self.admin.commandstats().await;
        for (_, admin) in &self.others[..self.others.len() - self.away] {
            for (name, calls) in admin.commandstats().await {
                *sum.entry(name).or_default() += calls;
            }
        }
        sum
    }

    /// Returns the process ids of the servers that are up.
    fn servers(&self) -> Vec<u32> {
        let others = self.others[..self.others.len() - self.away].iter().map(|(server, _)| server.pid());
        std::iter::once(self.server.pid()).chain(others).collect()
    }

    /// Connects all requested subjects in this process; Redisson has its own process.
    pub async fn sides(&self) -> Sides {
        let subjects: Vec<Who> = self.args.subjects.iter().copied().filter(|who| who.peer().is_none()).collect();
        self.here(&subjects, &[Kind::Reentrant]).await
    }

    /// Connects these subjects in separate processes, for benches of these kinds of lock.
    pub async fn apart(&self, subjects: &[Who], kinds: &[Kind]) -> Sides {
        let (url, quick) = (self.url(), self.args.quick);
        let mut sides = Sides::new();
        for &who in subjects {
            let side = if who == Who::Redisson {
                // In a quick run, eight just-in-time compilers would leave no processor time to measure.
                let java = Java::start(self.processes, &url, 256, !quick).await;
                for &kind in kinds {
                    java.warm_up(kind, Duration::from_millis(if quick { 600 } else { 10_000 })).await;
                }
                Side::Java(java)
            } else {
                let starts = (0..self.processes).map(|_| Worker::start(who, &url, self.args.pool));
                Side::Apart(futures::future::join_all(starts).await)
            };
            sides.push((who, side));
        }
        sides
    }

    /// Measures lock and unlock of one task without contention, for each bench. Compares with a reentrant lock of an
    /// equal client.
    pub async fn alone(&self, benches: &[(&'static str, Kind)]) -> Vec<Row> {
        let mut sides = self.here(&[Who::Distlock, Who::Reentrant], &[]).await;
        let rows = self.pairs(benches, &mut sides).await;
        self.close(sides).await;
        rows
    }

    /// Connects these subjects in this process. Redisson has its own process, which warms up with these kinds of
    /// lock.
    pub async fn here(&self, subjects: &[Who], kinds: &[Kind]) -> Sides {
        let mut sides = Sides::new();
        for &who in subjects {
            let side = if who == Who::Redisson {
                let java = Java::start(1, &self.url(), 1024, true).await;
                for &kind in kinds {
                    java.warm_up(kind, Duration::from_secs(if self.args.quick { 2 } else { 4 })).await;
                }
                Side::Java(java)
            } else if let Some(library) = who.peer() {
                if !library.is_here() {
                    continue;
                }
                Side::Peer(Box::new(Peer::start(library, &self.urls).await))
            } else {
                Side::Here(Any::connect(who, &self.url(), self.args.pool).await)
            };
            sides.push((who, side));
        }
        sides
    }

    /// Measures lock and unlock of one task without contention, for each bench.
    pub async fn pairs(&self, benches: &[(&'static str, Kind)], sides: &mut Sides) -> Vec<Row> {
        let (rounds, length) = if self.args.quick { (5, 150) } else { (13, 350) };
        let mut rows = Vec::new();
        for &(bench, kind) in benches {
            let plan = Plan {
                tasks: 1,
                kind,
                name: String::new(),
                own: true,
                timed: Timed::Pair,
                hold: Duration::ZERO,
                length: Duration::from_millis(length),
            };
            rows.extend(self.rounds(bench, 1, sides, &plan, rounds, By::Rate).await);
        }
        rows
    }

    /// Measures the time from the call until the lock is held, for one task without contention.
    pub async fn waits(
        &self,
        bench: &'static str,
        kind: Kind,
        sides: &mut Sides,
        (rounds, length): (usize, Duration),
    ) -> Vec<Row> {
        let timed = Timed::Wait;
        let plan = Plan { tasks: 1, kind, name: String::new(), own: false, timed, hold: Duration::ZERO, length };
        self.rounds(bench, 1, sides, &plan, rounds, By::Median).await
    }

    /// Measures many processes on one name, for the subjects in `with`. Each bench has a name, a number of tasks per
    /// process, and a kind of lock.
    pub async fn together(
        &self,
        sides: &mut Sides,
        with: &[Who],
        benches: &[(&'static str, usize, Kind)],
        (rounds, length): (usize, Duration),
    ) -> Vec<Row> {
        let (mut ours, others): (Sides, Sides) =
            std::mem::take(sides).into_iter().partition(|(who, _)| with.contains(who));
        let mut rows = Vec::new();
        for &(bench, tasks, kind) in benches {
            let plan = Plan { tasks, kind, name: String::new(), own: false, timed: Timed::Wait, hold: HOLD, length };
            rows.extend(self.rounds(bench, self.processes, &mut ours, &plan, rounds, By::Rate).await);
        }
        sides.extend(ours);
        sides.extend(others);
        rows
    }

    pub async fn close(&self, sides: Sides) {
        for (_, side) in sides {
            side.close().await;
        }
    }

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
        let mut found: HashMap<Who, Rounds> = HashMap::new();
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
                let before = self.stats().await;
                let (pids, servers) = (side.pids(), self.servers());
                let (cpu, server_cpu) = (cpu::seconds_of(&pids), cpu::seconds_of(&servers));
                let sample = tokio::time::timeout(SAMPLE_WITHIN, side.run(&plan)).await;
                let sample = sample.unwrap_or_else(|_| panic!("{bench}: {} does not end", who.name()));
                let used = (cpu::seconds_of(&pids) - cpu, cpu::seconds_of(&servers) - server_cpu);
                let after = self.stats().await;
                if round > 0 {
                    let rounds = found.entry(*who).or_default();
                    let pairs = sample.pairs() as f64;
                    rounds.commands.push(commands(*who, &before, &after) as f64 / pairs);
                    rounds.scripts.push(scripts(&before, &after) as f64 / pairs);
                    rounds.cpu.push((used.0 * 1e6 / pairs, used.1 * 1e6 / pairs));
                    rounds.samples.push(sample);
                }
            }
        }
        let level = plan.tasks;
        let scores: HashMap<Who, Vec<f64>> = found
            .iter_mut()
            .map(|(who, rounds)| (*who, rounds.samples.iter_mut().map(|sample| score(sample, by)).collect()))
            .collect();
        let ours = scores.get(&Who::Distlock);
        let mut rows = Vec::new();
        for (who, _) in sides.iter() {
            let Some(mut rounds) = found.remove(who) else { continue };
            let mut order: Vec<usize> = (0..rounds.samples.len()).collect();
            order.sort_by(|a, b| scores[who][*a].total_cmp(&scores[who][*b]));
            let median = order[order.len() / 2];
            let ahead = ours.map(|ours| {
                let mut ratios: Vec<f64> = ours.iter().zip(&scores[who]).map(|(our, its)| our / its).collect();
                ratios.sort_by(f64::total_cmp);
                ratios[ratios.len() / 2]
            });
            let (commands_per_op, cpu) = (rounds.commands[median], rounds.cpu[median]);
            let sample = &mut rounds.samples[median];
            let [p50_us, p99_us, worst_us] = sample.times_us();
            let (share_min, share_max) = sample.shares();
            let pooled = matches!(who, Who::Distlock | Who::Direct | Who::Raw | Who::Reentrant);
            rows.push(Row {
                bench,
                subject: *who,
                processes,
                tasks: level,
                ops_per_s: sample.rate(),
                p50_us,
                p99_us,
                worst_us,
                share_min,
                share_max,
                commands_per_op,
                scripts_per_op: Some(rounds.scripts[median]),
                cpu_us_per_op: cpu.0,
                server_cpu_us_per_op: Some(cpu.1),
                pool: pooled.then_some(self.args.pool),
                distlock_ahead: ahead,
                held: None,
                fleet: None,
            });
        }
        rows
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
pub fn commands(who: Who, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    let mut names = vec![
        "eval",
        "evalsha",
        "fcall",
        "subscribe",
        "unsubscribe",
        "ssubscribe",
        "sunsubscribe",
        "psubscribe",
        "punsubscribe",
        "script|load",
        "script|exists",
        "wait",
        "ping",
    ];
    let mut sum = 0;
    match who {
        // These acquire with a plain SET, and their scripts call no SET.
        Who::Rslock | Who::Rlock | Who::Redsync | Who::RedisPy => names.push("set"),
        // Redisson deletes its latch after each release. The release script itself calls DEL once and PUBLISH once.
        Who::Redisson => sum += calls("del").saturating_sub(calls("publish")),
        // Our plain lock acquires with a plain SET too, except for waiters.
        Who::Distlock | Who::Direct if calls("set") > 0 => names.push("set"),
        Who::Distlock | Who::Direct | Who::Raw | Who::Reentrant | Who::Redlock => {}
    }
    sum + names.iter().map(|name| calls(name)).sum::<u64>()
}
