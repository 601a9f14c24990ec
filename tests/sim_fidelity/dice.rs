//! Random arguments of scripts: mostly valid ones.

use distlock_support::Numbers;

use crate::IDS;

pub(crate) struct Dice(pub(crate) Numbers);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        usize::try_from(self.0.below(sides as u64)).unwrap()
    }

    pub(crate) fn of(&mut self, list: &[&'static str]) -> String {
        list[self.roll(list.len())].into()
    }

    /// Mostly one of the first `good` entries, so that runs get somewhere.
    pub(crate) fn mostly(&mut self, list: &[&'static str], good: usize) -> String {
        if self.roll(4) > 0 { self.of(&list[..good]) } else { self.of(list) }
    }

    /// Id of the hold that an acquire adds, or empty for the only hold.
    pub(crate) fn taken(&mut self) -> String {
        if self.roll(3) == 0 { String::new() } else { self.of(&IDS) }
    }

    /// The holds that a release removes: a word of `lua/common/holds.lua`, an id or several ids.
    pub(crate) fn given_back(&mut self) -> String {
        match self.roll(8) {
            0 => String::new(),
            1 => "-".into(),
            2 => "*".into(),
            3 => [self.of(&IDS), self.of(&IDS)].join(","),
            4 => self.of(&["i1,-", "-,i2,i3", "i1,i2,i3,0a.7", "nobody's", ",", ",i2"]),
            _ => self.of(&IDS),
        }
    }

    /// Number of arguments to send. Arguments left out at the end count as empty.
    pub(crate) fn said(&mut self, least: usize, all: usize) -> usize {
        if self.roll(4) == 0 { least + self.roll(all - least) } else { all }
    }

    /// The hold that must still exist; mostly none.
    pub(crate) fn earlier(&mut self) -> String {
        match self.roll(8) {
            0 => "-".into(),
            1 => self.of(&IDS),
            _ => String::new(),
        }
    }

    pub(crate) fn relied_on(&mut self) -> String {
        match self.roll(5) {
            0 => String::new(),
            1 => ",-".into(),
            2 => format!(",{},-,{}", self.of(&IDS), self.of(&IDS)),
            _ => format!(",{}", self.of(&IDS)),
        }
    }

    /// A last moment: mostly none, else in the past, now or in the future.
    pub(crate) fn last(&mut self, now: i64) -> String {
        match self.roll(12) {
            0 => "1".into(),
            1 => (now - 1).to_string(),
            2 => now.to_string(),
            3 => self.of(&["99999999999999", "x", ""]),
            _ => "0".into(),
        }
    }
}
