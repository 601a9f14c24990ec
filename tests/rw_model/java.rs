//! The effects of Redisson's scripts (protocol 10, and 6 for its watchdog).

use crate::state::{Half, OWNERS, Span, State};

impl State {
    /// 10.1. Returns whether the lock was acquired.
    pub fn java_read(&mut self, who: usize, lease: Span, t: Span) -> bool {
        if self.mode == Some(Half::Write) && self.writes[who] == 0 {
            return false;
        }
        let end = t.plus(lease);
        self.reads[who] += 1;
        self.covers.insert((who, self.reads[who]), end);
        self.end = if self.mode.is_some() { self.end.set_again(t).max(end) } else { end };
        self.mode = self.mode.or(Some(Half::Read));
        true
    }

    /// 10.2.
    pub fn java_write(&mut self, who: usize, lease: Span, t: Span) -> bool {
        match self.mode {
            None => self.end = t.plus(lease),
            Some(Half::Write) if self.writes[who] > 0 => self.end = self.end.set_again(t).plus(lease),
            Some(_) => return false,
        }
        self.mode = Some(Half::Write);
        self.writes[who] += 1;
        true
    }

    /// 10.3. Returns whether the lock was held.
    pub fn java_unread(&mut self, who: usize, t: Span, said: &mut String) -> bool {
        if self.mode.is_none() {
            said.push('0');
            return false;
        }
        if self.reads[who] == 0 {
            return false;
        }
        self.covers.remove(&(who, self.reads[who]));
        self.reads[who] -= 1;
        let others = (0..OWNERS).any(|who| self.reads[who] + self.writes[who] > 0);
        match self.live() {
            Some(live) if others => self.end = live.set_again(t),
            None if others && self.mode == Some(Half::Write) => {}
            _ => {
                self.free();
                said.push('0');
            }
        }
        true
    }

    /// 10.4. `lease`: the lock object's lease, which a partial unlock sets.
    pub fn java_unwrite(&mut self, who: usize, lease: Span, t: Span, said: &mut String) -> bool {
        if self.mode.is_none() {
            said.push('1');
            return false;
        }
        if self.writes[who] == 0 {
            return false;
        }
        self.writes[who] -= 1;
        if self.writes[who] > 0 {
            self.end = t.plus(lease);
        } else if self.reads[who] > 0 {
            self.mode = Some(Half::Read);
        } else {
            self.free();
            said.push('1');
        }
        true
    }

    /// 6. Sets every existing cover, and the hash, to the lease.
    pub fn java_tick(&mut self, who: usize, half: Half, lease: Span, t: Span) {
        let count = if half == Half::Read { self.reads[who] } else { 0 };
        for n in 1..=count {
            if let Some(end) = self.covers.get_mut(&(who, n)) {
                *end = t.plus(lease);
            }
        }
        self.end = t.plus(lease);
    }
}
