//! The plan of a round: which holds are due, and which of them share a command. Pure: no I/O, no clock, no locks.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::Hold;
use crate::engine::ledger::Book;
use crate::engine::protocol::Renewal;
use crate::topology::Placement;
use crate::world::Moment;

/// Selects the holds of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    /// Watched holds, and holds with a long explicit lease, which other clients may cut short (`Nature::leases_apart`).
    All,
    /// All watched holds, and all holds with an explicit lease, because another server may be responsible now.
    Held,
    /// Watched holds whose last renewal was sent at least a sixth of the watchdog ago.
    Due,
    /// `Due`, and all holds that were not renewed or confirmed since this time (ns of the local clock), when another
    /// server took over.
    Unconfirmed(u64),
    /// Watched holds with at most half of the watchdog's lease left. A regular round leaves more than that, so the
    /// server passed these locks on with a short first lease (`queue.rs`).
    Short,
}

impl Which {
    pub(super) fn includes(self, book: &Book, now: Moment, watchdog: Duration) -> bool {
        let (due, short) = ((now - watchdog / 6).as_nanos(), (now + watchdog / 2).as_nanos());
        let is_leased = || !book.is_watched() && book.lasts(now.as_nanos());
        match self {
            Self::All => book.is_watched() || book.lasts(short),
            Self::Held => book.is_watched() || is_leased(),
            Self::Due => book.is_watched() && book.renewed_at() <= due,
            Self::Unconfirmed(since) => {
                book.is_watched() && book.renewed_at() <= due.max(since) || is_leased() && book.confirmed_at() <= since
            }
            Self::Short => book.is_watched() && book.watched() <= short,
        }
    }

    /// True if the round only confirms a hold with this book, false if it renews the hold. `None` if the round skips
    /// the hold.
    pub(super) fn only_confirms(self, book: &Book, leases_apart: bool) -> Option<bool> {
        let is_renewed = book.is_watched() || leases_apart && !book.is_idle();
        let confirms = matches!(self, Self::Held | Self::Unconfirmed(_));
        (is_renewed || confirms && !book.is_idle()).then_some(!is_renewed)
    }
}

/// A hold to renew or confirm in this round.
#[derive(Debug)]
pub(super) struct Due<H = Arc<Hold>, P = Placement> {
    /// Where the lock lived when the round began. The lock may move during the round.
    pub(super) placement: P,
    pub(super) renewal: &'static Renewal,
    /// True if the command only confirms the hold.
    pub(super) only_confirms: bool,
    /// The hold's lock delay: the server keeps the lock for this much longer than the watchdog's lease. Zero if the
    /// command only confirms the hold.
    pub(super) delay: Duration,
    /// Work of the hold for the server: 1 for a lock, otherwise the number of permits.
    pub(super) work: usize,
    pub(super) hold: H,
}

/// The holds of one command. Never empty.
#[derive(Debug)]
pub(super) struct Batch<H = Arc<Hold>, P = Placement> {
    pub(super) holds: Vec<Due<H, P>>,
    /// True if the holds are in several slots, so that the command cannot declare its keys.
    pub(super) over_slots: bool,
}

/// Divides the holds of one server into commands of at most `most` holds. Holds of several permits count as several
/// holds.
///
/// 1. A command either renews or confirms, and its holds have the same [`Renewal`] and the same lock delay.
/// 2. The holds of a command have equal placements: one slot, or one server outside a cluster.
/// 3. If the server accepts undeclared keys (`spans_slots`), rule 2 applies only to scripts that touch keys besides the
///    keys of their locks.
pub(super) fn plan<H, P: Copy + Ord>(mut due: Vec<Due<H, P>>, most: usize, spans_slots: bool) -> Vec<Batch<H, P>> {
    let kind = |due: &Due<H, P>| (std::ptr::from_ref(due.renewal) as usize, due.only_confirms, due.delay);
    due.sort_by_key(|due| (kind(due), due.placement));
    let mut batches: Vec<Batch<H, P>> = Vec::new();
    // Work of the last batch.
    let mut work = 0;
    for next in due {
        let spans_slots = spans_slots && !next.renewal.script.reaches_beyond;
        let has_room = |batch: &Batch<H, P>| {
            let first = &batch.holds[0];
            let may_share = spans_slots || first.placement == next.placement;
            work + next.work <= most && kind(first) == kind(&next) && may_share
        };
        match batches.last_mut().filter(|batch| has_room(batch)) {
            Some(batch) => {
                work += next.work;
                batch.over_slots |= batch.holds[0].placement != next.placement;
                batch.holds.push(next);
            }
            None => {
                work = next.work;
                batches.push(Batch { holds: vec![next], over_slots: false });
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::script::Script;

    static SCRIPT: Script = Script::new("test/renew", "");
    static FAR: Script = Script::new("test/far", "").reaching_beyond();
    static HASH: Renewal = Renewal { script: &SCRIPT, about: |_, _| (), notes_cuts: false };
    static OTHER: Renewal = Renewal { script: &SCRIPT, about: |_, _| (), notes_cuts: true };
    static BEYOND: Renewal = Renewal { script: &FAR, about: |_, _| (), notes_cuts: true };

    /// Reads holds like `a1 b2?`: their kind, their placement, and `?` if they are only confirmed. Kind `d` is kind `a`
    /// with a lock delay.
    fn due(text: &'static str) -> Vec<Due<&'static str, u32>> {
        let hold = |hold: &'static str| Due {
            placement: hold[1..].trim_end_matches('?').parse().unwrap(),
            renewal: match &hold[..1] {
                "a" | "d" => &HASH,
                "b" => &OTHER,
                _ => &BEYOND,
            },
            only_confirms: hold.ends_with('?'),
            delay: Duration::from_secs(u64::from(hold.starts_with('d'))),
            work: 1,
            hold,
        };
        text.split_whitespace().map(hold).collect()
    }

    /// The commands in alphabetical order. `*`: over several slots.
    fn planned(holds: &'static str, most: usize, spans_slots: bool) -> Vec<String> {
        let text = |batch: &Batch<&str, u32>| {
            let names: Vec<_> = batch.holds.iter().map(|due| due.hold).collect();
            format!("{}{}", names.join(" "), if batch.over_slots { " *" } else { "" })
        };
        let mut batches: Vec<_> = plan(due(holds), most, spans_slots).iter().map(text).collect();
        batches.sort();
        batches
    }

    #[test]
    fn holds_share_a_command_if_kind_purpose_and_placement_allow_it() {
        for (holds, most, spans_slots, expected) in [
            ("", 9, true, &[][..]),
            ("a1", 9, true, &["a1"]),
            ("a1 a1 a1", 9, false, &["a1 a1 a1"]),
            ("a1 a1 a1", 2, false, &["a1", "a1 a1"]),
            ("a1 a1", 1, true, &["a1", "a1"]),
            // The placements are equal, unless the server accepts undeclared keys.
            ("a2 a1 a2", 9, false, &["a1", "a2 a2"]),
            ("a2 a1 a2", 9, true, &["a1 a2 a2 *"]),
            // A command whose holds are all in one slot declares its keys.
            ("a2 a1 a2 a1", 2, true, &["a1 a1", "a2 a2"]),
            ("a1 a2 a3", 2, true, &["a1 a2 *", "a3"]),
            // One kind and one purpose.
            ("a1 b1 a1 b1", 9, true, &["a1 a1", "b1 b1"]),
            ("a1 a1? a1 a2?", 9, true, &["a1 a1", "a1? a2? *"]),
            // One lock delay.
            ("a1 d1 a1 d1", 9, true, &["a1 a1", "d1 d1"]),
            // These scripts touch keys outside the slot.
            ("c1 c2 c2", 9, true, &["c1", "c2 c2"]),
        ] {
            assert_eq!(planned(holds, most, spans_slots), expected, "{holds:?} {most} {spans_slots}");
        }
    }

    /// A hold to renew at this placement.
    fn one(placement: usize) -> Due<(), usize> {
        Due { placement, renewal: &HASH, only_confirms: false, delay: Duration::ZERO, work: 1, hold: () }
    }

    /// A hold is never divided, so a hold of more permits than a batch allows is a batch of its own.
    #[test]
    fn plan_counts_the_permits_of_holds() {
        for (permits, expected) in
            [(&[60, 40, 1][..], &[2, 1][..]), (&[99, 2, 98], &[1, 2]), (&[500, 1, 500], &[1, 1, 1])]
        {
            let due = |work: &usize| Due { work: *work, ..one(0) };
            let batches = plan(permits.iter().map(due).collect(), 100, false);
            assert_eq!(batches.iter().map(|batch| batch.holds.len()).collect::<Vec<_>>(), expected, "{permits:?}");
        }
    }

    #[test]
    fn plan_makes_one_command_per_hundred_holds() {
        for (holds, commands) in [(1, 1), (100, 1), (101, 2), (1_050, 11)] {
            let batches = plan((0..holds).map(one).collect(), 100, true);
            assert_eq!(batches.len(), commands, "{holds}");
            assert_eq!(batches.iter().map(|batch| batch.holds.len()).sum::<usize>(), holds);
        }
    }

    const SEC: u64 = 1_000_000_000;

    /// The book of a hold that was acquired `age` seconds before 100 s. `lease` in seconds; `None`: watched.
    fn book(age: u64, lease: Option<u64>) -> Book {
        let (mut book, sent) = (Book::default(), (100 - age) * SEC);
        book.open(sent, 0, lease.map(|lease| lease * SEC), sent, sent + lease.unwrap_or(30) * SEC);
        book
    }

    #[test]
    fn round_includes_only_holds_for_its_purpose() {
        let rounds = [Which::All, Which::Held, Which::Due, Which::Unconfirmed(97 * SEC), Which::Short];
        for (age, lease, expected) in [
            (1, None, [true, true, false, false, false]),
            (4, None, [true, true, false, true, false]),
            (5, None, [true, true, true, true, false]),
            (15, None, [true, true, true, true, true]),
            (1, Some(10), [false, true, false, false, false]),
            (4, Some(10), [false, true, false, true, false]),
            (4, Some(600), [true, true, false, true, false]),
            // The lease is over.
            (20, Some(20), [false, false, false, false, false]),
        ] {
            let book = book(age, lease);
            let included =
                rounds.map(|which| which.includes(&book, Moment::from_nanos(100 * SEC), Duration::from_secs(30)));
            assert_eq!(included, expected, "{age} s old, lease {lease:?}");
        }
    }

    #[test]
    fn explicit_leases_are_renewed_only_if_others_may_cut_them_short() {
        let (watched, leased, idle) = (book(1, None), book(1, Some(10)), Book::default());
        for (which, book, leases_apart, expected) in [
            (Which::All, &watched, false, Some(false)),
            (Which::Held, &watched, false, Some(false)),
            (Which::All, &leased, false, None),
            (Which::All, &leased, true, Some(false)),
            (Which::Due, &leased, false, None),
            (Which::Held, &leased, false, Some(true)),
            (Which::Unconfirmed(0), &leased, false, Some(true)),
            (Which::Held, &leased, true, Some(false)),
            (Which::Held, &idle, true, None),
        ] {
            assert_eq!(which.only_confirms(book, leases_apart), expected, "{which:?} {leases_apart} {book:?}");
        }
    }
}
