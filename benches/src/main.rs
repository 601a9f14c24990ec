//! Compares distlock with the raw commands and its peers: Redisson, `rslock`, `rlock`, for the plain lock also
//! `redsync`, `redlock` and `redis-py`, and for permits `distributed-lock-redis`. All run on one private redis-server.
//! Prints a table, and writes it as JSON.

mod args;
mod bed;
mod benches;
mod counted;
mod cpu;
mod drive;
mod fair;
mod fleet;
mod held;
mod java;
mod latch;
mod line;
mod multi;
mod plain;
mod raw;
mod red;
mod report;
mod rwlock;
mod simple;
mod striped;
mod subject;
mod timer;
mod verdict;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use args::Args;
use bed::Bed;
use clap::Parser as _;
use drive::Kind;
use report::Row;
use subject::Who;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let worker = words.next_if(|word| word == worker::MARK).is_some();
    let args = (!worker).then(Args::parse);
    // All Rust subjects use an equal runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    let Some(args) = args else {
        runtime.block_on(worker::serve(words));
        // A thread reads standard input and cannot be stopped.
        runtime.shutdown_background();
        return ExitCode::SUCCESS;
    };
    runtime.block_on(run(args))
}

async fn run(args: Args) -> ExitCode {
    let bed = Bed::new(args).await;
    let args = &bed.args;
    let began = Instant::now();
    let step = |bench: &str| eprintln!("[{:>4.0} s] {bench}", began.elapsed().as_secs_f64());
    let mut rows = one_process(&bed, &step).await;
    rows.extend(several_processes(&bed, &step).await);
    rows.extend(other(&bed, &step).await);
    step("done");
    print!("{}", report::table(&rows));
    println!("\nRaw commands and distlock: {} connection(s) for commands.", args.pool);
    if args.quick {
        println!(
            "Quick: few and short rounds; Redisson's eight processes are set up for a quick start, not for speed."
        );
    }
    if let Err(error) = report::write_json(&args.json, &rows) {
        eprintln!("{}: {error}", args.json.display());
        return ExitCode::FAILURE;
    }
    println!("The same as JSON: {}\n", args.json.display());
    let verdicts = verdict::verdicts(&rows);
    for verdict in &verdicts {
        println!("{}  {}", verdict.word(), verdict.text);
    }
    let misses: Vec<&str> = verdicts.iter().filter(|verdict| verdict.missed()).map(|one| one.text.as_str()).collect();
    let targets = verdicts.iter().filter(|verdict| verdict.target).count();
    match misses.as_slice() {
        [] => println!("\nEvery target is met ({targets})."),
        _ => println!("\nMissed, {} of {}: {}", misses.len(), targets, misses.join("; ")),
    }
    if args.check && !misses.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The benches in one process.
async fn one_process(bed: &Bed, step: &impl Fn(&str)) -> Vec<Row> {
    let args = &bed.args;
    let mut rows = Vec::new();
    if ["uncontended", "contended", "latency"].iter().any(|bench| args.wants(bench)) {
        let mut sides = bed.sides().await;
        if args.wants("uncontended") {
            step("uncontended");
            rows.extend(benches::uncontended(bed, &mut sides).await);
        }
        if args.wants("latency") {
            step("latency");
            rows.extend(benches::latency(bed, &mut sides).await);
        }
        if args.wants("contended") {
            step("contended");
            rows.extend(benches::contended(bed, &mut sides).await);
        }
        bed.close(sides).await;
    }
    if args.wants("plain") {
        step("plain");
        rows.extend(plain::uncontended(bed).await);
        step("plain, contended");
        rows.extend(plain::contended(bed).await);
    }
    if args.wants("fair") && args.subjects.contains(&Who::Distlock) {
        step("fair, alone");
        rows.extend(fair::alone(bed).await);
    }
    if args.wants("rw") && args.subjects.contains(&Who::Distlock) {
        step("rw, alone");
        rows.extend(rwlock::alone(bed).await);
    }
    for (bench, kind) in [("fenced", Kind::Fenced), ("spin", Kind::Spin)] {
        if args.wants(bench) && args.subjects.contains(&Who::Distlock) {
            step(&format!("{bench}, alone"));
            rows.extend(simple::alone(bed, bench, kind).await);
        }
    }
    for (bench, kind) in counted::ALONE {
        if args.wants(bench) {
            step(&format!("{bench}, alone"));
            rows.extend(counted::alone(bed, bench, kind).await);
        }
    }
    if args.wants("multi") {
        step("multi, many names");
        rows.extend(multi::many(bed).await);
    }
    rows
}

/// The benches with several processes for each subject. They share one set of processes, because eight Java processes
/// start slowly.
async fn several_processes(bed: &Bed, step: &impl Fn(&str)) -> Vec<Row> {
    let args = &bed.args;
    let mut rows = Vec::new();
    let (processes, fair, rw) = (args.wants("processes"), args.wants("fair"), args.wants("rw"));
    let (fenced, spin, multi) = (args.wants("fenced"), args.wants("spin"), args.wants("multi"));
    let permits: Vec<_> = counted::TOGETHER.into_iter().filter(|(wanted, ..)| args.wants(wanted)).collect();
    if !(processes || fair || rw || fenced || spin || multi || !permits.is_empty()) {
        return rows;
    }
    let here = |who: &Who| {
        (processes && *who != Who::Raw && who.has_locks())
            || fair::WITH.contains(who)
            || permits.iter().any(|(_, _, kind)| counted::with(*kind).contains(who))
    };
    let subjects: Vec<Who> = args.subjects.iter().copied().filter(here).collect();
    let kinds = [
        (processes, Kind::Reentrant),
        (fair, Kind::Fair),
        (rw, rwlock::KIND),
        (fenced, Kind::Fenced),
        (spin, Kind::Spin),
    ];
    let kinds = kinds.into_iter().filter(|(wanted, _)| *wanted).map(|(_, kind)| kind);
    let kinds: Vec<Kind> = kinds.chain(permits.iter().map(|(_, _, kind)| *kind)).collect();
    let mut sides = bed.apart(&subjects, &kinds).await;
    if processes {
        step("processes");
        rows.extend(benches::processes(bed, &mut sides).await);
    }
    if fair {
        step("fair");
        rows.extend(fair::handed_on(bed, &mut sides).await);
    }
    if rw {
        step("rw");
        rows.extend(rwlock::mixed(bed, &mut sides).await);
    }
    if fenced {
        step("fenced");
        rows.extend(simple::together(bed, &mut sides, "fenced", Kind::Fenced).await);
    }
    if spin {
        step("spin");
        rows.extend(simple::together(bed, &mut sides, "spin", Kind::Spin).await);
    }
    if multi {
        step("multi, reversed");
        rows.extend(multi::reversed(bed, &mut sides).await);
    }
    for (_, bench, kind) in permits {
        step(bench);
        rows.extend(counted::together(bed, &mut sides, bench, kind).await);
    }
    bed.close(sides).await;
    rows
}

/// The benches of striped locks, latches and RedLock, of fleets, and of many held locks.
async fn other(bed: &Bed, step: &impl Fn(&str)) -> Vec<Row> {
    let args = &bed.args;
    let mut rows = Vec::new();
    if args.wants("striped") && args.subjects.contains(&Who::Distlock) {
        step("striped");
        rows.extend(striped::hot(bed).await);
    }
    if args.wants("latch") {
        step("latch");
        rows.extend(latch::opened(bed).await);
    }
    if args.wants("red") && args.subjects.contains(&Who::Distlock) {
        step("red");
        rows.extend(red::waits(bed).await);
        step("red, 1 ms away");
        rows.extend(red::far(bed).await);
        step("red, contended");
        rows.extend(red::together(bed).await);
    }
    if args.wants("fleet") {
        step("fleet");
        rows.extend(fleet::fleets(bed).await);
    }
    if args.wants("held") {
        step("held");
        rows.extend(benches::held(bed).await);
    }
    rows
}
