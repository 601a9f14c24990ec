//! Turns among processes: who has had a lock lets the others have it first.
//!
//! All contenders hear of a release at the same time, and the fastest of them has the lock: without more, that is whoever gave it
//! back, again and again, and a process whose client is slower never has it. So a process whose release had n other receivers
//! does not ask until it has heard n releases, each within [`WAY`] of the one before. Where nobody takes the lock for that long it asks
//! after all, and goes on counting. It is a courtesy, and nothing relies on it: what is heard may be anybody's.
//!
//! Not every receiver wants the lock: subscriptions linger, and some only watch. How many turns the others took is learnt each
//! time, and no more are waited for until the next trial, which lets all receivers go first again. A trial that fails costs a
//! [`WAY`], and trials that fail become rare: [`RAREST`].

use std::time::Duration;

use crate::world::Moment;

/// How long a lock may stay free before a process that lets others go first asks for it after all: a message and an attempt take
/// 0.3 ms on a quiet machine, 2 to 5 ms by Redisson's client, several times that on a busy one.
pub(super) const WAY: Duration = Duration::from_millis(10);

/// How long the turn of a process is that others wait beside, if more of its tasks want the lock: Redisson's processes have each
/// of their threads try for itself. Longer where the lock is not handed over: then each section of ours is won in a race, or one
/// contender of ours looks beside all threads of theirs.
const SHARED_TURN: Duration = Duration::from_millis(4);
const SHARED_TURN_POLLING: Duration = Duration::from_millis(8);
const CONTESTED_TURN: Duration = Duration::from_millis(12);

/// For how long it counts that somebody else was seen to hold a lock whose releases nobody announces.
const SEEN: Duration = Duration::from_secs(1);

/// For how long a client of Java that was seen to hold a lock counts as a contender.
const JAVA_STAYS: Duration = Duration::from_secs(5);

/// A task that races clients of Java for a lock pauses for a random part of this time before it asks. They need longer
/// to answer a message.
const WINDOW: Duration = Duration::from_millis(1);

/// How long after a trial the next one is made at the most, and how much longer others may be waited for in all, whatever is heard.
const RAREST: Duration = WAY.saturating_mul(64);
const LONGEST: Duration = WAY.saturating_mul(20);

/// How those who wait for a lock learn that it is free, which decides how others are let go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Courtesy {
    /// In no way that matters here, for nobody is let go first: waiters come in side by side, or stand in a queue in Redis.
    None,
    /// By a message.
    ByMessage,
    /// By polling: the lock is left free for so long, or a little less, so that several who leave it do not come back together.
    ByPolling(Duration),
    /// By a message, and others are let first by a short random pause, only if they are clients of Java.
    ByWindow,
}

/// A release that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleaseInfo {
    /// How many clients received its message; 0 where that is not known.
    pub(super) receivers: u32,
    /// This client is among them.
    pub(super) listens: bool,
    /// Other tasks of this process want the lock.
    pub(super) wanted: bool,
    pub(super) courtesy: Courtesy,
}

/// What a process knows of the others that want a lock.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Messages so far.
    heard: u64,
    releasing: Option<Releasing>,
    /// True when others want the lock, by the answer to the last release.
    shared: bool,
    /// True when the others poll for the lock.
    is_polled_for: bool,
    /// When the present turn of this process began.
    began: Option<Moment>,
    /// When somebody else was last seen to hold it.
    seen: Option<Moment>,
    /// When a client of Java was last seen to hold it.
    java: Option<Moment>,
    /// When this process last released it; only for [`Courtesy::ByWindow`].
    left: Option<Moment>,
    /// In boxes: most names are one process's alone.
    way: Option<Box<Way>>,
    learnt: Option<Box<Learnt>>,
}

/// What the last way that ran out has taught.
#[derive(Clone, Copy, Debug)]
struct Learnt {
    /// How many turns the others took, and how many receivers there were besides this process.
    turns: u64,
    receivers: u64,
    /// When all receivers are let go first again, and how long after the last time that is.
    trial: Moment,
    pause: Duration,
}

impl Learnt {
    /// How many turns of so many other receivers are to be waited for. One that is new is believed to want the lock.
    fn expected(&self, receivers: u64, now: Moment) -> u64 {
        if now >= self.trial { receivers } else { self.turns + receivers.saturating_sub(self.receivers) }
    }
}

/// A release that is under way.
#[derive(Clone, Copy, Debug)]
struct Releasing {
    /// How many messages there were when it began, and when that was.
    heard: u64,
    since: Moment,
    /// The turn of this process is not over: its next task may ask already.
    goes_on: bool,
}

/// Others are let go first.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// How many messages there are when its own release is among them.
    own: u64,
    /// How many there are when all others have had their turn.
    until: u64,
    /// How many there are when those have had their turn who took one the last time.
    known: u64,
    /// How many other receivers there are, and whether all of them are waited for.
    receivers: u64,
    is_trial: bool,
    /// When the lock was last heard to be free, and for how long at the most it is left alone from then on.
    since: Moment,
    length: Duration,
    /// When the way is over, whatever is heard.
    end: Moment,
}

impl Way {
    /// For how long the lock may stay free after so many messages: longer where somebody is missing who took a turn the last time,
    /// for that process may be waiting in vain for others itself.
    fn length_after(&self, heard: u64) -> Duration {
        if heard < self.known { 2 * self.length } else { self.length }
    }
}

/// What became of a way: whether the others took it, if that is known, and whether nothing had been learnt before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) by_others: bool,
    pub(super) is_first: bool,
}

impl Turns {
    /// A release is about to be sent. `is_over`: the lock was handed over here for as long as it may be.
    pub(super) fn release_begins(&mut self, is_over: bool, now: Moment) {
        let goes_on = !is_over && self.has_turn(now);
        self.releasing = Some(Releasing { heard: self.heard, since: now, goes_on });
        if is_over {
            self.began = None;
        }
    }

    /// A release is done. True when nobody is to be let go first. `lonely`: receivers of other names have not wanted those.
    pub(super) fn released(&mut self, given: ReleaseInfo, lonely: bool, now: Moment) -> bool {
        let before = self.releasing.take().map_or(self.heard, |releasing| releasing.heard);
        let end = now + LONGEST;
        let way = match given.courtesy {
            Courtesy::None => None,
            Courtesy::ByWindow => {
                self.left = Some(now);
                None
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
                // The clock's last digits are chance enough, and nothing is asked of the system for them.
                let chance = (now.as_nanos() % 1024) as f64 / 1024.0;
                let length = length.mul_f64(1.0 - chance / 2.0);
                seen.then_some(Way { own, until, known: 0, receivers: 0, is_trial: true, since: now, length, end })
            }
        };
        self.shared = way.is_some();
        self.is_polled_for = matches!(given.courtesy, Courtesy::ByPolling(_));
        self.way = None;
        if given.wanted && self.has_turn(now) {
            return true;
        }
        self.began = None;
        self.way = way.filter(|way| way.until > self.heard).map(Box::new);
        self.way.is_none()
    }

    /// The turn of this process is not over.
    fn has_turn(&self, now: Moment) -> bool {
        self.began.is_some_and(|began| now.since(began) < CONTESTED_TURN)
    }

    /// A message has come in. True when that was the last turn of the others.
    pub(super) fn heard(&mut self, now: Moment) -> bool {
        self.heard += 1;
        let Some(way) = &mut self.way else { return false };
        way.since = now;
        if self.heard < way.until {
            return false;
        }
        if way.is_trial {
            // All of them want it.
            self.learnt = None;
        }
        self.way = None;
        true
    }

    /// Somebody else was seen to hold the lock.
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
        let within = |at: Option<Moment>, span| at.is_some_and(|at| now.since(at) < span);
        (within(self.java, JAVA_STAYS) && (woken || within(self.left, WINDOW))).then_some(WINDOW)
    }

    /// For how long others are let go first, if nothing is heard, and how many messages there were; None: they are not.
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

    /// True when the turns of others are counted by their messages.
    pub(super) fn counts_messages(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.until != u64::MAX)
    }

    /// A task of this process has acquired the lock. Returns what became of the way that others were given.
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

    /// True while other processes are let go first: whoever comes next has to know.
    pub(super) const fn is_giving_way(&self) -> bool {
        self.way.is_some()
    }

    /// Forgets whom to let go first.
    pub(super) fn forget(&mut self) {
        self.way = None;
    }

    /// For how long the lock may be handed over inside this process, of `most`.
    pub(super) fn turn(&self, most: Duration) -> Duration {
        match self.is_polled_for {
            _ if !self.shared => most,
            true => most.min(SHARED_TURN_POLLING),
            false => most.min(SHARED_TURN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos((1_000 + ms) * MS)
    }

    fn given(receivers: u32, listens: bool) -> ReleaseInfo {
        ReleaseInfo { receivers, listens, wanted: false, courtesy: Courtesy::ByMessage }
    }

    fn left(turns: &Turns, ms: u64) -> Option<u128> {
        turns.way(at(ms)).map(|(left, _)| left.as_millis())
    }

    #[test]
    fn as_many_releases_are_waited_for_as_others_were_told() {
        // With its own message before the reply, and behind it.
        for early in [true, false] {
            let mut turns = Turns::default();
            turns.release_begins(true, at(0));
            assert_eq!(left(&turns, 1), Some(9), "a message must not be answered before the reply says whose it is");
            if early {
                assert!(!turns.heard(at(0)));
            }
            assert!(!turns.released(given(3, true), false, at(1)));
            if !early {
                assert!(!turns.heard(at(1)));
            }
            assert_eq!(left(&turns, 3), Some(8));
            assert!(!turns.heard(at(4)), "one of two");
            assert_eq!((left(&turns, 13), left(&turns, 14)), (Some(1), None), "each has its time");
            assert!(turns.heard(at(20)), "the second");
            assert_eq!(left(&turns, 20), None);
            assert!(!turns.is_giving_way());
        }
    }

    #[test]
    fn nobody_is_let_go_first_who_was_not_told() {
        for given in [
            given(0, false),
            given(0, true),
            given(1, true),
            ReleaseInfo { courtesy: Courtesy::None, ..given(9, true) },
        ] {
            let mut turns = Turns::default();
            turns.release_begins(true, at(0));
            assert!(turns.released(given, false, at(1)), "{given:?}");
            assert_eq!(left(&turns, 1), None, "{given:?}");
        }
    }

    #[test]
    fn a_way_that_nobody_takes_is_given_less_and_less_often() {
        let (mut turns, mut ways) = (Turns::default(), 0);
        for round in 0..1_000 {
            turns.release_begins(true, at(round * 20));
            turns.released(given(1, false), false, at(round * 20));
            ways += u32::from(turns.is_giving_way());
            turns.acquired(at(round * 20 + 10));
        }
        assert!((7..=7 + 20_000 / 640).contains(&ways), "{ways} of 1000");
        // Until somebody is heard of again.
        assert!(!turns.released(given(1, false), false, at(30_000)));
        assert!(turns.heard(at(30_001)));
        assert!(!turns.released(given(1, false), false, at(30_002)));
    }

    /// Two processes take turns, and two more subscribers only listen.
    #[test]
    fn no_more_turns_are_waited_for_than_are_taken() {
        let (mut turns, mut idle) = (Turns::default(), 0);
        let mut ms = 0;
        for _ in 0..1_000 {
            turns.release_begins(true, at(ms));
            assert!(!turns.released(given(4, true), false, at(ms)), "the other one is let go first");
            assert!(!turns.heard(at(ms)), "its own message");
            ms += 1;
            if !turns.heard(at(ms)) {
                assert_eq!(left(&turns, ms), Some(10));
                (idle, ms) = (idle + 1, ms + 10);
                assert_eq!(left(&turns, ms), None);
            }
            turns.acquired(at(ms));
        }
        assert!((7..=12).contains(&idle), "{idle} of 1000");
        // A third one comes: its subscription is new.
        turns.release_begins(true, at(ms));
        assert!(!turns.released(given(5, true), false, at(ms)));
        let heard = [ms, ms + 1, ms + 2].map(|ms| turns.heard(at(ms)));
        assert_eq!(heard, [false, false, true]);
    }

    /// Who is only slower than usual is waited for longer than those of whom nothing is known.
    #[test]
    fn those_who_came_before_are_given_more_time() {
        let mut turns = Turns::default();
        for (now, way) in [(0, 10), (100, 20), (102, 20)] {
            turns.release_begins(true, at(now));
            assert!(!turns.released(given(2, false), false, at(now)));
            assert_eq!(left(&turns, now), Some(way), "at {now}");
            if now < 102 {
                turns.heard(at(now));
                turns.acquired(at(now));
            }
        }
    }

    #[test]
    fn messages_without_end_keep_nobody_waiting() {
        let mut turns = Turns::default();
        turns.released(given(1_000, false), false, at(0));
        for ms in (0..200).step_by(5) {
            assert!(!turns.heard(at(ms)));
            assert!(left(&turns, ms).is_some(), "{ms}");
        }
        assert_eq!(left(&turns, 200), None);
    }

    #[test]
    fn where_receivers_want_no_name_a_new_one_is_not_tried_at_once() {
        let mut turns = Turns::default();
        assert!(turns.released(given(1, false), true, at(0)));
        assert!(turns.released(given(1, false), true, at(639)));
        assert!(!turns.released(given(1, false), true, at(640)));
        assert!(!Turns::default().released(given(1, false), false, at(0)));
    }

    #[test]
    fn a_turn_beside_others_is_short_and_alone_as_long_as_may_be() {
        let most = Duration::from_millis(50);
        let mut turns = Turns::default();
        assert_eq!(turns.turn(most), most);
        turns.released(given(1, false), false, at(0));
        assert_eq!(turns.turn(most), SHARED_TURN);
        turns.released(given(1, true), false, at(0));
        assert_eq!(turns.turn(most), most);
    }

    /// Where the lock cannot be handed over, a process whose tasks want it goes on for a while.
    #[test]
    fn a_turn_goes_on_for_those_who_wait_in_the_same_process() {
        let wanted = ReleaseInfo { wanted: true, ..given(2, true) };
        let mut turns = Turns::default();
        turns.acquired(at(0));
        for (ms, goes_on) in [(2, true), (11, true), (12, false)] {
            turns.release_begins(false, at(ms));
            assert_eq!(turns.way(at(ms)).is_none(), goes_on, "{ms}: the next one may ask before the reply");
            assert_eq!(turns.released(wanted, false, at(ms)), goes_on, "{ms}");
        }
        let heard = [13, 13].map(|ms| turns.heard(at(ms)));
        assert_eq!(heard, [false, true]);
        turns.acquired(at(30));
        turns.release_begins(true, at(31));
        assert!(!turns.released(wanted, false, at(31)), "handed over for as long as it may be");
    }

    #[test]
    fn who_looks_for_itself_is_left_a_moment_if_it_was_seen() {
        let looking = ReleaseInfo { courtesy: Courtesy::ByPolling(Duration::from_millis(2)), ..given(0, false) };
        let mut turns = Turns::default();
        assert!(turns.released(looking, false, at(0)), "nobody was seen");
        turns.note_other_holder(at(0));
        assert!(!turns.released(looking, false, at(999)));
        assert_eq!((left(&turns, 999), left(&turns, 1_001)), (Some(1), None), "less than the 2 ms that it was told");
        turns.acquired(at(1_001));
        assert!(turns.released(looking, false, at(1_002)), "that is long ago");
    }

    #[test]
    fn window_opens_only_for_races_with_java() {
        let mut turns = Turns::default();
        assert_eq!(turns.window(true, at(0)), None, "no client of Java was seen");
        turns.note_java(at(0));
        assert_eq!(turns.window(true, at(1)), Some(WINDOW), "after a message");
        assert_eq!(turns.window(false, at(1)), None, "a first attempt enters at once");
        assert!(turns.released(ReleaseInfo { courtesy: Courtesy::ByWindow, ..given(3, true) }, false, at(2)));
        assert_eq!(turns.window(false, at(2)), Some(WINDOW), "right after a release of this process");
        assert_eq!(turns.window(false, at(3)), None);
        assert_eq!(turns.window(true, at(4_999)), Some(WINDOW));
        assert_eq!(turns.window(true, at(5_000)), None, "Java was seen too long ago");
    }
}
