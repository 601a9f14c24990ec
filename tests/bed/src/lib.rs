//! The base of the integration tests: one server for each test, its clients, and a check at the end that nothing is
//! left.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Acquire, Builder, Client, DistLock, Error, Flavour, Guard, Owner, Result, Step};
use distlock_support::cluster::SLOTS;
use distlock_support::proxy::Proxy;
use distlock_support::{Admin, Baseline, Cluster, RedisServer, assert_nothing_left};
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

pub mod cost;
pub mod dropped;
pub mod events;
pub mod fault;
pub mod harm;
#[cfg(test)]
mod lints;
pub mod pest;
mod place;
pub mod scripts;
pub mod session;
mod tape;
pub mod wire;

pub use place::Place;

/// Time limit of a whole test body: ten waits of [`PATIENCE`], and more than all rounds of two [`refusal`]s.
pub const LIMIT: Duration = Duration::from_secs(900);

/// Prefix of a fenced lock's counter.
pub const COUNTER: &str = "redisson_lock_token:";

pub type Make = fn(&Client, &str) -> Arc<dyn DistLock>;

/// A server of the test, an administrator's connection, and every client that was connected here.
pub struct Bed {
    pub server: Place,
    pub admin: Admin,
    make: Make,
    baseline: Baseline,
    clients: Mutex<Vec<Client>>,
    proxies: Mutex<Vec<Arc<Proxy>>>,
    /// True once the test has asked for a client whose commands may be counted.
    counts: AtomicBool,
    tape: OnceCell<tape::Tape>,
}

impl Bed {
    async fn over(server: Place, make: Make) -> Self {
        let admin = server.admin().await;
        let baseline = Baseline::take(&admin).await;
        let (clients, proxies) = (Mutex::default(), Mutex::default());
        Self { server, admin, make, baseline, clients, proxies, counts: AtomicBool::default(), tape: OnceCell::new() }
    }

    pub fn lock(&self, client: &Client, name: &str) -> Arc<dyn DistLock> {
        (self.make)(client, name)
    }

    /// A builder with the default options, except for timeouts that a slow machine keeps.
    pub fn builder(&self) -> Builder {
        builder(&self.server.url())
    }

    /// A builder for cost tests. These timers do not fire during a test: renewals, pings, polls of waiters, the end of
    /// a subscription, scans, and retries after a command timeout. Timers of flavours remain: a waiter of a fair lock
    /// refreshes its place, and readers that are held back for a writer retry after `hold_back`. A test that counts
    /// while a task waits sets these, or counts less exactly.
    ///
    /// Commands are counted ([`cost::sent`]) from the first client that is connected after this call.
    pub fn still_builder(&self) -> Builder {
        self.counts.store(true, Ordering::Relaxed);
        let hour = secs(3600);
        let builder = self.builder().watchdog(hour).command_timeout(PATIENCE).poll_cap(hour).subscription_linger(hour);
        builder.subscribe_timeout(PATIENCE).ping_interval(hour).scan_interval(hour)
    }

    /// A builder for tests that outlive leases: a watchdog of [`QUICK`], and timeouts to match.
    pub fn quick_builder(&self) -> Builder {
        self.builder().watchdog(QUICK).command_timeout(QUICK / 3).retry_attempts(2).retry_delay((ms(10), ms(100)))
    }

    /// Connects a client, which is shut down at the end of the test. Over several servers, and in tests that count
    /// commands ([`still_builder`](Self::still_builder)), waits until all its connections are open.
    pub async fn connect(&self, builder: Builder) -> Client {
        let counts = self.counts.load(Ordering::Relaxed);
        if counts {
            self.tape.get_or_init(async || tape::Tape::start(&self.server).await).await;
        }
        let several = counts || Topology::of_tests() != Topology::Single;
        let others = async || self.admin.others().await.into_iter().map(|other| other.id);
        let before: BTreeSet<u64> = if several { others().await.collect() } else { BTreeSet::new() };
        let client = builder.connect().await.unwrap_or_else(|error| panic!("connect: {error:?}"));
        self.clients.lock().push(client.clone());
        if several {
            let each = client.options().pool_size + 1;
            let all = each * self.server.primaries();
            let stand = async || others().await.filter(|id| !before.contains(id)).count() >= all;
            eventually("its connections stand", stand).await;
        }
        client
    }

    /// A proxy in front of the server. It stays until the clients are shut down, because their background work may
    /// still need it.
    pub fn proxy(&self) -> Arc<Proxy> {
        let proxy = Arc::new(Proxy::start(self.server.addr()));
        self.proxies.lock().push(Arc::clone(&proxy));
        proxy
    }

    pub async fn client(&self) -> Client {
        self.connect(self.builder()).await
    }

    /// A client for cost tests ([`still_builder`](Self::still_builder)).
    pub async fn still_client(&self) -> Client {
        self.connect(self.still_builder()).await
    }

    pub async fn quick(&self) -> Client {
        self.connect(self.quick_builder()).await
    }

    /// All keys except the counters of fenced locks, which stay.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys = self.admin.keys().await;
        keys.retain(|key| !key.starts_with(COUNTER));
        keys
    }

    /// Deletes the counters of fenced locks. They have no expiry, and no release deletes them.
    async fn sweep_counters(&self) {
        for key in self.admin.keys().await.iter().filter(|key| key.starts_with(COUNTER)) {
            assert_eq!(self.admin.pttl(key).await, -1, "{key} has an end");
            self.admin.cmd::<()>(&["DEL", key]).await;
        }
    }

    /// Checks that nothing is held, awaited or in flight, and that no key, channel, connection or task is left after
    /// the shutdown.
    async fn end(mut self) {
        let clients = std::mem::take(&mut *self.clients.lock());
        for client in &clients {
            idle(client).await;
        }
        for client in &clients {
            match client.shutdown(PATIENCE).await {
                // `Closed` means that the test shut the client down.
                Ok(()) | Err(Error::Closed) => {}
                Err(error) => panic!("shutdown of {client:?}: {error}"),
            }
            let stats = client.stats();
            assert_eq!((stats.holds, stats.waiting, stats.under_way), (0, 0, 0), "after the shutdown");
        }
        drop(clients);
        self.proxies.lock().clear();
        drop(self.tape.take());
        self.sweep_counters().await;
        assert_nothing_left(&self.admin, &self.baseline).await;
        self.server.leave(&self.admin).await;
    }
}

/// A builder over the transport under test (`DISTLOCK_TRANSPORT=direct`: the crate's own connections instead of fred),
/// with timeouts that a slow machine keeps. A command has 10 s, the most that the default watchdog allows. A longer
/// pause of this process is harmless. If the server may pause for longer, use [`Bed::still_builder`].
pub fn builder(url: &str) -> Builder {
    Client::builder(url).direct(is_direct()).command_timeout(secs(10)).connect_timeout(PATIENCE)
}

/// True if tests use the crate's own connections instead of fred.
pub fn is_direct() -> bool {
    std::env::var_os("DISTLOCK_TRANSPORT").is_some_and(|transport| transport == "direct")
}

/// Topology of the servers: `DISTLOCK_TOPOLOGY` in the environment. Tests that move slots or fail servers over are in
/// `tests/cluster` and `tests/sentinel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Variable unset: one server.
    Single,
    /// `cluster`: three primaries, or one node if a test inspects its server ([`at_one`]).
    Cluster,
    /// `sentinel`: a primary with two replicas, watched by three sentinels.
    Sentinel,
    /// `replicated`: a primary with two replicas, without sentinels.
    Replicated,
}

impl Topology {
    /// The topology that tests run over.
    ///
    /// # Panics
    /// When the environment names an unknown one.
    pub fn of_tests() -> Self {
        match std::env::var("DISTLOCK_TOPOLOGY").as_deref() {
            Err(_) | Ok("" | "single") => Self::Single,
            Ok("cluster") => Self::Cluster,
            Ok("sentinel") => Self::Sentinel,
            Ok("replicated") => Self::Replicated,
            Ok(other) => panic!("DISTLOCK_TOPOLOGY={other}: single, cluster, sentinel or replicated"),
        }
    }
}

pub fn is_cluster() -> bool {
    Topology::of_tests() == Topology::Cluster
}

/// A cluster of one node, which has every slot.
pub async fn cluster_node() -> RedisServer {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes").start();
    let admin = Admin::connect(&server).await;
    distlock_support::cluster::add_slots(&admin, 0..=SLOTS - 1).await;
    let deadline = Instant::now() + PATIENCE;
    while !admin.cmd::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok") {
        assert!(Instant::now() < deadline, "the cluster is not up");
        tokio::time::sleep(ms(5)).await;
    }
    server
}

/// A name with a shared hash tag, so that all such names are in one cluster slot and can be batched.
pub fn kin(name: &str) -> String {
    if is_cluster() { format!("{{kin}}{name}") } else { name.to_owned() }
}

/// A name for each primary; one name if there is one server.
pub fn on_each(name: &str) -> Vec<String> {
    if is_cluster() { apart(name).into() } else { vec![name.to_owned()] }
}

/// Three names. In a cluster each is at another primary.
pub fn apart(name: &str) -> [String; 3] {
    if is_cluster() {
        [0, 8_000, 16_000].map(|slot| distlock_support::cluster::key_in(slot, name))
    } else {
        [1, 2, 3].map(|n| format!("{name}{n}"))
    }
}

/// Waits until a client holds nothing, waits for nothing and has nothing in flight.
pub async fn idle(client: &Client) {
    let start = Instant::now();
    loop {
        let stats = client.stats();
        if (stats.holds, stats.waiting, stats.under_way) == (0, 0, 0) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "the client is not idle within {PATIENCE:?}: {stats:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// The watchdog of [`Bed::quick`].
pub const QUICK: Duration = Duration::from_millis(3600);

/// Runs a test body over a flavour, on a single server or on the topology under test.
pub async fn run(make: Make, body: impl AsyncFn(&Bed)) {
    run_anywhere(make, false, &body).await;
}

/// Like [`run`], for a body that inspects its server: a single server, a one-node cluster, or a primary used by no
/// other test.
pub async fn at_one(make: Make, body: impl AsyncFn(&Bed)) {
    run_anywhere(make, true, &body).await;
}

/// A test's body behind a pointer, so that the surrounding code is compiled only once.
trait Body {
    fn on<'a>(&'a self, bed: &'a Bed) -> LocalBoxFuture<'a, ()>;
}

impl<F: AsyncFn(&Bed)> Body for F {
    fn on<'a>(&'a self, bed: &'a Bed) -> LocalBoxFuture<'a, ()> {
        Box::pin(async move { self(bed).await })
    }
}

async fn run_anywhere(make: Make, at_one: bool, body: &dyn Body) {
    let topology = Topology::of_tests();
    let by_sentinels = topology == Topology::Sentinel;
    let place = match (topology, at_one) {
        (Topology::Single, _) => Place::One(RedisServer::start()),
        (Topology::Cluster, false) => Place::three().await,
        (Topology::Cluster, true) => Place::One(cluster_node().await),
        (Topology::Sentinel | Topology::Replicated, false) => Place::set(by_sentinels).await,
        (Topology::Sentinel | Topology::Replicated, true) => Place::own_set(by_sentinels).await,
    };
    run_over(place, make, async |bed| body.on(bed).await).await;
}

/// Makes a test of each of these cases: `cases!(body: name = argument, …)`. Write `on two threads,` before the body's
/// name for a two-thread runtime.
#[macro_export]
macro_rules! cases {
    (on two threads, $body:ident: $($name:ident = $case:expr),+ $(,)?) => {
        mod $body {
            #[allow(unused_imports)]
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$body($case).await;
            })+
        }
    };
    ($body:ident: $($name:ident = $case:expr),+ $(,)?) => {
        mod $body {
            #[allow(unused_imports)]
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                super::$body($case).await;
            })+
        }
    };
}

pub async fn reentrant(body: impl AsyncFn(&Bed)) {
    run(|client, name| client.lock(Flavour::Reentrant, name), body).await;
}

pub async fn fair(body: impl AsyncFn(&Bed)) {
    run(|client, name| client.lock(Flavour::Fair, name), body).await;
}

/// Runs a test body over the write half of the read-write lock.
pub async fn rw(body: impl AsyncFn(&Bed)) {
    run(|client, name| client.lock(Flavour::Write, name), body).await;
}

pub async fn run_on(server: RedisServer, make: Make, body: impl AsyncFnOnce(&Bed)) {
    run_over(Place::One(server), make, body).await;
}

async fn run_over(place: Place, make: Make, body: impl AsyncFnOnce(&Bed)) {
    let bed = Bed::over(place, make).await;
    if tokio::time::timeout(LIMIT, body(&bed)).await.is_err() {
        let clients = bed.clients.lock();
        panic!("the test has not ended within {LIMIT:?}; its clients: {clients:?}");
    }
    bed.end().await;
}

/// Time limit of every wait for an event. So long that a slow machine does not fail a test, only an event that never
/// happens.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until `condition` holds, checking every 2 ms.
///
/// # Panics
/// After [`PATIENCE`]; the message names `what`. [`becomes`] also shows the last state.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Waits until `probe` returns `expected`, checking every 2 ms.
///
/// # Panics
/// After [`PATIENCE`], with the last value that the probe returned.
pub async fn becomes<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, mut probe: impl AsyncFnMut() -> T) {
    let start = Instant::now();
    loop {
        let seen = probe().await;
        if seen == expected {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: expected {expected:?} within {PATIENCE:?}, still {seen:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Repeats `round` with a doubled wait until it returns `Some`. A round returns `None` if the wait was too short, and
/// must release its locks before it does.
///
/// # Panics
/// After seven rounds, because no machine is 64 times too slow for its first wait; or after a wait of [`PATIENCE`] or
/// more.
pub async fn with_longer_waits<T>(first: Duration, round: impl AsyncFn(Duration) -> Option<T>) -> T {
    let mut wait = first;
    for _ in 0..7 {
        if let Some(outcome) = round(wait).await {
            return outcome;
        }
        if wait >= PATIENCE {
            break;
        }
        wait *= 2;
    }
    panic!("no wait from {first:?} to {wait:?} was long enough")
}

/// Waits for a lock that another owner holds, until the wait runs out. On a slow machine a command may be in flight at
/// that moment. Then the outcome is a command timeout, and the wait is repeated with twice the time.
///
/// # Panics
/// With any other outcome, and when no wait is long enough.
pub async fn waits_in_vain(first: Duration, attempt: impl AsyncFn(Duration) -> Result<Option<Guard>>) {
    with_longer_waits(first, async |wait| match attempt(wait).await {
        Ok(None) => Some(()),
        outcome if in_vain(&outcome) => None,
        outcome => panic!("a wait of {wait:?} for a lock that somebody else holds: {outcome:?}"),
    })
    .await;
}

/// Returns the error of a connect that must fail. If the machine was too slow for the expected error, connects again
/// with twice the time.
///
/// # Panics
/// When the connect succeeds, or when five rounds do not return the expected error. Each round prints its error.
pub async fn refusal(builder: &Builder, is_expected: impl Fn(&Error) -> bool) -> Error {
    with_longer_waits(secs(6), async |wait| {
        let connecting = builder.clone().connect_timeout(wait).connect();
        let ended = tokio::time::timeout(wait + PATIENCE, connecting).await;
        let error = ended.expect("connecting ends in time").expect_err("connecting fails");
        let may_be_slowness = matches!(error, Error::Timeout { .. } | Error::Connection { .. });
        println!("within {wait:?}: {error}");
        (is_expected(&error) || !may_be_slowness).then_some(error)
    })
    .await
}

/// Waits for a future that must end by itself.
///
/// # Panics
/// After [`PATIENCE`]; the message names `what`.
pub async fn ends<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: did not end within {PATIENCE:?}"),
    }
}

/// The owner's text in Redis. `as_str()` would mark the owner as shared, and its holds would be counted differently.
pub fn text(owner: &Owner) -> String {
    let debug = format!("{owner:?}");
    debug.strip_prefix("Owner(").and_then(|rest| rest.strip_suffix(')')).unwrap().to_owned()
}

pub async fn enter(lock: &(impl DistLock + ?Sized), owner: &Owner) -> Guard {
    match lock.acquire(Acquire::new().owner(owner)).await {
        Ok(Some(guard)) => guard,
        outcome => panic!("acquire {:?} as {owner:?}: {outcome:?}", lock.name()),
    }
}

/// Waits for a lock. The task returns the guard, and when it had it.
pub fn waiter(lock: impl DistLock + 'static) -> JoinHandle<(Guard, Instant)> {
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("lock: {error:?}"));
        (guard, Instant::now())
    })
}

/// Waits for a lock, and unlocks it at once.
pub fn passer(lock: impl DistLock + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("lock: {error:?}"));
        guard.unlock().await.unwrap_or_else(|error| panic!("unlock: {error:?}"));
    })
}

pub async fn freed(lock: &Arc<dyn DistLock>) {
    eventually("the lock is free", async || !lock.is_locked().await.unwrap()).await;
}

/// True if a short wait ended without the lock, or by a command timeout, because a busy machine may not answer within
/// the wait. If only the end of the wait is right, use [`waits_in_vain`].
pub fn in_vain(outcome: &Result<Option<Guard>>) -> bool {
    match outcome {
        Ok(None) | Err(Error::Timeout { step: Step::Command, .. }) => true,
        Err(Error::NoQuorum { why, .. }) => matches!(**why, Error::Timeout { step: Step::Command, .. }),
        _ => false,
    }
}

/// When a guard's lease ends. `Guard::deadline` converts between two clocks and may be slightly early, so this takes
/// the latest of ten reads.
pub fn deadline(guard: &Guard) -> Instant {
    (0..10).map(|_| guard.deadline()).max().expect("ten looks")
}

/// How far a guard's deadline has moved since an earlier read by [`deadline`].
pub fn moved(guard: &Guard, before: Instant) -> Duration {
    deadline(guard).saturating_duration_since(before)
}

/// Every flavour that is a single lock.
pub const FLAVOURS: [Flavour; 7] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin, Flavour::Plain];

/// Shuts a client down once it is idle.
pub async fn end(client: Client) {
    idle(&client).await;
    client.shutdown(PATIENCE).await.expect("shutdown of an idle client");
}

/// Number of connections of a cluster's nodes, without administrators, replicas and other nodes.
pub async fn connections(cluster: &Cluster) -> usize {
    let mut all = 0;
    for node in cluster.nodes() {
        let others = node.admin().others().await;
        all += others.iter().filter(|client| !client.flags.contains(['S', 'M'])).count();
    }
    all
}

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A counter that panics when two tasks are inside at once.
#[derive(Debug, Default)]
pub struct Counter {
    count: AtomicU64,
    inside: AtomicU64,
}

impl Counter {
    /// Increments in steps that are not atomic together, with a pause in between.
    pub async fn bump(&self, pause: Duration) {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        let seen = self.count.load(Ordering::SeqCst);
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
        self.count.store(seen + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(others, 0, "exclusion broken: another holder was inside");
    }

    pub fn get(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}
