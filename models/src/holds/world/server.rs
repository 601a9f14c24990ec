//! The effect of each command at the server.

use super::{Answer, CLIENTS, Key, World, bit};
use crate::holds::rules::{LAWFUL, Sent, Switch, What};

impl World {
    pub(super) fn serve(&mut self, sent: &Sent, switch: Switch) -> Answer {
        let late = self.now > sent.sent + LAWFUL;
        let other = sent.client as usize == CLIENTS - 1;
        match sent.what {
            What::Acquire { .. } if late && switch != Switch::AcquireLate => Answer::Late,
            What::Acquire { id, earlier, lease } => self.acquires(other, (id, earlier, lease), switch),
            What::Release { id, mine, rest } => {
                // This hold's acquire was sent before this release, so the acquire's last moment has passed too.
                if late {
                    self.given_back |= bit(id);
                }
                self.releases(other, (id, mine, rest), switch)
            }
            What::Extend { .. } if late && switch != Switch::ExtendLate => Answer::Late,
            What::Extend { id, mine, lease, number } => self.extends(other, (id, mine, lease, number), switch),
            What::Force if late && switch != Switch::ForceLate => Answer::Late,
            What::Force => {
                if !late {
                    for guard in self.clients.iter_mut().flat_map(|client| &mut client.guards).flatten() {
                        guard.excused = true;
                    }
                }
                self.key = None;
                Answer::Done
            }
        }
    }

    fn acquires(&mut self, other: bool, (id, earlier, lease): (u8, Option<u8>, u8), switch: Switch) -> Answer {
        let until = self.now + lease;
        match &mut self.key {
            Some(key) if key.other != other => Answer::Busy,
            Some(key) if earlier.is_some_and(|earlier| key.ids & bit(earlier) == 0) => Answer::Gone,
            Some(key) => {
                let again = key.ids & bit(id) != 0;
                key.count += u8::from(!again || switch == Switch::CountAgain);
                key.ids |= bit(id);
                key.until = key.until.max(until);
                Answer::Done
            }
            None if earlier.is_some() => Answer::Gone,
            free => {
                *free = Some(Key { other, ids: bit(id), count: 1, until, cuts: Default::default() });
                Answer::Done
            }
        }
    }

    fn releases(&mut self, other: bool, (id, mine, rest): (u8, u8, u8), switch: Switch) -> Answer {
        let Some(key) = self.key.as_mut().filter(|key| key.other == other) else { return Answer::Gone };
        let listed = key.ids & bit(id) != 0;
        if !listed && switch != Switch::ReleaseAny {
            return Answer::Gone;
        }
        key.count -= 1;
        key.cuts[id as usize] = 0;
        key.ids = if listed { key.ids & !bit(id) } else { key.ids & (key.ids - 1) };
        if key.count == 0 {
            self.key = None;
            return Answer::Done;
        }
        let shorter = match switch {
            Switch::ReleaseShortens => key.ids & !mine == 0,
            Switch::ReleaseByNumber => u32::from(key.count) == mine.count_ones(),
            _ => false,
        };
        let until = self.now + rest;
        key.until = if shorter { until } else { key.until.max(until) };
        Answer::Done
    }

    fn extends(&mut self, other: bool, (id, mine, lease, number): (u8, u8, u8, u8), switch: Switch) -> Answer {
        let fits = |key: &&mut Key| key.other == other && key.ids & bit(id) != 0;
        let Some(key) = self.key.as_mut().filter(fits) else { return Answer::Gone };
        let until = self.now + lease;
        let all = match switch {
            Switch::ExtendOthers => true,
            Switch::ExtendByNumber => u32::from(key.count) == mine.count_ones(),
            _ => key.ids & !mine == 0,
        };
        let again = number > 0 && key.cuts[id as usize] >= number && switch != Switch::ExtendTwice;
        let cuts = all && number > 0;
        if number > 0 && !again && (cuts || switch != Switch::ExtendUnnoted) {
            key.cuts[id as usize] = number;
        }
        if !again {
            key.until = if cuts { until } else { key.until.max(until) };
        }
        Answer::Done
    }
}
