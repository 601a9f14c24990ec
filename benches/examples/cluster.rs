//! Compares a cluster of three primaries with one server: pairs of acquire and release per second, and a round of
//! renewal of many holds. All run in turn. `docs/performance.md` shows the results.
//!
//! `cluster [fred|direct] [TASKS] [HOLDS] [ROUNDS]`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::Client;
use distlock_support::{Cluster, ClusterOptions, RedisServer};

/// Time for which pairs are counted.
const SPELL: Duration = Duration::from_secs(2);

/// Acquires in flight while the holds are made.
const AT_ONCE: usize = 256;

async fn client(url: &str, direct: bool) -> Client {
    Client::builder(url).configure(|options| options.use_fred = !direct).connect().await.expect("a client")
}

/// Returns the processor time that this process and the servers it has started have used, in ticks of 10 ms.
fn ticks() -> u64 {
    let own = std::process::id().to_string();
    let mut ticks = 0;
    for entry in std::fs::read_dir("/proc").expect("Linux").flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if entry.file_name().to_str() == Some(&own) || fields[1] == own {
            ticks += fields[11].parse::<u64>().unwrap_or(0) + fields[12].parse::<u64>().unwrap_or(0);
        }
    }
    ticks
}

/// Returns the pairs per second of `tasks` tasks with separate names, and the processor time per pair of this process
/// and the servers, in µs.
async fn pairs(client: &Client, tasks: usize) -> (f64, f64) {
    let (ended, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (began, used) = (Instant::now(), ticks());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (client, ended, count) = (client.clone(), Arc::clone(&ended), Arc::clone(&count));
            tokio::spawn(async move {
                let lock = client.reentrant(&format!("pairs:{task}"));
                while !ended.load(Ordering::Relaxed) {
                    lock.lock().await.expect("a free lock").unlock().await.expect("a release");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(SPELL).await;
    ended.store(true, Ordering::Relaxed);
    for task in running {
        task.await.expect("a task");
    }
    let count = count.load(Ordering::Relaxed) as f64;
    (count / began.elapsed().as_secs_f64(), (ticks() - used) as f64 * 10_000.0 / count)
}

/// Returns the times of `rounds` rounds of renewal of `holds` holds, in ms.
async fn renewals(client: &Client, holds: usize, rounds: usize) -> Vec<u128> {
    let mut guards = Vec::with_capacity(holds);
    let names: Vec<usize> = (0..holds).collect();
    for some in names.chunks(AT_ONCE) {
        let all = some.iter().map(|n| {
            let lock = client.reentrant(&format!("held:{n}"));
            async move { lock.lock().await.expect("a free lock") }
        });
        guards.extend(futures::future::join_all(all).await);
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        let round = client.renew_now().await;
        times.push(began.elapsed().as_millis());
        assert_eq!((round.failed, round.lost), (0, 0), "every hold is renewed");
        assert_eq!(round.renewed, holds);
    }
    while !guards.is_empty() {
        let some = guards.split_off(guards.len().saturating_sub(AT_ONCE));
        for released in futures::future::join_all(some.into_iter().map(distlock::Guard::unlock)).await {
            released.expect("a release");
        }
    }
    times
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, otherwise: &str| words.get(at).cloned().unwrap_or_else(|| otherwise.to_owned());
    let number = |at: usize, otherwise: &str| word(at, otherwise).parse::<usize>().expect("a number");
    let (direct, tasks, holds, rounds) =
        (word(0, "fred") == "direct", number(1, "64"), number(2, "100000"), number(3, "5"));

    let server = RedisServer::start();
    let one_primary = Cluster::start(ClusterOptions::default().primaries(1).replicas(0)).await;
    let three_primaries = Cluster::start(ClusterOptions::default().primaries(3).replicas(0)).await;
    let single = client(&server.url(), direct).await;
    let (one, three) = (client(&one_primary.url(), direct).await, client(&three_primaries.url(), direct).await);
    let mut figures: [(Vec<f64>, Vec<f64>); 3] = Default::default();
    for _ in 0..rounds {
        for (client, (rates, costs)) in [&single, &one, &three].into_iter().zip(&mut figures) {
            let (rate, cost) = pairs(client, tasks).await;
            rates.push(rate);
            costs.push(cost);
        }
    }
    let ratio =
        |to: usize| median(figures[2].0.iter().zip(&figures[to].0).map(|(three, other)| three / other).collect());
    let (to_single, to_one) = (ratio(0), ratio(1));
    println!("{tasks} tasks, medians of {rounds} by turns:");
    for (what, (rates, costs)) in ["one server", "a cluster of one primary", "of three"].into_iter().zip(figures) {
        println!("  {what}: {:.0} pairs/s, {:.1} µs of the processor each", median(rates), median(costs));
    }
    println!("  of three: {to_single:.2} of one server, {to_one:.2} of a cluster of one primary");
    one.shutdown(Duration::from_secs(1)).await.expect("an end");
    let several = three;
    println!("{holds} holds at one server: rounds of renewal in ms {:?}", renewals(&single, holds, rounds).await);
    println!(
        "{holds} holds over three primaries: rounds of renewal in ms {:?}",
        renewals(&several, holds, rounds).await
    );
    for client in [single, several] {
        client.shutdown(Duration::from_secs(1)).await.expect("an end");
    }
}
