//! A pool of three processes with four tasks each runs at most four jobs at a time, because each job needs one of four
//! permits. One process is killed in the middle of its jobs, and its permits come back within one lease.
//!
//! `cargo run --example worker_pool`

mod private_server;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Client, Permits};
use distlock_support::{Admin, Child, Numbers, child};
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PERMITS: u32 = 4;
const PROCESSES: usize = 3;
const TASKS: u64 = 4;
/// The lease of permits without a renewal. Short, so that permits of a dead process come back soon; the default is 30 s.
const LEASE: Duration = Duration::from_secs(3);

/// Adds `ARGV[2]` to the running jobs of a process, and notes the largest number of all jobs. Ignores processes that are
/// not listed: the jobs of a killed process have ended.
const COUNT: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return end
redis.call('hincrby', KEYS[1], ARGV[1], ARGV[2])
local all = 0
for _, jobs in ipairs(redis.call('hvals', KEYS[1])) do all = all + jobs end
if all > tonumber(redis.call('get', KEYS[2]) or '0') then redis.call('set', KEYS[2], all) end";

/// Counts running jobs, for the check of this example.
struct Counter {
    redis: Admin,
    process: String,
    keys: [String; 2],
}

impl Counter {
    async fn open(url: &str, prefix: &str, process: String) -> Self {
        let keys = [format!("{prefix}running"), format!("{prefix}most")];
        Self { redis: Admin::from_url(url).await, process, keys }
    }

    async fn add(&self, jobs: &str) {
        let [running, most] = &self.keys;
        let _: () = self.redis.cmd(&["EVAL", COUNT, "2", running, most, &self.process, jobs]).await;
    }
}

async fn connect(url: &str, prefix: &str) -> distlock::Result<Client> {
    Client::builder(url).name_prefix(prefix).watchdog(LEASE).command_timeout(LEASE / 3).connect().await
}

/// Runs one job after the other, each with a permit. Returns the number of jobs.
async fn work(jobs: Permits, counter: Arc<Counter>, stopped: Arc<AtomicBool>, mut dice: Numbers) -> Outcome<u64> {
    let mut done = 0;
    while !stopped.load(Ordering::Relaxed) {
        let permit = jobs.acquire(1).await?;
        counter.add("1").await;
        // If the permit is lost, `run` stops the job and returns an error.
        let job = permit.run(tokio::time::sleep(dice.between(50, 150))).await;
        counter.add("-1").await;
        job?;
        permit.release().await?;
        done += 1;
    }
    Ok(done)
}

/// Runs a child process.
async fn worker() -> Outcome<()> {
    let (url, prefix, process) = (std::env::var("URL")?, std::env::var("PREFIX")?, std::env::var("PROCESS")?);
    let client = connect(&url, &prefix).await?;
    let jobs = client.permits("jobs");
    // The first process sets the number of permits. For the others, the call has no effect.
    jobs.try_set_permits(PERMITS).await?;
    let counter = Arc::new(Counter::open(&url, &prefix, process).await);
    let stopped = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let dice = Numbers::lane(u64::from(std::process::id()), task);
        tasks.spawn(work(jobs.clone(), Arc::clone(&counter), Arc::clone(&stopped), dice));
    }
    child::hear().await;
    stopped.store(true, Ordering::Relaxed);
    let mut done = 0;
    while let Some(task) = tasks.join_next().await {
        done += task??;
    }
    client.shutdown(Duration::from_secs(5)).await?;
    child::say(&done.to_string());
    Ok(())
}

/// Starts the pool, kills a process, stops the others, and looks at the permits.
async fn pool(server: &private_server::Server) -> Outcome<()> {
    let counter = Counter::open(&server.url, &server.prefix, "0".to_owned()).await;
    let (redis, [running, most]) = (&counter.redis, &counter.keys);
    let mut workers = Vec::new();
    for process in (0..PROCESSES).map(|process| process.to_string()) {
        let _: () = redis.cmd(&["HSET", running, &process, "0"]).await;
        let env = [("URL", server.url.as_str()), ("PREFIX", server.prefix.as_str()), ("PROCESS", process.as_str())];
        workers.push(Child::spawn("worker", &env));
    }
    // All processes work for a while. Then the first one is killed while it runs a job.
    tokio::time::sleep(Duration::from_secs(2)).await;
    while redis.cmd::<u64>(&["HGET", running, "0"]).await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    workers.remove(0).kill9();
    let cut_short: u64 = redis.cmd(&["HGET", running, "0"]).await;
    let _: () = redis.cmd(&["HDEL", running, "0"]).await;
    println!("one of {PROCESSES} processes is killed in the middle of {cut_short} jobs");

    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut done = 0;
    for worker in &mut workers {
        worker.tell("stop");
        let line = worker.line().await.ok_or_else(|| format!("a worker failed: {}", worker.output()))?;
        done += line.parse::<u64>()?;
    }
    let most: u32 = redis.cmd(&["GET", most]).await;
    println!("the other processes did {done} jobs; at most {most} jobs ran at once, with {PERMITS} permits");
    if most > PERMITS {
        return Err(format!("{most} jobs ran at once").into());
    }

    let client = connect(&server.url, &server.prefix).await?;
    let jobs = client.permits("jobs");
    let all = jobs.acquire_for(PERMITS, LEASE).await?.ok_or("permits are missing after one lease")?;
    println!("all {} permits have come back", all.count());
    all.release().await?;
    jobs.delete().await?;
    client.shutdown(Duration::from_secs(5)).await?;
    let _: () = redis.cmd(&["DEL", running, &counter.keys[1]]).await;
    Ok(())
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    if child::is_child() {
        child::init();
        return runtime.block_on(worker());
    }
    let server = private_server::start_unless_given();
    runtime.block_on(pool(&server))
}
