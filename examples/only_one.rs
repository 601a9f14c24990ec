//! A job that all instances of a service schedule and only one of them must run: `cargo run --example only_one`.
//!
//! A clock tick wakes three instances. Each tries to acquire the lock once, and skips the tick if the lock is busy.
//! The lock only guarantees that the job does not run twice at the same time. To run it once per tick, the holder
//! also checks whether the job is done for this tick, and marks it as done. This matters for an instance with a late
//! clock, which gets the lock after the first instance has finished.
//!
//! Starts its own Redis unless `REDIS_URL` names one.

mod private_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Client, Error};
use distlock_support::Admin;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const INSTANCES: usize = 3;
const TICKS: u32 = 5;

/// Counts what the instances do, for the final check.
#[derive(Default)]
struct Tally {
    running: AtomicU32,
    runs: AtomicU32,
    skips: AtomicU32,
}

/// The job. It stands for work that takes a while and must not run twice at the same time.
async fn report(instance: usize, tick: u32, tally: &Tally) {
    assert_eq!(tally.running.fetch_add(1, Ordering::SeqCst), 0, "two instances at a time");
    tokio::time::sleep(Duration::from_millis(30)).await;
    tally.running.fetch_sub(1, Ordering::SeqCst);
    tally.runs.fetch_add(1, Ordering::SeqCst);
    println!("tick {tick}: instance {instance} runs the report");
}

/// Handles one tick in one instance.
async fn on_tick(
    client: &Client,
    redis: &Admin,
    done: &str,
    instance: usize,
    tick: u32,
    tally: &Tally,
) -> Result<(), Error> {
    let Some(guard) = client.reentrant("report").try_lock().await? else {
        tally.skips.fetch_add(1, Ordering::SeqCst);
        println!("tick {tick}: instance {instance} skips it: another one is at work");
        return Ok(());
    };
    let last: Option<u32> = redis.cmd(&["GET", done]).await;
    if last >= Some(tick) {
        tally.skips.fetch_add(1, Ordering::SeqCst);
        println!("tick {tick}: instance {instance} skips it: it is done");
    } else {
        // If the lock is lost, the job stops at its next await, and `run` returns the error.
        guard.run(report(instance, tick, tally)).await?;
        let _: () = redis.cmd(&["SET", done, &tick.to_string(), "EX", "3600"]).await;
    }
    guard.unlock().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = private_server::start_unless_given();
    let done = format!("{}report:done", server.prefix);
    let tally = Arc::new(Tally::default());
    let clock = Arc::new(Barrier::new(INSTANCES));

    let mut instances = JoinSet::new();
    for instance in 0..INSTANCES {
        let client = Client::builder(&server.url).name_prefix(&server.prefix).connect().await?;
        let redis = Admin::from_url(&server.url).await;
        let (tally, clock, done) = (Arc::clone(&tally), Arc::clone(&clock), done.clone());
        instances.spawn(async move {
            for tick in 1..=TICKS {
                clock.wait().await;
                // The clock of the last instance is late.
                tokio::time::sleep(Duration::from_millis(if instance + 1 == INSTANCES { 60 } else { 0 })).await;
                on_tick(&client, &redis, &done, instance, tick, &tally).await?;
            }
            client.shutdown(Duration::from_secs(5)).await
        });
    }
    while let Some(ended) = instances.join_next().await {
        ended??;
    }

    let _: () = Admin::from_url(&server.url).await.cmd(&["DEL", &done]).await;
    let (runs, skips) = (tally.runs.load(Ordering::SeqCst), tally.skips.load(Ordering::SeqCst));
    println!("{TICKS} ticks, {INSTANCES} instances: {runs} runs, {skips} skips");
    assert_eq!((runs, skips), (TICKS, TICKS * (INSTANCES as u32 - 1)));
    Ok(())
}
