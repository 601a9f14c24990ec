//! Tests a service that must stop its work when its lock is lost. The tests need no Redis, and hours of virtual time
//! take a moment.
//!
//! Two instances of the service pay bills; only the instance that holds the lock may do so. Each test causes one fault,
//! or random faults under many seeds.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use distlock::Client;
use distlock_sim::{Chaos, LinkOptions, SimLink, SimServer};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// The service as in production. It does not know the simulator.
mod service {
    use super::*;

    /// Pays bills whenever it holds the lock. Never ends.
    pub async fn serve(client: Client, till: Rc<Till>) {
        let lock = client.reentrant("payments");
        loop {
            // Redis may be unreachable for longer than an acquire waits.
            let Ok(guard) = lock.lock().await else {
                sleep(Duration::from_secs(1)).await;
                continue;
            };
            // This line is under test: the work ends when the lock is lost. Without `run` the tests fail.
            let _ = guard.run(pay(&till)).await;
        }
    }

    async fn pay(till: &Till) {
        let _open = till.open();
        loop {
            till.pay();
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Where bills are paid.
    #[derive(Default)]
    pub struct Till {
        /// The number of instances that work at this moment.
        pub at_it: watch::Sender<u32>,
        /// The largest number of instances that worked at the same time.
        pub most: Cell<u32>,
        pub paid: Cell<u32>,
    }

    /// An instance works until this is dropped.
    struct Open<'a>(&'a Till);

    impl Till {
        fn open(&self) -> Open<'_> {
            self.at_it.send_modify(|at_it| *at_it += 1);
            self.most.set(self.most.get().max(*self.at_it.borrow()));
            Open(self)
        }

        fn pay(&self) {
            self.paid.set(self.paid.get() + 1);
        }
    }

    impl Drop for Open<'_> {
        fn drop(&mut self) {
            self.0.at_it.send_modify(|at_it| *at_it -= 1);
        }
    }
}

use service::Till;

struct Scene {
    server: SimServer,
    links: [SimLink; 2],
    till: Rc<Till>,
}

impl Scene {
    /// Starts both instances. The first one works, the second one waits.
    async fn new(seed: u64) -> Self {
        let server = SimServer::new(seed);
        let links = [server.link(LinkOptions::default()), server.link(LinkOptions::default())];
        let till = Rc::new(Till::default());
        for link in &links {
            let client = link.client(|_| {}).expect("default options work");
            tokio::task::spawn_local(service::serve(client, Rc::clone(&till)));
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(*till.at_it.borrow(), 1);
        Self { server, links, till }
    }

    /// Waits until `at_it` instances work. Returns how long that took.
    async fn until(&self, at_it: u32) -> Duration {
        let begun = Instant::now();
        let mut till = self.till.at_it.subscribe();
        let reached = timeout(Duration::from_secs(120), till.wait_for(|now| *now == at_it)).await;
        assert!(reached.is_ok(), "work ends, and goes on, within two minutes");
        begun.elapsed()
    }
}

/// An instance that is cut off stops before its lease ends, and the other instance takes over.
async fn cut_off() {
    let scene = Scene::new(1).await;
    scene.links[0].partition(true);
    let stopped = scene.until(0).await;
    let resumed = stopped + scene.until(1).await;
    assert!(resumed < Duration::from_secs(40), "{resumed:?}");
    scene.links[0].partition(false);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.till.most.get(), 1, "never two at a time");
}

/// A server that restarts without its data has lost the lock. The instance stops as soon as it learns of the loss.
async fn forgotten() {
    let scene = Scene::new(2).await;
    scene.server.stop();
    sleep(Duration::from_secs(5)).await;
    scene.server.start(false);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*scene.till.at_it.borrow(), 1);
}

/// Under random faults at most one instance works at a time. After the faults, one instance works.
async fn bad_weather(seed: u64) {
    let scene = Scene::new(seed).await;
    let weather = Chaos {
        lose_request: 0.1,
        lose_reply: 0.1,
        duplicate: 0.1,
        late_copy: 0.5,
        late_max: Duration::from_secs(60),
        lose_message: 0.3,
        ..Chaos::default()
    };
    for round in 0..10 {
        let (one, other) = (&scene.links[round % 2], &scene.links[(round + 1) % 2]);
        one.chaos(weather);
        other.stall(true);
        sleep(Duration::from_secs(7 * seed % 50)).await;
        other.stall(false);
        one.partition(true);
        sleep(Duration::from_secs(45)).await;
        one.partition(false);
        one.chaos(Chaos::default());
    }
    scene.until(1).await;
    let paid = scene.till.paid.get();
    sleep(Duration::from_secs(60)).await;
    assert!(scene.till.paid.get() > paid, "seed {seed}: nobody works");
    assert_eq!(scene.till.most.get(), 1, "seed {seed}: two at a time");
}

/// Runs a test in virtual time. Returns how much virtual time passed. In your own tests, use
/// `#[tokio::test(start_paused = true)]` instead.
fn virtually(test: impl Future<Output = ()>) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), async {
        let start = Instant::now();
        test.await;
        start.elapsed()
    })
}

fn main() {
    let told = |name: &str, tests: &dyn Fn() -> Duration| {
        let begun = std::time::Instant::now();
        println!("{name}: {} s in {} ms", tests().as_secs(), begun.elapsed().as_millis());
    };
    told("cut off", &|| virtually(cut_off()));
    told("forgotten", &|| virtually(forgotten()));
    told("bad weather, 50 seeds", &|| (0..50).map(|seed| virtually(bad_weather(seed))).sum());
}
