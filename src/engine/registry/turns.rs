//! Turns among processes: who has had a lock lets the others have it first.
//!
//! All contenders hear of a release at the same time, and the fastest of them has the lock: without more, that is whoever gave it
//! back, again and again, and a process whose client is slower never has it. So a process whose release had n other receivers
//! does not ask until it has heard n releases, each within [`WAY`] of the one before. Where nobody takes the lock for that long it asks
//! after all, and goes on counting. It is a courtesy, and nothing relies on it: what is heard may be anybody's.

use std::time::Duration;

use crate::world::Moment;

/// How long a lock may stay free before a process that lets others go first asks for it after all: a message and an attempt take
/// 0.3 ms on a quiet machine, 2 to 5 ms by Redisson's client, several times that on a busy one.
pub(super) const WAY: Duration = Duration::from_millis(10);

/// How long the turn of a process is that others wait beside, if more of its tasks want the lock: Redisson's processes have each
/// of their threads try for itself. Longer where the lock is not handed over: then each section of ours is won in a race, or one
/// contender of ours looks beside all threads of theirs.
const SHARED_TURN: Duration = Duration::from_millis(5);
const SHARED_TURN_POLLING: Duration = Duration::from_millis(8);
const CONTESTED_TURN: Duration = Duration::from_millis(12);

/// For how long it counts that somebody else was seen to hold a lock whose releases nobody announces.
const SEEN: Duration = Duration::from_secs(1);

/// After so many ways in a row that nobody took, one release in 2 to the power of this many gives way.
const RAREST: u32 = 6;

/// How those who wait for a lock learn that it is free, which decides how others are let go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Courtesy {
    /// In no way that matters here, for nobody is let go first: waiters come in side by side, or stand in a queue in Redis.
    None,
    /// By a message.
    ByMessage,
    /// By polling: the lock is left free for so long.
    ByPolling(Duration),
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
    /// How many there were when the release under way began, and when that was.
    releasing: Option<(u64, Moment)>,
    /// True when others want the lock, by the answer to the last release.
    shared: bool,
    /// True when the others poll for the lock.
    is_polled_for: bool,
    /// When the present turn of this process began.
    began: Option<Moment>,
    /// When somebody else was last seen to hold it.
    seen: Option<Moment>,
    way: Option<Way>,
    /// How often in a row nobody took the way that was given.
    unused: u32,
    /// After so many releases it does not give way.
    spared: u32,
}

/// Others are let go first.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// How many messages there are when its own release is among them.
    own: u64,
    /// How many there are when all others have had their turn.
    until: u64,
    /// When the lock was last heard to be free.
    since: Moment,
    length: Duration,
}

impl Turns {
    /// A release is about to be sent. `is_over`: the lock was handed over here for as long as it may be.
    pub(super) fn release_begins(&mut self, is_over: bool, now: Moment) {
        self.releasing = Some((self.heard, now));
        if is_over {
            self.began = None;
        }
    }

    /// A release is done. True when nobody is to be let go first.
    pub(super) fn released(&mut self, given: ReleaseInfo, now: Moment) -> bool {
        let before = self.releasing.take().map_or(self.heard, |(heard, _)| heard);
        let own = u32::from(given.listens);
        let way = match given.courtesy {
            Courtesy::None => None,
            Courtesy::ByMessage => {
                let (own, until) = (before + u64::from(own), before + u64::from(given.receivers));
                (until > own).then_some(Way { own, until, since: now, length: WAY })
            }
            Courtesy::ByPolling(length) => {
                let seen = self.seen.is_some_and(|seen| now.since(seen) < SEEN);
                seen.then_some(Way { own: u64::MAX, until: u64::MAX, since: now, length })
            }
        };
        self.shared = way.is_some();
        self.is_polled_for = matches!(given.courtesy, Courtesy::ByPolling(_));
        let goes_on = given.wanted && self.began.is_some_and(|began| now.since(began) < CONTESTED_TURN);
        self.way = None;
        if goes_on {
            return true;
        }
        self.began = None;
        if self.shared && self.spared > 0 {
            self.spared -= 1;
        } else {
            self.way = way.filter(|way| way.until > self.heard);
        }
        self.way.is_none()
    }

    /// A message has come in. True when that was the last turn of the others.
    pub(super) fn heard(&mut self, now: Moment) -> bool {
        self.heard += 1;
        let Some(way) = &mut self.way else { return false };
        way.since = now;
        if self.heard < way.until {
            return false;
        }
        self.way = None;
        self.unused = 0;
        true
    }

    /// Somebody else was seen to hold the lock.
    pub(super) fn note_other_holder(&mut self, now: Moment) {
        self.seen = Some(now);
    }

    /// For how long others are let go first, if nothing is heard, and how many messages there were; None: they are not.
    pub(super) fn way(&self, now: Moment) -> Option<(Duration, u64)> {
        let (since, length) = match (self.releasing, self.way) {
            (Some((_, since)), _) => (since, WAY),
            (None, Some(way)) => (way.since, way.length),
            (None, None) => return None,
        };
        let left = length.saturating_sub(now.since(since));
        (!left.is_zero()).then_some((left, self.heard))
    }

    /// True when the turns of others are counted by their messages.
    pub(super) fn counts_messages(&self) -> bool {
        self.way.is_some_and(|way| way.until != u64::MAX)
    }

    /// A task of this process has acquired the lock.
    pub(super) fn acquired(&mut self, now: Moment) {
        self.releasing = None;
        self.began.get_or_insert(now);
        let Some(way) = self.way.take().filter(|way| way.until != u64::MAX) else { return };
        if self.heard > way.own {
            self.unused = 0;
        } else {
            // The receivers of the message do not want the lock: a subscription that lingers, somebody who watches.
            self.unused = (self.unused + 1).min(RAREST);
            self.spared = (1 << self.unused) - 1;
        }
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
            assert!(!turns.released(given(3, true), at(1)));
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
            assert!(turns.released(given, at(1)), "{given:?}");
            assert_eq!(left(&turns, 1), None, "{given:?}");
        }
    }

    #[test]
    fn a_way_that_nobody_takes_is_given_less_and_less_often() {
        let (mut turns, mut ways) = (Turns::default(), 0);
        for round in 0..1_000 {
            turns.release_begins(true, at(round * 20));
            turns.released(given(1, false), at(round * 20));
            ways += u32::from(turns.is_giving_way());
            turns.acquired(at(round * 20 + 10));
        }
        assert!((7..=7 + 1_000 / 64).contains(&ways), "{ways} of 1000");
        // Until somebody is heard of again.
        while !turns.is_giving_way() {
            turns.released(given(1, false), at(30_000));
        }
        assert!(turns.heard(at(30_001)));
        assert!(!turns.released(given(1, false), at(30_002)));
    }

    #[test]
    fn a_turn_beside_others_is_short_and_alone_as_long_as_may_be() {
        let most = Duration::from_millis(50);
        let mut turns = Turns::default();
        assert_eq!(turns.turn(most), most);
        turns.released(given(1, false), at(0));
        assert_eq!(turns.turn(most), SHARED_TURN);
        turns.released(given(1, true), at(0));
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
            assert_eq!(turns.released(wanted, at(ms)), goes_on, "{ms}");
        }
        let heard = [13, 13].map(|ms| turns.heard(at(ms)));
        assert_eq!(heard, [false, true]);
        turns.acquired(at(30));
        turns.release_begins(true, at(31));
        assert!(!turns.released(wanted, at(31)), "handed over for as long as it may be");
    }

    #[test]
    fn who_looks_for_itself_is_left_a_moment_if_it_was_seen() {
        let looking = ReleaseInfo { courtesy: Courtesy::ByPolling(Duration::from_millis(2)), ..given(0, false) };
        let mut turns = Turns::default();
        assert!(turns.released(looking, at(0)), "nobody was seen");
        turns.note_other_holder(at(0));
        assert!(!turns.released(looking, at(999)));
        assert_eq!((left(&turns, 1_000), left(&turns, 1_001)), (Some(1), None));
        turns.acquired(at(1_001));
        assert!(turns.released(looking, at(1_002)), "that is long ago");
    }
}
