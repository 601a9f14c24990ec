//! Sells tickets in a cluster while a primary dies: `./x demo --cluster`.
//!
//! Four clients with 16 tasks each sell 2 000 tickets under a fenced lock, in a cluster of three primaries. In the
//! middle of the sale, the primary that has the lock is killed.
//!
//! A cluster replicates asynchronously. The promoted replica may not know the last grant, and then two tasks believe
//! that they hold the lock. So the stock accepts a sale only with a token larger than all earlier ones. The stock is
//! on a separate server, like the database of a shop. A refused sale is repeated.
//!
//! Fails unless exactly the stock is sold.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, FencedLock};
use distlock_support::{Admin, Cluster, ClusterOptions, Numbers, RedisServer};
use parking_lot::Mutex;
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TICKETS: u64 = 2_000;
const CLIENTS: u64 = 4;
const TASKS: u64 = 16;

/// Sells a ticket: writes the stock `ARGV[2] - 1` if the token `ARGV[1]` is larger than that of every earlier sale.
/// Returns 1 if the ticket was sold, 0 if the sale was refused.
const SELL: &str = "
if tonumber(ARGV[1]) <= tonumber(redis.call('get', KEYS[2]) or '0') then return 0 end
redis.call('set', KEYS[2], ARGV[1])
redis.call('set', KEYS[1], ARGV[2] - 1)
return 1";

/// The record that all tasks share.
#[derive(Default)]
struct Till {
    /// When each ticket was sold.
    sold: Vec<Instant>,
    refused: u64,
    failed: u64,
    lost: u64,
}

/// Runs a task that sells until nothing is left.
async fn sell(lock: FencedLock, stock: Arc<Admin>, till: Arc<Mutex<Till>>, mut dice: Numbers) {
    loop {
        let guard = match lock.lock().await {
            Ok(guard) => guard,
            Err(_) => {
                till.lock().failed += 1;
                continue;
            }
        };
        // A guard of a fenced lock always has a token.
        let token = guard.fencing_token().map_or_else(|_| String::new(), |token| token.to_string());
        let sale = guard.run(async {
            let left: u64 = stock.cmd(&["GET", "stock"]).await;
            if left == 0 {
                return None;
            }
            // Choosing a seat and paying takes up to a millisecond.
            tokio::time::sleep(Duration::from_micros(dice.below(1_000))).await;
            Some(stock.cmd::<u64>(&["EVAL", SELL, "2", "stock", "last", &token, &left.to_string()]).await == 1)
        });
        let sale = sale.await;
        {
            let mut till = till.lock();
            match sale {
                Ok(Some(true)) => till.sold.push(Instant::now()),
                Ok(Some(false)) => till.refused += 1,
                Ok(None) => {}
                Err(_) => till.lost += 1,
            }
        }
        // If the release fails, the lock ends with its lease.
        let _ = guard.unlock().await;
        if matches!(sale, Ok(None)) {
            return;
        }
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    println!("forming a cluster of three primaries with a replica each");
    let cluster = Cluster::start(ClusterOptions::default().require_full_coverage(false)).await;
    let shop = RedisServer::start();
    let stock = Arc::new(Admin::connect(&shop).await);
    let _: () = stock.cmd(&["SET", "stock", &TICKETS.to_string()]).await;
    let till = Arc::new(Mutex::new(Till::default()));
    let mut clients = Vec::new();
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let client = Client::builder(&cluster.url()).command_timeout(Duration::from_secs(1)).connect().await?;
        for task in 0..TASKS {
            let dice = Numbers::new(number << 8 | (task + 1));
            tasks.spawn(sell(client.fenced("tickets"), Arc::clone(&stock), Arc::clone(&till), dice));
        }
        clients.push(client);
    }
    let primary = cluster.primary_of("tickets").await;
    while till.lock().sold.len() < TICKETS as usize / 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.kill(primary).await;
    println!("half of the tickets are sold: {} is killed, which has the lock", primary.addr());
    let promotion = cluster.promotion(primary).await;
    println!("{} took its place after {:.1?}", promotion.node.addr(), promotion.took);
    while let Some(task) = tasks.join_next().await {
        task?;
    }
    for client in clients {
        client.shutdown(Duration::from_secs(5)).await?;
    }
    let mut till = std::mem::take(&mut *till.lock());
    till.sold.sort_unstable();
    let gap = till.sold.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    let Till { sold, refused, failed, lost } = &till;
    println!(
        "sold: {} of {TICKETS}; nothing was sold for {gap:.1?}, of which {:.1?} were the cluster's own",
        sold.len(),
        promotion.took
    );
    println!("refused by the stock: {refused}; holders who lost the lock: {lost}; acquires that failed: {failed}");
    let left: u64 = stock.cmd(&["GET", "stock"]).await;
    if (sold.len() as u64, left) != (TICKETS, 0) {
        return Err(format!("{} sold, {left} left", sold.len()).into());
    }
    println!("PASS");
    Ok(())
}
