//! Servers with sentinels, shared with real Redisson. A holder excludes the other side, releases wake waiters of both
//! languages, and a failover admits no second holder. The same holds for replicated servers.

use std::collections::BTreeSet;

use distlock_support::agent::{Agent, AgentOptions, Kind};
use distlock_support::{Admin, Replicas, ReplicasOptions, Sentinels, SentinelsOptions, ServerSet};
use serde_json::json;

use crate::held::{self, HeldByJava, HeldByUs, Spot};
use crate::rig::{LATCH, ms, patient, replied, soon, until_is};
use crate::sides::Sides;

/// `down-after` in ms. It is so long that no slow or frozen server is suspected.
const UNSUSPECTED: u64 = 60_000;

async fn watched() -> ServerSet {
    let options = SentinelsOptions::default().swift().down_after(UNSUSPECTED);
    ServerSet::Watched(Box::new(Sentinels::start(options).await))
}

async fn alone() -> ServerSet {
    ServerSet::Alone(Replicas::start(ReplicasOptions::default()).await)
}

struct Shared {
    set: ServerSet,
    sides: Sides,
}

impl Shared {
    async fn admin(&self) -> &Admin {
        self.set.primary().await.admin()
    }

    async fn spot(&self) -> AtPrimary<'_> {
        AtPrimary(self, self.admin().await)
    }

    /// Waits until a channel of this name is subscribed to on the servers.
    async fn is_listened_to(&self, name: &str) {
        let tag = format!("{{{name}}}");
        let channels = async || {
            let mut all = BTreeSet::new();
            for node in self.set.servers().nodes().iter().filter(|node| node.is_running()) {
                all.extend(node.admin().channels().await);
            }
            all.retain(|channel| channel.contains(&tag));
            all
        };
        until_is("channels", channels, |channels| channels.len() == 1).await;
    }

    async fn end(self) {
        self.sides.end().await;
        let admin = self.admin().await;
        let left = async || {
            let mut left = admin.keys().await;
            left.retain(|key| !key.starts_with(LATCH) && !key.starts_with("redisson_lock_token:"));
            left.extend(admin.channels().await);
            left
        };
        until_is("keys and channels", left, Vec::is_empty).await;
        self.sides.java.close().await;
    }
}

/// The server that has the locks while it is the primary.
struct AtPrimary<'a>(&'a Shared, &'a Admin);

impl Spot for AtPrimary<'_> {
    fn sides(&self) -> &Sides {
        &self.0.sides
    }

    fn admin(&self) -> &Admin {
        self.1
    }

    fn name(&self, prefix: &str) -> String {
        prefix.to_owned()
    }

    async fn ours_listens(&self, name: &str) {
        self.0.is_listened_to(name).await;
    }

    async fn java_listens(&self, name: &str) {
        self.0.is_listened_to(name).await;
    }
}

/// Java's locks live on the primary. Redisson refuses a lock that no replica has, unless `checkLockSyncedSlaves` is
/// off. Redisson waits for the replicas in both cases. Servers and sentinels have different users and passwords.
pub async fn sentinel_java_locks_are_acknowledged_by_replicas(version: &str) {
    let servers = ReplicasOptions::default().replicas(1).user("app", "data/1");
    let options = SentinelsOptions::default().swift().servers(servers).password("watch").down_after(UNSUSPECTED);
    let bed = Sentinels::start(options).await;
    let admin = bed.server(0).admin();
    for check_synced in [None, Some(false)] {
        let options = || AgentOptions {
            check_synced,
            sentinel_password: Some("watch".to_owned()),
            ..patient(AgentOptions::version(version))
        };
        let java = Agent::start(&bed.url(), options()).await;
        let lock = java.at(Kind::Reentrant, "order", 1);
        admin.reset_stats().await;
        replied(lock.lock()).await;
        assert_eq!(admin.hgetall_whole("order").await, [(java.holder(Kind::Reentrant, 1), "1".to_owned())].into());
        replied(lock.unlock()).await;
        assert!(!admin.exists("order").await);
        let waits = admin.calls("wait").await;
        assert!(waits > 0, "{version}, checkLockSyncedSlaves {check_synced:?}: no WAIT for a lock and its unlock");
        java.close().await;

        let java = Agent::start(&bed.url(), AgentOptions { sync_timeout: Some(ms(300)), ..options() }).await;
        bed.server(1).stop();
        let answer = soon(java.at(Kind::Reentrant, "order", 1).start("try_lock", json!({}))).await;
        assert_eq!(answer.is_ok(), check_synced == Some(false), "{version}, nobody acknowledges: {answer:?}");
        bed.server(1).cont();
        java.close().await;
        admin.cmd::<()>(&["FLUSHALL"]).await;
    }
}

async fn exclude_and_wake(version: &str, set: ServerSet) {
    let sides = Sides::lasting(version, &set.url()).await;
    let shared = Shared { set, sides };
    held::exclude_and_wake(&shared.spot().await).await;
    shared.end().await;
}

/// A requested failover happens while one side holds and the other waits, then again with the sides swapped.
async fn let_nobody_in(version: &str, set: ServerSet) {
    let sides = Sides::watched(version, &set.url()).await;
    let shared = Shared { set, sides };

    let held = HeldByJava::at(&shared.spot().await, "java").await;
    shared.set.fail_over().await;
    held.are_kept(&shared.spot().await).await;
    held.are_handed_over().await;

    let mut held = HeldByUs::at(&shared.spot().await, "rust").await;
    shared.set.fail_over().await;
    held.are_kept(&shared.spot().await).await;
    held.are_handed_over().await;
    shared.end().await;
}

pub async fn sentinel_locks_exclude_and_wake_the_other_side(version: &str) {
    exclude_and_wake(version, watched().await).await;
}

pub async fn sentinel_failover_admits_no_second_holder(version: &str) {
    let_nobody_in(version, watched().await).await;
}

pub async fn replicated_locks_exclude_and_wake_the_other_side(version: &str) {
    exclude_and_wake(version, alone().await).await;
}

pub async fn replicated_failover_admits_no_second_holder(version: &str) {
    let_nobody_in(version, alone().await).await;
}
