//! distlock beside the raw commands and its peers.
use std::time::Duration;
use distlock_support::RedisServer;
mod drive; mod raw; mod subject;
use subject::{Any, Who};
use drive::{Plan, Timed};
fn main() {
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    rt.block_on(async {
        let server = RedisServer::start();
        let args: Vec<String> = std::env::args().collect();
        let pool: usize = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(1);
        let rounds: usize = args.get(2).and_then(|a| a.parse().ok()).unwrap_or(7);
        let d = Any::connect(Who::Distlock, &server.url(), pool).await;
        let r = Any::connect(Who::Raw, &server.url(), pool).await;
        for tasks in [1, 64, 1024] {
            let plan = Plan { tasks, name: "b".into(), own: true, timed: Timed::Pair, hold: Duration::ZERO, length: Duration::from_millis(700) };
            let mut ratios = vec![]; let mut a = vec![]; let mut b = vec![];
            for round in 0..=rounds {
                let (x, y) = if round % 2 == 0 { let x = d.run(&plan).await; (x, r.run(&plan).await) } else { let y = r.run(&plan).await; (d.run(&plan).await, y) };
                if round > 0 { ratios.push(x.rate() / y.rate()); a.push(x.rate()); b.push(y.rate()); }
            }
            for v in [&mut ratios, &mut a, &mut b] { v.sort_by(f64::total_cmp); }
            println!("pool {pool} tasks {tasks}: distlock {:.0}/s raw {:.0}/s ratio median {:.3} (range {:.3}..{:.3})", a[rounds/2], b[rounds/2], ratios[rounds/2], ratios[0], ratios[rounds-1]);
        }
        d.close().await; r.close().await;
    });
}
