//! Helpers for the read-write lock: its hash, its covers, and the waiters of each half. A *cover* is the key whose TTL
//! is the lease of one read hold. Its name ends in `:<owner>:rwlock_timeout:<n>`, `n` being the number of the hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Guard, Owner};
use distlock_support::agent::{Agent, Call, JavaLock, Kind};
use tokio::task::JoinHandle;

use crate::rig::{Rig, WATCHDOG, soon, until, until_is, wait_for_lock};
use crate::sides::flavour;

pub const HALVES: [Kind; 2] = [Kind::Read, Kind::Write];

/// Reads, in one script, the lease of the hash, its fields, and the covers with their remaining times.
const LOOK: &str = "local covers = {}
for _, key in ipairs(redis.call('keys', '*:rwlock_timeout:*')) do
  if string.sub(key, 1, #ARGV[1]) == ARGV[1] then
    covers[#covers + 1] = string.sub(key, #ARGV[1] + 1)
    covers[#covers + 1] = redis.call('pttl', key)
  end
end
return {redis.call('pttl', KEYS[1]), redis.call('hgetall', KEYS[1]), covers}";

/// Longer than any pause of the machine during one script, in ms. Before Redis 7.2 every command of a script reads the
/// clock.
pub const STALL: i64 = 30_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The lease of the hash, in ms. -2: there is no hash.
    pub ttl: i64,
    pub fields: BTreeMap<String, String>,
    /// Remaining ms, by `<owner>:rwlock_timeout:<n>`.
    pub covers: BTreeMap<String, i64>,
}

impl Seen {
    pub fn mode(&self) -> Option<&str> {
        self.fields.get("mode").map(String::as_str)
    }

    pub fn count(&self, field: &str) -> u64 {
        self.fields.get(field).map_or(0, |count| count.parse().expect("a count"))
    }

    /// The covers of this owner, or of a whole client.
    pub fn covers_of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = i64> + 'a {
        self.covers.iter().filter(move |(cover, _)| cover.starts_with(owner)).map(|(_, left)| *left)
    }
}

#[derive(Clone, Copy)]
pub struct Doc<'a> {
    pub rig: &'a Rig,
    pub name: &'a str,
}

impl<'a> Doc<'a> {
    pub const fn new(rig: &'a Rig, name: &'a str) -> Self {
        Self { rig, name }
    }

    /// The name in braces, unless the name contains braces.
    pub fn tag(&self) -> String {
        if self.name.contains('{') { self.name.to_owned() } else { format!("{{{}}}", self.name) }
    }

    pub fn channel(&self) -> String {
        format!("redisson_rwlock:{}", self.tag())
    }

    pub fn cover(&self, owner: &str, n: u32) -> String {
        format!("{}:{owner}:rwlock_timeout:{n}", self.tag())
    }

    /// The key of our waiting writers' marks.
    pub fn waiting(&self) -> String {
        format!("{}:rwlock_waiting", self.tag())
    }

    pub fn java(&self, agent: usize, half: Kind, thread: i64) -> JavaLock {
        self.rig.agents[agent].at(half, self.name, thread)
    }

    pub fn java_owner(&self, agent: usize, thread: i64) -> String {
        self.rig.agents[agent].holder(Kind::Read, thread)
    }

    pub async fn look(&self) -> Seen {
        let args = ["EVAL", LOOK, "1", self.name, &format!("{}:", self.tag())];
        let (ttl, fields, covers) = self.rig.admin.cmd(&args).await;
        let mut fields: BTreeMap<String, String> = fields;
        // Our lists of hold ids, which Redisson does not know.
        fields.retain(|field, _| !field.ends_with(":holds"));
        Seen { ttl, fields, covers }
    }

    pub async fn until(&self, what: &str, fine: impl Fn(&Seen) -> bool) {
        until_is(&format!("{what} in {:?}", self.name), async || self.look().await, fine).await;
    }

    pub async fn is_gone(&self) {
        self.until("nothing", |seen| seen.fields.is_empty() && seen.covers.is_empty()).await;
        until("no mark", async || !self.rig.admin.exists(&self.waiting()).await).await;
    }

    /// Makes Java wait for a half, and returns once it sleeps.
    pub async fn java_waits(&self, agent: usize, half: Kind, thread: i64) -> Call {
        let before = self.rig.scripts().await;
        let call = self.java(agent, half, thread).start_lock();
        // Java tries, subscribes, and tries once more.
        self.rig.scripts_since(before, 2).await;
        sits(&self.rig.agents[agent], thread).await;
        call
    }

    /// Makes this client wait for a half, and returns after `looks` attempts: two if the client has to subscribe, one
    /// if a subscription lingers, none if another waiter attempts for all waiters of the client.
    pub async fn we_wait(&self, client: &Client, half: Kind, looks: u64) -> JoinHandle<Guard> {
        let (before, waiting) = (self.rig.scripts().await, client.stats().waiting);
        let task = wait_for_half(client, half, self.name);
        self.rig.waiting(client, waiting + 1).await;
        self.rig.scripts_since(before, looks).await;
        task
    }
}

/// Waits until a thread of Java's sleeps. A thread that is about to sleep misses a message to all waiters.
pub async fn sits(agent: &Agent, thread: i64) {
    until(&format!("thread {thread} of Java's sleeps"), async || agent.sleeps(thread).await).await;
}

pub fn half_of(client: &Client, half: Kind, name: &str) -> Arc<dyn DistLock> {
    client.lock(flavour(half), name)
}

pub fn wait_for_half(client: &Client, half: Kind, name: &str) -> JoinHandle<Guard> {
    wait_for_lock(half_of(client, half, name))
}

/// Acquires a free half as this owner. Without a lease the watchdog renews. Only an acquire with a short lease may
/// wait, because a grant that arrives after its lease has ended is requested again.
pub async fn enter(client: &Client, half: Kind, name: &str, owner: &Owner, lease: Option<Duration>) -> Guard {
    let how = Acquire::new().owner(owner);
    let how = lease.map_or(how.clone(), |lease| how.lease(lease));
    let is_brief = lease.is_some_and(|lease| lease < WATCHDOG);
    let how = if is_brief { how } else { how.wait(Duration::ZERO) };
    soon(half_of(client, half, name).acquire(how)).await.expect("acquire").expect("a half to be had")
}

pub async fn refused(client: &Client, half: Kind, name: &str) {
    let got = half_of(client, half, name).try_lock().await.expect("try_lock");
    assert!(got.is_none(), "{name}: {half:?} was to be had");
}
