//! Rules that hold at every moment.

use super::plan::Kind;
use super::scene::Scene;
use super::state::{Spot, Stranded};
use crate::fleet::moved;
use crate::prelude::*;
use std::collections::BTreeSet;

impl Scene {
    /// Checks every guard against the server.
    pub fn look(&self, when: &str) {
        self.note_trouble();
        let mut state = self.state.lock();
        let state = &mut *state;
        // The guards that report held, grouped by owner, name and mode: their number, and the longest promised time.
        let mut sums: BTreeMap<(String, usize, bool), (u64, Duration)> = BTreeMap::new();
        let mut wrong = Vec::new();
        let now = Instant::now();
        for (id, held) in &mut state.held {
            let left = held.guard.remaining();
            if held.exempt {
                continue;
            }
            if held.guard.is_held() {
                held.promised = Some(now + left);
                for key in self.keys(held.spot) {
                    let sum = sums.entry((held.owner.clone(), key, held.spot.reads)).or_default();
                    *sum = (sum.0 + 1, sum.1.max(left));
                }
            } else if let Some(until) = held.promised.take() {
                // A hold whose guard is lost is released in the background.
                state.loose |= state.in_time.is_some_and(|until| now < until);
                if now < until && !held.may_be_cut {
                    wrong.push(format!("own: guard {id} ({}) was lost before its time", held.who));
                }
            }
        }
        for ((owner, key, reads), (guards, left)) in sums {
            let (name, flavour) = (self.names[key], self.flavour(reads));
            if self.kind.is_red() {
                let spread = self.servers.iter().enumerate();
                let counts = spread.map(|(n, server)| count(server, flavour, name, &moved(&owner, n)));
                let sum: u64 = counts.sum();
                if sum < 2 * guards {
                    wrong.push(format!("M4: the servers count {sum} of {name}, for {guards} guards of {owner}"));
                }
                continue;
            }
            let server = &self.servers[0];
            let has = count(server, flavour, name, &owner);
            let pttl = lasts(server, flavour, name, &owner);
            if has < guards {
                wrong.push(format!("M4: the server counts {has} of {name}, for {guards} guards of {owner}"));
            } else if Duration::from_millis(u64::try_from(pttl + 1).unwrap_or(0)) < left {
                wrong.push(format!("M2: {name} has {pttl} ms left, and {owner} counts on {left:?}"));
            }
        }
        let found = !wrong.is_empty();
        state.wrong.extend(wrong.into_iter().map(|wrong| format!("at {:?}, {when}: {wrong}", self.start.elapsed())));
        if found && self.traced {
            let last = state.wrong.last().cloned().unwrap_or_default();
            state.trace.push(format!("WRONG {last}"));
        }
    }

    /// In a theme without faults, and with nothing in flight, the server counts no more holds than expected.
    pub fn look_exactly(&self) {
        if self.theme.is_exact() && !self.kind.is_red() && self.is_quiet() {
            let state = self.state.lock();
            let with = state.held.values().map(|held| held.owner.clone());
            let owners = with.chain(state.guardless.iter().map(|hold| hold.text.clone())).collect();
            drop(state);
            self.compare(&owners, "once");
        }
    }

    /// Checks that the server counts no more holds of these owners than there are guards, holds without guards, and
    /// stranded holds (`late.rs`).
    pub(super) fn compare(&self, owners: &BTreeSet<String>, what: &str) {
        let mut state = self.state.lock();
        let halves: &[bool] = if self.kind == Kind::Rw { &[false, true] } else { &[false] };
        let mut wrong = Vec::new();
        for ((key, name), (owner, &reads)) in pairs(self.names.iter().enumerate(), pairs(owners, halves)) {
            let here =
                |text: &String, spot: Spot| text == owner && spot.reads == reads && self.keys(spot).contains(&key);
            let with = state.held.values().filter(|held| here(&held.owner, held.spot)).count();
            let without = state.guardless.iter().filter(|hold| here(&hold.text, hold.spot)).count();
            for (n, server) in self.servers.iter().enumerate() {
                let owner = if self.servers.len() > 1 { &moved(owner, n) } else { owner };
                let has = count(server, self.flavour(reads), name, owner);
                let left = |left: &&Stranded| (left.server, left.key, &left.owner) == (n, key, owner);
                let left = state.stranded.iter().filter(left).count();
                if has > (with + without + left) as u64 {
                    wrong.push(format!(
                        "{what}: the server counts {has} of {name} for {with} guards of {owner}, {without} without, {left} left"
                    ));
                }
            }
        }
        state.looks.counts += u64::from(!owners.is_empty());
        drop(state);
        wrong.into_iter().for_each(|wrong| self.wrong(wrong));
    }
}
