//! A process of ours: this program, started as a member of a fleet.
//!
//! A member reads one [`Job`] per line from its standard input, and answers each with a line. The end of the input
//! means that the parent has gone, and ends the member at once.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, DistLock};
use distlock_support::Numbers;
use distlock_support::agent::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::events::{Event, Kind};
use crate::locks::{Job, Locks};
use crate::timer::Timer;

/// Pause after a failed acquire.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// The command line argument of a member, as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    pub url: String,
    pub watchdog: Duration,
    pub yield_after_release: bool,
}

pub async fn serve(setup: Option<String>) -> ! {
    let setup = setup.unwrap_or_else(|| panic!("a member needs its setup"));
    let setup: Setup = serde_json::from_str(&setup).unwrap_or_else(|error| panic!("{error} in {setup}"));
    let builder = Client::builder(&setup.url)
        .watchdog(setup.watchdog)
        .configure(|options| options.yield_after_release = setup.yield_after_release);
    // At most a third of the lease, as the option requires. 3 s is the default.
    let builder = builder.command_timeout((setup.watchdog / 3).min(Duration::from_secs(3)));
    let client = builder.connect().await.unwrap_or_else(|error| panic!("distlock: {error}"));
    let mut jobs = jobs();
    println!("ready");
    while let Some(job) = jobs.recv().await {
        work(&client, job).await;
        println!("done");
    }
    unreachable!("the process ends with its input")
}

/// Reads jobs on a separate thread, so that the end of the input ends the process even during a job.
fn jobs() -> tokio::sync::mpsc::UnboundedReceiver<Job> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                // The receiver lives as long as the process.
                Ok(job) => drop(sender.send(job)),
                Err(error) => {
                    eprintln!("a member received {line}: {error}");
                    break;
                }
            }
        }
        std::process::exit(1);
    });
    receiver
}

async fn work(client: &Client, job: Job) {
    let log = Arc::new(Log::open(&job.file));
    let job = Arc::new(job);
    let workers = (0..job.threads).map(|number| {
        let worker = Worker {
            number,
            locks: Locks::of(client, &job),
            timer: Timer::start(),
            numbers: Numbers::lane(job.seed, number + 1),
            log: Arc::clone(&log),
        };
        tokio::spawn(worker.run(Arc::clone(&job)))
    });
    let workers: Vec<_> = workers.collect();
    for worker in workers {
        worker.await.unwrap_or_else(|error| panic!("a worker failed: {error}"));
    }
}

struct Worker {
    number: u64,
    locks: Locks,
    timer: Timer,
    numbers: Numbers,
    log: Arc<Log>,
}

impl Worker {
    async fn run(mut self, job: Arc<Job>) {
        self.timer.sleep(Duration::from_nanos(job.from.saturating_sub(monotonic_ns()))).await;
        while monotonic_ns() < job.to {
            let (lock, kind) = match &self.locks.read {
                Some(read) if self.numbers.below(100) < u64::from(job.reads) => (read, Kind::Read),
                Some(_) => (&self.locks.exclusive, Kind::Write),
                None => (&self.locks.exclusive, Kind::Exclusive),
            };
            let hold = Duration::from_nanos(self.numbers.below(job.hold_us * 1000 + 1));
            self.turn(&**lock, kind, hold).await;
        }
    }

    async fn turn(&self, lock: &dyn DistLock, kind: Kind, hold: Duration) {
        self.log.write(&Event::Asked(self.number, kind, monotonic_ns()));
        let guard = match lock.lock().await {
            Ok(guard) => guard,
            Err(error) => {
                self.log.write(&Event::Failed(self.number, format!("lock: {error}")));
                tokio::time::sleep(AFTER_FAILURE).await;
                return;
            }
        };
        self.log.write(&Event::Entered(self.number, monotonic_ns()));
        self.timer.sleep(hold).await;
        // Written before the release: a process that is killed after its release must not look like a holder.
        self.log.write(&Event::Left(self.number, monotonic_ns()));
        if let Err(error) = guard.unlock().await {
            self.log.write(&Event::Failed(self.number, format!("unlock: {error}")));
        }
    }
}

/// A file to which each event is written at once, so that the events of a killed process survive.
struct Log(Option<File>);

impl Log {
    fn open(path: &str) -> Self {
        let open = |path| File::options().create(true).append(true).open(path);
        let file = (!path.is_empty()).then(|| open(path).unwrap_or_else(|error| panic!("{path}: {error}")));
        Self(file)
    }

    /// Writes with one system call. Appends of several workers do not mix.
    fn write(&self, event: &Event) {
        if let Some(mut file) = self.0.as_ref() {
            let written = file.write_all(event.line().as_bytes());
            written.unwrap_or_else(|error| panic!("the file for events: {error}"));
        }
    }
}
