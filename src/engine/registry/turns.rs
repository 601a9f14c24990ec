//! Turns among processes: after a release, the process that held the lock lets the others try first.
//!
//! All contenders hear of a release at the same time, and the fastest acquires the lock. Without turns that would be the
//! releasing process, again and again, and a process with a slower client would starve.
//!
//! 1. A release that n other clients heard starts a *way*: this process waits for n more releases before it asks.
//! 2. If no release is heard for [`WAY`], it asks anyway, and continues to count.
//! 3. Not every receiver competes, because subscriptions linger. So each way teaches how many turns the others took, and
//!    the next one waits for no more. From time to time a *trial* waits for all receivers again. A trial that fails costs
//!    one [`WAY`], and failed trials become rare ([`RAREST`]).
//!
//! Read-write locks have no turns. While Java competes, readers and writers that were woken by a message, and writers
//! right after a release of this process, pause for a random part of a [`WINDOW`]. Java is noticed when it holds the
//! lock. Until then all processes of ours start a way at the first message of each [`UNSEEN`] of the server's time. So
//! they let a waiter of Java try at the same moment, without a message of their own.
//!
//! Nothing relies on turns, because anybody may send messages.

mod way;

use std::time::Duration;

use crate::world::Moment;
use way::{Learnt, Way};

/// Silence after which a process that lets others first asks anyway. It is twice as long while a known competitor is
/// missing. A message and an attempt take 0.3 ms on a quiet machine, and 2 to 5 ms with
/// Redisson's client. On a busy machine they take several times as long.
pub(super) const WAY: Duration = Duration::from_millis(10);

/// How long the lock is handed over inside this process while other processes compete. Short, because in Redisson's
/// processes each thread competes for itself.
const SHARED_TURN: Duration = Duration::from_millis(4);
/// The same if the others poll. Longer, because one contender of ours polls beside all threads of Java.
const SHARED_TURN_POLLING: Duration = Duration::from_millis(8);
/// Length of this process's turn if the lock is not handed over. Longer, because each section is won in a race.
const CONTESTED_TURN: Duration = Duration::from_millis(12);

/// Time for which another holder counts as a contender, if releases of the lock are not announced.
const SEEN: Duration = Duration::from_secs(1);

/// For how long a client of Java that was seen to hold a lock counts as a contender.
const JAVA_STAYS: Duration = Duration::from_secs(5);

/// A task that races clients of Java for a lock pauses for a random part of this time before it asks, because it answers
/// a message faster than they do.
const WINDOW: Duration = Duration::from_millis(1);

/// While Java is not seen, all processes start one [`WAY`] in this much of the server's time, in ms. A waiter of Java
/// that loses every race is seen then.
const UNSEEN: i64 = 640;

/// Least number of messages in one [`UNSEEN`] for which processes start a way in the next one.
const STEADY: u32 = 2;

/// Longest pause between two trials.
const RAREST: Duration = WAY.saturating_mul(64);
/// Longest way, however many messages arrive.
const LONGEST: Duration = WAY.saturating_mul(20);

/// How other processes are let first after a release. It depends on how they learn of the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Courtesy {
    /// Not at all: waiters enter together, or queue in Redis.
    None,
    /// By taking turns. Messages count the turns.
    ByMessage,
    /// By leaving the lock free for a random time, from half of this to all of it, because the others poll. Random, so
    /// that several processes do not ask again at the same moment.
    ByPolling(Duration),
    /// By a short random pause before an attempt, if clients of Java compete.
    ByWindow,
}

/// A release that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleaseInfo {
    /// Number of clients that received its message; 0 if unknown.
    pub(super) receivers: u32,
    /// True if this client is one of them.
    pub(super) listens: bool,
    /// True if other tasks of this process want the lock.
    pub(super) wanted: bool,
    pub(super) courtesy: Courtesy,
}

/// What a process knows about its competitors for a lock.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Number of messages so far.
    heard: u64,
    releasing: Option<Releasing>,
    /// True if others compete, by the answer to the last release.
    shared: bool,
    /// True if the others poll for the lock.
    is_polled_for: bool,
    /// When the current turn of this process began.
    began: Option<Moment>,
    /// When another holder was last seen.
    seen: Option<Moment>,
    /// When a client of Java was last seen to hold the lock.
    java: Option<Moment>,
    /// When this process last released it; only for [`Courtesy::ByWindow`].
    left: Option<Moment>,
    /// True if other clients heard that release.
    has_others: bool,
    /// The [`UNSEEN`] in which the last message arrived, and how many have arrived in it.
    period: (i64, u32),
    /// Boxed, because most names have one process only.
    way: Option<Box<Way>>,
    learnt: Option<Box<Learnt>>,
}

/// A release in flight.
#[derive(Clone, Copy, Debug)]
struct Releasing {
    /// Number of messages when it began, and that moment.
    heard: u64,
    since: Moment,
    /// True if this process's turn is not over, so its next task may ask already.
    goes_on: bool,
}

/// The outcome of a way: whether others took turns, and whether it was the first way of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) by_others: bool,
    pub(super) is_first: bool,
}

impl Turns {
    /// A release is about to be sent. `is_over`: this process has used its hand-offs.
    pub(super) fn release_begins(&mut self, is_over: bool, now: Moment) {
        let goes_on = !is_over && self.has_turn(now);
        self.releasing = Some(Releasing { heard: self.heard, since: now, goes_on });
        if is_over {
            self.began = None;
        }
    }

    /// A release was answered. Returns true if nobody is let first. `lonely`: at the last new names nobody took a turn,
    /// so a new name starts without a way.
    pub(super) fn released(&mut self, given: ReleaseInfo, lonely: bool, now: Moment) -> bool {
        let before = self.releasing.take().map_or(self.heard, |releasing| releasing.heard);
        let end = now + LONGEST;
        let way = match given.courtesy {
            Courtesy::None => None,
            Courtesy::ByWindow => {
                (self.left, self.has_others) = (Some(now), given.receivers > u32::from(given.listens));
                // This release's own message may have started it.
                self.way.take().map(|way| *way)
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
                let (own, until) = (u64::MAX, u64::MAX);
                // The clock's last digits are random enough.
                let chance = (now.as_nanos() % 1024) as f64 / 1024.0;
                let length = length.mul_f64(1.0 - chance / 2.0);
                seen.then_some(Way { own, until, known: 0, receivers: 0, is_trial: true, since: now, length, end })
            }
        };
        self.shared = way.is_some() || given.courtesy == Courtesy::ByWindow && self.races_java(now);
        self.is_polled_for = matches!(given.courtesy, Courtesy::ByPolling(_));
        self.way = None;
        if given.wanted && self.has_turn(now) && (way.is_none() || given.courtesy != Courtesy::ByWindow) {
            return true;
        }
        self.began = None;
        self.way = way.filter(|way| way.until > self.heard).map(Box::new);
        self.way.is_none()
    }

    /// True if the turn of this process is not over.
    fn has_turn(&self, now: Moment) -> bool {
        self.began.is_some_and(|began| now.since(began) < CONTESTED_TURN)
    }

    /// True if [`Self::heard`] needs the server's time.
    pub(super) const fn needs_time(&self) -> bool {
        self.left.is_some() && self.has_others
    }

    /// A message has arrived. `at`: the server's time in ms, if needed and known. Returns true if the message ends the
    /// last turn of the others.
    pub(super) fn heard(&mut self, at: Option<i64>, now: Moment) -> bool {
        self.heard += 1;
        if let Some(at) = at {
            let (now_in, (last, count)) = (at / UNSEEN, self.period);
            self.period = if now_in == last { (last, count.saturating_add(1)) } else { (now_in, 1) };
            // With fewer messages, Java has time enough to be first.
            let is_steady = now_in == last + 1 && count >= STEADY;
            if is_steady && !self.races_java(now) {
                let (own, until, since, length, end) = (u64::MAX, u64::MAX, now, WAY, now + WAY);
                self.way =
                    Some(Box::new(Way { own, until, known: 0, receivers: 0, is_trial: true, since, length, end }));
                return false;
            }
        }
        let Some(way) = &mut self.way else { return false };
        way.since = now;
        if self.heard < way.until {
            return false;
        }
        if way.is_trial {
            // All receivers compete.
            self.learnt = None;
        }
        self.way = None;
        true
    }

    /// Another holder was seen.
    pub(super) fn note_other_holder(&mut self, now: Moment) {
        self.seen = Some(now);
    }

    /// A client of Java was seen to hold the lock.
    pub(super) const fn note_java(&mut self, now: Moment) {
        self.java = Some(now);
    }

    /// The longest pause before an attempt that races clients of Java; None if there is no such race: none was seen
    /// lately, or the attempt follows neither a message (`woken`) nor a release of this process.
    pub(super) fn window(&self, woken: bool, now: Moment) -> Option<Duration> {
        let has_just_left = self.left.is_some_and(|left| now.since(left) < WINDOW);
        (self.races_java(now) && (woken || has_just_left)).then_some(WINDOW)
    }

    /// True if a client of Java was seen to hold the lock lately.
    fn races_java(&self, now: Moment) -> bool {
        self.java.is_some_and(|seen| now.since(seen) < JAVA_STAYS)
    }

    /// Remaining time for others if no message arrives, and the number of messages so far. None if nobody is let first.
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

    /// True if the turns of others are counted by messages.
    pub(super) fn counts_messages(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.until != u64::MAX)
    }

    /// A task of this process acquired the lock. Returns the outcome of the way.
    pub(super) fn acquired(&mut self, now: Moment) -> Option<Taken> {
        self.releasing = None;
        self.began.get_or_insert(now);
        let way = self.way.take().filter(|way| way.until != u64::MAX)?;
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

    /// True while other processes are let first. The slot must not be removed then.
    pub(super) const fn is_giving_way(&self) -> bool {
        self.way.is_some()
    }

    /// Ends the way.
    pub(super) fn forget(&mut self) {
        self.way = None;
    }

    /// Time for which the lock may be handed over inside this process, at most `most`.
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
