//! Runs every kind of lock under faults for a given time. Checks that holders exclude each other, that every wait
//! ends, and that nothing grows. Prints a table of gauges before, during and after the load.

mod bed;
mod children;
mod faults;
mod gauges;
mod history;
mod kinds;
mod tally;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use distlock_support::Numbers;

use crate::bed::Bed;
use crate::gauges::Log;

/// Runs every kind of lock under faults, and fails if a rule is broken or something grows.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Duration of the load, in minutes
    #[arg(long, value_name = "N", default_value = "1")]
    minutes: f64,
    /// Seed of the random numbers; a new one each time if not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Tasks in this process; each child has half as many
    #[arg(long, value_name = "N", default_value = "48")]
    tasks: usize,
    /// Servers for a child process to connect to; marks this process as a child
    #[arg(long, hide = true, value_delimiter = ',')]
    child: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    if args.child.is_empty() {
        return runtime.block_on(run(&args));
    }
    runtime.block_on(children::serve(&args));
    // A thread reads standard input and cannot be stopped.
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

async fn run(args: &Args) -> ExitCode {
    let seed = args.seed.unwrap_or_else(distlock_support::agent::monotonic_ns);
    println!("soak: {} min, --seed {seed}", args.minutes);
    let load = Duration::from_secs_f64(args.minutes * 60.0);
    let bed = Arc::new(Bed::start(seed).await);
    let mut log = Log::new(load);
    log.before(&bed).await;
    bed.connect_all().await;
    let workers = worker::start(&bed.shared(), args.tasks, seed);
    let mut numbers = Numbers::lane(seed, 1 << 32);
    let mut children = children::Children::start(&bed, args.tasks / 2, seed);
    let began = Instant::now();
    let mut told = began;
    while began.elapsed() < load {
        faults::strike(&bed, &mut children, &mut numbers).await;
        tokio::time::sleep(numbers.between(500, 1500)).await;
        log.sample(&bed, began.elapsed()).await;
        if told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            println!("[{:>5.0} s] {}", began.elapsed().as_secs_f64(), bed.tally.line());
        }
    }
    let took = began.elapsed();
    children.end().await;
    bed.stop();
    worker::ended(workers, &bed.tally).await;
    log.rest(&bed).await;
    bed.close_all().await;
    log.after(&bed).await;
    println!("\n{}", log.table());
    println!("{}", bed.tally.report(took));
    let mut wrong = log.verdicts();
    wrong.extend(bed.tally.wrong());
    wrong.extend(bed.tally.idle());
    for what in &wrong {
        println!("WRONG: {what}");
    }
    println!("soak: {}", if wrong.is_empty() { "ok" } else { "FAILED" });
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
