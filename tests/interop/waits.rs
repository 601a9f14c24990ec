//! Waits with an end, in either language, on a lock that the other holds.

use std::time::{Duration, Instant};

use distlock_support::agent::monotonic_ns;

use crate::rig::{BUSY, Rig, channel, ms, replied, soon};

const WAIT: Duration = ms(300);

/// A wait that nobody ends early goes on for longer than this past its end only where the machine is busy: never in each round.
const LATE: Duration = ms(200);

/// What the waits of one side took.
struct Took(String, Duration);

impl Took {
    fn new(what: String) -> Self {
        Self(what, Duration::MAX)
    }

    fn note(&mut self, took: Duration) {
        let what = &self.0;
        println!("{what}: {took:?} of {WAIT:?}");
        assert!(took >= WAIT - ms(2) && took < WAIT + BUSY, "{what}: {took:?}");
        self.1 = self.1.min(took);
    }

    fn end(&self) {
        assert!(self.1 < WAIT + LATE, "{}: {:?} at the best", self.0, self.1);
    }
}

/// Waits that end without the lock.
pub async fn waits_run_out(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let (lock, java) = (client.reentrant("w"), rig.java("w", 1));
    let mut theirs = Took::new(format!("{version}: tryLock(wait) in Java while we hold"));
    let mut ours = Took::new(format!("{version}: lock_for(wait) with us while Java holds"));
    for _ in 0..3 {
        let guard = lock.lock().await.expect("a free lock");
        assert_eq!(java.try_lock().await, Ok(false));
        assert_eq!(java.try_lock_within(Duration::ZERO).await, Ok(false));
        let answer = replied(java.start_try_lock(WAIT, None)).await;
        assert_eq!(answer.value, false);
        theirs.note(answer.took());
        // Nobody waits any more, so nobody listens.
        rig.listeners(&channel("w"), 0).await;
        guard.unlock().await.expect("a lock held");

        replied(java.lock()).await;
        assert!(lock.try_lock().await.expect("an answer").is_none());
        assert!(lock.lock_for(Duration::ZERO).await.expect("an answer").is_none());
        let began = Instant::now();
        assert!(lock.lock_for(WAIT).await.expect("an answer").is_none());
        ours.note(began.elapsed());
        assert_eq!(client.stats().waiting, 0);
        replied(java.unlock()).await;
    }
    theirs.end();
    ours.end();
    rig.end([client]).await;
}

/// Waits that end with the lock, well before their time.
pub async fn waits_are_met(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let (lock, java) = (client.reentrant("m"), rig.java("m", 1));
    let wait = Duration::from_secs(20);

    let guard = lock.lock().await.expect("a free lock");
    let before = rig.scripts().await;
    let theirs = java.start_try_lock(wait, Some(Duration::from_secs(9)));
    rig.scripts_since(before, 2).await;
    let from = monotonic_ns();
    guard.unlock().await.expect("a lock held");
    let answer = replied(theirs).await;
    assert_eq!(answer.value, true);
    assert!(Duration::from_nanos(answer.t1 - from) < BUSY, "not woken");
    let lease = rig.admin.pttl("m").await;
    assert!((8000..=9000).contains(&lease), "{lease}");

    let ours = tokio::spawn({
        let lock = lock.clone();
        async move { (lock.lock_for(wait).await, monotonic_ns()) }
    });
    rig.listeners(&channel("m"), 1).await;
    rig.waiting(&client, 1).await;
    let released = replied(java.unlock()).await;
    let (guard, had) = soon(ours).await.expect("the waiter");
    assert!(Duration::from_nanos(had.saturating_sub(released.t0)) < BUSY, "not woken");
    guard.expect("an answer").expect("the lock").unlock().await.expect("a lock held");
    rig.end([client]).await;
}
