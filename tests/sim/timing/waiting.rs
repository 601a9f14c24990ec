//! Length of waits, and which waiter is woken when, for every flavour. Every command takes a round trip of 2 ms, and
//! waiters do not poll for an hour unless a test says otherwise.

use crate::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);
const ROUND_TRIP: Duration = ms(2);
/// The longest pause between two polls at a spin lock.
const SPIN: Duration = ms(128);

/// The flavours of the holder and of the waiter.
const PAIRS: [(Flavour, Flavour); 8] = [
    (Flavour::Reentrant, Flavour::Reentrant),
    (Flavour::Fair, Flavour::Fair),
    (Flavour::Read, Flavour::Write),
    (Flavour::Write, Flavour::Read),
    (Flavour::Write, Flavour::Write),
    (Flavour::Fenced, Flavour::Fenced),
    (Flavour::Spin, Flavour::Spin),
    (Flavour::Plain, Flavour::Plain),
];

fn party(server: &SimServer, one_way: Duration, poll_cap: Duration) -> Party {
    Party::new(server, way(one_way), |options| options.poll_cap = poll_cap)
}

pub struct Two {
    pub server: SimServer,
    pub ours: Party,
    pub theirs: Party,
    pub holder: Flavour,
    pub rival: Flavour,
}

impl Two {
    async fn new((holder, rival): (Flavour, Flavour), one_way: Duration) -> Self {
        let server = SimServer::new(1);
        let [ours, theirs] = [(); 2].map(|()| party(&server, one_way, HOUR));
        // The server knows the scripts, and the clients know its clock.
        for (party, flavour) in pairs([&ours, &theirs], [holder, rival]) {
            lock(&party.client, flavour, "warm").lock().await.unwrap().unlock().await.unwrap();
        }
        Self { server, ours, theirs, holder, rival }
    }

    pub fn mine(&self) -> Box<dyn DistLock> {
        lock(&self.ours.client, self.holder, "job")
    }

    fn theirs(&self) -> Box<dyn DistLock> {
        lock(&self.theirs.client, self.rival, "job")
    }

    /// Starts a waiter of the other client, and returns once it is queued. Its task returns when it acquired the lock.
    pub async fn waiter(&self) -> JoinHandle<Instant> {
        let waiter = waiter(self.theirs().into());
        sleep(ms(50)).await;
        assert_eq!(self.theirs.client.stats().waiting, 1, "it does not wait");
        waiter
    }

    /// Longest time until a waiter notices a change without a message.
    fn unheard(&self) -> Duration {
        if self.rival == Flavour::Spin { SPIN } else { Duration::ZERO }
    }
}

pub fn for_each(body: impl AsyncFnOnce(Two) + Copy + Send + 'static) {
    each(PAIRS, async move |pair| body(Two::new(pair, ROUND_TRIP / 2).await).await);
}

#[test]
fn wait_never_ends_early_and_ends_soon_after_its_time() {
    for_each(async |two| {
        let guard = two.mine().lock().await.unwrap();
        let waiter = two.waiter().await;
        // Behind a waiter of the same client, behind a holder of another client, and behind a holder of the same
        // client.
        let third = party(&two.server, ROUND_TRIP / 2, HOUR);
        for client in [&two.theirs, &third, &two.ours] {
            let lock = lock(&client.client, two.rival, "job");
            for wait in [1, 7, 100, 1_000, 20_000].map(ms) {
                ends_busy(&*lock, wait, "a wait").await;
            }
            let began = Instant::now();
            assert!(lock.try_lock().await.unwrap().is_none());
            assert!(began.elapsed() <= 2 * ROUND_TRIP, "try_lock took {:?}", began.elapsed());
        }
        guard.unlock().await.unwrap();
        waiter.await.unwrap();
    });
}

/// A grant that arrives up to 15 ms after the end of the wait counts.
#[test]
fn reply_within_grace_counts_and_later_reply_is_undone() {
    each(PAIRS, async move |pair| {
        let two = Two::new(pair, ms(10)).await;
        let guard = two.mine().lock_for(ms(12)).await.unwrap();
        guard.expect("granted 8 ms after the wait").unlock().await.unwrap();
        let far = Two::new(pair, ms(50)).await;
        let began = Instant::now();
        assert!(far.mine().lock_for(ms(12)).await.is_err_and(|error| error.outcome_unknown()));
        assert!(began.elapsed() <= ms(12 + 15 + 5), "{:?}", began.elapsed());
        settled(&far.server, &[&far.ours, &far.theirs], ms(20_000)).await.unwrap();
    });
}

/// The message wakes the waiter, not a poll.
#[test]
fn every_kind_of_release_wakes_waiter_promptly() {
    for_each(async |two| {
        for way in ["unlock", "drop", "by owner", "by force"] {
            let guard = two.mine().lock().await.unwrap();
            let waiter = two.waiter().await;
            let released = Instant::now();
            match way {
                "unlock" => drop(guard.unlock().await.unwrap()),
                "drop" => drop(guard),
                "by owner" => drop(two.mine().release(&guard.into_owner()).await.unwrap()),
                _ => assert!(two.mine().force_unlock().await.unwrap()),
            }
            // Half a round trip for the release, half for the message, then one for the waiter's command.
            let woken = timeout(ms(60_000), waiter).await.unwrap_or_else(|_| panic!("{way}: not woken"));
            let took = woken.unwrap() - released;
            assert!(took <= 2 * ROUND_TRIP + ms(5) + two.unheard(), "{way}: woken after {took:?}");
            sleep(ms(100)).await;
        }
    });
}

#[test]
fn waiter_acquires_soon_after_lease_expires() {
    for_each(async |two| {
        for lease in [200, 3_000].map(ms) {
            let began = Instant::now();
            let guard = two.mine().lock_leased(lease).await.unwrap();
            let had = two.waiter().await.await.unwrap() - began;
            assert!(!guard.is_held());
            // A fair lock's places are checked once a second.
            let late = if two.rival == Flavour::Fair { ms(1_000) } else { two.unheard() };
            assert!(had >= lease && had <= lease + ms(25) + late, "had {had:?} into a lease of {lease:?}");
            drop(guard);
            sleep(ms(100)).await;
        }
    });
}

/// Behind a foreign hold that never expires, the waiter neither spins nor sleeps for longer than the poll cap.
#[test]
fn waiter_without_message_looks_once_per_poll_cap() {
    use Flavour::{Fair, Fenced, Reentrant, Write};
    // Two polls at the start, then one for each poll cap. `backoff` covers spin and plain locks.
    each([(Reentrant, 8), (Fair, 10), (Write, 8), (Fenced, 8)], async |(flavour, most)| {
        let server = SimServer::new(1);
        let ours = party(&server, ROUND_TRIP / 2, ms(100));
        let lock = lock(&ours.client, flavour, "job");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let mode = if flavour == Write { "mode write " } else { "" };
        does(&server, &format!("hset job {mode}{} 1", field(flavour, "somebody")));
        let before = server.scripts_run();
        assert!(lock.lock_for(ms(500)).await.unwrap().is_none());
        let looks = server.scripts_run() - before;
        assert!((6..=most).contains(&looks), "{looks} looks in 500 ms");
    });
}

/// The first pause is a tenth of a full pause. Later pauses stay between the two bounds. Half of each pause is random.
#[test]
fn retry_pauses_stay_in_their_bounds_and_retries_end() {
    each(0..10, async move |seed| {
        let server = SimServer::new(seed);
        let link = LinkOptions { timeout: ms(500), ..LinkOptions::instant() };
        let ours = Party::new(&server, link, |options| {
            options.command_timeout = ms(500);
            options.retry_delay = (ms(400), ms(1_600));
            options.retry_attempts = 4;
        });
        let lock = lock(&ours.client, Flavour::Reentrant, "job");
        lock.lock().await.unwrap().unlock().await.unwrap();
        server.stop();
        let began = Instant::now();
        let acquiring = tokio::spawn(async move { lock.lock().await });
        let (mut sent, mut attempts) = (ours.link.sent(), Vec::new());
        while !acquiring.is_finished() {
            if ours.link.sent() > sent {
                sent = ours.link.sent();
                attempts.push(Instant::now());
            }
            sleep(ms(1)).await;
        }
        assert!(acquiring.await.unwrap().is_err_and(|error| error.is_retryable()), "the server is gone");
        let took = began.elapsed();
        // One attempt and one pause may have begun just before that.
        assert!(took <= 5 * ms(500 + 1_600), "seed {seed}: it retries for {took:?}");
        let pauses: Vec<_> = attempts.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(pauses.len() >= 4, "seed {seed}: {pauses:?}");
        let sound = pauses[1..pauses.len() - 1].iter().all(|pause| (ms(200)..=ms(1_610)).contains(pause));
        assert!(pauses[0] <= ms(50) && sound, "seed {seed}: {pauses:?}");
    });
}

#[test]
fn acquire_at_silent_server_ends_on_time_with_timeout_error() {
    for_each(async |two| {
        let guard = two.ours.client.reentrant("other").lock().await.unwrap();
        two.server.freeze(true);
        for (wait, most) in [(300, 350), (0, 3_100)] {
            let began = Instant::now();
            let outcome = two.theirs().acquire(Acquire::new().wait(ms(wait))).await;
            let took = began.elapsed();
            assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
            assert!(took >= ms(wait) && took <= ms(most), "{took:?} of {wait} ms");
        }
        two.server.freeze(false);
        guard.unlock().await.unwrap();
        settled(&two.server, &[&two.ours, &two.theirs], ms(60_000)).await.unwrap();
    });
}
