//! What ours do in Redis: Redisson's steps (`java.rs`) but for the differences, which are all told here by name.

use std::collections::BTreeMap;

use crate::book::WATCHDOG;
use crate::state::{Half, Span, State};

/// Where ours must *not* leave what Redisson leaves. Nothing else may differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unlike {
    /// Coming in again for writing: the lease is the longer of both, not their sum.
    Reentry,
    /// A writer takes a lock all of whose readers are dead; Redisson's waits for the hash to end.
    DeadReaders,
    /// An owner that lost its holds comes in with a count of 1, whatever the dead ones left; Redisson counts on.
    Anew,
    /// Reading ends under the own write hold: the lease stays the writer's; Redisson's becomes the reader's.
    UnderWrite,
    /// Writing ends once of several times: the lease is what the guards that stay were given, and never less than their
    /// owner's covers. Redisson's is what the lock object was last used with: here always a new one, so the watchdog's.
    PartialWrite,
    /// Writing ends and the owner's holds for reading are dead: free. Redisson leaves it to them.
    DeadReads,
    /// Reading ends once of several times: what is left is covered as long as promised. Redisson's goes with the last
    /// cover, whichever hold was meant.
    Promise,
    /// A hold that is known to be lost is not given back any more. Redisson's counts down what it finds.
    Lost,
    /// Renewing and extending: Redisson cannot be asked to.
    Renewal,
    /// The message that the end has come nearer: none of Redisson's. The state is the same.
    Sooner,
    /// The message of a downgrade: none of Redisson's. The state is the same.
    Told,
    /// Writing asked for while reading: refused as a deadlock. Redisson's is busy. The state is the same.
    Upgrade,
}

impl Unlike {
    pub const ALL: [Self; 12] = [
        Self::Reentry,
        Self::DeadReaders,
        Self::Anew,
        Self::UnderWrite,
        Self::PartialWrite,
        Self::DeadReads,
        Self::Promise,
        Self::Lost,
        Self::Renewal,
        Self::Sooner,
        Self::Told,
        Self::Upgrade,
    ];

    /// Whether the state differs afterwards.
    pub fn in_state(self) -> bool {
        !matches!(self, Self::Sooner | Self::Told | Self::Upgrade)
    }
}

pub type Why = BTreeMap<Unlike, u64>;

pub fn note(why: &mut Why, what: Unlike) {
    *why.entry(what).or_default() += 1;
}

/// What a client is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Held,
    Busy,
    Deadlock,
    /// Was to come in again, but holds nothing any more.
    Gone,
    Left(i64),
    /// The owner holds nothing any more.
    Free,
    NotHeld,
}

impl State {
    /// `want`: the count afterwards; None where others may act as this owner.
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
            // Not touched where it is long enough.
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

    /// `left`: the count afterwards, None: one less. `promised`: until when the holds that are left must be covered at least, until when
    /// they are covered if they are not, and whether the client may not know the server's time.
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
            if self.mode.is_none() {
                // Not the last live reader after all.
                said.pop();
                self.clone_from(&was);
                self.reads[who] = left;
                self.covers.remove(&(who, before));
            }
            let key = (who, left);
            let old = self.covers.insert(key, promised);
            if best.is_some_and(|best| !best.before(least)) {
                self.either.push((key, old));
            }
            let unlike = (!self.either.is_empty()).then_some(self.end);
            self.end = match mode {
                Some(Half::Read) => self.live().unwrap_or(promised).max(best.unwrap_or_default()).set_again(t),
                _ => self.end.max(promised),
            };
            if let Some(end) = unlike {
                self.end = Span { lo: self.end.lo.min(end.lo), hi: self.end.hi.max(end.hi) };
            }
        }
        if let (Some(longest), Some((_, promised, true))) = (was.covered(who), promised)
            && left > 0
            && self.mode.is_some()
        {
            // What is left keeps the longest cover of all then.
            let kept = longest.max(promised).set_again(t);
            self.either.push(((who, left), Some(kept)));
            self.end.hi = self.end.hi.max(kept.hi);
        }
        if mode == Some(Half::Read) && self.mode.is_some() {
            // Those who wait are told of an end that comes sooner by a second.
            let (least, most) = (was.end.lo - self.end.hi, was.end.hi - self.end.lo);
            if most > 1000 {
                said.push(if least > 1000 { '0' } else { '?' });
                note(why, Unlike::Sooner);
            }
        }
        if left > 0 && self.mode.is_some() { Answer::Left(left) } else { Answer::Free }
    }

    /// `lease`: for what is left.
    pub fn our_unwrite(
        &mut self,
        who: usize,
        left: Option<i64>,
        lease: Span,
        t: Span,
        why: &mut Why,
        said: &mut String,
    ) -> Answer {
        let (before, covered) = (self.writes[who], self.covered(who));
        let left = left.unwrap_or(before - 1);
        let dead = self.reads[who] > 0 && covered.is_none();
        if !self.java_unwrite(who, WATCHDOG, t, said) {
            return Answer::NotHeld;
        }
        assert_eq!(left, before - 1, "the client counts what the server counts");
        if left > 0 {
            let end = t.plus(lease).max(covered.unwrap_or_default().set_again(t));
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

    /// `extend`: the covers too, else only what the hash lasts at least. Whether it is held.
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

    /// All of the owner's leases of this half become this one, be it shorter.
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
