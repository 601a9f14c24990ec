//! The state, and every event that can follow it.

mod server;

use super::rules::{LAWFUL, Op, Play, Sent, Switch, What};

/// Clients 0 and 1 act as one owner, client 2 as another.
pub(super) const CLIENTS: usize = 3;

/// The largest number of acquires in a client's program.
const SLOTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Guard {
    until: u8,
    /// The lock may have been forced open.
    excused: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    at: u8,
    waits: bool,
    guards: [Option<Guard>; SLOTS],
    /// Last tick at which an extend of this client that may shorten the lease can still arrive.
    cut_until: u8,
    /// The number of these extends that the client has sent.
    cuts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// True if the owner is that of client 2.
    other: bool,
    ids: u8,
    count: u8,
    until: u8,
    /// For each hold, the number of its last extend that ran.
    cuts: [u8; CLIENTS * SLOTS],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    now: u8,
    key: Option<Key>,
    clients: [Client; CLIENTS],
    wire: Vec<Sent>,
    given_back: u8,
}

/// The reply to a command.
enum Answer {
    Done,
    Busy,
    Gone,
    Late,
}

const fn bit(id: u8) -> u8 {
    1 << id
}

const fn id(client: usize, slot: u8) -> u8 {
    (client * SLOTS) as u8 + slot
}

impl World {
    pub(super) fn new() -> Self {
        Self { now: 0, key: None, clients: [Client::default(); CLIENTS], wire: Vec::new(), given_back: 0 }
    }

    /// Returns every possible next event, as text, with the state that follows or the violation.
    pub(super) fn next(&self, play: &Play) -> Vec<(String, Result<Self, String>)> {
        let mut all = Vec::new();
        if self.now < play.ticks {
            let mut world = self.clone();
            world.now += 1;
            if world.key.is_some_and(|key| world.now >= key.until) {
                world.key = None;
            }
            all.push(("a tick".to_owned(), world.checked()));
        }
        for client in 0..CLIENTS {
            if self.clients[client].waits {
                let mut world = self.clone();
                world.give_up(client, play);
                all.push((format!("client {client} gives up"), world.checked()));
            } else if let Some((text, world)) = self.begin(client, play) {
                all.push((text, world.checked()));
            }
        }
        for n in 0..self.wire.len() {
            // A reply arrives at once or never.
            for heard in [true, false] {
                let sent = self.wire[n];
                let waits = self.waits_for(&sent);
                if heard && !waits {
                    continue;
                }
                let mut world = self.clone();
                world.wire[n].copies -= 1;
                world.wire.retain(|sent| sent.copies > 0);
                let text = format!("{:?} of client {} comes in, heard: {heard}", sent.what, sent.client);
                let outcome = world.arrive(&sent, heard, play).and_then(|()| world.checked());
                all.push((text, outcome));
            }
        }
        all
    }

    fn waits_for(&self, sent: &Sent) -> bool {
        let client = &self.clients[sent.client as usize];
        client.waits && client.at == sent.step
    }

    fn held(&self, client: usize, slot: usize) -> Option<Guard> {
        self.clients[client].guards[slot].filter(|guard| self.now < guard.until)
    }

    fn send(&mut self, client: usize, what: What) {
        let step = self.clients[client].at;
        // Client 2's commands arrive at most once, which keeps the number of states small.
        let copies = if client == CLIENTS - 1 { 1 } else { 2 };
        self.wire.push(Sent { client: client as u8, step, what, sent: self.now, copies });
        // Two orders of the same commands are one state.
        self.wire.sort_unstable();
    }

    fn mine(&self, client: usize) -> u8 {
        (0..SLOTS)
            .filter(|slot| self.held(client, *slot).is_some())
            .fold(0, |mine, slot| mine | bit(id(client, slot as u8)))
    }

    /// Returns the release of a hold whose guard is gone.
    fn release(&self, client: usize, slot: u8) -> What {
        let left = (0..SLOTS).filter_map(|slot| self.held(client, slot)).map(|guard| guard.until - self.now);
        What::Release { id: id(client, slot), mine: self.mine(client), rest: left.max().unwrap_or(1) }
    }

    /// Runs the client's next step.
    fn begin(&self, client: usize, play: &Play) -> Option<(String, Self)> {
        let op = *play.programs[client].get(self.clients[client].at as usize)?;
        let mut world = self.clone();
        let what = match op {
            Op::Acquire { slot, lease } => {
                let earlier = (0..slot).find(|slot| self.held(client, *slot as usize).is_some());
                let earlier = earlier.map(|slot| id(client, slot)).filter(|_| play.switch != Switch::NoWitness);
                Some(What::Acquire { id: id(client, slot), earlier, lease })
            }
            // A release is sent even if the hold has ended by its lease.
            Op::Release { slot } => {
                world.clients[client].guards[slot as usize].take().map(|_| world.release(client, slot))
            }
            Op::Extend { slot, lease } => self.held(client, slot as usize).map(|mut guard| {
                let shorter = self.now + lease < guard.until;
                guard.until = guard.until.min(self.now + lease);
                world.clients[client].guards[slot as usize] = Some(guard);
                world.clients[client].cuts += u8::from(shorter);
                // The new lease must not end before the lease of the client's other guard.
                let others =
                    (0..SLOTS).filter(|other| *other != slot as usize).filter_map(|other| self.held(client, other));
                let lease = others.map(|guard| guard.until - self.now).fold(lease, u8::max);
                let number = if shorter { world.clients[client].cuts } else { 0 };
                What::Extend { id: id(client, slot), mine: self.mine(client), lease, number }
            }),
            Op::Force => Some(What::Force),
        };
        if matches!(what, Some(What::Extend { .. } | What::Acquire { .. })) && self.now < self.clients[client].cut_until
        {
            // An extend that may shorten the lease can still arrive.
            return None;
        }
        match what {
            Some(what) => {
                if matches!(what, What::Extend { number: 1.., .. }) && play.switch != Switch::ExtendAtOnce {
                    world.clients[client].cut_until = self.now + LAWFUL + 1;
                }
                world.send(client, what);
                world.clients[client].waits = true;
            }
            None => world.clients[client].at += 1,
        }
        Some((format!("client {client}: {op:?}"), world))
    }

    /// Stops waiting for the reply. A hold that the lost command may have acquired is released.
    fn give_up(&mut self, client: usize, play: &Play) {
        let op = play.programs[client][self.clients[client].at as usize];
        if let Op::Acquire { slot, .. } = op {
            let release = self.release(client, slot);
            self.send(client, release);
        }
        self.clients[client].waits = false;
        self.clients[client].at += 1;
    }

    /// A command reaches the server, and its reply reaches the client if `heard` is set.
    fn arrive(&mut self, sent: &Sent, heard: bool, play: &Play) -> Result<(), String> {
        let answer = self.serve(sent, play.switch);
        if heard { self.hear(sent, answer, play.switch) } else { Ok(()) }
    }

    /// The client gets the reply that it waits for.
    fn hear(&mut self, sent: &Sent, answer: Answer, switch: Switch) -> Result<(), String> {
        let now = self.now;
        let begun = if switch == Switch::CountFromReply { now + 1 } else { sent.sent };
        let key = self.key;
        let listed = |id: u8| key.is_some_and(|key| key.ids & bit(id) != 0);
        let client = &mut self.clients[sent.client as usize];
        match (sent.what, answer) {
            (What::Acquire { id, lease, .. }, Answer::Done) => {
                for (slot, guard) in client.guards.iter().enumerate() {
                    let earlier = (sent.client as usize * SLOTS + slot) as u8;
                    if guard.is_some_and(|guard| now < guard.until) && !listed(earlier) {
                        return Err(format!(
                            "hold {id} came in again beside {earlier}, which the server does not have"
                        ));
                    }
                }
                let guard = Guard { until: begun + lease, excused: false };
                client.guards[id as usize % SLOTS] = Some(guard);
            }
            (What::Acquire { .. }, Answer::Gone) => client.guards = [None; SLOTS],
            (What::Extend { id, lease, .. }, Answer::Done) => {
                // The reply shows that this extend has run, so further copies do nothing.
                client.cut_until = 0;
                if let Some(guard) = &mut client.guards[id as usize % SLOTS] {
                    guard.until = begun + lease;
                }
            }
            (What::Extend { id, .. }, Answer::Gone) => client.guards[id as usize % SLOTS] = None,
            _ => {}
        }
        client.waits = false;
        client.at += 1;
        Ok(())
    }

    /// Returns the state if it satisfies all invariants.
    fn checked(self) -> Result<Self, String> {
        if let Some(key) = self.key {
            if u32::from(key.count) != key.ids.count_ones() {
                return Err(format!("the count is {}, of the holds {:#b}", key.count, key.ids));
            }
            if key.ids & self.given_back != 0 {
                return Err(format!("what was given back is there again: {:#b}", key.ids & self.given_back));
            }
        }
        let mut holders = [false; 2];
        for client in 0..CLIENTS {
            for slot in 0..SLOTS {
                let Some(guard) = self.held(client, slot).filter(|guard| !guard.excused) else { continue };
                let (id, other) = (id(client, slot as u8), client == CLIENTS - 1);
                holders[usize::from(other)] = true;
                let Some(key) = self.key.filter(|key| key.ids & bit(id) != 0) else {
                    return Err(format!(
                        "client {client} holds {id} until {}, and the server does not have it",
                        guard.until
                    ));
                };
                if key.until < guard.until {
                    return Err(format!(
                        "client {client} holds {id} until {}, and the server until {}",
                        guard.until, key.until
                    ));
                }
            }
        }
        if holders == [true; 2] {
            return Err("two owners hold it".to_owned());
        }
        Ok(self)
    }
}
