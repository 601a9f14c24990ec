//! What a RedLock costs (design §5): one command a server for an acquire, one for a release, one round trip each.

use std::time::{Duration, Instant};

use distlock::DistLock as _;
use distlock_support::proxy::Mode;

use crate::rig::{Path, everywhere, five, long, patient};
use bed::{eventually, ms, secs};

/// One command a server and acquire, and one a server and release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_a_server() {
    everywhere(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let lock = user.red("x");
        for at in five.all() {
            five.admin(at).await.reset_stats().await;
        }
        for _ in 0..20 {
            let guard = lock.acquire(long()).await.unwrap().expect("nobody has it");
            eventually("all have granted it", async || guard.members().len() == five.all().len()).await;
            guard.unlock().await.unwrap();
            user.idle_at(&five.all()).await;
        }
        for at in five.all() {
            let calls = five.admin(at).await.commandstats().await;
            let count = |name: &str| calls.get(name).copied().unwrap_or_default();
            assert_eq!((count("evalsha"), count("eval"), count("subscribe")), (40, 0, 0), "server {at}");
        }
    })
    .await;
}

/// One round trip for an acquire and one for a release, whatever two of five take: the quickest of ten tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_round_trip_of_the_majority() {
    const TRIP: Duration = ms(60);
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        let lock = user.red("x");
        for (at, proxy) in five.proxies.iter().enumerate() {
            proxy.set_downstream_mode(Mode::Delay(if at % 3 == 0 { TRIP * 4 } else { TRIP }));
        }
        let (mut there, mut back) = (Duration::MAX, Duration::MAX);
        for _ in 0..10 {
            let began = Instant::now();
            let guard = lock.acquire(long()).await.unwrap().expect("nobody has it");
            there = there.min(began.elapsed());
            let began = Instant::now();
            guard.unlock().await.unwrap();
            back = back.min(began.elapsed());
            user.idle_at(&[0, 1, 2, 3, 4]).await;
        }
        println!("acquire {there:?}, release {back:?}; a round trip is {TRIP:?}, of two servers {:?}", TRIP * 4);
        for took in [there, back] {
            assert!((TRIP..TRIP * 2).contains(&took), "{took:?}");
        }
    })
    .await;
}
