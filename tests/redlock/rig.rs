//! Independent servers, a proxy before each, users of a RedLock over them, and the check that nothing is left at the end.

// Not every part uses all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, Builder, Client, DistLock as _, Error, Flavour, Guard, RedLock, Result};
use distlock_support::server::Builder as ServerBuilder;
use distlock_support::{Admin, Proxy, RedisServer};
use futures::future::join_all;
use parking_lot::Mutex;

use bed::{Place, QUICK, eventually, is_cluster, ms, on_each, secs};

/// No test takes longer; one that does hangs.
const LIMIT: Duration = secs(120);

/// How long clean-up in the background may take once its server can be reached.
pub const SOON: Duration = secs(6);

/// A node timeout that no test waits for: what ends much earlier has not waited for the dead.
pub const NEVER: Duration = secs(20);

/// Well below [`NEVER`] and [`patient`]'s command timeout, and enough for a busy machine.
pub const PROMPT: Duration = ms(1500);

/// The ways for a server to be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// SIGKILL. It comes back empty, unless it has a file.
    Killed,
    /// SIGSTOP.
    Stopped,
    /// Its proxy swallows everything and closes nothing: a partition. Direct users still reach it.
    Cut,
}

pub const WAYS: [Away; 3] = [Away::Killed, Away::Stopped, Away::Cut];

/// How a client reaches the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Proxied,
    Direct,
}

/// Independent servers, or clusters of them.
pub struct Five {
    pub servers: Vec<Place>,
    /// One before each server, where none of them is a cluster.
    pub proxies: Vec<Proxy>,
    clients: Mutex<Vec<Client>>,
}

/// A user: a client of its own to every server.
#[derive(Clone)]
pub struct User {
    pub clients: Vec<Client>,
}

impl User {
    /// The RedLock of this name over all servers.
    pub fn red(&self, name: &str) -> RedLock {
        RedLock::new(self.clients.clone(), name)
    }

    /// As [`red`](Self::red), over another flavour.
    pub fn over(&self, flavour: Flavour, name: &str) -> RedLock {
        RedLock::over(self.clients.clone(), flavour, name)
    }

    /// Waits until nothing is held, waited for or under way at any of these servers.
    pub async fn idle_at(&self, at: &[usize]) {
        for at in at {
            let client = &self.clients[*at];
            eventually("it is idle", async || {
                let stats = client.stats();
                (stats.holds, stats.waiting, stats.under_way) == (0, 0, 0)
            })
            .await;
        }
    }

    /// Waits until all these servers, which are there, answer once more; how long it took.
    pub async fn reaches(&self, at: &[usize]) -> Duration {
        let start = Instant::now();
        for at in at {
            let lock = self.clients[*at].reentrant("reach");
            loop {
                if let Ok(Ok(locked)) = tokio::time::timeout(ms(500), lock.is_locked()).await {
                    assert!(!locked);
                    break;
                }
                assert!(start.elapsed() < SOON, "server {at} is not reached again");
            }
        }
        start.elapsed()
    }

    /// Waits until no command is under way to any of these servers.
    pub async fn quiet_at(&self, at: &[usize]) {
        for at in at {
            let client = &self.clients[*at];
            eventually("no command is under way", async || client.stats().under_way == 0).await;
        }
    }
}

/// Clients for tests that outlive leases: a watchdog of 1.8 s, and timeouts to match.
pub fn quick(url: &str) -> Builder {
    bed::builder(url)
        .watchdog(QUICK)
        .command_timeout(QUICK / 3)
        .retry_attempts(2)
        .retry_delay((ms(10), ms(100)))
        .subscription_linger(ms(200))
        .poll_cap(secs(1))
        .ping_interval(ms(500))
}

/// Clients whose own timeouts help nobody: what is quick with them does not wait for the dead.
pub fn patient(url: &str) -> Builder {
    bed::builder(url).command_timeout(secs(8)).retry_delay((ms(10), ms(100))).subscription_linger(ms(200))
}

impl Five {
    /// So many servers, started side by side.
    pub fn start(count: usize, make: impl Fn() -> ServerBuilder + Sync) -> Self {
        let servers: Vec<_> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(|| make().start())).collect();
            starting.into_iter().map(|server| server.join().unwrap()).collect()
        });
        Self::of(servers)
    }

    pub fn of(servers: Vec<RedisServer>) -> Self {
        let proxies = servers.iter().map(|server| Proxy::start(server.addr())).collect();
        let servers = servers.into_iter().map(Place::Alone).collect();
        Self { servers, proxies, clients: Mutex::default() }
    }

    /// So many clusters of three primaries, and so many servers.
    pub async fn clusters(count: usize, alone: usize) -> Self {
        let mut servers = join_all((0..count).map(|_| Place::three())).await;
        servers.extend((0..alone).map(|_| Place::Alone(RedisServer::start())));
        Self { servers, proxies: Vec::new(), clients: Mutex::default() }
    }

    /// All of them, as others say which ones they mean.
    pub fn all(&self) -> Vec<usize> {
        (0..self.servers.len()).collect()
    }

    pub fn url(&self, at: usize, path: Path) -> String {
        match path {
            Path::Proxied => self.proxies[at].url(),
            Path::Direct => self.servers[at].url(),
        }
    }

    /// A user whose clients are shut down at the end of the test. Those whose server is away connect when they can.
    pub async fn user(&self, path: Path, make: impl Fn(&str) -> Builder) -> User {
        let connecting = (0..self.servers.len()).map(|at| make(&self.url(at, path)).connect_lazily());
        let clients: Vec<_> = join_all(connecting).await.into_iter().map(Result::unwrap).collect();
        self.clients.lock().extend(clients.iter().cloned());
        User { clients }
    }

    /// As [`user`](Self::user), connected and with every script known to the servers: all of them are there.
    pub async fn warm(&self, path: Path, make: impl Fn(&str) -> Builder) -> User {
        let user = self.user(path, make).await;
        let using = user.clients.iter().map(|client| async move {
            for name in on_each("warm") {
                let lock = client.reentrant(&name);
                let warm = Acquire::new().lease(secs(20)).wait(secs(20));
                let guard = lock.acquire(warm).await.unwrap().expect("only held for a moment");
                assert!(lock.is_locked().await.unwrap());
                guard.unlock().await.unwrap();
            }
        });
        join_all(using).await;
        user
    }

    /// A client for [`end`](Self::end) to shut down.
    pub fn keep(&self, client: &Client) {
        self.clients.lock().push(client.clone());
    }

    pub fn take(&self, at: usize, way: Away) {
        match way {
            Away::Killed => self.servers[at].kill9(),
            Away::Stopped => self.servers[at].stop(),
            Away::Cut => self.proxies[at].blackhole(true),
        }
    }

    pub fn back(&self, at: usize, way: Away) {
        match way {
            Away::Killed => self.servers[at].restart(),
            Away::Stopped => self.servers[at].cont(),
            Away::Cut => self.proxies[at].blackhole(false),
        }
    }

    pub async fn admin(&self, at: usize) -> Admin {
        self.servers[at].admin().await
    }

    /// The servers on which this key is.
    pub async fn having(&self, name: &str) -> Vec<usize> {
        let each = (0..self.servers.len()).map(|at| async move { (at, self.admin(at).await.exists(name).await) });
        join_all(each).await.into_iter().filter_map(|(at, there)| there.then_some(at)).collect()
    }

    /// Waits until no key and no subscription is left on these servers; how long it took.
    pub async fn clean_at(&self, at: &[usize], within: Duration) -> Duration {
        let start = Instant::now();
        for at in at {
            let admin = self.admin(*at).await;
            loop {
                let (keys, channels) = (admin.keys().await, admin.channels().await);
                if keys.is_empty() && channels.is_empty() {
                    break;
                }
                assert!(
                    start.elapsed() < within,
                    "left on server {at} after {within:?}: {keys:?}, channels {channels:?}"
                );
                tokio::time::sleep(ms(5)).await;
            }
        }
        start.elapsed()
    }

    /// As [`clean_at`](Self::clean_at), on all servers.
    pub async fn clean(&self, within: Duration) -> Duration {
        self.clean_at(&self.all(), within).await
    }

    /// Nothing is left on any server; and after the shutdown no connection is.
    async fn end(self) {
        self.clean(SOON).await;
        let clients = std::mem::take(&mut *self.clients.lock());
        join_all(clients.iter().map(|client| async move {
            match client.shutdown(SOON).await {
                // Closed: the test did it.
                Ok(()) | Err(Error::Closed) => {}
                Err(error) => panic!("shutdown of {client:?}: {error}, {:?}", client.stats()),
            }
            // Second looks after doubt, which closing does not wait for, end with it.
            let start = Instant::now();
            loop {
                let stats = client.stats();
                if (stats.holds, stats.waiting, stats.under_way) == (0, 0, 0) {
                    break;
                }
                assert!(start.elapsed() < SOON, "after the shutdown: {stats:?}");
                tokio::time::sleep(ms(5)).await;
            }
        }))
        .await;
        drop(clients);
        self.clean(SOON).await;
        for server in self.servers {
            let admin = server.admin().await;
            eventually("no connection is left", async || admin.others().await.is_empty()).await;
            server.leave(&admin).await;
        }
    }
}

/// Runs a test body over five servers that keep nothing on disk.
pub async fn five(body: impl AsyncFnOnce(&Five)) {
    run(Five::start(5, RedisServer::builder), body).await;
}

/// Runs a test body over what tests run over: five servers; or three clusters of three primaries, two of them and a server that is
/// in none, and one of them and two such servers.
pub async fn everywhere(body: impl AsyncFn(&Five)) {
    if !is_cluster() {
        return five(body).await;
    }
    for alone in 0..3 {
        run(Five::clusters(3 - alone, alone).await, &body).await;
    }
}

/// Runs a test body over these servers.
pub async fn run(five: Five, body: impl AsyncFnOnce(&Five)) {
    tokio::time::timeout(LIMIT, body(&five)).await.expect("the test has not ended");
    five.end().await;
}

/// Tries and tries; never in while the first one says that it is held.
pub struct Rival {
    task: tokio::task::JoinHandle<()>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    tries: std::sync::atomic::AtomicUsize,
    first: Mutex<Option<Arc<Guard>>>,
}

impl Rival {
    pub fn against(lock: RedLock) -> Self {
        let seen = Arc::<Seen>::default();
        let told = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                // With errors it is out as well.
                if let Ok(Some(second)) = lock.try_lock().await {
                    // A guard never comes back to life: held now, both were held when the second one was granted.
                    let both = told.first.lock().as_ref().is_some_and(|first| first.is_held()) && second.is_held();
                    assert!(!both, "two holders");
                    let _ = second.unlock().await;
                }
                told.tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                tokio::time::sleep(ms(1)).await;
            }
        });
        Self { task, seen }
    }

    /// From now on this one counts as the first.
    pub fn watch(&self, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        *self.seen.first.lock() = Some(Arc::clone(&guard));
        guard
    }

    /// The guard back, to be released.
    pub fn give_back(&self, guard: Arc<Guard>) -> Guard {
        drop(self.seen.first.lock().take());
        Arc::into_inner(guard).expect("nobody else has it")
    }

    pub fn tries(&self) -> usize {
        self.seen.tries.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Ends it; it must have tried, and never been in beside the first.
    pub async fn end(self) {
        assert!(self.tries() > 0, "it never tried");
        assert!(!self.task.is_finished(), "it saw two holders: {:?}", self.task.await);
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Acquires with a lease that outlasts the test, so that what is left behind does not go by itself.
pub fn long() -> Acquire {
    Acquire::new().lease(secs(60)).wait(secs(10))
}

/// The parts of a `NoQuorum`.
#[track_caller]
pub fn no_quorum<T: std::fmt::Debug>(outcome: Result<T>) -> (usize, usize) {
    match outcome {
        Err(Error::NoQuorum { granted, needed, .. }) => (granted, needed),
        other => panic!("expected NoQuorum: {other:?}"),
    }
}

/// Acquires it at all servers. One that took too long in a round, on a busy machine, is left out of the next.
pub async fn by_all(lock: &RedLock, how: Acquire) -> Guard {
    for _ in 0..50 {
        let guard = lock.acquire(how.clone()).await.unwrap().expect("free");
        let began = Instant::now();
        while guard.members().len() < 5 && began.elapsed() < secs(1) {
            tokio::time::sleep(ms(5)).await;
        }
        if guard.members().len() == 5 {
            return guard;
        }
        guard.unlock().await.unwrap();
    }
    panic!("never granted by all");
}
