//! The targets, and whether the measured rows meet them.

use crate::report::{Row, time};
use crate::subject::Who;

/// Minimum share of the raw commands' rate.
const OF_RAW: f64 = 0.9;
/// Time limit for a round of renewal of all held locks, in µs.
const ROUND_WITHIN: f64 = 2e6;
/// Limit of our own memory per held lock, in bytes.
const BYTES: f64 = 1024.0;

/// The fair lock. In this order: minimum ratio to Redisson's rate; maximum ratio to Redisson's median wait; maximum
/// number of scripts for an acquire and its release; maximum deviation from an even share; minimum share of the
/// reentrant lock's rate, without contention.
const FAIR_RATE: f64 = 1.8;
const FAIR_WAIT: f64 = 0.5;
const FAIR_SCRIPTS: f64 = 2.2;
const FAIR_SHARE: f64 = 0.1;
const FAIR_ALONE: f64 = 0.85;

/// Each half of the read-write lock without contention: minimum share of the reentrant lock's rate.
const RW_ALONE: f64 = 0.85;

/// The fenced and the spin lock without contention: minimum share of the reentrant lock's rate.
const SIMPLE_ALONE: f64 = 0.9;

/// Time limits of a multi lock over this many names, in µs.
const MULTI_1000: f64 = 1e5;
const MULTI_10000: f64 = 1e6;

/// A fleet. Maximum server time in ms per second while all clients wait, which is 5 % of a core. Maximum growth of
/// the cost of a script from few clients to many: for a fair lock in all, and for other locks per factor in the
/// number of clients.
const FLEET_IDLE: f64 = 50.0;
const FLEET_FAIR: f64 = 3.0;
const FLEET_LINEAR: f64 = 1.5;

/// A striped lock: minimum ratio to the rate of one lock.
const STRIPED: f64 = 3.0;

/// RedLock: maximum ratio of its median acquire time to that of a lock on one server, if the servers do not share
/// cores; minimum ratio of Redisson's median to ours.
const RED_OF_ONE: f64 = 1.5;
const RED_AHEAD: f64 = 3.0;

/// A target and its result, or another comparison worth knowing.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub passed: bool,
    pub target: bool,
    pub text: String,
}

impl Verdict {
    pub const fn missed(&self) -> bool {
        self.target && !self.passed
    }

    pub const fn word(&self) -> &'static str {
        match (self.passed, self.target) {
            (true, true) => "pass",
            (false, true) => "MISS",
            (true, false) => "     ahead",
            (false, false) => "     behind",
        }
    }
}

/// Judges the rows against the targets.
pub fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let mut all = Vec::new();
    let mut judge = |target: bool, passed: bool, row: &Row, text: String| {
        let tasks = if row.processes == 1 { row.tasks.to_string() } else { format!("{}x{}", row.processes, row.tasks) };
        all.push(Verdict { passed, target, text: format!("{} {tasks}: {text}", row.bench) });
    };
    for row in rows {
        let group = |ours: &&Row| (ours.bench, ours.processes, ours.tasks) == (row.bench, row.processes, row.tasks);
        let Some(ours) = rows.iter().filter(group).find(|ours| ours.subject == Who::Distlock) else { continue };
        let peer = row.subject.name();
        match (row.bench, row.subject) {
            ("held", Who::Distlock) => {
                judge(
                    true,
                    row.worst_us < ROUND_WITHIN,
                    row,
                    format!("slowest round of renewal {} (< 2 s)", time(row.worst_us)),
                );
                if let Some(held) = row.held {
                    let bytes = held.bytes_per_lock.max(held.bytes_per_lock_after_rounds);
                    judge(true, bytes < BYTES, row, format!("{bytes:.0} bytes a held lock (< {BYTES:.0})"));
                    let all = held.renewed_per_round == held.locks as u64;
                    judge(
                        true,
                        all,
                        row,
                        format!("{} of {} locks renewed in a round", held.renewed_per_round, held.locks),
                    );
                }
            }
            ("fair", Who::Distlock) if row.processes > 1 => {
                let scripts = row.scripts_per_op.unwrap_or(f64::INFINITY);
                judge(
                    true,
                    scripts <= FAIR_SCRIPTS,
                    row,
                    format!("{scripts:.2} EVALSHA an acquire (<= {FAIR_SCRIPTS})"),
                );
                let (least, most) = (row.share_min, row.share_max);
                let even = least >= 1.0 - FAIR_SHARE && most <= 1.0 + FAIR_SHARE;
                judge(true, even, row, format!("shares from {least:.2} to {most:.2} (within {FAIR_SHARE} of 1)"));
            }
            ("fair", Who::Reentrant) => {
                let ratio = row.distlock_ahead.unwrap_or(0.0);
                judge(
                    true,
                    ratio >= FAIR_ALONE,
                    row,
                    format!("{ratio:.3} of our {peer} lock's rate (>= {FAIR_ALONE})"),
                );
            }
            ("read" | "write", Who::Reentrant) => {
                let ratio = row.distlock_ahead.unwrap_or(0.0);
                judge(true, ratio >= RW_ALONE, row, format!("{ratio:.3} of our {peer} lock's rate (>= {RW_ALONE})"));
            }
            ("fenced" | "spin", Who::Reentrant) => {
                let ratio = row.distlock_ahead.unwrap_or(0.0);
                judge(
                    true,
                    ratio >= SIMPLE_ALONE,
                    row,
                    format!("{ratio:.3} of our {peer} lock's rate (>= {SIMPLE_ALONE})"),
                );
            }
            ("spin", Who::Redisson) if row.processes > 1 => {
                let ahead = row.distlock_ahead.unwrap_or(0.0);
                judge(true, ahead > 1.0, row, format!("{ahead:.2} of {peer}'s rate (> 1)"));
                let (our, its) = (ours.p50_us, row.p50_us);
                judge(false, our < its, row, format!("p50 wait {}, {peer} {}", time(our), time(its)));
                let (our, its) = (ours.worst_us, row.worst_us);
                judge(false, our < its, row, format!("worst wait {}, {peer} {}", time(our), time(its)));
                let (our, its) = (ours.commands_per_op, row.commands_per_op);
                judge(false, our < its, row, format!("{our:.2} commands a section, {peer} {its:.2}"));
            }
            ("multi 1000 names", Who::Distlock) => {
                let text = format!("p50 {} (< {})", time(row.p50_us), time(MULTI_1000));
                judge(true, row.p50_us < MULTI_1000, row, text);
            }
            ("multi 10000 names", Who::Distlock) => {
                let text = format!("p50 {} (< {})", time(row.p50_us), time(MULTI_10000));
                judge(true, row.p50_us < MULTI_10000, row, text);
            }
            ("multi 1000 names", Who::Redisson) => {
                let (our, its) = (time(ours.p50_us), time(row.p50_us));
                judge(true, ours.p50_us < row.p50_us, row, format!("p50 {our}, {peer} {its}"));
            }
            ("striped", Who::Reentrant) => {
                let ahead = row.distlock_ahead.unwrap_or(0.0);
                judge(true, ahead >= STRIPED, row, format!("{ahead:.2} of one lock's rate (>= {STRIPED})"));
            }
            (bench, Who::Reentrant) if bench.starts_with("red") => {
                // On one machine, all servers and their client share the cores.
                let far = bench.starts_with("red 1 ms");
                let ratio = 1.0 / row.distlock_ahead.unwrap_or(0.0);
                let text = format!("p50 {ratio:.2} of one server's (<= {RED_OF_ONE})");
                judge(far, ratio <= RED_OF_ONE, row, text);
                let (our, its) = (time(ours.p99_us), time(row.p99_us));
                judge(false, ours.p99_us < row.p99_us, row, format!("p99 {our}, one server's {its}"));
            }
            ("red" | "red 1 ms", Who::Redisson) => {
                let ahead = row.distlock_ahead.unwrap_or(0.0);
                // On one machine, a round trip costs less than the work of five servers.
                let text = format!("p50 goes {ahead:.2} times into {peer}'s (>= {RED_AHEAD})");
                judge(true, ahead >= RED_AHEAD, row, text);
            }
            ("rw 95/5" | "rw 50/50", Who::Redisson) => {
                let ahead = row.distlock_ahead.unwrap_or(0.0);
                judge(true, ahead > 1.0, row, format!("{ahead:.2} of {peer}'s rate (> 1)"));
                for (what, ours, its) in [
                    ("p50", ours.p50_us, row.p50_us),
                    ("p99", ours.p99_us, row.p99_us),
                    ("worst", ours.worst_us, row.worst_us),
                ] {
                    judge(false, ours < its, row, format!("{what} wait {}, {peer} {}", time(ours), time(its)));
                }
            }
            ("fair", Who::Redisson) => {
                let ahead = row.distlock_ahead.unwrap_or(0.0);
                judge(true, ahead >= FAIR_RATE, row, format!("{ahead:.2} of {peer}'s rate (>= {FAIR_RATE})"));
                let (our, its) = (time(ours.p50_us), time(row.p50_us));
                let ratio = ours.p50_us / row.p50_us;
                let text = format!("p50 {our}, {peer} {its}: {ratio:.2} of it (<= {FAIR_WAIT})");
                judge(true, ratio <= FAIR_WAIT, row, text);
                let (our, its) = (time(ours.worst_us), time(row.worst_us));
                judge(false, ours.worst_us < row.worst_us, row, format!("worst wait {our}, {peer} {its}"));
            }
            ("plain" | "plain, contended", Who::Reentrant) => {
                let ahead = row.distlock_ahead.unwrap_or(0.0);
                judge(row.bench == "plain", ahead > 1.0, row, format!("{ahead:.2} of our {peer} lock's rate (> 1)"));
            }
            (bench, Who::Distlock) if bench.starts_with("fleet") => {
                let Some(fleet) = row.fleet else { continue };
                let idle = fleet.idle_ms_per_s;
                judge(
                    true,
                    idle < FLEET_IDLE,
                    row,
                    format!("idle {idle:.1} ms of server time a second (< {FLEET_IDLE})"),
                );
                let smallest = rows.iter().find(|first| first.bench == bench && first.subject == Who::Distlock);
                let Some(smallest) = smallest.filter(|first| first.processes < row.processes) else { continue };
                // The cost per script, because a lock that is handed over inside a process costs the server nothing.
                let scripts = |row: &Row| row.scripts_per_op.unwrap_or(0.0);
                let cost = |row: &Row| row.server_cpu_us_per_op.unwrap_or(f64::INFINITY) / scripts(row);
                let (grew, more) = (cost(row) / cost(smallest), row.processes as f64 / smallest.processes as f64);
                // The message of a release goes to every client. With a fair lock it goes to one.
                let most = if bench == "fleet fair" { FLEET_FAIR } else { FLEET_LINEAR * more };
                let text = format!(
                    "a script costs the server {grew:.2} of what it does with {} clients (<= {most:.1})",
                    smallest.processes
                );
                judge(true, grew <= most, row, text);
            }
            ("fleet reentrant" | "fleet fair" | "fleet rw", _) => {
                let mib = |row: &Row| row.fleet.map_or(0.0, |fleet| fleet.mib_per_client);
                let (our, its) = (mib(ours), mib(row));
                judge(false, our < its, row, format!("{our:.1} MiB a client, {peer} {its:.1}"));
                let (our, its) = (ours.ops_per_s, row.ops_per_s);
                judge(false, our > its, row, format!("{our:.0} grants a second, {peer} {its:.0}"));
            }
            (_, Who::Distlock) => {}
            (_, Who::Direct) => {
                let over = 1.0 / row.distlock_ahead.unwrap_or(f64::INFINITY);
                judge(
                    true,
                    over > 1.0,
                    row,
                    format!("over connections of its own {over:.2} of the rate over fred's (> 1)"),
                );
                let peers = [Who::Raw, Who::Rslock, Who::Rlock, Who::Redsync, Who::Redlock, Who::RedisPy];
                let alike = rows.iter().filter(|peer| {
                    peers.contains(&peer.subject)
                        && (peer.bench, peer.processes, peer.tasks) == (row.bench, row.processes, row.tasks)
                });
                for peer in alike {
                    let (ahead, least) = (
                        peer.distlock_ahead.unwrap_or(0.0) * over,
                        if peer.subject == Who::Raw { OF_RAW } else { 1.0 },
                    );
                    judge(
                        true,
                        ahead > least,
                        row,
                        format!("over connections of its own {ahead:.2} of {}'s rate (> {least})", peer.subject.name()),
                    );
                }
            }
            ("held", Who::Raw) => {}
            ("held", _) => {
                if row.ops_per_s > 0.0 {
                    judge(
                        true,
                        ours.ops_per_s > row.ops_per_s,
                        row,
                        format!("{} renewals/s, {peer} {}", whole(ours), whole(row)),
                    );
                }
                if let (Some(our), Some(its)) = (ours.held, row.held) {
                    let (our, its) = (our.bytes_per_lock, its.bytes_per_lock);
                    // Redisson's figure is the heap in use, not the resident memory.
                    let alike = row.subject != Who::Redisson;
                    judge(alike, our < its, row, format!("{our:.0} bytes a lock, {peer} {its:.0}"));
                }
            }
            ("uncontended", Who::Raw) => {
                let ratio = row.distlock_ahead.unwrap_or(0.0);
                judge(true, ratio >= OF_RAW, row, format!("{ratio:.3} of the raw commands' rate (>= {OF_RAW})"));
            }
            (_, Who::Raw) => {}
            ("latency", _) => {
                for (what, ours, its) in [("p50", ours.p50_us, row.p50_us), ("p99", ours.p99_us, row.p99_us)] {
                    judge(true, ours < its, row, format!("{what} {}, {peer} {}", time(ours), time(its)));
                }
            }
            (bench, _) => {
                let ahead = row.distlock_ahead.unwrap_or(0.0);
                judge(true, ahead > 1.0, row, format!("{ahead:.2} of {peer}'s rate (> 1)"));
                if !matches!(bench, "uncontended" | "plain") && row.processes * row.tasks > 1 {
                    let (our, its) = (ours.worst_us, row.worst_us);
                    // Between processes, an unfair lock promises no order.
                    let target = bench.ends_with("contended");
                    judge(target, our < its, row, format!("worst wait {}, {peer} {}", time(our), time(its)));
                    let spread = |row: &Row| row.share_max - row.share_min;
                    let (our, its) = (spread(ours), spread(row));
                    judge(target, our < its, row, format!("spread of shares {our:.2}, {peer} {its:.2}"));
                }
            }
        }
    }
    all
}

fn whole(row: &Row) -> String {
    format!("{:.0}", row.ops_per_s)
}
