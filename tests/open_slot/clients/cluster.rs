//! A cluster of two servers. The first has all slots, and one slot is moved to the second.

use std::collections::BTreeMap;

use distlock_support::cluster::{SLOTS, add_slots};
use distlock_support::{Admin, RedisServer};
use redis::Value;

use super::NAME;
use bed::{Bed, eventually};

/// All keys, each as returned by `DUMP`.
pub type Snapshot = BTreeMap<String, Vec<u8>>;

/// The keys of a server: each value, and whether its TTL was kept.
pub type Seen = BTreeMap<String, (String, bool)>;

/// The TTL of every key, in ms. Scripts here set a longer TTL, or a TTL below half of this.
const LIFE: i64 = 300_000;

pub struct Cluster {
    pub here: Admin,
    pub there: Admin,
    there_port: u16,
    here_port: u16,
    ids: [String; 2],
    slot: String,
    _there: RedisServer,
}

pub fn server() -> RedisServer {
    RedisServer::builder().arg("--cluster-enabled", "yes").start()
}

impl Cluster {
    pub async fn form(bed: &Bed) -> Self {
        let other = server();
        let (here, there) = (Admin::connect(&bed.server).await, Admin::connect(&other).await);
        add_slots(&here, 0..=SLOTS - 1).await;
        let (here_port, there_port) = (bed.server.port(), other.port());
        let () = there.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", "2"]).await;
        let () = here.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", "1"]).await;
        let () = here.cmd(&["CLUSTER", "MEET", "127.0.0.1", &there_port.to_string()]).await;
        for admin in [&here, &there] {
            eventually("the cluster is whole", async || {
                let info: String = admin.cmd(&["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
            })
            .await;
        }
        let ids = [here.cmd(&["CLUSTER", "MYID"]).await, there.cmd(&["CLUSTER", "MYID"]).await];
        let slot: i64 = here.cmd(&["CLUSTER", "KEYSLOT", NAME]).await;
        Self { here, there, there_port, here_port, ids, slot: slot.to_string(), _there: other }
    }

    pub async fn open(&self) {
        let () = self.there.cmd(&["CLUSTER", "SETSLOT", &self.slot, "IMPORTING", &self.ids[0]]).await;
        let () = self.here.cmd(&["CLUSTER", "SETSLOT", &self.slot, "MIGRATING", &self.ids[1]]).await;
    }

    /// Cancels the move: the slot stays here, and these keys are moved back.
    pub async fn close(&self, keys: &[&str]) {
        let () = self.here.cmd(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]).await;
        let port = self.here_port.to_string();
        for key in keys {
            let () = self.there.cmd(&["MIGRATE", "127.0.0.1", &port, key, "0", "60000"]).await;
        }
        let () = self.there.cmd(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]).await;
    }

    pub async fn move_there(&self, keys: &[&str]) {
        let port = self.there_port.to_string();
        for key in keys {
            let moved: String = self.here.cmd(&["MIGRATE", "127.0.0.1", &port, key, "0", "60000"]).await;
            assert_eq!(moved, "OK", "{key}");
        }
    }

    /// Restores exactly these keys here, with the slot not open.
    pub async fn restore(&self, keys: &Snapshot) {
        for admin in [&self.here, &self.there] {
            let () = admin.cmd(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]).await;
            let () = admin.cmd(&["FLUSHALL"]).await;
        }
        let life = LIFE.to_string();
        for (key, payload) in keys {
            let () = self.here.cmd_bytes(&[b"RESTORE", key.as_bytes(), life.as_bytes(), payload]).await;
        }
    }

    pub async fn snapshot(&self) -> Snapshot {
        let mut snapshot = BTreeMap::new();
        for key in self.here.keys().await {
            let payload: Vec<u8> = self.here.cmd(&["DUMP", &key]).await;
            snapshot.insert(key, payload);
        }
        snapshot
    }

    pub async fn look(&self, admin: &Admin) -> Seen {
        let mut all = BTreeMap::new();
        for key in admin.keys().await {
            let asks = std::ptr::eq(admin, &self.there);
            let ask = async |words: &[&str]| {
                if asks {
                    let () = admin.cmd(&["ASKING"]).await;
                }
                admin.raw(words).await.expect("it is there")
            };
            let value = if key == NAME { ask(&["HGETALL", &key]).await } else { ask(&["TYPE", &key]).await };
            let Value::Int(left) = ask(&["PTTL", &key]).await else { panic!("no time") };
            all.insert(key, (format!("{value:?}"), (1..=LIFE).contains(&left) && left > LIFE - 150_000));
        }
        all
    }
}
