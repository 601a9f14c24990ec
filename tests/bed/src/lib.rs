//! The base of the integration tests: one server for each test, its clients, and a check at the end that nothing is
//! left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Builder, Client, DistLock, Error, Flavour};
use distlock_support::proxy::Proxy;
use distlock_support::{Admin, Baseline, Cluster, RedisServer, assert_nothing_left};
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

pub mod cost;
pub mod dropped;
pub mod events;
pub mod fault;
pub mod harm;
#[cfg(test)]
mod lints;
mod locks;
pub mod pest;
mod place;
pub mod scripts;
pub mod session;
mod tape;
mod topology;
mod wait;
pub mod wire;

pub use locks::{Counter, EXCLUSIVE, FLAVOURS, REVOCABLE, deadline, enter, freed, moved, passer, text, waiter};
pub use place::Place;
pub use topology::{Topology, apart, cluster_node, is_cluster, kin, on_each};
pub use wait::{PATIENCE, becomes, ends, eventually, idle, in_vain, refusal, waits_in_vain, with_longer_waits};

/// Time limit of a whole test body: ten waits of [`PATIENCE`], and more than all rounds of two [`refusal`]s.
pub const LIMIT: Duration = Duration::from_secs(900);

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

    /// A builder with the default options, except for longer timeouts for slow machines.
    pub fn builder(&self) -> Builder {
        builder(&self.server.url())
    }

    /// A builder for cost tests. These timers do not fire during a test: renewals, pings, polls of waiters, the end of
    /// a subscription, scans, and retries after a command timeout. Timers of flavours remain: a waiter of a fair lock
    /// refreshes its place, and a reader that yields to a writer retries after `max_reader_delay`. A test that counts
    /// while a task waits sets these times, or allows for extra commands.
    ///
    /// Commands are counted ([`cost::sent`]) from the first client that is connected after this call.
    pub fn still_builder(&self) -> Builder {
        self.counts.store(true, Ordering::Relaxed);
        let hour = secs(3600);
        self.builder().watchdog(hour).command_timeout(PATIENCE).configure(|options| {
            options.poll_cap = hour;
            options.subscription_linger = hour;
            options.subscribe_timeout = PATIENCE;
            options.ping_interval = hour;
            options.scan_interval = Some(hour);
        })
    }

    /// A builder for tests that run longer than a lease: a watchdog of [`QUICK`], and matching timeouts.
    pub fn quick_builder(&self) -> Builder {
        self.builder()
            .watchdog(QUICK)
            .command_timeout(QUICK / 3)
            .retry_attempts(2)
            .configure(|options| options.retry_delay = (ms(10), ms(100)))
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
            // A client of a cluster first asks the servers of its URL, over connections that it closes again.
            let has_seeds = Topology::of_tests() == Topology::Cluster;
            let stand = async || {
                let open = others().await.filter(|id| !before.contains(id)).count();
                if has_seeds { open == all } else { open >= all }
            };
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

/// A builder over the transport under test: fred, or the crate's own connections with `DISTLOCK_TRANSPORT=direct`. The
/// command timeout is 10 s, the most that the default watchdog allows. A longer pause of this process is harmless. If
/// the server may pause for longer, use [`Bed::still_builder`].
pub fn builder(url: &str) -> Builder {
    Client::builder(url)
        .configure(|options| options.use_fred = !is_direct())
        .command_timeout(secs(10))
        .connect_timeout(PATIENCE)
}

/// True if tests use the crate's own connections instead of fred.
pub fn is_direct() -> bool {
    std::env::var_os("DISTLOCK_TRANSPORT").is_some_and(|transport| transport == "direct")
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

/// A test's body as a trait object, so that the surrounding code is compiled only once.
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

pub async fn end(client: Client) {
    idle(&client).await;
    client.shutdown(PATIENCE).await.expect("shutdown of an idle client");
}

/// Number of client connections at all nodes of a cluster. Does not count administrators, replicas and other nodes.
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
