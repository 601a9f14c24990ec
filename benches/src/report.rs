//! The table and the JSON file.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::fleet::FleetFigures;
use crate::subject::Who;

/// One line of the report: the median round of one subject in one bench.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub bench: &'static str,
    pub subject: Who,
    pub processes: usize,
    /// Tasks per process. In `held`: the number of locks.
    pub tasks: usize,
    /// Pairs of lock and unlock per second. In `held`: renewed locks per second. In `latch`: one divided by the mean
    /// time, in seconds.
    pub ops_per_s: f64,
    /// Time of a pair if every task has its own name, and in `permits` and `semaphore`; otherwise of an acquire. In
    /// `held`: of a round of renewal. In `latch`: from the count-down until the last waiter of all processes returns.
    pub p50_us: f64,
    pub p99_us: f64,
    pub worst_us: f64,
    /// The smallest and the largest share of all acquires that a task got, relative to an even share.
    pub share_min: f64,
    pub share_max: f64,
    /// Commands as counted by the server, without commands inside scripts.
    pub commands_per_op: f64,
    /// The part of these commands that runs a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scripts_per_op: Option<f64>,
    /// Processor time of the clients, and of the server. On a busy machine it is more reliable than the measured
    /// times.
    pub cpu_us_per_op: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_us_per_op: Option<f64>,
    /// Connections for commands, for subjects with such an option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<usize>,
    /// The ratio of distlock's figure to this subject's, as the median over all rounds: of rates, or in `latency` of
    /// medians, as in `latch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distlock_ahead: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetFigures>,
}

/// Figures of the bench `held` only.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HeldFigures {
    pub locks: usize,
    pub acquired_per_s: f64,
    /// Locks renewed in each round; 0 if there are no rounds.
    pub renewed_per_round: u64,
    pub cpu_us_per_round: f64,
    /// Growth of the process's resident memory per lock (for Redisson: of the heap in use). First after acquiring all
    /// locks, then after the rounds of renewal.
    pub bytes_per_lock: f64,
    pub bytes_per_lock_after_rounds: f64,
}

const HEAD: [&str; 13] = [
    "bench",
    "subject",
    "proc",
    "tasks",
    "ops/s",
    "distlock is",
    "p50",
    "p99",
    "worst",
    "share",
    "cmds/op",
    "CPU us/op",
    "note",
];

pub fn table(rows: &[Row]) -> String {
    let mut cells: Vec<[String; 13]> = vec![HEAD.map(str::to_owned)];
    cells.extend(rows.iter().map(line));
    let width = |column: usize| cells.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 13] = std::array::from_fn(width);
    let mut text = String::new();
    let mut last = String::new();
    for (number, line) in cells.iter().enumerate() {
        // A blank line separates groups of rows that are compared with each other.
        let group = format!("{} {} {}", line[0], line[2], line[3]);
        if number > 0 && group != last {
            text.push('\n');
        }
        last = group;
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if matches!(column, 0 | 1 | 12) {
                write!(text, "{cell:<width$}  ")
            } else {
                write!(text, "{cell:>width$}  ")
            };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

fn line(row: &Row) -> [String; 13] {
    let held = row.bench == "held";
    let known = |value: f64, text: String| if value > 0.0 { text } else { "-".to_owned() };
    let ahead = match row.distlock_ahead {
        Some(ahead) if row.subject != Who::Distlock => format!("x {ahead:.2}"),
        _ => String::new(),
    };
    let scripts = row.scripts_per_op.filter(|_| matches!(row.bench, "fair" | "rw 95/5" | "rw 50/50"));
    let scripts = scripts.map_or(String::new(), |scripts| format!("{scripts:.2} EVALSHA/op"));
    let scripts = row.fleet.map_or(scripts, |fleet| {
        let [idle, busy, mib] = [fleet.idle_ms_per_s, fleet.releasing_ms_per_s, fleet.mib_per_client];
        format!("server {idle:.2} ms/s idle, {busy:.0} releasing; {mib:.1} MiB a client")
    });
    let note = row.held.map_or(scripts, |held| {
        let memory =
            format!("{:.0} B a lock ({:.0} after renewals)", held.bytes_per_lock, held.bytes_per_lock_after_rounds);
        if held.renewed_per_round == 0 {
            memory
        } else {
            format!("{memory}, {:.0} ms CPU a round, {} renewed", held.cpu_us_per_round / 1e3, held.renewed_per_round)
        }
    });
    [
        row.bench.to_owned(),
        row.subject.name().to_owned(),
        row.processes.to_string(),
        row.tasks.to_string(),
        known(row.ops_per_s, format!("{:.0}", row.ops_per_s)),
        ahead,
        known(row.p50_us, time(row.p50_us)),
        known(row.p99_us, time(row.p99_us)),
        known(row.worst_us, time(row.worst_us)),
        if held { "-".to_owned() } else { format!("{:.2}-{:.2}", row.share_min, row.share_max) },
        known(row.commands_per_op, format!("{:.2}", row.commands_per_op)),
        match row.server_cpu_us_per_op {
            Some(server) => format!("{:.1} + {server:.1}", row.cpu_us_per_op),
            None => known(row.cpu_us_per_op, format!("{:.1}", row.cpu_us_per_op)),
        },
        note,
    ]
}

/// Formats a time in a suitable unit.
pub fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e5 => format!("{:.1} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

pub fn write_json(path: &Path, rows: &[Row]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, serde_json::to_string_pretty(rows)? + "\n")
}
