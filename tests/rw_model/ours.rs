//! The effects of our scripts: Redisson's steps (`java.rs`), except for the differences that are named here.

use std::collections::BTreeMap;

use crate::book::WATCHDOG;
use crate::state::{Half, Span, State};

/// Intended differences from the state that Redisson leaves. Nothing else may differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unlike {
    /// Re-entry of a writer: the lease is the longer of both, not their sum.
    Reentry,
    /// A writer enters if all readers are dead. Redisson's writer waits for the hash to expire.
    DeadReaders,
    /// An owner that lost its holds enters with a count of 1. Redisson adds to the count of the dead holds.
    Anew,
    /// A read hold under the owner's own write hold ends: the writer's lease stays. In Redisson it becomes the
    /// reader's.
    UnderWrite,
    /// A write hold ends, and others remain: the lease becomes that of the remaining guards, at least their owner's
    /// covers. In Redisson, the lease becomes the lock object's last lease. Here the object is always new, so the lease
    /// is the watchdog's.
    PartialWrite,
    /// The last write hold ends while the owner's read holds are dead: the lock is free. Redisson leaves it to the
    /// dead read holds.
    DeadReads,
    /// A read hold ends, and others remain: the remaining holds keep their promised covers. Redisson removes the last
    /// cover, whichever hold was released.
    Promise,
    /// A hold that is known to be lost is not released. Redisson decrements any count that it finds.
    Lost,
    /// Renewals and extensions, which Redisson cannot be asked for.
    Renewal,
    /// The message that the lock will end earlier, which Redisson does not send. The state is the same.
    Sooner,
    /// The message of a downgrade, which Redisson does not send. The state is the same.
    Told,
    /// An acquire of the write half while reading is refused as a deadlock. Redisson reports busy. The state is the
    /// same.
    Upgrade,
}

impl Unlike {
    /// True if this difference leaves another state.
    pub fn in_state(self) -> bool {
        !matches!(self, Self::Sooner | Self::Told | Self::Upgrade)
    }
}

pub type Why = BTreeMap<Unlike, u64>;

pub fn note(why: &mut Why, what: Unlike) {
    *why.entry(what).or_default() += 1;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Held,
    Busy,
    Deadlock,
    /// The owner's earlier holds are gone, so it cannot re-enter.
    Gone,
    Left(i64),
    /// The owner has no hold left.
    Free,
    NotHeld,
}

impl State {
    /// `want`: the count afterwards, or `None` if other clients may act as this owner.
    pub fn our_read(&mut self, who: usize, lease: Span, want: Option<i64>, t: Span, why: &mut Why) -> Answer {
        if self.mode == Some(Half::Write) && self.writes[who] == 0 {
            return Answer::Busy;
        }
        if want.is_some_and(|want| want > 1) && self.covered(who).is_none() {
            return Answer::Gone;
        }
        if self.reads[who] > 0 && (want == Some(1) || (want.is_none() && self.covered(who).is_none())) {
            note(why, Unlike::Anew);
            self.reads[who] = 0;
        }
        let (mode, end) = (self.mode, self.end);
        self.java_read(who, lease, t);
        if mode.is_some() {
            // Unchanged if it is long enough.
            self.end = end.max(t.plus(lease));
        }
        Answer::Held
    }

    /// `rest`: for how long the owner's earlier holds were promised to last.
    pub fn our_write(
        &mut self,
        who: usize,
        lease: Span,
        want: Option<i64>,
        rest: Option<Span>,
        t: Span,
        why: &mut Why,
    ) -> Answer {
        let again = want.is_some_and(|want| want > 1);
        match self.mode {
            Some(Half::Write) if self.writes[who] == 0 => return Answer::Busy,
            Some(Half::Write) => {
                if want == Some(1) {
                    note(why, Unlike::Anew);
                    self.writes[who] = 0;
                }
                note(why, Unlike::Reentry);
                self.writes[who] += 1;
                self.end = self.end.max(t.plus(lease)).max(rest.unwrap_or_default());
                return Answer::Held;
            }
            Some(Half::Read) if self.covered(who).is_some() => {
                note(why, Unlike::Upgrade);
                return Answer::Deadlock;
            }
            Some(Half::Read) if self.live().is_some() => return Answer::Busy,
            _ if again => return Answer::Gone,
            Some(Half::Read) => {
                note(why, Unlike::DeadReaders);
                self.free();
            }
            None => {}
        }
        self.java_write(who, lease, t);
        Answer::Held
    }

    /// `left`: the count afterwards; `None` means one less. `promised`: until when the remaining holds must be covered
    /// at least, the new cover if they are not, and whether the client may not know the server's time.
    pub fn our_unread(
        &mut self,
        who: usize,
        left: Option<i64>,
        promised: Option<(Span, Span, bool)>,
        t: Span,
        why: &mut Why,
        said: &mut String,
    ) -> Answer {
        let was = self.clone();
        let (before, mode) = (was.reads[who], was.mode);
        let left = left.unwrap_or(before - 1);
        if !self.java_unread(who, t, said) {
            return Answer::NotHeld;
        }
        assert_eq!(left, before - 1, "the client counts what the server counts");
        if mode == Some(Half::Write) {
            if self.end != was.end {
                note(why, Unlike::UnderWrite);
            }
            self.end = was.end;
        }
        let best = self.covered(who);
        let short = |least: Span| !best.is_some_and(|best| least.before(best));
        if let Some((least, promised, _)) = promised.filter(|(least, ..)| left > 0 && short(*least)) {
            note(why, Unlike::Promise);
            self.cover_as_promised((who, left), (least, promised), &was, t, said);
        }
        if let (Some(longest), Some((_, promised, true))) = (was.covered(who), promised)
            && left > 0
            && self.mode.is_some()
        {
            // In this case, the remaining holds keep the longest cover.
            let kept = longest.max(promised).set_again(t);
            self.either.push(((who, left), Some(kept)));
            self.end.hi = self.end.hi.max(kept.hi);
        }
        if mode == Some(Half::Read) && self.mode.is_some() {
            // Waiters get a message if the end comes more than a second earlier.
            let (least, most) = (was.end.lo - self.end.hi, was.end.hi - self.end.lo);
            if most > 1000 {
                said.push(if least > 1000 { '0' } else { '?' });
                note(why, Unlike::Sooner);
            }
        }
        if left > 0 && self.mode.is_some() { Answer::Left(left) } else { Answer::Free }
    }

    /// Adds the promised cover of the remaining holds, which are covered for less than `least`. `was`: the state before
    /// the release.
    fn cover_as_promised(
        &mut self,
        (who, left): (usize, i64),
        (least, promised): (Span, Span),
        was: &Self,
        t: Span,
        said: &mut String,
    ) {
        let best = self.covered(who);
        if self.mode.is_none() {
            // The lock is not free, because this was not the last live reader.
            said.pop();
            self.clone_from(was);
            self.reads[who] = left;
            self.covers.remove(&(who, was.reads[who]));
        }
        let key = (who, left);
        let old = self.covers.insert(key, promised);
        if best.is_some_and(|best| !best.before(least)) {
            self.either.push((key, old));
        }
        let unlike = (!self.either.is_empty()).then_some(self.end);
        self.end = match was.mode {
            Some(Half::Read) => self.live().unwrap_or(promised).max(best.unwrap_or_default()).set_again(t),
            _ => self.end.max(promised),
        };
        if let Some(end) = unlike {
            self.end = Span { lo: self.end.lo.min(end.lo), hi: self.end.hi.max(end.hi) };
        }
    }

    /// `lease`: the lease of the remaining holds. `may_stay`: perhaps the release does not
    /// shorten the current one.
    pub fn our_unwrite(
        &mut self,
        who: usize,
        left: Option<i64>,
        (lease, may_stay): (Span, bool),
        t: Span,
        why: &mut Why,
        said: &mut String,
    ) -> Answer {
        let (was, before, covered) = (self.end, self.writes[who], self.covered(who));
        let left = left.unwrap_or(before - 1);
        let dead = self.reads[who] > 0 && covered.is_none();
        if !self.java_unwrite(who, WATCHDOG, t, said) {
            return Answer::NotHeld;
        }
        assert_eq!(left, before - 1, "the client counts what the server counts");
        if left > 0 {
            let end = t.plus(lease).max(covered.unwrap_or_default().set_again(t));
            let end = if may_stay { Span { hi: end.hi.max(was.set_again(t).hi), ..end } } else { end };
            if end != self.end {
                note(why, Unlike::PartialWrite);
            }
            self.end = end;
            return Answer::Left(left);
        }
        if dead {
            note(why, Unlike::DeadReads);
            self.free();
            said.push('1');
        } else if covered.is_some() {
            note(why, Unlike::Told);
            said.push('1');
        }
        Answer::Free
    }

    /// `extend`: also extends the covers; otherwise only the hash is extended. Returns whether the lock is held.
    pub fn our_renewed(&mut self, who: usize, half: Half, extend: bool, lease: Span, t: Span) -> bool {
        if half == Half::Write {
            if self.writes[who] > 0 {
                self.end = self.end.max(t.plus(lease));
            }
            return self.writes[who] > 0;
        }
        for n in 1..=self.reads[who] {
            if let Some(end) = self.covers.get_mut(&(who, n)).filter(|_| extend) {
                *end = end.max(t.plus(lease));
            }
        }
        let best = self.covered(who);
        self.end = self.end.max(best.unwrap_or_default().set_again(t));
        best.is_some()
    }

    /// Sets all leases of the owner on this half, even to a shorter lease.
    pub fn our_extended(&mut self, who: usize, half: Half, lease: Span, t: Span) -> bool {
        if half == Half::Write {
            if self.writes[who] > 0 {
                self.end = t.plus(lease).max(self.covered(who).unwrap_or_default().set_again(t));
            }
            return self.writes[who] > 0;
        }
        for n in 1..=self.reads[who] {
            if let Some(end) = self.covers.get_mut(&(who, n)) {
                *end = t.plus(lease);
            }
        }
        let best = self.covered(who);
        if let (Some(best), Some(live)) = (best, self.live()) {
            let end = if self.mode == Some(Half::Read) { live } else { self.end.max(best) };
            self.end = end.set_again(t);
        }
        best.is_some()
    }
}
