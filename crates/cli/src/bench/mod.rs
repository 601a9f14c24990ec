//! `distlock bench`: acquires and releases on the user's own servers by the public API, and prints how long both take.
//!
//! The names begin with `distlock-bench:` and the id of the run's client. Nothing else is touched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, DistLock, Flavour};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connect::Target;
use crate::exit::{self, Failure};
use crate::keys::show;

mod histogram;
mod report;

use report::{Run, Tally};

/// Pause of a task after an error.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for the last releases, and then for the clean-up of waiters.
const END_WITHIN: Duration = Duration::from_secs(10);

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Length of the run, in seconds. INT ends it early
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Number of concurrent tasks
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: u32,
    /// Flavour of the locks
    #[arg(long, value_name = "FLAVOUR", default_value = "reentrant", value_parser = crate::run::flavours())]
    flavour: Flavour,
    /// All tasks want the same lock. Otherwise each task has its own
    #[arg(long)]
    contended: bool,
    /// Print the result as JSON, in microseconds
    #[arg(long)]
    json: bool,
}

/// Runs the bench, prints the result, and returns the exit status: 1 if an acquire or a release failed.
///
/// # Errors
///
/// The errors of connecting.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    let client = target.client().await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let locks = if args.contended { 1 } else { args.tasks };
    let names: Vec<String> = (0..locks).map(|n| format!("distlock-bench:{}:{n}", client.id())).collect();
    let (tally, stop) = (Arc::new(Tally::default()), watch::Sender::new(false));
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for name in names.iter().cycle().take(args.tasks as usize) {
        tasks.spawn(work(client.lock(args.flavour, name), Arc::clone(&tally), stop.subscribe()));
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        () = tokio::time::sleep(Duration::from_secs(args.seconds)) => {}
    }
    let took = began.elapsed();
    stop.send_replace(true);
    let ends = async { while tasks.join_next().await.is_some() {} };
    // A release at a server that does not answer is given up. The lock ends with its lease.
    let _ = tokio::time::timeout(END_WITHIN, ends).await;
    tasks.shutdown().await;
    if args.flavour == Flavour::Fenced {
        expire_counters(&client, &names).await;
    }
    let servers = client.topology().servers.len();
    let closed = client.shutdown(END_WITHIN).await;
    let run = Run { flavour: args.flavour, tasks: args.tasks, contended: args.contended, took, servers };
    let text = if args.json { format!("{:#}\n", report::json(&run, &tally)) } else { report::text(&run, &tally) };
    show::print(&text)?;
    closed?;
    Ok(if tally.errors() > 0 { exit::FOUND } else { 0 })
}

/// Waits for the end of the run.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Acquires and releases until told to stop.
async fn work(lock: Arc<dyn DistLock>, tally: Arc<Tally>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let began = Instant::now();
        let outcome = tokio::select! {
            biased;
            // A dropped acquire is undone in the background.
            () = stopped(&mut stop) => return,
            outcome = lock.lock() => outcome,
        };
        let outcome = match outcome {
            Ok(guard) => {
                tally.acquires.record(began.elapsed());
                let began = Instant::now();
                guard.unlock().await.map(|_| tally.releases.record(began.elapsed()))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            tally.fail(&error);
            // Without a pause, refusals would keep this machine and the server busy.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The counters of fenced locks would otherwise stay forever.
async fn expire_counters(client: &Client, names: &[String]) {
    for name in names {
        // An error means that the server does not answer any more, which the result already shows.
        let _ = client.fenced(name).expire_counter(client.options().watchdog).await;
    }
}
