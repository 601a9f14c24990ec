//! Sells tickets without overselling: `./x demo`.
//!
//! Four processes with 16 tasks each sell 2 000 tickets, in four ways: without a lock, with a lock in each process,
//! with distlock, and with distlock's striped lock.
//!
//! The stock is a plain number in Redis. A sale reads it, waits for a moment, and writes it back reduced by one. Two
//! sales at the same time sell the same ticket twice. For the striped lock the stock is split into 8 numbers with a
//! lock each, so that 8 sales can run in parallel.
//!
//! Starts its own Redis unless `REDIS_URL` names one. Fails if distlock does not sell exactly the stock, or if 8
//! segments are not faster than one lock. Also fails if the ways without distlock sell exactly the stock: then there
//! was no race to prevent.

mod private_server;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, Client, ReentrantLock, Striped};
use distlock_support::{Admin, Child, Numbers, child};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TICKETS: u64 = 2_000;
const PROCESSES: usize = 4;
const TASKS: u64 = 16;
/// The limit of a process's sales. Without a lock the stock may jump up again and again.
const ENOUGH: u64 = 20 * TICKETS;
const SEGMENTS: usize = 8;
const ATTEMPTS: u32 = 3;

/// The modes that must sell exactly the stock.
const EXACT: [&str; 2] = ["distlock", "striped"];

/// The protection of a sale.
#[derive(Clone)]
enum Between {
    Nothing,
    Mutex(Arc<Mutex<()>>),
    Distlock(ReentrantLock),
    Striped(Striped),
}

/// Tickets sold, and locks acquired for them.
#[derive(Clone, Copy, Default)]
struct Sold {
    tickets: u64,
    locks: u64,
}

/// One process's access to the stock.
struct Till {
    redis: Admin,
    /// The keys of the stock: one, or one per segment.
    stock: Vec<String>,
    between: Between,
}

impl Till {
    /// Sells one ticket of a segment. Returns false if the segment is sold out.
    async fn sell(&self, segment: usize, dice: &mut Numbers) -> bool {
        let stock = &self.stock[segment];
        let left: u64 = self.redis.cmd(&["GET", stock]).await;
        if left == 0 {
            return false;
        }
        // Choosing a seat and paying takes up to a millisecond.
        tokio::time::sleep(Duration::from_micros(dice.below(1_000))).await;
        let _: () = self.redis.cmd(&["SET", stock, &(left - 1).to_string()]).await;
        true
    }

    /// Runs a task that sells until nothing is left.
    async fn work(&self, mut dice: Numbers) -> Outcome<Sold> {
        let mut sold = Sold::default();
        let mut open: Vec<usize> = (0..self.stock.len()).collect();
        loop {
            let mut segment = 0;
            let one = match &self.between {
                Between::Nothing => self.sell(0, &mut dice).await,
                Between::Mutex(mutex) => {
                    let _guard = mutex.lock().await;
                    self.sell(0, &mut dice).await
                }
                Between::Distlock(lock) => {
                    let guard = lock.lock().await?;
                    // If the lock is lost, `run` stops the sale and returns an error.
                    let one = guard.run(self.sell(0, &mut dice)).await?;
                    guard.unlock().await?;
                    one
                }
                Between::Striped(lock) => {
                    let taken = if open.len() == SEGMENTS {
                        lock.acquire_any(Acquire::new()).await?
                    } else {
                        // Some segments are sold out: take one of the others.
                        let at = open[dice.below(open.len() as u64) as usize];
                        lock.segment(at)
                            .ok_or("no such segment")?
                            .acquire(Acquire::new())
                            .await?
                            .map(|guard| (at, guard))
                    };
                    let (at, guard) = taken.ok_or("a wait without end has ended")?;
                    segment = at;
                    let one = guard.run(self.sell(at, &mut dice)).await?;
                    guard.unlock().await?;
                    one
                }
            };
            sold.locks += u64::from(!matches!(self.between, Between::Nothing));
            if !one {
                open.retain(|open| *open != segment);
                if open.is_empty() {
                    return Ok(sold);
                }
                continue;
            }
            if sold.tickets * TASKS >= ENOUGH {
                return Ok(sold);
            }
            sold.tickets += 1;
        }
    }
}

fn stock(prefix: &str, mode: &str) -> Vec<String> {
    match mode {
        "striped" => (0..SEGMENTS).map(|at| format!("{prefix}stock:{at}")).collect(),
        _ => vec![format!("{prefix}stock")],
    }
}

/// Runs a child process: connects, waits for the start, sells and reports.
async fn seller() -> Outcome<()> {
    let (url, prefix, mode) = (std::env::var("URL")?, std::env::var("PREFIX")?, std::env::var("MODE")?);
    let mut client = None;
    let between = match mode.as_str() {
        "none" => Between::Nothing,
        "mutex" => Between::Mutex(Arc::default()),
        _ => {
            let connected = Client::builder(&url).name_prefix(&prefix).connect().await?;
            let between = if mode == "striped" {
                Between::Striped(connected.striped("tickets", SEGMENTS))
            } else {
                Between::Distlock(connected.reentrant("tickets"))
            };
            client = Some(connected);
            between
        }
    };
    let stock = stock(&prefix, &mode);
    let till = Arc::new(Till { redis: Admin::from_url(&url).await, stock, between });
    child::say("ready");
    child::hear().await;

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let till = Arc::clone(&till);
        let seed = u64::from(std::process::id()) << 8 | (task + 1);
        tasks.spawn(async move { till.work(Numbers::new(seed)).await });
    }
    let mut sum = Sold::default();
    let mut still_there = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            ended = tasks.join_next() => {
                let Some(ended) = ended else { break };
                let sold = ended??;
                sum.tickets += sold.tickets;
                sum.locks += sold.locks;
            }
            _ = still_there.tick() => child::say("selling"),
        }
    }
    child::say(&format!("sold {} {}", sum.tickets, sum.locks));
    if let Some(client) = client {
        client.shutdown(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Lets all processes sell the stock once. Returns the sales and the time.
async fn sale(server: &private_server::Server, admin: &Admin, mode: &str) -> Outcome<(Sold, Duration)> {
    let stock = stock(&server.prefix, mode);
    for key in &stock {
        let _: () = admin.cmd(&["SET", key, &(TICKETS / stock.len() as u64).to_string()]).await;
    }
    let env = [("URL", server.url.as_str()), ("PREFIX", server.prefix.as_str()), ("MODE", mode)];
    let mut sellers: Vec<_> = (0..PROCESSES).map(|_| Child::spawn("seller", &env)).collect();
    for seller in &mut sellers {
        seller.expect("ready").await;
    }
    let began = Instant::now();
    for seller in &mut sellers {
        seller.tell("go");
    }
    let mut sum = Sold::default();
    for seller in &mut sellers {
        let line = loop {
            match seller.line().await {
                Some(line) if line == "selling" => {}
                Some(line) => break line,
                None => return Err(format!("a seller failed: {}", seller.output()).into()),
            }
        };
        let mut words = line.split(' ').skip(1).map(str::parse::<u64>);
        let (Some(tickets), Some(locks)) = (words.next(), words.next()) else {
            return Err(format!("a seller said {line:?}").into());
        };
        sum.tickets += tickets?;
        sum.locks += locks?;
    }
    let time = began.elapsed();
    for seller in &mut sellers {
        if !seller.wait().await.success() {
            return Err(format!("a seller failed: {}", seller.output()).into());
        }
    }
    let mut left = 0;
    for key in &stock {
        left += admin.cmd::<u64>(&["GET", key]).await;
        let _: () = admin.cmd(&["DEL", key]).await;
    }
    if EXACT.contains(&mode) && left != 0 {
        return Err(format!("{left} tickets are left").into());
    }
    Ok((sum, time))
}

/// Sells in all four modes and prints the results.
async fn compare(server: &private_server::Server, admin: &Admin) -> Outcome<()> {
    println!("{TICKETS} tickets, sold by {PROCESSES} processes with {TASKS} tasks each.");
    println!("A sale reads the stock from Redis, thinks for a moment, and writes back one less.\n");
    println!("{:<22} {:>12} {:>10} {:>9} {:>9}", "mode", "tickets sold", "oversold", "time", "locks/s");
    let modes =
        [("none", "no lock"), ("mutex", "lock in each process"), ("distlock", "distlock"), ("striped", "  8 segments")];
    let mut times = Vec::new();
    for (mode, label) in modes {
        let must_be_exact = EXACT.contains(&mode);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (sold, time) = sale(server, admin, mode).await?;
            let oversold = i128::from(sold.tickets) - i128::from(TICKETS);
            let seconds = time.as_secs_f64();
            let rate = match sold.locks {
                0 => "-".to_owned(),
                locks => format!("{:.0}", locks as f64 / seconds),
            };
            println!("{label:<22} {:>12} {oversold:>10} {seconds:>7.2} s {rate:>9}", sold.tickets);
            if must_be_exact && oversold != 0 {
                return Err(format!("{} tickets sold under distlock", sold.tickets).into());
            }
            if must_be_exact || oversold > 0 {
                times.push(seconds);
                break;
            }
            if attempts == ATTEMPTS {
                return Err(format!("nothing oversold in {ATTEMPTS} attempts with {label}: no race to prevent").into());
            }
        }
    }
    let gain = times[2] / times[3];
    println!("\nWith distlock every ticket was sold once; in {SEGMENTS} segments {gain:.1} times as fast.");
    if gain <= 1.0 {
        return Err(format!("{SEGMENTS} segments are no faster than one lock").into());
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    if child::is_child() {
        child::init();
        return runtime.block_on(seller());
    }
    let server = private_server::start_unless_given();
    runtime.block_on(async {
        let admin = Admin::from_url(&server.url).await;
        compare(&server, &admin).await
    })
}
