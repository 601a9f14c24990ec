//! Clients of both languages take turns at a counter, and some give up. No update is lost, and nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bed::in_vain;
use distlock::Client;
use distlock_support::agent::{AgentOptions, JavaLock};
use distlock_support::{Admin, Numbers};
use futures::future::join_all;

use crate::fair_rig::{Lane, USUAL_WAIT};
use crate::rig::{NEVER, Rig, connect, had, ms, watched};

const NAME: &str = "mixed";
const COUNTER: &str = "counter";
/// Tasks of each kind in each client.
const TASKS: u64 = 3;
const CLIENTS: usize = 2;
const ROUNDS: u64 = 1000;

#[derive(Default)]
struct Tally {
    rounds: AtomicU64,
    counted: AtomicU64,
    given_up: AtomicU64,
    inside: AtomicU64,
}

impl Tally {
    fn take(&self) -> bool {
        self.rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS
    }

    async fn count(&self, admin: &Admin) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two had the lock at once");
        let old: Option<u64> = admin.cmd(&["GET", COUNTER]).await;
        admin.cmd::<()>(&["SET", COUNTER, &(old.unwrap_or(0) + 1).to_string()]).await;
        self.counted.fetch_add(1, Ordering::Relaxed);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn give_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }
}

async fn in_java(tally: Arc<Tally>, lock: JavaLock, admin: Admin, mut dice: Numbers) {
    while tally.take() {
        let call = match dice.below(10) {
            0..=5 => lock.start_lock(),
            6..=7 => lock.start_try_lock(ms(1 + dice.below(40)), None),
            _ => lock.start_try_lock(ms(1 + dice.below(40)), Some(NEVER)),
        };
        if had(call.await).is_some() {
            tally.count(&admin).await;
            lock.unlock().await.expect("unlock");
        } else {
            tally.give_up();
        }
    }
}

async fn in_rust(tally: Arc<Tally>, client: Client, admin: Admin, mut dice: Numbers) {
    let lock = client.fair(NAME);
    while tally.take() {
        let guard = match dice.below(10) {
            0..=5 => Some(lock.lock().await.expect("lock")),
            6..=7 => match lock.lock_for(ms(1 + dice.below(40))).await {
                outcome if in_vain(&outcome) => None,
                outcome => outcome.expect("lock_for"),
            },
            // Drops the acquire while it waits or its command is in flight.
            _ => tokio::time::timeout(ms(dice.below(40)), lock.lock()).await.ok().map(|guard| guard.expect("lock")),
        };
        match guard {
            Some(guard) => {
                tally.count(&admin).await;
                if dice.below(4) == 0 {
                    drop(guard);
                } else {
                    guard.unlock().await.expect("unlock");
                }
            }
            None => tally.give_up(),
        }
    }
}

/// All tasks share a thousand rounds.
pub async fn fair_counter_is_exact_when_waiters_give_up(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); CLIENTS]).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect(watched(rig.builder()).fair_wait(USUAL_WAIT)).await);
    }
    let lane = Lane::new(&rig, NAME);
    let tally = Arc::new(Tally::default());
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        for (i, client) in clients.iter().enumerate() {
            let seed = 100 * task + 10 * i as u64;
            let (java, rust) = (Admin::connect(&rig.server).await, Admin::connect(&rig.server).await);
            tasks.push(tokio::spawn(in_java(
                Arc::clone(&tally),
                lane.java(i, task as i64 + 1),
                java,
                Numbers::new(seed + 1),
            )));
            tasks.push(tokio::spawn(in_rust(Arc::clone(&tally), client.clone(), rust, Numbers::new(seed + 2))));
        }
    }
    // A waiter of Java that gives up at its turn sends no message. If no other client arrives, the test must wake the
    // waiters behind it.
    let wake_java = async || {
        for (i, task) in (0..CLIENTS).flat_map(|i| (0..TASKS).map(move |task| (i, task))) {
            rig.admin.publish(&lane.channel(&lane.java_owner(i, task as i64 + 1)), b"0").await;
        }
    };
    let mut all = std::pin::pin!(join_all(tasks));
    let ended = loop {
        tokio::select! {
            ended = &mut all => break ended,
            () = tokio::time::sleep(ms(500)) => {
                if tally.rounds.load(Ordering::Relaxed) >= ROUNDS {
                    wake_java().await;
                }
            }
        }
    };
    for one in ended {
        one.expect("the rounds of one");
    }
    let (counted, given_up) = (tally.counted.load(Ordering::Relaxed), tally.given_up.load(Ordering::Relaxed));
    assert_eq!(counted + given_up, ROUNDS);
    assert!(counted > ROUNDS / 10 && given_up > ROUNDS / 50, "{version}: not mixed: {counted}, {given_up}");
    assert_eq!(rig.admin.cmd::<u64>(&["GET", COUNTER]).await, counted, "{version}: two had the lock at once");
    lane.is_gone().await;
    rig.admin.cmd::<()>(&["DEL", COUNTER]).await;
    rig.end(clients).await;
}
