//! Measures fleets of processes that contend for one lock: only Java (Redisson), only ours (distlock), and both.
//!
//! 1. Each run has its own redis-server and its own processes. All processes warm up on another name.
//! 2. Each worker of each process acquires the lock, holds it for a random time, releases it and starts again.
//! 3. At random moments a process is killed and replaced, or frozen and resumed.
//! 4. Each process appends its events to a file at once, so the events of a killed process survive.
//! 5. After the run, the files show waits, shares, pauses and overlaps. An overlap makes the exit status 1.

mod args;
mod events;
mod faults;
mod figures;
mod fleet;
mod goals;
mod judge;
mod locks;
mod member;
mod process;
mod table;
#[path = "../timer.rs"]
mod timer;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use args::{Args, Fleet};
use clap::Parser as _;
use figures::Row;
use goals::Goal;
use serde::Serialize;

/// The JSON file: the same rows as in the table.
#[derive(Serialize)]
struct Report<'a> {
    args: &'a Args,
    runs: &'a [Row],
    /// For each fleet, the worst of each figure over all runs. Empty after a single run.
    worst: &'a [Row],
    goals: &'a [Goal],
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let is_member = words.next_if(|word| word == process::MARK).is_some();
    let args = (!is_member).then(Args::parse);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    match args {
        Some(args) => runtime.block_on(measure(&args)),
        None => runtime.block_on(member::serve(words.next())),
    }
}

async fn measure(args: &Args) -> ExitCode {
    let began = Instant::now();
    let mut runs = Vec::new();
    for number in 0..args.runs {
        let seed = args.seed + number;
        for &fleet in args.fleets() {
            eprintln!("[{:>4.0} s] {}, seed {seed}", began.elapsed().as_secs_f64(), fleet.name());
            let row = fleet::run(args, fleet, seed).await;
            if args.runs as usize * args.fleets().len() > 1 {
                eprint!("{}", table::table(std::slice::from_ref(&row)));
            }
            runs.push(row);
        }
    }
    let worst = if args.runs > 1 { worst(args.fleets(), &runs) } else { Vec::new() };
    let goals = goals::goals(&runs);
    println!("{}", args.summary());
    print!("{}", table::table(&[runs.as_slice(), &worst].concat()));
    print!("{}", goals::text(&goals));
    if let Some(path) = &args.json
        && let Err(error) = write_json(path, &Report { args, runs: &runs, worst: &worst, goals: &goals })
    {
        eprintln!("{}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    let overlaps: usize = runs.iter().map(|row| row.overlaps).sum();
    if overlaps > 0 {
        eprintln!("{overlaps} overlaps: two processes held the lock at the same time");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn worst(fleets: &[Fleet], runs: &[Row]) -> Vec<Row> {
    let of = |fleet| runs.iter().filter(|row| row.fleet == fleet).cloned().reduce(|one, other| one.worse(&other));
    fleets.iter().filter_map(|fleet| of(*fleet)).collect()
}

fn write_json(path: &Path, report: &Report<'_>) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, serde_json::to_string_pretty(report)? + "\n")
}
