//! The basic benches.

use std::time::{Duration, Instant};

use distlock_support::agent::{Agent, AgentOptions};

use crate::bed::{Bed, By, Sides, commands};
use crate::cpu;
use crate::drive::{Kind, Plan, Timed};
use crate::report::{HeldFigures, Row};
use crate::subject::Who;
use crate::worker::Worker;

/// Time for which a contended lock is held.
pub const HOLD: Duration = Duration::from_millis(1);
const HELD: usize = 100_000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lock and unlock. Every task has its own name.
pub async fn uncontended(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (5, ms(150)) } else { (13, ms(350)) };
    let mut rows = Vec::new();
    let is_here = sides.iter().any(|(who, _)| *who == Who::Distlock);
    if is_here {
        sides.extend(bed.here(&[Who::Direct], &[]).await);
    }
    for tasks in [1, 64, 1024] {
        let plan = Plan {
            tasks,
            kind: Kind::Reentrant,
            name: String::new(),
            own: true,
            timed: Timed::Pair,
            hold: Duration::ZERO,
            length,
        };
        rows.extend(bed.rounds("uncontended", 1, sides, &plan, rounds, By::Rate).await);
    }
    let (direct, others): (Sides, Sides) = std::mem::take(sides).into_iter().partition(|(who, _)| *who == Who::Direct);
    *sides = others;
    bed.close(direct).await;
    rows
}

/// Time from the call until the lock is held, for one task.
pub async fn latency(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (5, ms(100)) } else { (13, ms(300)) };
    let plan = Plan {
        tasks: 1,
        kind: Kind::Reentrant,
        name: String::new(),
        own: false,
        timed: Timed::Wait,
        hold: Duration::ZERO,
        length,
    };
    bed.rounds("latency", 1, sides, &plan, rounds, By::Median).await
}

/// Eight tasks of one process on one name.
pub async fn contended(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, ms(1200)) } else { (5, ms(3000)) };
    let plan = Plan {
        tasks: 8,
        kind: Kind::Reentrant,
        name: String::new(),
        own: false,
        timed: Timed::Wait,
        hold: HOLD,
        length,
    };
    let (raw, mut others): (Sides, Sides) = std::mem::take(sides).into_iter().partition(|(who, _)| *who == Who::Raw);
    let rows = bed.rounds("contended", 1, &mut others, &plan, rounds, By::Rate).await;
    sides.extend(raw);
    sides.extend(others);
    rows
}

/// Eight processes on one name.
pub async fn processes(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let extent = if bed.args.quick { (1, ms(1200)) } else { (3, ms(4000)) };
    let benches = [1, 8].map(|tasks| ("processes", tasks, Kind::Reentrant));
    let mut with: Vec<Who> = Who::ALL.into_iter().filter(|who| who.has_locks()).collect();
    if sides.iter().any(|(who, _)| *who == Who::Distlock) {
        with.push(Who::Direct);
        sides.extend(bed.apart(&[Who::Direct], &[]).await);
    }
    let rows = bed.together(sides, &with, &benches, extent).await;
    let (direct, others): (Sides, Sides) = std::mem::take(sides).into_iter().partition(|(who, _)| *who == Who::Direct);
    *sides = others;
    bed.close(direct).await;
    rows
}

/// Many locks held at once. Each client is a new process, so that all its memory counts.
pub async fn held(bed: &Bed) -> Vec<Row> {
    let mut rows = Vec::new();
    for &who in &bed.args.subjects {
        match who {
            Who::Distlock => rows.push(held_apart(bed, who).await),
            _ if bed.args.quick => {}
            Who::Raw | Who::Rlock => rows.push(held_apart(bed, who).await),
            Who::Redisson => rows.push(held_java(bed).await),
            // These do not renew a lock.
            Who::Rslock | Who::Redsync | Who::Redlock | Who::RedisPy => {}
            Who::DistributedLock | Who::Reentrant | Who::Direct => {}
        }
    }
    let ours = rows.iter().find(|row| row.subject == Who::Distlock).map(|row| row.ops_per_s);
    for row in &mut rows {
        row.distlock_ahead = ours.filter(|_| row.ops_per_s > 0.0).map(|ours| ours / row.ops_per_s);
    }
    rows
}

async fn held_apart(bed: &Bed, who: Who) -> Row {
    let mut worker = Worker::start(who, &bed.server.url(), bed.args.pool).await;
    let taken = worker.hold(HELD).await;
    let mut rounds = Vec::new();
    let mut sent = Vec::new();
    // rlock has one task per lock, and no rounds.
    let wanted = match who {
        Who::Rlock => 0,
        _ if bed.args.quick => 3,
        _ => 7,
    };
    for _ in 0..wanted {
        let before = bed.admin.commandstats().await;
        let round = worker.round().await;
        sent.push(commands(who, Kind::Reentrant, &before, &bed.admin.commandstats().await) as f64 / HELD as f64);
        rounds.push(round);
    }
    let after = rounds.last().map_or(taken.after, |round| round.after);
    let renewed = rounds.iter().map(|round| round.renewed).min().unwrap_or(0);
    let times: Vec<f64> = rounds.iter().map(|round| round.seconds * 1e6).collect();
    let cpu = rounds.iter().map(|round| round.cpu_seconds * 1e6).collect();
    if who == Who::Distlock {
        worker.close().await;
        assert_eq!(bed.admin.cmd::<u64>(&["DBSIZE"]).await, 0, "a client that was shut down holds nothing");
    } else {
        drop(worker);
        bed.admin.cmd::<()>(&["FLUSHALL"]).await;
    }
    let figures = HeldFigures {
        locks: HELD,
        acquired_per_s: HELD as f64 / taken.seconds,
        renewed_per_round: renewed,
        cpu_us_per_round: median(cpu),
        bytes_per_lock: taken.after.saturating_sub(taken.before) as f64 / HELD as f64,
        bytes_per_lock_after_rounds: after.saturating_sub(taken.before) as f64 / HELD as f64,
    };
    held_row(bed, who, times, median(sent), figures)
}

/// Redisson decides by itself when it renews. Its round is observed at the server, from the first command to the
/// last.
async fn held_java(bed: &Bed) -> Row {
    let options = AgentOptions { full_speed: true, heap_mb: 1024, ..AgentOptions::default() };
    let agent = Agent::start(&bed.server.url(), options).await;
    let fine = |result: distlock_support::agent::CallResult| result.unwrap_or_else(|error| panic!("redisson: {error}"));
    fine(agent.hold_many("once:", 100, 1).await);
    // These locks stay held: a Redisson client that held nothing for a moment renews twice as often from then on.
    let empty = agent.mem().await;
    let began = Instant::now();
    fine(agent.hold_many("held:", HELD as u64, 1).await);
    let acquired_per_s = HELD as f64 / began.elapsed().as_secs_f64();
    let full = agent.mem().await;

    let mut rounds = Vec::new();
    for _ in 0..3 {
        rounds.extend(watch_round(bed, agent.pid()).await);
    }
    let times = rounds.iter().map(|round| round.seconds * 1e6).collect();
    let cpu = rounds.iter().map(|round| round.cpu_seconds * 1e6).collect();
    let after = agent.mem().await;
    fine(agent.release_many("held:", HELD as u64, 1).await);
    agent.close().await;
    let sent = rounds.iter().map(|round| round.commands as f64 / round.renewed as f64).collect();
    let per_lock = |bytes: u64| bytes.saturating_sub(empty) as f64 / HELD as f64;
    let figures = HeldFigures {
        locks: HELD,
        acquired_per_s,
        renewed_per_round: rounds.iter().map(|round| round.renewed).min().unwrap_or(0),
        cpu_us_per_round: median(cpu),
        bytes_per_lock: per_lock(full),
        bytes_per_lock_after_rounds: per_lock(after),
    };
    held_row(bed, Who::Redisson, times, median(sent), figures)
}

fn held_row(bed: &Bed, who: Who, mut times: Vec<f64>, commands_per_op: f64, figures: HeldFigures) -> Row {
    times.sort_by(f64::total_cmp);
    let middle = median(times.clone());
    let worst = times.last().copied().unwrap_or(0.0);
    Row {
        bench: "held",
        subject: who,
        processes: 1,
        tasks: figures.locks,
        ops_per_s: if middle > 0.0 { figures.renewed_per_round as f64 / (middle / 1e6) } else { 0.0 },
        p50_us: middle,
        p99_us: worst,
        worst_us: worst,
        share_min: 1.0,
        share_max: 1.0,
        commands_per_op,
        scripts_per_op: None,
        cpu_us_per_op: figures.cpu_us_per_round / figures.renewed_per_round.max(1) as f64,
        server_cpu_us_per_op: None,
        pool: matches!(who, Who::Distlock | Who::Raw).then_some(bed.args.pool),
        distlock_ahead: None,
        held: Some(figures),
        fleet: None,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// A round of Redisson's renewal, as observed at the server.
struct Seen {
    seconds: f64,
    cpu_seconds: f64,
    renewed: u64,
    commands: u64,
}

/// Waits for the beginning and the end of the next round.
async fn watch_round(bed: &Bed, pid: u32) -> Option<Seen> {
    const QUIET: Duration = Duration::from_millis(400);
    const GIVE_UP: Duration = Duration::from_secs(25);
    let mut stats = bed.admin.commandstats().await;
    let start = Instant::now();
    let (mut changed, mut first) = (start, None);
    while start.elapsed() < GIVE_UP {
        tokio::time::sleep(ms(5)).await;
        let now = bed.admin.commandstats().await;
        let calls = |name: &str| now.get(name).unwrap_or(&0) - stats.get(name).unwrap_or(&0);
        if calls("pexpire") > 0 {
            // Skip a round that had already begun.
            let fresh = changed.elapsed() > QUIET;
            changed = Instant::now();
            if first.is_none() && fresh {
                first = Some((changed, stats.clone(), cpu::seconds(pid)));
            }
        }
        stats = now;
        if let Some((began, before, cpu)) = &first
            && changed.elapsed() > QUIET
        {
            return Some(Seen {
                seconds: (changed - *began).as_secs_f64(),
                cpu_seconds: cpu::seconds(pid) - cpu,
                renewed: stats.get("pexpire").unwrap_or(&0) - before.get("pexpire").unwrap_or(&0),
                commands: commands(Who::Redisson, Kind::Reentrant, before, &stats),
            });
        }
    }
    None
}
