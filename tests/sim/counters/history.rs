//! The histories of runs, and their checks. Each check has a red control: a history that breaks its rule.

use crate::prelude::*;
use std::collections::BTreeSet;

/// A time in which a caller certainly had permits: `[from, min(ended, until))`.
#[derive(Clone, Debug)]
struct Span {
    permits: u32,
    /// When the acquire returned.
    from: Instant,
    /// End of the guard's validity, as last seen. None: without an end.
    until: Option<Instant>,
    /// When the guard was last seen to hold.
    seen: Instant,
    ended: Option<Instant>,
}

impl Span {
    fn covers(&self, at: Instant) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until) && self.ended.is_none_or(|ended| at < ended)
    }
}

#[derive(Default)]
pub struct Spans(Mutex<Vec<Span>>);

impl Spans {
    pub fn begin(&self, permits: u32, until: Option<Instant>) -> usize {
        let (mut spans, now) = (self.0.lock(), Instant::now());
        spans.push(Span { permits, from: now, until, seen: now, ended: None });
        spans.len() - 1
    }

    /// Records how long the guard holds from now on. None: it does not hold any more.
    pub fn look(&self, span: usize, left: Option<Duration>) {
        let now = Instant::now();
        let span = &mut self.0.lock()[span];
        match left {
            Some(left) => (span.until, span.seen) = (Some(now + left), now),
            // It was lost earlier than known: at an unknown time after it was last seen.
            None if span.until.is_none_or(|until| until > now) => span.until = Some(span.seen),
            None => {}
        }
    }

    /// Ends the known validity now, because the lease may become shorter.
    pub fn cut(&self, span: usize) {
        let now = Instant::now();
        let span = &mut self.0.lock()[span];
        span.until = Some(span.until.map_or(now, |until| until.min(now)));
    }

    pub fn end(&self, span: usize) {
        self.0.lock()[span].ended.get_or_insert(Instant::now());
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// The permits of all spans that cover this moment.
    pub fn taken(&self) -> u32 {
        let now = Instant::now();
        self.0.lock().iter().filter(|span| span.covers(now)).map(|span| span.permits).sum()
    }

    /// The moments at which a span begins, with the permits that callers have then.
    fn sums(&self) -> Vec<(Instant, u32)> {
        let spans = self.0.lock();
        let sum = |at: Instant| spans.iter().filter(|span| span.covers(at)).map(|span| span.permits).sum::<u32>();
        spans.iter().map(|span| (span.from, sum(span.from))).collect()
    }

    /// The most permits that callers had at once.
    pub fn most(&self) -> u32 {
        self.sums().into_iter().map(|(_, sum)| sum).max().unwrap_or(0)
    }

    /// N1: the moments at which callers had more than `n` permits.
    pub fn too_many(&self, n: u32, start: Instant) -> Vec<String> {
        let more = self.sums().into_iter().filter(|(_, sum)| *sum > n);
        more.map(|(at, sum)| format!("N1: at {:?}, {sum} of {n} permits are held", at - start)).collect()
    }

    /// N3: while no command is in flight, what callers have and what is free add up to `n`.
    pub fn miscounted(&self, n: u32, free: i64) -> Option<String> {
        let taken = self.taken();
        (free + i64::from(taken) != i64::from(n))
            .then(|| format!("N3: {free} permits are free and {taken} are taken, of {n}"))
    }
}

/// M2: every permit that guards rely on has a lease on the server that lasts as long. `guards`: for how long each guard
/// holds, and its permits. `leases`: the rest of the lease of each permit on the server.
pub fn unbacked(guards: &[(Duration, u32)], mut leases: Vec<Duration>) -> Option<String> {
    let mut needed: Vec<_> = guards.iter().flat_map(|(left, permits)| (0..*permits).map(|_| *left)).collect();
    needed.sort_unstable_by(|a, b| b.cmp(a));
    leases.sort_unstable_by(|a, b| b.cmp(a));
    let mut pairs = needed.iter().zip(leases.iter().map(Some).chain(std::iter::repeat(None)));
    let (left, lease) = pairs.find(|(left, lease)| lease.is_none_or(|lease| lease < *left))?;
    Some(format!(
        "M2: a guard relies on a permit for {left:?}; the server has it for {lease:?}; {guards:?}, {leases:?}"
    ))
}

/// Since when there is enough for every waiter.
#[derive(Default)]
pub struct Idle(Option<(u32, Instant)>);

impl Idle {
    pub fn reset(&mut self) {
        self.0 = None;
    }

    /// W1: returns how long there has been enough, once that is longer than `bound`. `enough`: there is enough now, and
    /// somebody waits.
    pub fn look(&mut self, enough: bool, bound: Duration) -> Option<Duration> {
        if !enough {
            self.reset();
            return None;
        }
        let (looks, since) = self.0.get_or_insert((0, Instant::now()));
        *looks += 1;
        let waits = since.elapsed();
        // Several looks, because a jump of the clock is not a wait.
        if *looks <= 3 || waits <= bound {
            return None;
        }
        // Reported once.
        *since = Instant::now() + Duration::from_secs(1_000);
        Some(waits)
    }
}

/// An event at a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Set(u32),
    /// A count down by this number begins.
    Begins(u32),
    /// A count down returns: this count is left.
    Counted(u64),
    /// This waiter begins a wait.
    Asks(usize),
    /// The wait of this waiter ends, because the count is zero.
    Returns(usize),
    /// The wait of this waiter ends for another reason.
    GivesUp(usize),
}

/// N3, N4: every count down counts once, no wait returns before the count can be zero, and every wait ends.
pub fn check_latch(events: &[Event]) -> Vec<String> {
    let (mut n, mut begun, mut lefts, mut waiting, mut wrong) = (0, 0, BTreeSet::new(), BTreeSet::new(), Vec::new());
    for event in events {
        match *event {
            Event::Set(count) => {
                wrong.extend(waiting.iter().map(|waiter| format!("N4: waiter {waiter} did not return at zero")));
                (n, begun) = (count, 0);
                lefts.clear();
                waiting.clear();
            }
            Event::Begins(k) => begun += k,
            // Different counts down leave different counts.
            Event::Counted(left) if left >= u64::from(n) || !lefts.insert(left) => {
                wrong.push(format!("N3: a count down of {n} left {left}, as another did, or counted nothing"));
            }
            Event::Counted(_) => {}
            Event::Asks(waiter) => drop(waiting.insert(waiter)),
            Event::GivesUp(waiter) => drop(waiting.remove(&waiter)),
            Event::Returns(waiter) => {
                waiting.remove(&waiter);
                if begun < n {
                    wrong.push(format!("N4: waiter {waiter} returned after {begun} of {n}"));
                }
            }
        }
    }
    wrong.extend(waiting.iter().map(|waiter| format!("N4: waiter {waiter} did not return at zero")));
    wrong
}

mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn more_permits_than_there_are_at_one_moment_are_found() {
        let (start, spans) = (Instant::now(), Spans::default());
        let first = spans.begin(2, Some(start + ms(100)));
        let short = spans.begin(1, Some(start + ms(10)));
        advance(ms(10)).await;
        // The short one has just ended.
        spans.begin(1, Some(start + ms(50)));
        assert_eq!((spans.too_many(3, start), spans.most()), (Vec::new(), 3));
        advance(ms(10)).await;
        spans.end(first);
        spans.look(short, None);
        spans.begin(2, None);
        assert_eq!(spans.too_many(3, start), Vec::<String>::new());
        advance(ms(10)).await;
        spans.begin(1, None);
        assert_eq!(spans.too_many(3, start), ["N1: at 30ms, 4 of 3 permits are held"]);
        assert_eq!(spans.taken(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn span_ends_when_guard_was_last_seen_or_cut() {
        let (start, spans) = (Instant::now(), Spans::default());
        let [lost, cut] = [(); 2].map(|()| spans.begin(1, Some(start + ms(100))));
        advance(ms(10)).await;
        spans.look(lost, Some(ms(90)));
        advance(ms(10)).await;
        spans.look(lost, None);
        spans.cut(cut);
        assert_eq!(spans.taken(), 0);
        spans.look(cut, Some(ms(5)));
        assert_eq!(spans.taken(), 1);
        advance(ms(5)).await;
        assert_eq!((spans.taken(), spans.len()), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn command_that_counts_twice_or_not_at_all_is_found() {
        let spans = Spans::default();
        let span = spans.begin(2, None);
        assert_eq!(spans.miscounted(5, 3), None);
        for free in [1, 2, 5, 7] {
            assert!(spans.miscounted(5, free).is_some_and(|wrong| wrong.starts_with("N3")), "{free}");
        }
        spans.end(span);
        assert_eq!(spans.miscounted(5, 5), None);
        assert!(spans.miscounted(5, 7).is_some());
    }

    #[test]
    fn guard_without_permit_on_server_is_found() {
        let backed = [(ms(10), 2), (ms(30), 1)];
        assert_eq!(unbacked(&backed, vec![ms(10), ms(31), ms(12), ms(1)]), None);
        // A lease is too short, or a permit is missing.
        for leases in [vec![ms(10), ms(29), ms(12)], vec![ms(9), ms(31), ms(12)], vec![ms(31), ms(12)], Vec::new()] {
            assert!(unbacked(&backed, leases.clone()).is_some_and(|wrong| wrong.starts_with("M2")), "{leases:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiter_that_is_left_behind_is_found_once() {
        let mut idle = Idle::default();
        let mut found = Vec::new();
        for n in 0..40 {
            // At one moment no task waits, so the time counts from there.
            found.extend(idle.look(n != 10, ms(100)));
            advance(ms(10)).await;
        }
        assert_eq!(found, [ms(110)]);
        idle.reset();
        assert_eq!(idle.look(true, ms(0)), None);
    }

    #[test]
    fn early_and_missing_returns_and_repeated_counts_of_latch_are_found() {
        use Event::{Asks, Begins, Counted, GivesUp, Returns, Set};
        let good = [Set(3), Asks(0), Begins(1), Counted(2), GivesUp(0), Asks(0), Begins(2), Returns(0), Counted(0)];
        let again = [&good[..], &[Set(1), Asks(0), Begins(1), Counted(0), Returns(0)][..]].concat();
        assert_eq!(check_latch(&again), Vec::<String>::new());
        let early = [Set(3), Asks(0), Begins(1), Returns(0), Begins(2)];
        let missing = [Set(1), Asks(0), Asks(1), Begins(1), Returns(1)];
        let before_set = [&missing[..], &[Set(2)][..]].concat();
        let stale = [&good[..], &[Set(1), Asks(0), Returns(0)][..]].concat();
        for events in [&early[..], &missing[..], &before_set[..], &stale[..]] {
            let wrong = check_latch(events);
            assert!(wrong.len() == 1 && wrong[0].starts_with("N4"), "{events:?}: {wrong:?}");
        }
        let (twice, never) = ([Set(3), Begins(1), Begins(1), Counted(2), Counted(2)], [Set(3), Begins(1), Counted(3)]);
        for events in [&twice[..], &never[..]] {
            let wrong = check_latch(events);
            assert!(wrong.len() == 1 && wrong[0].starts_with("N3"), "{events:?}: {wrong:?}");
        }
    }
}
