//! One node's view of its cluster, and the commands that the node accepts by that view. The rules are the same as in
//! Redis 7.0.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use redis_protocol::redis_keyslot;

pub(super) const SLOTS: u16 = 16_384;

pub(super) fn slot_of(key: &[u8]) -> u16 {
    redis_keyslot(key)
}

/// A node as another node knows it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) id: String,
    pub(super) address: String,
    pub(super) epoch: u64,
    pub(super) replica_of: Option<usize>,
    pub(super) failed: bool,
}

/// The direction of a slot's move, and the other node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moving {
    To(usize),
    From(usize),
}

/// News that a node learns: another node's own state, or what the nodes agreed on.
#[derive(Clone, Debug)]
pub(super) enum Gossip {
    Node {
        node: usize,
        epoch: u64,
        replica_of: Option<usize>,
        slots: Vec<u16>,
    },
    Failed {
        node: usize,
        failed: bool,
    },
    /// The node that hears this serves clients from now on, or stops serving them.
    Serves(bool),
}

/// A node's view of its cluster, which may be stale. Nodes are identified by their numbers.
#[derive(Clone, Debug)]
pub(super) struct Place {
    me: usize,
    peers: Vec<Peer>,
    owners: Vec<Option<usize>>,
    moving: BTreeMap<u16, Moving>,
    /// False if this node considers the cluster down.
    pub(super) serves: bool,
    /// `Some` while a client's command runs: true after an `ASKING`. `None` for commands of the test itself, which may
    /// access every key.
    pub(super) client: Option<bool>,
}

/// Why the node does not run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Moved(u16, usize),
    Ask(u16, usize),
    TryAgain,
    CrossSlot,
    Down,
    Unserved,
}

impl Place {
    pub(super) fn new(me: usize, peers: Vec<Peer>) -> Self {
        let owners = vec![None; usize::from(SLOTS)];
        Self { me, peers, owners, moving: BTreeMap::new(), serves: true, client: None }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<usize> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    pub(super) fn give(&mut self, slot: u16, owner: usize) {
        self.owners[usize::from(slot)] = Some(owner);
    }

    pub(super) fn slots(&self) -> Vec<u16> {
        (0..SLOTS).filter(|slot| self.owner(*slot) == Some(self.me)).collect()
    }

    pub(super) fn open(&mut self, slot: u16, moving: Moving) {
        self.moving.insert(slot, moving);
    }

    pub(super) fn close(&mut self, slot: u16) {
        self.moving.remove(&slot);
    }

    pub(super) fn moving(&self, slot: u16) -> Option<Moving> {
        self.moving.get(&slot).copied()
    }

    /// Returns this node's own state, as news for other nodes.
    pub(super) fn gossip(&self) -> Gossip {
        let Peer { epoch, replica_of, .. } = self.peers[self.me];
        Gossip::Node { node: self.me, epoch, replica_of, slots: self.slots() }
    }

    /// Becomes a primary and takes over the slots of `of`.
    pub(super) fn become_primary(&mut self, of: usize, epoch: u64) {
        let me = &mut self.peers[self.me];
        (me.replica_of, me.epoch) = (None, epoch);
        for owner in self.owners.iter_mut().filter(|owner| **owner == Some(of)) {
            *owner = Some(self.me);
        }
    }

    /// Becomes a replica of `of` and gives up its slots to `of`.
    pub(super) fn become_replica(&mut self, of: usize) {
        let me = self.me;
        self.peers[me].replica_of = Some(of);
        self.moving.clear();
        for owner in self.owners.iter_mut().filter(|owner| **owner == Some(me)) {
            *owner = Some(of);
        }
    }

    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.peers[self.me].epoch = epoch;
    }

    /// Applies the news of another node. If both claim a slot, the higher epoch wins. Returns true if this node has
    /// lost its last slot, and so has become a replica of the other node.
    pub(super) fn hear(&mut self, gossip: &Gossip) -> bool {
        match gossip {
            Gossip::Failed { node, failed } => {
                self.peers[*node].failed = *failed;
                false
            }
            Gossip::Serves(serves) => {
                self.serves = *serves;
                false
            }
            Gossip::Node { node, epoch, replica_of, slots } => {
                let had = !self.slots().is_empty();
                let peer = &mut self.peers[*node];
                if peer.epoch > *epoch {
                    return false;
                }
                (peer.epoch, peer.replica_of) = (*epoch, *replica_of);
                for slot in slots {
                    let yields = match self.owner(*slot) {
                        Some(owner) => owner != *node && self.peers[owner].epoch < *epoch,
                        None => true,
                    };
                    if yields && !matches!(self.moving(*slot), Some(Moving::From(_))) {
                        self.give(*slot, *node);
                        self.moving.remove(slot);
                    }
                }
                let follows = had && self.slots().is_empty();
                if follows {
                    self.become_replica(*node);
                }
                follows
            }
        }
    }

    /// Checks whether a command with these keys runs here. `has` tells whether a key exists.
    pub(super) fn route<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
        mut has: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Refusal> {
        let mut first: Option<(u16, &[u8])> = None;
        let (mut several, mut there, mut missing) = (false, 0, 0);
        for key in keys {
            let slot = slot_of(key);
            match first {
                None => first = Some((slot, key)),
                Some((known, _)) if known != slot => return Err(Refusal::CrossSlot),
                Some((_, known)) => several |= known != key,
            }
            if self.moving.contains_key(&slot) {
                if has(key) { there += 1 } else { missing += 1 }
            }
        }
        let Some((slot, _)) = first else { return Ok(()) };
        let owner = self.owner(slot).ok_or(Refusal::Unserved)?;
        if !self.serves {
            return Err(Refusal::Down);
        }
        match self.moving(slot) {
            Some(Moving::To(to)) if owner == self.me && missing > 0 => {
                return Err(if there > 0 { Refusal::TryAgain } else { Refusal::Ask(slot, to) });
            }
            Some(Moving::From(_)) if owner != self.me && self.client == Some(true) => {
                return if several && missing > 0 { Err(Refusal::TryAgain) } else { Ok(()) };
            }
            _ => {}
        }
        if owner == self.me { Ok(()) } else { Err(Refusal::Moved(slot, owner)) }
    }

    /// Checks whether this node serves subscribers of a channel.
    pub(super) fn route_channel(&self, channel: &[u8]) -> Result<(), Refusal> {
        let slot = slot_of(channel);
        match self.owner(slot) {
            None => Err(Refusal::Unserved),
            Some(owner) if owner == self.me => Ok(()),
            Some(_) if matches!(self.moving(slot), Some(Moving::From(_))) && self.client == Some(true) => Ok(()),
            Some(owner) => Err(Refusal::Moved(slot, owner)),
        }
    }

    /// Returns the error text that a client gets.
    pub(super) fn text(&self, refusal: Refusal) -> String {
        match refusal {
            Refusal::Moved(slot, to) => format!("MOVED {slot} {}", self.peers[to].address),
            Refusal::Ask(slot, to) => format!("ASK {slot} {}", self.peers[to].address),
            Refusal::TryAgain => "TRYAGAIN Multiple keys request during rehashing of slot".into(),
            Refusal::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot".into(),
            Refusal::Down => "CLUSTERDOWN The cluster is down".into(),
            Refusal::Unserved => "CLUSTERDOWN Hash slot not served".into(),
        }
    }

    /// Returns the error text that a script gets.
    pub(super) const fn text_in_script(refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::Down => "ERR Script attempted to execute a command while the cluster is down",
            _ => "ERR Script attempted to access a non local key in a cluster node",
        }
    }

    pub(super) fn nodes(&self) -> String {
        let mut pieces: Vec<Vec<(u16, u16)>> = vec![Vec::new(); self.peers.len()];
        let mut first = 0;
        for run in self.owners.chunk_by(PartialEq::eq) {
            // Slot numbers fit into 16 bits.
            let last = first + (run.len() - 1) as u16;
            if let Some(pieces) = run[0].and_then(|owner| pieces.get_mut(owner)) {
                pieces.push((first, last));
            }
            first = last + 1;
        }
        let mut text = String::new();
        for (number, Peer { id, address, epoch, replica_of, failed }) in self.peers.iter().enumerate() {
            let myself = if number == self.me { "myself," } else { "" };
            let role = if replica_of.is_some() { "slave" } else { "master" };
            let link = if *failed { "disconnected" } else { "connected" };
            let failed = if *failed { ",fail" } else { "" };
            let primary = replica_of.map_or("-", |of| &self.peers[of].id);
            let epoch = replica_of.map_or(*epoch, |of| self.peers[of].epoch);
            let port = address.rsplit_once(':').map_or("0", |(_, port)| port);
            // Writing to a String cannot fail.
            let _ = write!(text, "{id} {address}@1{port} {myself}{role}{failed} {primary} 0 0 {epoch} {link}");
            for (first, last) in &pieces[number] {
                let _ = if first == last { write!(text, " {first}") } else { write!(text, " {first}-{last}") };
            }
            if number == self.me {
                for (slot, moving) in &self.moving {
                    let _ = match moving {
                        Moving::To(to) => write!(text, " [{slot}->-{}]", self.peers[*to].id),
                        Moving::From(from) => write!(text, " [{slot}-<-{}]", self.peers[*from].id),
                    };
                }
            }
            text.push('\n');
        }
        text
    }

    /// Returns the part of the reply to `CLUSTER INFO` that clients use.
    pub(super) fn info(&self) -> String {
        format!("cluster_state:{}\r\n", if self.serves { "ok" } else { "fail" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let peers = ["a", "b"].map(|id| Peer {
            id: id.repeat(40),
            address: format!("{id}:1"),
            epoch: 1,
            replica_of: None,
            failed: false,
        });
        let mut place = Place::new(0, peers.to_vec());
        (0..SLOTS).for_each(|slot| place.give(slot, usize::from(slot > 8_000)));
        place
    }

    fn of(place: &Place, keys: &[&str], there: &[&str]) -> Result<(), Refusal> {
        place.route(keys.iter().map(|key| key.as_bytes()), |key| there.iter().any(|there| there.as_bytes() == key))
    }

    /// `foo` is in slot 12 182, `bar` in slot 5 061.
    #[test]
    fn stable_slot_is_served_or_redirected() {
        let mut place = place();
        assert_eq!(of(&place, &[], &[]), Ok(()));
        assert_eq!(of(&place, &["bar"], &[]), Ok(()));
        assert_eq!(of(&place, &["foo"], &[]), Err(Refusal::Moved(12_182, 1)));
        assert_eq!(of(&place, &["bar", "foo"], &[]), Err(Refusal::CrossSlot));
        place.serves = false;
        assert_eq!((of(&place, &[], &[]), of(&place, &["bar"], &[])), (Ok(()), Err(Refusal::Down)));
    }

    #[test]
    fn migrating_slot_serves_present_keys_and_asks_for_absent_ones() {
        let mut place = place();
        place.open(5_061, Moving::To(1));
        assert_eq!(of(&place, &["bar", "{bar}2"], &["bar", "{bar}2"]), Ok(()));
        assert_eq!(of(&place, &["bar", "{bar}2"], &["bar"]), Err(Refusal::TryAgain));
        assert_eq!(of(&place, &["bar", "{bar}2"], &[]), Err(Refusal::Ask(5_061, 1)));
    }

    #[test]
    fn importing_slot_serves_only_after_asking() {
        let mut place = place();
        place.open(12_182, Moving::From(1));
        place.client = Some(false);
        assert_eq!(of(&place, &["foo"], &["foo"]), Err(Refusal::Moved(12_182, 1)));
        place.client = Some(true);
        assert_eq!(of(&place, &["foo"], &[]), Ok(()));
        assert_eq!(of(&place, &["foo", "{foo}2"], &["foo"]), Err(Refusal::TryAgain));
        assert_eq!(of(&place, &["foo", "{foo}2"], &["foo", "{foo}2"]), Ok(()));
    }

    #[test]
    fn slot_goes_only_to_claim_of_higher_epoch() {
        let mut place = place();
        let claim = |epoch, slots| Gossip::Node { node: 1, epoch, replica_of: None, slots };
        place.hear(&claim(1, vec![5]));
        assert_eq!(place.owner(5), Some(0), "of equal epochs what is known stays");
        assert!(!place.hear(&claim(2, vec![5])));
        assert_eq!(place.owner(5), Some(1));
        assert!(place.hear(&claim(3, (0..SLOTS).collect())), "it has lost its last slot");
        assert_eq!(place.peers[0].replica_of, Some(1));
    }
}
