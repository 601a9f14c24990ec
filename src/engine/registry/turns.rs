//! Turns among processes: after a release, the process that held the lock yields to the others.
//!
//! All contenders receive the message of a release at the same time, and the fastest acquires the lock. Without turns,
//! the releasing process would win every time, and a process with a slower client would starve. A *way* is a pause in
//! which this process yields.
//!
//! Reentrant and fenced locks count turns by messages:
//!
//! 1. If n other clients received the message of a release, a way starts: this process waits for n more releases before
//!    its next attempt.
//! 2. If no message arrives for [`WAY`], the process attempts anyway. Until it acquires the lock, later messages still
//!    count as turns.
//! 3. Not every receiver competes, because subscriptions linger. So each way records how many turns the others took.
//!    The next way waits for that many turns, plus one for each new receiver. From time to time a *trial* waits for all
//!    receivers again. After each trial the pause before the next trial doubles, up to [`RAREST`].
//!
//! Waiters for spin and plain locks poll. If another holder was seen within [`SEEN`], this process leaves the lock free
//! for a random time after its release.
//!
//! Read-write locks count no turns. While Java clients (Redisson) compete, two kinds of attempt first pause for a
//! random part of a [`WINDOW`]: an attempt after a message, and a writer's attempt right after a writer's release in
//! this process. A Java client is noticed only while it holds the lock, so a Java waiter that loses every race is never
//! noticed. So that such a waiter can acquire the lock, all processes with this crate yield at the first message of
//! each [`PERIOD`] while a lock is busy. The server's clock defines the periods, so the processes yield at the same
//! time.
//!
//! Any client can send a message, so only fairness depends on turns, not correctness.

mod way;

use std::time::Duration;

use crate::world::Moment;
use way::{Learnt, Way};

/// A process that yields makes an attempt after this long without a message ([`Way::length_after`]). A message and an
/// attempt take 0.3 ms on a quiet machine, and 2 to 5 ms with Redisson's client. On a busy machine both take several
/// times as long.
pub(super) const WAY: Duration = Duration::from_millis(10);

/// Time limit for hand-overs inside this process while other processes compete. Short, to be fair to Redisson, where
/// each thread competes for itself and no lock is handed over.
const SHARED_TURN: Duration = Duration::from_millis(4);
/// The same limit if the other processes poll. Longer, because this process polls with one contender, and Java with
/// every thread.
const SHARED_TURN_POLLING: Duration = Duration::from_millis(8);
/// Length of this process's turn if the lock is not handed over. Longer than [`SHARED_TURN`], because each acquire must
/// win a race.
const CONTESTED_TURN: Duration = Duration::from_millis(12);

/// For how long another holder that was seen counts as a competitor, if releases of the lock send no message.
const SEEN: Duration = Duration::from_secs(1);

/// For how long a Java client that was seen to hold a lock counts as a competitor.
const JAVA_STAYS: Duration = Duration::from_secs(5);

/// A task that competes with Java clients for a lock pauses for a random part of this time before its attempt, because
/// this crate reacts to a message faster than Redisson.
const WINDOW: Duration = Duration::from_millis(1);

/// While no Java client is seen, processes yield once per period of this length, in ms of the server's time.
const PERIOD: i64 = 640;

/// If a period has at least this many messages, processes yield at the start of the next one. If releases are rarer,
/// Java has enough time to acquire the lock between them.
const BUSY: u32 = 2;

/// Longest pause between two trials.
const RAREST: Duration = WAY.saturating_mul(64);
/// Longest way, even if messages keep arriving.
const LONGEST: Duration = WAY.saturating_mul(20);

/// How this process yields to others after a release. Depends on how the others learn of the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Courtesy {
    /// Not at all: holders share the lock, or waiters queue in Redis.
    None,
    /// By taking turns. Each message counts as one turn.
    ByMessage,
    /// By leaving the lock free, because the others poll. The pause is random, from half of this duration to all of it,
    /// so that several processes do not attempt at the same moment.
    ByPolling(Duration),
    /// By a short random pause before an attempt if Java clients compete, and by a way once per [`PERIOD`] if none was
    /// seen.
    ByWindow,
}

/// A release whose reply has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleaseInfo {
    /// Number of clients that received the release's message; 0 if unknown.
    pub(super) receivers: u32,
    /// True if this client is one of the receivers.
    pub(super) listens: bool,
    /// True if other tasks of this process want the lock.
    pub(super) wanted: bool,
    pub(super) courtesy: Courtesy,
}

/// The knowledge of a process about its competitors for a lock.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Number of messages so far.
    heard: u64,
    releasing: Option<Releasing>,
    /// True if other processes compete, judged at the last release.
    shared: bool,
    is_polled_for: bool,
    /// When the current turn of this process began.
    began: Option<Moment>,
    /// When another holder was last seen.
    seen: Option<Moment>,
    /// When a Java client was last seen to hold the lock.
    java: Option<Moment>,
    /// When this process last released the lock; only for [`Courtesy::ByWindow`].
    left: Option<Moment>,
    /// True if other clients received the message of the last release by this process.
    has_others: bool,
    /// Number of the [`PERIOD`] in which the last message arrived, and the number of messages in that period.
    period: (i64, u32),
    /// Boxed, because most names are used by one process only, and have no way.
    way: Option<Box<Way>>,
    learnt: Option<Box<Learnt>>,
}

/// A release in flight.
#[derive(Clone, Copy, Debug)]
struct Releasing {
    /// [`Turns::heard`] when the release was sent.
    heard: u64,
    since: Moment,
    /// True if this process's turn continues, so its next task may attempt before the reply.
    goes_on: bool,
}

/// The outcome of a way: whether others took turns, and whether it was the first way of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) by_others: bool,
    pub(super) is_first: bool,
}

impl Turns {
    /// A release is about to be sent. `is_over`: this process has used up its hand-offs, or no task of it could take
    /// the lock over.
    pub(super) fn release_begins(&mut self, is_over: bool, now: Moment) {
        let goes_on = !is_over && self.has_turn(now);
        self.releasing = Some(Releasing { heard: self.heard, since: now, goes_on });
        if is_over {
            self.began = None;
        }
    }

    /// The reply to a release has arrived. Returns true if this process need not yield. `lonely`: this process does not
    /// yield at the first release of a new name ([`Registry::is_lonely`](super::Registry)).
    pub(super) fn released(&mut self, given: ReleaseInfo, lonely: bool, now: Moment) -> bool {
        let before = self.releasing.take().map_or(self.heard, |releasing| releasing.heard);
        let end = now + LONGEST;
        let way = match given.courtesy {
            Courtesy::None => None,
            Courtesy::ByWindow => {
                (self.left, self.has_others) = (Some(now), given.receivers > u32::from(given.listens));
                // The message of this release may have started a way before the reply arrived.
                self.way.take().map(|way| *way).filter(|way| now < way.end)
            }
            Courtesy::ByMessage => {
                let own = before + u64::from(given.listens);
                let receivers = u64::from(given.receivers).saturating_sub(u64::from(given.listens));
                if lonely && self.learnt.is_none() {
                    self.learnt = Some(Box::new(Learnt { turns: 0, receivers, trial: now + RAREST, pause: RAREST }));
                }
                let expected =
                    self.learnt.as_ref().map_or(receivers, |learnt| learnt.expected(receivers, now)).min(receivers);
                let is_trial = expected == receivers;
                let known = self.learnt.as_ref().map_or(0, |learnt| own + learnt.turns);
                (expected > 0).then_some(Way {
                    own,
                    until: own + expected,
                    known,
                    receivers,
                    is_trial,
                    since: now,
                    length: WAY,
                    end,
                })
            }
            Courtesy::ByPolling(length) => {
                let seen = self.seen.is_some_and(|seen| now.since(seen) < SEEN);
                // The clock's last digits are random enough.
                let chance = (now.as_nanos() % 1024) as f64 / 1024.0;
                seen.then(|| Way::timed(now, length.mul_f64(1.0 - chance / 2.0)))
            }
        };
        self.shared = way.is_some() || given.courtesy == Courtesy::ByWindow && self.races_java(now);
        self.is_polled_for = matches!(given.courtesy, Courtesy::ByPolling(_));
        self.way = None;
        // A way for an unseen Java waiter is kept even during this process's own turn.
        let is_for_java = given.courtesy == Courtesy::ByWindow && way.is_some();
        if given.wanted && self.has_turn(now) && !is_for_java {
            return true;
        }
        self.began = None;
        self.way = way.filter(|way| way.until > self.heard).map(Box::new);
        self.way.is_none()
    }

    fn has_turn(&self, now: Moment) -> bool {
        self.began.is_some_and(|began| now.since(began) < CONTESTED_TURN)
    }

    pub(super) const fn needs_time(&self) -> bool {
        self.left.is_some() && self.has_others
    }

    /// A message has arrived. `at`: the server's time in ms, if known; needed only if [`Self::needs_time`]. Returns
    /// true if the message ends the way.
    pub(super) fn heard(&mut self, at: Option<i64>, now: Moment) -> bool {
        self.heard += 1;
        if let Some(at) = at {
            let (now_in, (last, count)) = (at / PERIOD, self.period);
            self.period = if now_in == last { (last, count.saturating_add(1)) } else { (now_in, 1) };
            let was_busy = now_in == last + 1 && count >= BUSY;
            if was_busy && !self.races_java(now) {
                self.way = Some(Box::new(Way::timed(now, WAY)));
                return false;
            }
        }
        let Some(way) = &mut self.way else { return false };
        way.since = now;
        if self.heard < way.until {
            return false;
        }
        if way.is_trial {
            // The trial reached its full count: all receivers compete, so the learnt number is outdated.
            self.learnt = None;
        }
        self.way = None;
        true
    }

    pub(super) fn note_other_holder(&mut self, now: Moment) {
        self.seen = Some(now);
    }

    pub(super) const fn note_java(&mut self, now: Moment) {
        self.java = Some(now);
    }

    /// Upper limit of the random pause before an attempt. None unless a Java client held the lock lately, and the
    /// attempt follows a message (`woken`) or a release by this process.
    pub(super) fn window(&self, woken: bool, now: Moment) -> Option<Duration> {
        let has_just_left = self.left.is_some_and(|left| now.since(left) < WINDOW);
        (self.races_java(now) && (woken || has_just_left)).then_some(WINDOW)
    }

    fn races_java(&self, now: Moment) -> bool {
        self.java.is_some_and(|seen| now.since(seen) < JAVA_STAYS)
    }

    /// Remaining time of the pause if no message arrives, and the number of messages so far. None if this process does
    /// not yield.
    pub(super) fn way(&self, now: Moment) -> Option<(Duration, u64)> {
        let left = match (self.releasing, &self.way) {
            (Some(releasing), _) if releasing.goes_on => return None,
            (Some(releasing), _) => WAY.saturating_sub(now.since(releasing.since)),
            (None, Some(way)) => {
                let left = way.length_after(self.heard).saturating_sub(now.since(way.since));
                left.min(way.end.since(now))
            }
            (None, None) => return None,
        };
        (!left.is_zero()).then_some((left, self.heard))
    }

    /// True if a way is in progress that counts messages as turns.
    pub(super) fn counts_messages(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.counts_messages())
    }

    /// A task of this process acquired the lock. Returns the outcome of a way that counted messages.
    pub(super) fn acquired(&mut self, now: Moment) -> Option<Taken> {
        self.releasing = None;
        self.began.get_or_insert(now);
        let way = self.way.take().filter(|way| way.counts_messages())?;
        let turns = self.heard.saturating_sub(way.own);
        let taken = Taken { by_others: turns > 0, is_first: self.learnt.is_none() };
        let (trial, pause) = match &self.learnt {
            Some(learnt) if !way.is_trial => (learnt.trial, learnt.pause),
            learnt => {
                let pause = learnt.as_ref().map_or(WAY, |learnt| learnt.pause * 2).min(RAREST);
                (now + pause, pause)
            }
        };
        self.learnt = Some(Box::new(Learnt { turns, receivers: way.receivers, trial, pause }));
        Some(taken)
    }

    /// True while a way is in progress. Meanwhile the slot must not be removed.
    pub(super) const fn is_giving_way(&self) -> bool {
        self.way.is_some()
    }

    /// Ends the way.
    pub(super) fn forget(&mut self) {
        self.way = None;
    }

    /// Time limit for hand-overs inside this process, at most `most`.
    pub(super) fn turn(&self, most: Duration) -> Duration {
        if !self.shared {
            most
        } else if self.is_polled_for {
            most.min(SHARED_TURN_POLLING)
        } else {
            most.min(SHARED_TURN)
        }
    }
}

#[cfg(test)]
mod tests;
