//! Servers that sentinels look after, shared with real Redisson: who holds keeps the other side out, releases wake across
//! languages, and a failover lets nobody in. The same over replicated servers.

use std::ops::Deref;
use std::time::{Duration, Instant};

use distlock_support::agent::{Agent, AgentOptions, Kind, monotonic_ns};
use distlock_support::{Admin, Replicas, ReplicasOptions, Sentinels, SentinelsOptions, ServerSet};
use serde_json::json;

use crate::held::{HeldByJava, HeldByUs, Spot};
use crate::listener::Listener;
use crate::rig::{BUSY, LATCH, SOON, Times, beside_others, replied, soon, until, until_is, wait_for_lock};
use crate::sides::{PATIENT, RIVALS, Sides, announced, flavour};

const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 3;

async fn watched() -> ServerSet {
    ServerSet::Watched(Box::new(Sentinels::start(SentinelsOptions::default().swift()).await))
}

async fn alone() -> ServerSet {
    ServerSet::Alone(Replicas::start(ReplicasOptions::default()).await)
}

/// A set of servers with a client from each side.
struct Shared {
    set: ServerSet,
    sides: Sides,
}

impl Deref for Shared {
    type Target = Sides;

    fn deref(&self) -> &Sides {
        &self.sides
    }
}

impl Shared {
    async fn start(version: &str, set: ServerSet, watchdog: Option<Duration>) -> Self {
        let sides = Sides::start(version, &set.url(), watchdog).await;
        Self { set, sides }
    }

    async fn admin(&self) -> &Admin {
        self.set.primary().await.admin()
    }

    async fn spot(&self) -> AtPrimary<'_> {
        AtPrimary(self, self.admin().await)
    }

    /// Waits until so many of this name's channels are listened to at any server.
    async fn listened_to(&self, name: &str, count: usize) {
        let tag = format!("{{{name}}}");
        let channels = async || {
            let mut all = std::collections::BTreeSet::new();
            for node in self.set.servers().nodes().iter().filter(|node| node.is_running()) {
                all.extend(node.admin().channels().await);
            }
            all.retain(|channel| channel.contains(&tag));
            all
        };
        until_is("channels", channels, |channels| channels.len() == count).await;
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
        self.sides.java.kill9().await;
    }
}

/// Where locks are while this server is the primary.
struct AtPrimary<'a>(&'a Shared, &'a Admin);

impl Spot for AtPrimary<'_> {
    fn sides(&self) -> &Sides {
        self.0
    }

    fn admin(&self) -> &Admin {
        self.1
    }

    fn name(&self, prefix: &str) -> String {
        prefix.to_owned()
    }

    async fn listened_to(&self, name: &str) {
        self.0.listened_to(name, 1).await;
    }
}

/// Java's locks are at the primary, and a lock that no replica has is no lock, unless that is switched off: then it has been
/// waited for all the same. Users and passwords of servers and of sentinels are their own.
pub async fn sentinel_has_javas_locks_acknowledged(version: &str) {
    let _share = beside_others().await;
    let servers = ReplicasOptions::default().replicas(1).user("app", "data/1");
    // Nobody is suspected for a frozen replica.
    let options = SentinelsOptions::default().swift().servers(servers).password("watch").down_after(30_000);
    let bed = Sentinels::start(options).await;
    let admin = bed.server(0).admin();
    for check_synced in [None, Some(false)] {
        let options = AgentOptions {
            check_synced,
            sentinel_password: Some("watch".to_owned()),
            sync_timeout: Some(Duration::from_millis(300)),
            ..AgentOptions::version(version)
        };
        let java = Agent::start(&bed.url(), options).await;
        let lock = java.at(Kind::Reentrant, "order", 1);
        admin.reset_stats().await;
        replied(lock.lock()).await;
        assert_eq!(admin.hgetall_whole("order").await, [(java.holder(Kind::Reentrant, 1), "1".to_owned())].into());
        replied(lock.unlock()).await;
        assert!(!admin.exists("order").await);
        let waits = admin.calls("wait").await;
        println!("{version}, checkLockSyncedSlaves {check_synced:?}: {waits} of WAIT for a lock and its unlock");
        assert!(waits > 0);

        bed.server(1).stop();
        let began = Instant::now();
        let answer = soon(lock.start("try_lock", json!({}))).await;
        println!(
            "{version}, checkLockSyncedSlaves {check_synced:?}, nobody acknowledges: {answer:?} after {:?}",
            began.elapsed()
        );
        assert_eq!(answer.is_ok(), check_synced == Some(false));
        bed.server(1).cont();
        java.kill9().await;
        admin.cmd::<()>(&["FLUSHALL"]).await;
    }
}

async fn exclude(version: &str, set: ServerSet) {
    let _share = beside_others().await;
    let shared = Shared::start(version, set, None).await;
    let admin = shared.admin().await;
    for (held, out) in RIVALS {
        let name = format!("{held:?}:{out:?}");
        let guard = shared.lock(held, &name).await;
        assert!(admin.exists(&name).await, "{name} is elsewhere");
        assert!(!shared.is_free_for_java(out, &name).await, "{name}: Java is in beside us");
        assert!(held != Kind::Read || shared.is_free_for_java(held, &name).await, "{name}: Java may read too");
        guard.unlock().await.expect("a lock held");

        let java = shared.java.at(held, &name, 1);
        replied(java.lock()).await;
        assert!(admin.exists(&name).await, "{name} is elsewhere");
        assert!(!shared.is_free_for_us(out, &name).await, "{name}: we are in beside Java");
        assert!(held != Kind::Read || shared.is_free_for_us(held, &name).await, "{name}: we may read too");
        replied(java.unlock()).await;
        assert!(shared.is_free_for_us(out, &name).await && shared.is_free_for_java(out, &name).await, "{name}");
    }
    shared.end().await;
}

/// What is held has a lease of 30 s, and nobody looks before that unless a message comes.
async fn wake(version: &str, set: ServerSet) {
    let _share = beside_others().await;
    let shared = Shared::start(version, set, None).await;
    for (held, waits) in announced() {
        let to_us = java_to_us(&shared, held, waits).await;
        let to_java = us_to_java(&shared, held, waits).await;
        for (times, way) in [(to_us, "from Java to us"), (to_java, "from us to Java")] {
            times.tell(&format!("{version}, {}: {held:?} to {waits:?} {way}", shared.set.url()));
            assert!(times.worst() < BUSY, "{held:?} to {waits:?} {way}: nobody woke it");
            assert!(times.count() * 3 >= ROUNDS * 2, "{held:?} to {waits:?} {way}: nobody woke most of them");
        }
    }
    shared.end().await;
}

async fn java_to_us(shared: &Shared, held: Kind, waits: Kind) -> Times {
    let (name, mut times) = (format!("java:{held:?}:{waits:?}"), Times::default());
    let java = shared.java.at(held, &name, 1);
    for _ in 0..ROUNDS {
        replied(java.lock_for(LEASE)).await;
        let waiter = wait_for_lock(shared.ours.lock(flavour(waits), &name));
        shared.waits(1).await;
        shared.listened_to(&name, 1).await;
        until("no question under way", async || shared.ours.stats().under_way == 0).await;
        let unlocked = replied(java.unlock()).await;
        let woken = tokio::time::timeout(SOON, waiter).await;
        let Ok(woken) = woken else { panic!("{name}: our waiter sleeps: {:?}", shared.ours.stats()) };
        let (had, guard) = woken.expect("the waiter");
        times.note(unlocked.t0, had);
        guard.unlock().await.expect("a lock held");
    }
    times
}

async fn us_to_java(shared: &Shared, held: Kind, waits: Kind) -> Times {
    let (name, mut times) = (format!("rust:{held:?}:{waits:?}"), Times::default());
    let java = shared.java.at(waits, &name, 1);
    let admin = shared.admin().await;
    // The server knows the scripts from here on, so that each question is one command.
    assert!(shared.is_free_for_us(held, &name).await && shared.is_free_for_java(waits, &name).await);
    // A waiter of Java's that goes to sleep just then is not woken by anybody: it is tried again, a few times more.
    for round in 0..4 * ROUNDS {
        if round >= ROUNDS && times.count() * 3 >= ROUNDS * 2 {
            break;
        }
        let guard = shared.ours.lock(flavour(held), &name).lock_leased(LEASE).await.expect("a free lock");
        let before = admin.calls("evalsha").await;
        let mut waiter = java.start_lock();
        shared.listened_to(&name, 1).await;
        // Once it listens it looks again.
        until("a second look", async || admin.calls("evalsha").await >= before + 2).await;
        let listener = Listener::open(shared.set.primary().await.addr()).await;
        let from = monotonic_ns();
        guard.unlock().await.expect("a lock held");
        // By the message `1` Redisson wakes those who sleep already; one who is about to after its look sleeps out its lease.
        let within = if held == Kind::Write { BUSY } else { SOON };
        if let Some(woken) = waiter.within(within).await {
            times.note(from, woken.expect("a lock").t1);
        } else {
            // Sentinels say hello all the time.
            let mut messages = listener.take(admin).await;
            messages.retain(|message| message.channel.contains(&format!("{{{name}}}")));
            let what = format!("{name}: Java's waiter sleeps after {messages:?}");
            assert!(held == Kind::Write && messages.len() == 1, "{what}");
            println!("{what}");
            admin.cmd::<()>(&["PUBLISH", &format!("redisson_rwlock:{{{name}}}"), "1"]).await;
            replied(waiter).await;
        }
        replied(java.unlock()).await;
        shared.listened_to(&name, 0).await;
    }
    times
}

/// Another server takes over by request while one side holds and the other waits; then the next one does, the other way round.
async fn let_nobody_in(version: &str, set: ServerSet) {
    let _share = beside_others().await;
    let shared = Shared::start(version, set, Some(PATIENT)).await;
    let what = format!("{version}, after a failover");

    let held = HeldByJava::at(&shared.spot().await, "java").await;
    shared.set.fail_over().await;
    held.are_kept(&shared.spot().await).await;
    held.are_handed_over(&what, BUSY).await;

    let mut held = HeldByUs::at(&shared.spot().await, "rust").await;
    shared.set.fail_over().await;
    held.are_kept(&shared.spot().await).await;
    held.are_handed_over(&what, PATIENT + BUSY).await;
    shared.end().await;
}

pub async fn sentinel_names_exclude(version: &str) {
    exclude(version, watched().await).await;
}

pub async fn sentinel_releases_wake_the_other_side(version: &str) {
    wake(version, watched().await).await;
}

pub async fn sentinel_failovers_let_nobody_in(version: &str) {
    let_nobody_in(version, watched().await).await;
}

pub async fn replicated_names_exclude(version: &str) {
    exclude(version, alone().await).await;
}

pub async fn replicated_releases_wake_the_other_side(version: &str) {
    wake(version, alone().await).await;
}

pub async fn replicated_failovers_let_nobody_in(version: &str) {
    let_nobody_in(version, alone().await).await;
}
