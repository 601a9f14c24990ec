//! Ids of this client's owners and holds: a random text of the client, and numbers that the client never reuses.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Engine;
use super::protocol::HoldId;
use crate::owner::{Owner, Owners, client_id};

impl Engine {
    /// A new owner, with a number that this client has never used.
    pub(crate) fn owner(&self) -> Owner {
        self.owners.fresh()
    }

    /// A new owner of a group lock. The first 16 digits of its uuid are this client's: they lead to the label.
    pub(crate) fn group_owner(&self) -> Owner {
        let id = || format!("{}{}", &self.id[..18], &client_id(&**self.topology.world())[18..]);
        self.group_owners.get_or_init(|| Owners::new(&id())).fresh()
    }

    /// A number for a new hold, which this client has never used.
    pub(crate) fn hold_number(&self) -> u64 {
        self.taken.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The id of this hold in Redis, unique among clients: this client's random prefix and the number.
    pub(crate) fn hold_id(&self, owner: &Owner, number: u64) -> HoldId {
        match number {
            0 if owner.is_known() => HoldId::Unlisted,
            0 => HoldId::Only,
            number => HoldId::Listed(Bytes::from(format!("{}{number}", self.id_prefix))),
        }
    }

    /// The ids of a hold and of all owed holds ([`Book::owed`](super::ledger::Book::owed)), for one command that
    /// releases them.
    pub(crate) fn hold_id_with(&self, owner: &Owner, owed: &[(u64, u64)], number: Option<u64>) -> HoldId {
        match (owed, number) {
            ([], Some(number)) => self.hold_id(owner, number),
            ([(number, _)], None) => self.hold_id(owner, *number),
            _ => {
                let numbers: Vec<u64> = owed.iter().map(|(number, _)| *number).chain(number).collect();
                HoldId::Listed(self.hold_ids(owner, &numbers))
            }
        }
    }

    /// The ids of these holds as a list. Empty if the only hold is [`HoldId::Only`].
    pub(crate) fn hold_ids(&self, owner: &Owner, numbers: &[u64]) -> Bytes {
        let mut ids = Vec::new();
        for number in numbers {
            match self.hold_id(owner, *number) {
                HoldId::Only if numbers.len() > 1 => ids.extend(b",-"),
                HoldId::Listed(id) => ids.extend([b",", &id[..]].concat()),
                HoldId::Unlisted => ids.extend(b",-"),
                HoldId::Only | HoldId::Any => {}
            }
        }
        Bytes::from(ids)
    }

    /// [`Engine::hold_ids`] for the `n`th command that shortens the lease of the first hold in the list.
    pub(crate) fn hold_ids_cut(&self, owner: &Owner, numbers: &[u64], n: u64) -> Bytes {
        let ids = self.hold_ids(owner, numbers);
        let first = ids.iter().skip(1).position(|byte| *byte == b',').map_or(ids.len(), |at| at + 1);
        Bytes::from([&ids[..first], format!("~{n}").as_bytes(), &ids[first..]].concat())
    }

    /// The number of this client's hold with this id.
    pub(crate) fn number_of(&self, id: &[u8]) -> Option<u64> {
        std::str::from_utf8(id).ok()?.strip_prefix(&*self.id_prefix)?.parse().ok()
    }
}
