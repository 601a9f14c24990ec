//! Permits, semaphores and latches: how long a wait lasts, and how soon a waiter is served, with and without messages.
//! Every command takes a round trip of 2 ms, and waiters do not poll for an hour unless a test says otherwise.

use crate::prelude::*;
use distlock::PermitGuard;

const HOUR: Duration = Duration::from_secs(3600);
const NAME: &str = "job";

/// How late a waiter may be served after a lease or a poll: timers, jitter and a few round trips.
const SOON: Duration = ms(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Permits,
    Semaphore,
    Latch,
}

const KINDS: [Kind; 3] = [Kind::Permits, Kind::Semaphore, Kind::Latch];

struct Two {
    server: SimServer,
    ours: Party,
    theirs: Party,
}

impl Two {
    fn new(poll_cap: Duration) -> Self {
        let server = SimServer::new(1);
        let party = || Party::new(&server, way(ms(1)), |options| options.poll_cap = poll_cap);
        let (ours, theirs) = (party(), party());
        Self { server, ours, theirs }
    }

    /// Sets the number of permits, or the count, directly at the server.
    fn set(&self, n: u32) {
        does(&self.server, &format!("set {NAME} {n}"));
    }

    /// When the lease of each permit ends, the first end in front. The server counts whole ms, so a lease may end up to
    /// 1 ms earlier than this.
    fn ends(&self) -> Vec<Instant> {
        let began = now(&self.server);
        let flat = words(&does(&self.server, &format!("zrange {{{NAME}}}:timeout 0 -1 withscores")));
        let left = |score: &String| score.parse::<i64>().unwrap() - began;
        let ends =
            flat.chunks(2).map(|pair| Instant::now() + ms(left(&pair[1]).try_into().expect("a lease that lasts")));
        ends.collect()
    }

    /// Lets a waiter of our client wait: nothing is free, or the count is above zero.
    fn shut(&self, kind: Kind) {
        self.set(u32::from(kind == Kind::Latch));
    }

    async fn settles(&self) {
        for key in self.server.keys() {
            self.server.command(&[b"del", &key]);
        }
        let left = settled(&self.server, &[&self.ours, &self.theirs], ms(60_000)).await;
        left.unwrap_or_else(|left| panic!("K1, K2: {left}"));
    }
}

/// Waits for one permit or for the latch. The task returns when it was served, with the guard of permits.
fn waits(kind: Kind, client: &Client) -> JoinHandle<(Instant, Option<PermitGuard>)> {
    let (permits, semaphore, latch) = (client.permits(NAME), client.semaphore(NAME), client.latch(NAME));
    tokio::spawn(async move {
        let guard = match kind {
            Kind::Permits => Some(permits.acquire(1).await.unwrap()),
            Kind::Semaphore => semaphore.acquire(1).await.map(|()| None).unwrap(),
            Kind::Latch => latch.wait().await.map(|()| None).unwrap(),
        };
        (Instant::now(), guard)
    })
}

/// Waits for at most `wait`. Returns whether it was served.
async fn waits_for(kind: Kind, client: &Client, wait: Duration) -> bool {
    let served = match kind {
        Kind::Permits => client.permits(NAME).acquire_for(1, wait).await.map(|guard| guard.is_some()),
        Kind::Semaphore => client.semaphore(NAME).acquire_for(1, wait).await,
        Kind::Latch => client.latch(NAME).wait_for(wait).await,
    };
    served.unwrap_or_else(|error| panic!("{kind:?}: a wait failed: {error:?}"))
}

/// Serves one waiter for permits, or all waiters for the latch.
async fn serves(kind: Kind, client: &Client, held: &mut Vec<PermitGuard>) {
    match kind {
        Kind::Permits => held.pop().expect("a guard").release().await.unwrap(),
        Kind::Semaphore => client.semaphore(NAME).release(1).await.unwrap(),
        Kind::Latch => assert_eq!(client.latch(NAME).count_down(1).await.unwrap(), 0),
    }
}

/// Makes others wait. Returns the guards of our client, if it has any.
async fn begins(kind: Kind, two: &Two) -> Vec<PermitGuard> {
    if kind != Kind::Permits {
        two.shut(kind);
        return Vec::new();
    }
    two.set(1);
    vec![two.ours.client.permits(NAME).acquire(1).await.unwrap()]
}

/// The holder is cut off, so nothing announces the end of its lease. The watchdog may have renewed the lease before.
#[test]
fn waiter_for_permits_is_served_when_lease_of_cut_off_holder_ends() {
    let cases = [(None, 500), (None, 25_000), (Some(ms(1_200)), 500), (Some(ms(40_000)), 500)];
    each(cases, async |(lease, cut_after)| {
        let two = Two::new(HOUR);
        two.set(2);
        two.theirs.link.drop_messages(true);
        let how = lease.map_or_else(Acquire::new, |lease| Acquire::new().lease(lease));
        let guard = two.ours.client.permits(NAME).acquire_with(2, how).await.unwrap().unwrap();
        let waiter = waits(Kind::Permits, &two.theirs.client);
        sleep(ms(cut_after)).await;
        two.ours.link.partition(true);
        let end = two.ends()[0];
        let (had, next) = timeout(ms(120_000), waiter).await.expect("W1: the waiter is not served").unwrap();
        assert!(!guard.is_held(), "N1: {guard:?} beside {next:?}");
        assert!(had + ms(1) >= end, "N1: served {:?} before the lease ended", end - had);
        assert!(had <= end + SOON, "W1: served {:?} after the lease ended", had - end);
        two.ours.link.partition(false);
        assert!(guard.release().await.is_err());
        drop(next);
        two.settles().await;
    });
}

/// Each permit has a lease of its own. The first end is too early for a request for two.
#[test]
fn waiter_for_two_permits_is_served_when_second_lease_ends() {
    virtually(async || {
        let two = Two::new(HOUR);
        two.set(3);
        two.theirs.link.drop_messages(true);
        let mut guards = Vec::new();
        for lease in [3_000, 1_000, 2_000] {
            let how = Acquire::new().lease(ms(lease));
            guards.push(two.ours.client.permits(NAME).acquire_with(1, how).await.unwrap().unwrap());
        }
        two.ours.link.partition(true);
        let end = two.ends()[1];
        let next = two.theirs.client.permits(NAME).acquire(2).await.unwrap();
        let had = Instant::now();
        assert!(had + ms(1) >= end && had <= end + SOON, "W1: served at {had:?}, the second lease ended at {end:?}");
        assert_eq!(guards.iter().filter(|guard| guard.is_held()).count(), 1, "N1");
        two.ours.link.partition(false);
        drop((guards, next));
        two.settles().await;
    });
}

/// Alone, behind a waiter of the same client, and without messages.
#[test]
fn wait_never_ends_early_and_ends_soon_after_its_time() {
    each(pairs(KINDS, [false, true]), async |(kind, deaf)| {
        let two = Two::new(HOUR);
        let mut held = begins(kind, &two).await;
        two.theirs.link.drop_messages(deaf);
        for behind in [false, true] {
            let first = behind.then(|| waits(kind, &two.theirs.client));
            sleep(ms(50)).await;
            for wait in [50, 2_000].map(ms) {
                let began = Instant::now();
                let served = waits_for(kind, &two.theirs.client, wait).await;
                let took = began.elapsed();
                assert!(!served, "{kind:?}: served after {took:?}, with nothing free");
                assert!(took >= wait && took <= wait + ms(100), "W3: {took:?} of {wait:?}, behind: {behind}");
            }
            if let Some(first) = first {
                first.abort();
            }
        }
        serves(kind, &two.ours.client, &mut held).await;
        two.settles().await;
    });
}

#[test]
fn message_wakes_waiter_promptly() {
    each(KINDS, async |kind| {
        let two = Two::new(HOUR);
        let mut held = begins(kind, &two).await;
        let waiter = waits(kind, &two.theirs.client);
        sleep(ms(100)).await;
        let served = Instant::now();
        serves(kind, &two.ours.client, &mut held).await;
        let (had, next) = timeout(ms(60_000), waiter).await.expect("W1: the waiter is not woken").unwrap();
        // The client that serves may not know the server's clock, which takes one more round trip.
        assert!(had - served <= ms(20), "W1: {kind:?}: woken after {:?}", had - served);
        drop(next);
        two.settles().await;
    });
}

/// The message is lost, so the waiter learns of the change by its next poll.
#[test]
fn waiter_whose_message_is_lost_is_served_at_its_next_poll() {
    const CAP: Duration = ms(700);
    each(KINDS, async |kind| {
        let two = Two::new(CAP);
        let mut held = begins(kind, &two).await;
        two.theirs.link.drop_messages(true);
        let began = Instant::now();
        let waiter = waits(kind, &two.theirs.client);
        sleep(ms(300)).await;
        assert!(!waiter.is_finished());
        serves(kind, &two.ours.client, &mut held).await;
        let (had, next) = timeout(ms(60_000), waiter).await.expect("W1: the waiter does not poll").unwrap();
        let after = had - began;
        assert!(after >= CAP && after <= CAP + SOON, "{kind:?}: served after {after:?}, with polls every {CAP:?}");
        drop(next);
        two.settles().await;
    });
}

/// One message is enough for all waiters of all clients.
#[test]
fn all_waiters_of_latch_return_together_at_zero() {
    virtually(async || {
        let two = Two::new(HOUR);
        two.set(1);
        let waiters: Vec<_> = (0..10)
            .map(|n| waits(Kind::Latch, if n % 2 == 0 { &two.ours.client } else { &two.theirs.client }))
            .collect();
        sleep(ms(2_000)).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "N4: a waiter returned before zero");
        let zero = Instant::now();
        serves(Kind::Latch, &two.ours.client, &mut Vec::new()).await;
        for (had, _) in all(waiters).await {
            assert!(had >= zero && had - zero <= ms(20), "N4: returned {:?} after zero", had - zero);
        }
        two.settles().await;
    });
}
