//! Late copies, and commands in doubt, one at a time. Random runs rarely produce these orders of events.

use super::scene::cut;
use crate::prelude::*;

const TIMEOUT: Duration = ms(500);
const NAME: &str = "x";

/// Two clients of one server. A command takes 2 ms, and a lost one is noticed after half a second.
struct Two {
    server: SimServer,
    ours: Party,
    theirs: Party,
}

impl Two {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(set: impl Fn(&mut Options)) -> Self {
        let server = SimServer::new(1);
        let link = LinkOptions { timeout: TIMEOUT, ..way(ms(1)) };
        let [ours, theirs] = [(); 2].map(|()| {
            Party::new(&server, link, |options| {
                options.command_timeout = TIMEOUT;
                options.retry_delay = (ms(20), ms(40));
                set(options);
            })
        });
        let two = Self { server, ours, theirs };
        // The clients learn the server's clock.
        for party in [&two.ours, &two.theirs] {
            party.client.semaphore("warm").release(1).await.unwrap();
        }
        two
    }

    fn set(&self, n: u32) {
        does(&self.server, &format!("set {NAME} {n}"));
    }

    /// The number or count on the server.
    fn stored(&self) -> Option<i64> {
        match does(&self.server, &format!("get {NAME}")) {
            SimReply::Text(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The number of permits that are held, or have expired.
    fn held(&self) -> Option<i64> {
        does(&self.server, &format!("zcard {{{NAME}}}:timeout")).int()
    }

    /// Faults of our next command.
    fn plan(&self, mishaps: &[Mishap]) {
        mishaps.iter().for_each(|mishap| self.ours.link.plan_next(mishap.clone()));
    }

    /// Deletes the numbers and the tokens. Then nothing is left.
    async fn ends(&self) {
        for key in self.server.keys() {
            self.server.command(&[b"del", &key]);
        }
        let left = settled(&self.server, &[&self.ours, &self.theirs], ms(60_000)).await;
        left.unwrap_or_else(|left| panic!("K1, K2: {left}"));
    }
}

/// All ways in which a command may be lost, repeated or late. The last copy arrives after its last moment.
fn doubts() -> Vec<Vec<Mishap>> {
    use Mishap::*;
    let late = ms(200);
    vec![
        vec![LoseRequest],
        vec![LoseReply],
        vec![SwallowRequest],
        vec![SwallowReply],
        vec![NotSent],
        vec![DuplicateRequest],
        vec![LateCopy(late)],
        vec![LateOnly(late)],
        vec![SwallowRequest, LateOnly(late)],
        vec![LoseReply, LateCopy(late)],
        vec![SwallowReply, LateCopy(late)],
        vec![LateOnly(ms(2_000))],
    ]
}

/// The acquire is repeated, and its guard extended. Then the first copy of the acquire arrives, whose lease is shorter.
#[test]
fn late_copy_of_permits_acquire_does_not_shorten_extended_lease() {
    each([Some(ms(400)), None], async |lease| {
        let two = Two::new().await;
        two.set(2);
        two.plan(&[Mishap::LateOnly(ms(200))]);
        let how = lease.map_or_else(Acquire::new, |lease| Acquire::new().lease(lease));
        let guard = two.ours.client.permits(NAME).acquire_with(2, how).await.unwrap().unwrap();
        guard.extend(ms(90_000)).await.unwrap();
        // The lease of the copy, which is 30 s at most, is over.
        sleep(ms(60_000)).await;
        assert!(guard.is_held(), "{guard:?}");
        let other = two.theirs.client.permits(NAME).try_acquire(1).await.unwrap();
        assert!(other.is_none(), "N1: {other:?} beside {guard:?}, of 2 permits");
        guard.release().await.unwrap();
        assert_eq!((two.stored(), two.held()), (Some(2), Some(0)), "N2");
        two.ends().await;
    });
}

#[test]
fn late_copy_of_permits_release_returns_nothing_of_next_holder() {
    each([Mishap::LateCopy(ms(200)), Mishap::DuplicateRequest], async |copy| {
        let two = Two::new().await;
        two.set(2);
        let gate = two.ours.client.permits(NAME);
        let first = gate.acquire(2).await.unwrap();
        two.plan(&[copy]);
        first.release().await.unwrap();
        let next = gate.acquire(2).await.unwrap();
        sleep(ms(300)).await;
        assert!(next.is_held() && two.theirs.client.permits(NAME).try_acquire(1).await.unwrap().is_none(), "N1");
        assert_eq!((two.stored(), two.held()), (Some(0), Some(2)), "N2");
        next.release().await.unwrap();
        two.ends().await;
    });
}

/// The copy takes permits for nobody. The client looks for it when no copy can arrive any more.
#[test]
fn permits_of_late_acquire_are_free_long_before_their_lease_ends() {
    virtually(async || {
        let two = Two::new().await;
        two.set(2);
        two.plan(&[Mishap::LateOnly(ms(200))]);
        let how = Acquire::new().lease(ms(60_000)).wait(Duration::ZERO);
        let outcome = two.ours.client.permits(NAME).acquire_with(2, how).await;
        assert!(outcome.as_ref().is_err_and(Error::outcome_unknown), "{outcome:?}");
        sleep(ms(250)).await;
        assert_eq!(two.held(), Some(2), "the copy came in");
        sleep(ms(1_000)).await;
        assert_eq!((two.stored(), two.held()), (Some(2), Some(0)), "N2");
        two.ends().await;
    });
}

#[test]
fn semaphore_acquire_in_doubt_takes_its_permits_once_or_not_at_all() {
    each(pairs(doubts(), [false, true]), async |(mishaps, waits)| {
        let two = Two::new().await;
        two.set(5);
        let seats = two.ours.client.semaphore(NAME);
        two.plan(&mishaps);
        let taken = if waits { seats.acquire(2).await.map(|()| true) } else { seats.try_acquire(2).await };
        assert!(!waits || taken.is_ok(), "a wait failed: {taken:?}");
        sleep(ms(4_000)).await;
        let free = if taken.as_ref().is_ok_and(|taken| *taken) { 3 } else { 5 };
        assert_eq!(two.stored(), Some(free), "N3, after {taken:?}");
        two.ends().await;
    });
}

#[test]
fn semaphore_release_in_doubt_returns_its_permits_once() {
    each(pairs(doubts(), [false, true]), async |(mishaps, if_exists)| {
        let two = Two::new().await;
        two.set(2);
        let seats = two.ours.client.semaphore(NAME);
        two.plan(&mishaps);
        let released = if if_exists { seats.release_if_exists(3).await } else { seats.release(3).await.map(|()| true) };
        assert!(matches!(released, Ok(true)), "a release failed: {released:?}");
        sleep(ms(4_000)).await;
        assert_eq!(two.stored(), Some(5), "N3");
        two.ends().await;
    });
}

#[test]
fn latch_count_down_in_doubt_counts_once() {
    each(doubts(), async |mishaps| {
        let two = Two::new().await;
        two.set(9);
        two.plan(&mishaps);
        let left = two.ours.client.latch(NAME).count_down(2).await;
        assert!(matches!(left, Ok(7)), "N3: {left:?}");
        sleep(ms(4_000)).await;
        assert_eq!(two.stored(), Some(7), "N3");
        two.ends().await;
    });
}

/// The permit becomes free when the acquire has been refused, and then its copy arrives.
#[test]
fn late_copy_of_refused_semaphore_acquire_takes_no_permit() {
    virtually(async || {
        let two = Two::new().await;
        two.set(0);
        two.plan(&[Mishap::LateCopy(ms(200))]);
        assert!(!two.ours.client.semaphore(NAME).try_acquire(1).await.unwrap());
        two.theirs.client.semaphore(NAME).release(1).await.unwrap();
        sleep(ms(400)).await;
        assert_eq!(two.stored(), Some(1), "N3: a permit is taken, and nobody has it");
        two.ends().await;
    });
}

/// The count down finds the count at zero. Then the name is used again, and a copy of the count down arrives.
#[test]
fn late_copy_of_count_down_at_zero_does_not_count_at_next_count() {
    each([vec![Mishap::LateOnly(ms(200))], vec![Mishap::LateCopy(ms(200))]], async |mishaps| {
        let two = Two::new().await;
        two.plan(&mishaps);
        assert_eq!(two.ours.client.latch(NAME).count_down(1).await.unwrap(), 0);
        assert!(two.theirs.client.latch(NAME).try_set(3).await.unwrap());
        sleep(ms(400)).await;
        assert_eq!(two.stored(), Some(3), "N3");
        two.ends().await;
    });
}

/// The first command runs, and its reply is lost. Its repeats cannot be sent until the retries end. A caller repeats a
/// call only if the error says that the call had no effect.
#[test]
fn call_that_may_have_run_is_not_reported_as_certainly_failed() {
    each(["release", "count down"], async |call| {
        let two = Two::with(|options| options.retry_attempts = 1).await;
        two.set(6);
        two.plan(&[Mishap::LoseReply]);
        let next = two.ours.link.sent();
        (next + 1..next + 60).for_each(|number| two.ours.link.plan(number, Mishap::NotSent));
        let make = async || match call {
            "release" => two.ours.client.semaphore(NAME).release(1).await,
            _ => two.ours.client.latch(NAME).count_down(1).await.map(drop),
        };
        let error = make().await.expect_err("no reply arrived");
        if !error.outcome_unknown() {
            // The planned faults may last a little longer.
            while make().await.is_err_and(|error| !error.outcome_unknown()) {}
        }
        sleep(ms(10_000)).await;
        let expected = if call == "release" { 7 } else { 5 };
        assert_eq!(two.stored(), Some(expected), "N3: it counted twice, because of {error:?}");
        two.ends().await;
    });
}

/// The calls of [`call_dropped_after_any_number_of_polls_counts_once_or_not_at_all`].
const CALLS: [&str; 5] = ["acquire permits", "release permits", "acquire", "release", "count down"];

/// Makes one of the calls, and drops it after so many polls. Returns the number that must be left in the end, of 5.
async fn call_and_drop(two: &Two, call: &str, polls: u64) -> i64 {
    let client = &two.ours.client;
    let (permits, semaphore, latch) = (client.permits(NAME), client.semaphore(NAME), client.latch(NAME));
    match call {
        "acquire permits" => {
            // A guard that was returned is dropped here.
            drop(cut(permits.acquire(2), polls).await.transpose().unwrap());
            5
        }
        "release permits" => {
            let guard = permits.acquire(2).await.unwrap();
            cut(guard.release(), polls).await.transpose().unwrap();
            5
        }
        "acquire" => {
            if cut(semaphore.acquire(2), polls).await.transpose().unwrap().is_some() {
                3
            } else {
                5
            }
        }
        "release" => {
            cut(semaphore.release(2), polls).await.transpose().unwrap();
            7
        }
        _ => {
            cut(latch.count_down(2), polls).await.transpose().unwrap();
            3
        }
    }
}

/// C1: an acquire is undone, and the other calls are completed. The reply of the command is lost in half of the cases.
#[test]
fn call_dropped_after_any_number_of_polls_counts_once_or_not_at_all() {
    each(pairs(CALLS, pairs([false, true], 1..=12_u64)), async |(call, (loses, polls))| {
        let two = Two::new().await;
        two.set(5);
        if loses && call != "release permits" {
            two.plan(&[Mishap::LoseReply]);
        }
        let expected = call_and_drop(&two, call, polls).await;
        sleep(ms(5_000)).await;
        assert_eq!((two.stored(), two.held()), (Some(expected), Some(0)), "N3");
        two.ends().await;
    });
}
