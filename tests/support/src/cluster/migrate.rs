//! Slots on the move: step by step, so that a test can stand still between the steps, or by the server in one go.

use std::ops::RangeInclusive;

use redis::{RedisResult, Value};

use super::Cluster;
use super::node::Node;
use crate::until::until;

/// How long a server may take for one `MIGRATE`, in ms.
const MIGRATE_WITHIN: &str = "60000";
const KEYS_AT_ONCE: usize = 100;

impl Cluster {
    /// Opens a slot: from now on it is being moved to `to`. Its node answers ASK for keys that are not there.
    ///
    /// # Panics
    /// When a server refuses, as it does when the slot is `to`'s already.
    pub async fn open_slot(&self, slot: u16, to: &Node) {
        let from = self.owner(slot).await;
        let slot = slot.to_string();
        // The other way round a client could be sent to a node that knows nothing of it.
        to.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", from.id()]).await;
        from.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", to.id()]).await;
    }

    /// Moves these keys of an open slot; a key that is not there is passed over.
    ///
    /// # Panics
    /// When the slot is not open, or a server refuses, as it does when the target has such a key.
    pub async fn move_keys<K: AsRef<[u8]>>(&self, slot: u16, keys: &[K]) {
        if keys.is_empty() {
            return;
        }
        let (from, to) = self.ends(slot).await;
        // Past the target's proxy: what is done to clients is not to be done to the move.
        let port = to.bus_base().to_string();
        let mut args: Vec<&[u8]> =
            vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", MIGRATE_WITHIN.as_bytes(), b"KEYS"];
        args.extend(keys.iter().map(AsRef::as_ref));
        from.admin().cmd_bytes::<(), _>(&args).await;
    }

    /// Ends the move of an open slot: it is the target's, and all nodes know. What keys the source has left are the
    /// reason why it would refuse.
    ///
    /// # Panics
    /// When the slot is not open, or a server refuses.
    pub async fn close_slot(&self, slot: u16) {
        let (from, to) = self.ends(slot).await;
        let text = slot.to_string();
        // The target first: were the source to know first, the slot would be nobody's when the target dies in between.
        let mut order = vec![to, from];
        for node in self.running().filter(|node| ![from.id(), to.id()].contains(&node.id())) {
            if node.is_primary().await {
                order.push(node);
            }
        }
        for node in order {
            node.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &text, "NODE", to.id()]).await;
        }
        self.moved(slot..=slot, to).await;
    }

    /// Moves a slot with all its keys.
    ///
    /// # Panics
    /// When a server refuses, as it does when the slot is `to`'s already.
    pub async fn move_slot(&self, slot: u16, to: &Node) {
        self.open_slot(slot, to).await;
        let (from, _) = self.ends(slot).await;
        loop {
            let keys = keys_in_slot(from, slot, KEYS_AT_ONCE).await;
            if keys.is_empty() {
                break;
            }
            self.move_keys(slot, &keys).await;
        }
        self.close_slot(slot).await;
    }

    /// The keys of a slot that are at its node, some thousands at most. Those moved already are not among them.
    pub async fn keys_in_slot(&self, slot: u16) -> Vec<Vec<u8>> {
        keys_in_slot(self.owner(slot).await, slot, 10_000).await
    }

    /// Has the servers move slots of one node in one go (`CLUSTER MIGRATESLOTS` of Valkey 9): there is no ASK, only MOVED.
    /// It waits until all nodes know.
    ///
    /// # Errors
    /// What the server says, above all one that does not know the command; or how the migration ended.
    pub async fn migrate_atomically(&self, slots: RangeInclusive<u16>, to: &Node) -> Result<(), String> {
        let from = self.owner(*slots.start()).await;
        let (first, last) = (slots.start().to_string(), slots.end().to_string());
        let command = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", to.id()];
        let begun: RedisResult<Value> = from.admin().raw(&command).await;
        begun.map_err(|e| e.to_string())?;
        until("an atomic migration", async || {
            // The last one comes first.
            let all: Vec<Value> = from.admin().cmd(&["CLUSTER", "GETSLOTMIGRATIONS"]).await;
            match all.first().map(outcome) {
                Some(state) if state == "success" => Ok(Ok(())),
                Some(state) if state == "failed" || state == "canceled" => Ok(Err(format!("{state}: {:?}", all[0]))),
                _ => Err(format!("{all:?}")),
            }
        })
        .await?;
        self.moved(slots, to).await;
        Ok(())
    }

    /// Waits until all nodes know that the slots are `to`'s, and by which epoch. A node that does not know the highest one gives
    /// itself none above it with the next slot that it takes, and loses that slot to its source's next ping: the two then send
    /// clients to each other for good.
    async fn moved(&self, slots: RangeInclusive<u16>, to: &Node) {
        until("all nodes to know of a move", async || {
            let map = self.agreed().await;
            let epoch = to.view().await.myself().epoch;
            let known = slots.clone().all(|slot| map.owner(slot) == Some(to.id()));
            if !known {
                return Err(format!("{slots:?} are not at {} in {map:?}", to.addr()));
            }
            for node in self.running() {
                let seen = node.view().await.node(to.id()).map(|seen| seen.epoch);
                if seen != Some(epoch) {
                    return Err(format!("{} has epoch {seen:?} of {} and not {epoch}", node.addr(), to.addr()));
                }
            }
            Ok(())
        })
        .await;
    }

    /// Source and target of an open slot.
    async fn ends(&self, slot: u16) -> (&Node, &Node) {
        let from = self.owner(slot).await;
        match from.view().await.myself().migrating.get(&slot) {
            Some(to) => (from, self.node(to)),
            None => panic!("slot {slot} is not open at {}", from.addr()),
        }
    }
}

async fn keys_in_slot(node: &Node, slot: u16, at_most: usize) -> Vec<Vec<u8>> {
    node.admin().cmd(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &at_most.to_string()]).await
}

/// The state of a migration, out of its fields and values.
fn outcome(migration: &Value) -> String {
    let fields: Vec<(String, Value)> = redis::from_redis_value(migration.clone()).unwrap_or_default();
    let state = fields.into_iter().find(|(name, _)| name == "state").map(|(_, value)| value);
    state.and_then(|value| redis::from_redis_value(value).ok()).unwrap_or_default()
}
