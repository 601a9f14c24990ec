//! The judge of one row: the limits of the targets, and a function for each group of benches.

use super::Verdict;
use crate::report::{Row, time};
use crate::subject::Who;

/// Minimum share of the raw commands' rate.
const OF_RAW: f64 = 0.9;
/// Time limit for a round of renewal of all held locks, in µs.
const ROUND_WITHIN: f64 = 2e6;
/// Limit of our own memory per held lock, in bytes.
const BYTES: f64 = 1024.0;

/// Fair lock: minimum ratio to Redisson's rate.
const FAIR_RATE: f64 = 1.8;
/// Fair lock: maximum ratio to Redisson's median wait.
const FAIR_WAIT: f64 = 0.5;
/// Fair lock: maximum number of scripts for an acquire and its release.
const FAIR_SCRIPTS: f64 = 2.2;
/// Fair lock: maximum deviation from an even share.
const FAIR_SHARE: f64 = 0.1;
/// Fair lock without contention: minimum share of the reentrant lock's rate.
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

/// Judges one row by comparison with our row of the same bench, processes and tasks.
pub struct Judge<'a> {
    pub rows: &'a [Row],
    pub row: &'a Row,
    pub ours: &'a Row,
    pub list: &'a mut Vec<Verdict>,
}

impl Judge<'_> {
    /// Adds the verdicts on the row. The first arm that matches decides.
    pub fn judge(&mut self) {
        match (self.row.bench, self.row.subject) {
            ("held", Who::Distlock) => self.judge_held(),
            ("fair", Who::Distlock) if self.row.processes > 1 => self.judge_fair(),
            ("fair", Who::Reentrant) => self.judge_share_of_reentrant(FAIR_ALONE),
            ("read" | "write", Who::Reentrant) => self.judge_share_of_reentrant(RW_ALONE),
            ("fenced" | "spin", Who::Reentrant) => self.judge_share_of_reentrant(SIMPLE_ALONE),
            ("spin", Who::Redisson) if self.row.processes > 1 => self.judge_spin_beside_redisson(),
            ("multi 1000 names", Who::Distlock) => self.judge_multi(MULTI_1000),
            ("multi 10000 names", Who::Distlock) => self.judge_multi(MULTI_10000),
            ("multi 1000 names", Who::Redisson) => self.judge_multi_beside_redisson(),
            ("striped", Who::Reentrant) => self.judge_striped_beside_one(),
            (bench, Who::Reentrant) if bench.starts_with("red") => self.judge_red_beside_one(),
            ("red" | "red 1 ms", Who::Redisson) => self.judge_red_beside_redisson(),
            ("rw 95/5" | "rw 50/50", Who::Redisson) => self.judge_rw_beside_redisson(),
            ("fair", Who::Redisson) => self.judge_fair_beside_redisson(),
            ("plain" | "plain, contended", Who::Reentrant) => self.judge_plain_beside_reentrant(),
            (bench, Who::Distlock) if bench.starts_with("fleet") => self.judge_fleet(),
            ("fleet reentrant" | "fleet fair" | "fleet rw", _) => self.judge_fleet_beside_peer(),
            (_, Who::Distlock) => {}
            (_, Who::Direct) => self.judge_own_connections(),
            ("held", Who::Raw) => {}
            ("held", _) => self.judge_held_beside_peer(),
            ("uncontended", Who::Raw) => self.judge_share_of_raw(),
            (_, Who::Raw) => {}
            ("latency" | "latch", _) => self.judge_latency_beside_peer(),
            _ => self.judge_rate_beside_peer(),
        }
    }

    /// Adds a verdict.
    fn add(&mut self, target: bool, passed: bool, text: String) {
        let row = self.row;
        let tasks = if row.processes == 1 { row.tasks.to_string() } else { format!("{}x{}", row.processes, row.tasks) };
        self.list.push(Verdict { passed, target, text: format!("{} {tasks}: {text}", row.bench) });
    }

    /// The ratio of distlock's figure to the row's, or 0.
    fn ahead(&self) -> f64 {
        self.row.distlock_ahead.unwrap_or(0.0)
    }

    /// The name of the row's subject.
    const fn peer(&self) -> &'static str {
        self.row.subject.name()
    }

    /// Judges the renewal and the memory of held locks.
    fn judge_held(&mut self) {
        let row = self.row;
        self.add(true, row.worst_us < ROUND_WITHIN, format!("slowest round of renewal {} (< 2 s)", time(row.worst_us)));
        if let Some(held) = row.held {
            let bytes = held.bytes_per_lock.max(held.bytes_per_lock_after_rounds);
            self.add(true, bytes < BYTES, format!("{bytes:.0} bytes a held lock (< {BYTES:.0})"));
            let all = held.renewed_per_round == held.locks as u64;
            self.add(true, all, format!("{} of {} locks renewed in a round", held.renewed_per_round, held.locks));
        }
    }

    /// Judges the renewal and the memory of held locks beside another library's.
    fn judge_held_beside_peer(&mut self) {
        let (row, ours, peer) = (self.row, self.ours, self.peer());
        if row.ops_per_s > 0.0 {
            let text = format!("{} renewals/s, {peer} {}", whole(ours), whole(row));
            self.add(true, ours.ops_per_s > row.ops_per_s, text);
        }
        if let (Some(our), Some(its)) = (ours.held, row.held) {
            let (our, its) = (our.bytes_per_lock, its.bytes_per_lock);
            // Redisson's figure is the heap in use, not the resident memory.
            let alike = row.subject != Who::Redisson;
            self.add(alike, our < its, format!("{our:.0} bytes a lock, {peer} {its:.0}"));
        }
    }

    /// Judges the scripts and the shares of a fair lock between processes.
    fn judge_fair(&mut self) {
        let row = self.row;
        let scripts = row.scripts_per_op.unwrap_or(f64::INFINITY);
        self.add(true, scripts <= FAIR_SCRIPTS, format!("{scripts:.2} EVALSHA an acquire (<= {FAIR_SCRIPTS})"));
        let (least, most) = (row.share_min, row.share_max);
        let even = least >= 1.0 - FAIR_SHARE && most <= 1.0 + FAIR_SHARE;
        self.add(true, even, format!("shares from {least:.2} to {most:.2} (within {FAIR_SHARE} of 1)"));
    }

    /// Judges the rate and the waits of a fair lock beside Redisson's.
    fn judge_fair_beside_redisson(&mut self) {
        let (row, ours, peer, ahead) = (self.row, self.ours, self.peer(), self.ahead());
        self.add(true, ahead >= FAIR_RATE, format!("{ahead:.2} of {peer}'s rate (>= {FAIR_RATE})"));
        let (our, its) = (time(ours.p50_us), time(row.p50_us));
        let ratio = ours.p50_us / row.p50_us;
        let text = format!("p50 {our}, {peer} {its}: {ratio:.2} of it (<= {FAIR_WAIT})");
        self.add(true, ratio <= FAIR_WAIT, text);
        let (our, its) = (time(ours.worst_us), time(row.worst_us));
        self.add(false, ours.worst_us < row.worst_us, format!("worst wait {our}, {peer} {its}"));
    }

    /// Judges a lock without contention by its share of our reentrant lock's rate.
    fn judge_share_of_reentrant(&mut self, least: f64) {
        let (ratio, peer) = (self.ahead(), self.peer());
        self.add(true, ratio >= least, format!("{ratio:.3} of our {peer} lock's rate (>= {least})"));
    }

    /// Judges a lock without contention by its share of the raw commands' rate.
    fn judge_share_of_raw(&mut self) {
        let ratio = self.ahead();
        self.add(true, ratio >= OF_RAW, format!("{ratio:.3} of the raw commands' rate (>= {OF_RAW})"));
    }

    /// Judges the rate, the waits and the commands of a spin lock beside Redisson's.
    fn judge_spin_beside_redisson(&mut self) {
        let (row, ours, peer, ahead) = (self.row, self.ours, self.peer(), self.ahead());
        self.add(true, ahead > 1.0, format!("{ahead:.2} of {peer}'s rate (> 1)"));
        let (our, its) = (ours.p50_us, row.p50_us);
        self.add(false, our < its, format!("p50 wait {}, {peer} {}", time(our), time(its)));
        let (our, its) = (ours.worst_us, row.worst_us);
        self.add(false, our < its, format!("worst wait {}, {peer} {}", time(our), time(its)));
        let (our, its) = (ours.commands_per_op, row.commands_per_op);
        self.add(false, our < its, format!("{our:.2} commands a section, {peer} {its:.2}"));
    }

    /// Judges the time of a multi lock over many names, in µs.
    fn judge_multi(&mut self, limit: f64) {
        let row = self.row;
        self.add(true, row.p50_us < limit, format!("p50 {} (< {})", time(row.p50_us), time(limit)));
    }

    /// Judges the time of a multi lock beside Redisson's.
    fn judge_multi_beside_redisson(&mut self) {
        let (row, ours, peer) = (self.row, self.ours, self.peer());
        let (our, its) = (time(ours.p50_us), time(row.p50_us));
        self.add(true, ours.p50_us < row.p50_us, format!("p50 {our}, {peer} {its}"));
    }

    /// Judges the rate of a striped lock beside that of one lock.
    fn judge_striped_beside_one(&mut self) {
        let ahead = self.ahead();
        self.add(true, ahead >= STRIPED, format!("{ahead:.2} of one lock's rate (>= {STRIPED})"));
    }

    /// Compares a RedLock with a lock on one server.
    fn judge_red_beside_one(&mut self) {
        let (row, ours) = (self.row, self.ours);
        // On one machine, all servers and their client share the cores.
        let far = row.bench.starts_with("red 1 ms");
        let ratio = 1.0 / self.ahead();
        self.add(far, ratio <= RED_OF_ONE, format!("p50 {ratio:.2} of one server's (<= {RED_OF_ONE})"));
        let (our, its) = (time(ours.p99_us), time(row.p99_us));
        self.add(false, ours.p99_us < row.p99_us, format!("p99 {our}, one server's {its}"));
    }

    /// Judges the time of a RedLock beside Redisson's.
    fn judge_red_beside_redisson(&mut self) {
        let (ahead, peer) = (self.ahead(), self.peer());
        // On one machine, a round trip costs less than the work of five servers.
        self.add(true, ahead >= RED_AHEAD, format!("p50 goes {ahead:.2} times into {peer}'s (>= {RED_AHEAD})"));
    }

    /// Judges the rate and the waits of a read-write lock beside Redisson's.
    fn judge_rw_beside_redisson(&mut self) {
        let (row, ours, peer, ahead) = (self.row, self.ours, self.peer(), self.ahead());
        self.add(true, ahead > 1.0, format!("{ahead:.2} of {peer}'s rate (> 1)"));
        for (what, ours, its) in
            [("p50", ours.p50_us, row.p50_us), ("p99", ours.p99_us, row.p99_us), ("worst", ours.worst_us, row.worst_us)]
        {
            self.add(false, ours < its, format!("{what} wait {}, {peer} {}", time(ours), time(its)));
        }
    }

    /// Judges the rate of a plain lock beside our reentrant lock's.
    fn judge_plain_beside_reentrant(&mut self) {
        let (ahead, peer) = (self.ahead(), self.peer());
        self.add(self.row.bench == "plain", ahead > 1.0, format!("{ahead:.2} of our {peer} lock's rate (> 1)"));
    }

    /// Judges what a fleet costs the server, idle and with more clients.
    fn judge_fleet(&mut self) {
        let row = self.row;
        let Some(fleet) = row.fleet else { return };
        let idle = fleet.idle_ms_per_s;
        self.add(true, idle < FLEET_IDLE, format!("idle {idle:.1} ms of server time a second (< {FLEET_IDLE})"));
        let smallest = self.rows.iter().find(|first| first.bench == row.bench && first.subject == Who::Distlock);
        let Some(smallest) = smallest.filter(|first| first.processes < row.processes) else { return };
        // The cost per script, because a lock that is handed over inside a process costs the server nothing.
        let scripts = |row: &Row| row.scripts_per_op.unwrap_or(0.0);
        let cost = |row: &Row| row.server_cpu_us_per_op.unwrap_or(f64::INFINITY) / scripts(row);
        let (grew, more) = (cost(row) / cost(smallest), row.processes as f64 / smallest.processes as f64);
        // A release sends its message to every client. A fair lock's release sends it to one client.
        let most = if row.bench == "fleet fair" { FLEET_FAIR } else { FLEET_LINEAR * more };
        let text = format!(
            "a script costs the server {grew:.2} of what it does with {} clients (<= {most:.1})",
            smallest.processes
        );
        self.add(true, grew <= most, text);
    }

    /// Judges the memory and the rate of a fleet beside another library's.
    fn judge_fleet_beside_peer(&mut self) {
        let (row, ours, peer) = (self.row, self.ours, self.peer());
        let mib = |row: &Row| row.fleet.map_or(0.0, |fleet| fleet.mib_per_client);
        let (our, its) = (mib(ours), mib(row));
        self.add(false, our < its, format!("{our:.1} MiB a client, {peer} {its:.1}"));
        let (our, its) = (ours.ops_per_s, row.ops_per_s);
        self.add(false, our > its, format!("{our:.0} grants a second, {peer} {its:.0}"));
    }

    /// Judges the rate over connections of its own, beside fred's and beside the peers.
    fn judge_own_connections(&mut self) {
        let (rows, row) = (self.rows, self.row);
        let over = 1.0 / row.distlock_ahead.unwrap_or(f64::INFINITY);
        self.add(true, over > 1.0, format!("over connections of its own {over:.2} of the rate over fred's (> 1)"));
        let peers = [Who::Raw, Who::Rslock, Who::Rlock, Who::Redsync, Who::Redlock, Who::RedisPy, Who::DistributedLock];
        let alike = rows.iter().filter(|peer| {
            peers.contains(&peer.subject)
                && (peer.bench, peer.processes, peer.tasks) == (row.bench, row.processes, row.tasks)
        });
        for peer in alike {
            let ahead = peer.distlock_ahead.unwrap_or(0.0) * over;
            let (least, name) = (if peer.subject == Who::Raw { OF_RAW } else { 1.0 }, peer.subject.name());
            let text = format!("over connections of its own {ahead:.2} of {name}'s rate (> {least})");
            self.add(true, ahead > least, text);
        }
    }

    /// Judges the latency beside another library's.
    fn judge_latency_beside_peer(&mut self) {
        let (row, ours, peer) = (self.row, self.ours, self.peer());
        for (what, ours, its) in [("p50", ours.p50_us, row.p50_us), ("p99", ours.p99_us, row.p99_us)] {
            self.add(true, ours < its, format!("{what} {}, {peer} {}", time(ours), time(its)));
        }
    }

    /// Judges the rate beside another library's, and with contention the waits and the shares.
    fn judge_rate_beside_peer(&mut self) {
        let (row, ours, peer, ahead) = (self.row, self.ours, self.peer(), self.ahead());
        self.add(true, ahead > 1.0, format!("{ahead:.2} of {peer}'s rate (> 1)"));
        if !matches!(row.bench, "uncontended" | "plain" | "permits" | "semaphore") && row.processes * row.tasks > 1 {
            let (our, its) = (ours.worst_us, row.worst_us);
            // Between processes, an unfair lock promises no order.
            let target = row.bench.ends_with("contended");
            self.add(target, our < its, format!("worst wait {}, {peer} {}", time(our), time(its)));
            let spread = |row: &Row| row.share_max - row.share_min;
            let (our, its) = (spread(ours), spread(row));
            self.add(target, our < its, format!("spread of shares {our:.2}, {peer} {its:.2}"));
        }
    }
}

fn whole(row: &Row) -> String {
    format!("{:.0}", row.ops_per_s)
}
