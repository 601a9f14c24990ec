//! Slot moves: step by step, so that a test can stop between the steps, or atomically by the server.

use std::ops::RangeInclusive;

use redis::{RedisResult, Value};

use super::Cluster;
use super::node::Node;
use crate::until::until;

/// Time limit of one `MIGRATE`, in ms.
const MIGRATE_WITHIN: &str = "60000";
const KEYS_AT_ONCE: usize = 100;

impl Cluster {
    /// Opens a slot for a move to `to`. From now on, the slot's node answers ASK for keys that it does not have.
    pub async fn open_slot(&self, slot: u16, to: &Node) {
        let from = self.owner(slot).await;
        let slot = slot.to_string();
        // The target first. In the other order, a client could be redirected to a target that refuses its command.
        to.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", from.id()]).await;
        from.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", to.id()]).await;
    }

    /// Moves these keys of an open slot. Skips keys that do not exist.
    ///
    /// # Panics
    /// When the slot is not open, or a server refuses, for example because the target has such a key.
    pub async fn move_keys<K: AsRef<[u8]>>(&self, slot: u16, keys: &[K]) {
        if keys.is_empty() {
            return;
        }
        let (from, to) = self.ends(slot).await;
        // Bypasses the target's proxy, because faults for clients must not affect the move.
        let port = to.bus_base().to_string();
        let mut args: Vec<&[u8]> =
            vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", MIGRATE_WITHIN.as_bytes(), b"KEYS"];
        args.extend(keys.iter().map(AsRef::as_ref));
        from.admin().cmd_bytes::<(), _>(&args).await;
    }

    /// Ends the move of an open slot: the target owns it, and all nodes know. The source refuses if it still has keys
    /// of the slot.
    pub async fn close_slot(&self, slot: u16) {
        let (from, to) = self.ends(slot).await;
        let text = slot.to_string();
        // The target first. If the source learned first and the target died in between, no node would own the slot.
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

    /// The keys of a slot at its node, without keys that were already moved. At most some thousands.
    pub async fn keys_in_slot(&self, slot: u16) -> Vec<Vec<u8>> {
        keys_in_slot(self.owner(slot).await, slot, 10_000).await
    }

    /// Lets the servers move slots of one node atomically (`CLUSTER MIGRATESLOTS` of Valkey 9). Clients get MOVED, but
    /// no ASK. Waits until all nodes know the new owner.
    ///
    /// # Errors
    /// The server's error, for example of a server that does not know the command, or the state in which the migration
    /// ended.
    pub async fn migrate_atomically(&self, slots: RangeInclusive<u16>, to: &Node) -> Result<(), String> {
        let from = self.owner(*slots.start()).await;
        let (first, last) = (slots.start().to_string(), slots.end().to_string());
        let command = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", to.id()];
        let begun: RedisResult<Value> = from.admin().raw(&command).await;
        begun.map_err(|e| e.to_string())?;
        until("an atomic migration", async || {
            // The latest migration comes first.
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

    /// Waits until all nodes know that `to` owns the slots, and know the epoch of `to`. A node that does not know the
    /// highest epoch takes its next slot without a higher epoch, and loses that slot at the next ping of the source.
    /// Then the two nodes redirect clients to each other forever.
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

fn outcome(migration: &Value) -> String {
    let fields: Vec<(String, Value)> = redis::from_redis_value(migration.clone()).unwrap_or_default();
    let state = fields.into_iter().find(|(name, _)| name == "state").map(|(_, value)| value);
    state.and_then(|value| redis::from_redis_value(value).ok()).unwrap_or_default()
}
