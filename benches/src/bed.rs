//! One private server, its clients, and their measurements.

mod rounds;

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_support::peer::Peer;
use distlock_support::{Admin, RedisServer};
use serde_json::json;

use crate::args::Args;
use crate::benches::HOLD;
use crate::drive::{Kind, Plan, Sample, Timed};
use crate::java::{self, Java, told};
use crate::latch;
use crate::report::Row;
use crate::subject::{Any, LEASE, Who};
use crate::worker::Worker;
pub use rounds::{By, commands};

/// Number of processes in the benches with several processes.
pub const PROCESSES: usize = 8;

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
        if plan.kind == Kind::Latch {
            return latch::run(self, plan).await;
        }
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
    /// The URLs for clients: the servers, or lines ([`crate::line`]) to the servers.
    pub urls: Vec<String>,
    /// Number of processes in the benches with several processes.
    pub processes: usize,
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
        let subjects: Vec<Who> = self.args.subjects.iter().copied().filter(|who| who.has_locks()).collect();
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
                self.warmed_up(java, kinds, Duration::from_millis(if quick { 600 } else { 10_000 })).await
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
                self.warmed_up(java, kinds, Duration::from_secs(if self.args.quick { 2 } else { 4 })).await
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

    /// Runs the code for these kinds of lock until the just-in-time compiler has seen it.
    async fn warmed_up(&self, java: Java, kinds: &[Kind], length: Duration) -> Side {
        let mut side = Side::Java(java);
        for plan in kinds.iter().flat_map(|kind| java::warm_ups(*kind, length)) {
            self.prepare(&plan).await;
            side.run(&plan).await;
        }
        side
    }

    /// Writes the numbers that the plan's permits or latches start with, as all libraries store them.
    async fn prepare(&self, plan: &Plan) {
        let (number, names) = match plan.kind {
            Kind::Permits(permits) | Kind::Semaphore(permits) => (permits, vec![plan.name.clone()]),
            Kind::Latch => (1, latch::names(plan)),
            _ => return,
        };
        let number = number.to_string();
        let pairs = names.iter().flat_map(|name| [name.as_str(), number.as_str()]);
        let words: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
        self.admin.cmd::<()>(&words).await;
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
            // Permits are returned at once, so that only their hand-over is measured.
            let hold = if kind.permits() > 0 { Duration::ZERO } else { HOLD };
            let plan = Plan { tasks, kind, name: String::new(), own: false, timed: Timed::Wait, hold, length };
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
}
