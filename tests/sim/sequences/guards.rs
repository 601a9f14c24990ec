//! The guards of a scene: how they are added, and what ends them.

use super::plan::Kind;
use super::scene::Scene;
use super::state::{Guardless, Held, Spot, State};
use crate::prelude::*;
use futures::FutureExt as _;

impl Scene {
    /// Adds a guard that an acquire returned. It must be held now, and exclude other guards.
    pub fn enter(&self, spot: Spot, guard: Guard, given: bool, began: Instant) -> usize {
        let owner = holder(&guard);
        self.note_trouble();
        let mut state = self.state.lock();
        let id = state.holds;
        state.holds += 1;
        let who = if given { owner.clone() } else { format!("{owner}#{id}") };
        let exempt = self.force_is_near_in(&state, spot);
        let copied = state.in_time.filter(|until| *until >= began + self.in_time_for());
        let held = Held { guard, spot, owner, who, exempt, copied, forced: None, may_be_cut: false, promised: None };
        let mut wrong = Vec::new();
        if held.guard.is_held() && !exempt {
            for (other, before) in &state.held {
                let shared = before.spot.reads && spot.reads;
                if before.who == held.who || before.exempt || shared || !self.meets(before.spot, spot) {
                    continue;
                }
                if before.guard.is_held() {
                    wrong.push(format!("M1: {id} ({}) and {other} ({}) hold both", held.who, before.who));
                } else if before.guard.lost().now_or_never().is_none() {
                    wrong.push(format!("M2: {other} ({}) is not held, and lost() does not say so", before.who));
                }
            }
        } else if !held.guard.is_held() {
            wrong.push(format!("M2: an acquire returned a guard that does not hold: {:?}", held.guard));
        }
        // This acquire showed whether the owner's earlier hold still exists. If that hold was ended by a force, its
        // guard must be notified by now.
        let before = |before: &&Held| before.owner == held.owner && before.spot == spot;
        if self.kind != Kind::Multi
            && !self.kind.is_red()
            && !self.theme.runtimes
            && let (Some(before), 1) = (state.held.values().find(before), state.held.values().filter(before).count())
            && before.forced.is_some_and(|forced| forced < began)
            && before.guard.is_held()
        {
            wrong.push(format!("own: {id} came in beside a guard of {} that was forced open before", held.owner));
        }
        state.held.insert(id, held);
        drop(state);
        self.say(|| format!("{id} enters {spot:?} {:?}", self.state.lock().held.get(&id).map(|held| held.who.clone())));
        wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        self.look("an acquire returned");
        id
    }

    fn force_is_near_in(&self, state: &State, spot: Spot) -> bool {
        let now = Instant::now();
        let lasts = |(key, until): &(usize, Option<Instant>)| {
            self.keys(spot).contains(key) && until.is_none_or(|until| now < until)
        };
        state.forced.iter().any(lasts)
    }

    /// True if the lock is being forced open, or a force may still arrive.
    pub fn force_is_near(&self, spot: Spot) -> bool {
        self.force_is_near_in(&self.state.lock(), spot)
    }

    pub fn begin_force(&self, spot: Spot) {
        let mut state = self.state.lock();
        self.exempt(&mut state, spot);
        state.forced.extend(self.keys(spot).map(|key| (key, None)));
    }

    /// Ends the step of a force. A copy of its command may still run before `until`.
    pub fn end_force(&self, spot: Spot, until: Instant) {
        let mut state = self.state.lock();
        self.exempt(&mut state, spot);
        // Only one force step runs at a time.
        state.forced.iter_mut().filter(|(_, end)| end.is_none()).for_each(|(_, end)| *end = Some(until));
    }

    fn exempt(&self, state: &mut State, spot: Spot) {
        let met = state.held.values_mut().filter(|held| self.meets(held.spot, spot));
        met.for_each(|held| held.exempt = true);
    }

    /// Records that these guards' lock was forced open by a command that was sent at `since`.
    pub fn note_forced(&self, before: &[usize], since: Instant) {
        let mut state = self.state.lock();
        for id in before {
            if let Some(held) = state.held.get_mut(id).filter(|held| held.copied.is_none_or(|until| until < since)) {
                held.forced = Some(Instant::now());
            }
        }
    }

    pub fn take(&self, id: usize) -> Held {
        self.state.lock().held.remove(&id).unwrap()
    }

    pub fn put(&self, id: usize, mut held: Held) {
        held.promised = None;
        held.exempt |= self.force_is_near(held.spot);
        self.state.lock().held.insert(id, held);
    }

    pub fn another_of(&self, id: usize) -> Option<usize> {
        let held = &self.state.lock().held;
        let mut others = held.iter().filter(|(other, _)| **other != id);
        Some(*others.find(|(_, other)| other.owner == held[&id].owner)?.0)
    }

    /// Records a hold that may still be counted, without a guard.
    pub fn leave_behind(&self, held: &Held, until: Instant) {
        let (spot, text) = (held.spot, held.owner.clone());
        // The owner is parsed from its text, because `Guard::owner` would share the owner.
        if let Ok(owner) = text.parse() {
            self.state.lock().guardless.push(Guardless { owner, spot, text, until });
        }
    }
}
