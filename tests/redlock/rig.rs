//! Independent servers, a proxy for each, users of a RedLock over them, and the leak check at the end.

use distlock::{Acquire, Builder, Client, Error, Flavour, Guard, RedLock, Result};
use distlock_support::server::Builder as ServerBuilder;
use distlock_support::{Admin, Proxy, RedisServer};
use futures::future::join_all;
use parking_lot::Mutex;

use bed::{LIMIT, PATIENCE, Place, becomes, ends, eventually, idle, is_cluster, ms, on_each, secs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// SIGKILL. The server restarts empty, unless it has an AOF.
    Killed,
    /// SIGSTOP.
    Stopped,
    /// A partition: the proxy reads nothing and closes nothing. Direct users still reach the server.
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Proxied,
    Direct,
}

/// Independent servers, or clusters of them.
pub struct Five {
    pub servers: Vec<Place>,
    /// A proxy for each server. Empty if some servers are clusters.
    pub proxies: Vec<Proxy>,
    clients: Mutex<Vec<Client>>,
}

/// A user has one client per server.
#[derive(Clone)]
pub struct User {
    pub clients: Vec<Client>,
}

impl User {
    pub fn red(&self, name: &str) -> RedLock {
        self.over(Flavour::Reentrant, name)
    }

    /// Like [`red`](Self::red), with this flavour at each server. A slow server does not count as unreachable.
    pub fn over(&self, flavour: Flavour, name: &str) -> RedLock {
        RedLock::over(self.clients.clone(), flavour, name).node_timeout(PATIENCE)
    }

    /// Waits until nothing is held, waited for or in flight.
    pub async fn idle(&self) {
        for client in &self.clients {
            idle(client).await;
        }
    }

    pub async fn quiet(&self) {
        for client in &self.clients {
            becomes("commands and clean-ups in flight", 0, async || client.stats().under_way).await;
        }
    }

    pub async fn reaches_all(&self) {
        for (at, client) in self.clients.iter().enumerate() {
            let lock = client.reentrant("reach");
            let answers = async || matches!(tokio::time::timeout(ms(500), lock.is_locked()).await, Ok(Ok(false)));
            eventually(&format!("server {at} answers"), answers).await;
        }
    }

    pub async fn renew(&self) {
        join_all(self.clients.iter().map(Client::renew_now)).await;
    }
}

/// Clients that renew only on request, and whose timeouts suffice on a slow machine.
pub fn patient(url: &str) -> Builder {
    bed::builder(url).watchdog(secs(600)).configure(|options| {
        options.retry_delay = (ms(10), ms(100));
        options.subscription_linger = ms(200);
    })
}

/// Clients whose command timeout is longer than any wait of a test. If a call ends in time, it has not waited for an
/// unreachable server.
pub fn endless(url: &str) -> Builder {
    patient(url).watchdog(secs(3600)).command_timeout(secs(1000))
}

impl Five {
    pub fn start(make: impl Fn() -> ServerBuilder + Sync) -> Self {
        Self::of(std::thread::scope(|scope| {
            let starting = [(); 5].map(|()| scope.spawn(|| make().start()));
            starting.into_iter().map(|server| server.join().unwrap()).collect()
        }))
    }

    pub fn of(servers: Vec<RedisServer>) -> Self {
        let proxies = servers.iter().map(|server| Proxy::start(server.addr())).collect();
        let servers = servers.into_iter().map(Place::Alone).collect();
        Self { servers, proxies, clients: Mutex::default() }
    }

    /// Starts `count` clusters of three primaries, and `alone` single servers.
    async fn clusters(count: usize, alone: usize) -> Self {
        let mut servers = join_all((0..count).map(|_| Place::three())).await;
        servers.extend((0..alone).map(|_| Place::Alone(RedisServer::start())));
        Self { servers, proxies: Vec::new(), clients: Mutex::default() }
    }

    pub fn all(&self) -> Vec<usize> {
        (0..self.servers.len()).collect()
    }

    pub fn url(&self, at: usize, path: Path) -> String {
        match path {
            Path::Proxied => self.proxies[at].url(),
            Path::Direct => self.servers[at].url(),
        }
    }

    /// A user whose clients are shut down at the end of the test. Clients of unreachable servers connect later.
    pub async fn user(&self, path: Path, make: impl Fn(&str) -> Builder) -> User {
        let connecting = self.all().into_iter().map(|at| make(&self.url(at, path)).connect_lazily());
        let clients: Vec<_> = join_all(connecting).await.into_iter().map(Result::unwrap).collect();
        self.clients.lock().extend(clients.iter().cloned());
        User { clients }
    }

    /// Like [`user`](Self::user), with all clients connected, and all scripts known to the servers.
    pub async fn warm(&self, path: Path, make: impl Fn(&str) -> Builder) -> User {
        let user = self.user(path, make).await;
        let using = user.clients.iter().map(|client| async move {
            for name in on_each("warm") {
                let lock = client.reentrant(&name);
                let guard = lock.lock().await.unwrap();
                assert!(lock.is_locked().await.unwrap());
                guard.unlock().await.unwrap();
            }
        });
        join_all(using).await;
        user
    }

    /// Registers a client for [`end`](Self::end) to shut down.
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

    pub async fn calls(&self, command: &str) -> u64 {
        let each = self.all().into_iter().map(|at| async move { self.admin(at).await.calls(command).await });
        join_all(each).await.into_iter().sum()
    }

    pub async fn having(&self, name: &str) -> Vec<usize> {
        let each = self.all().into_iter().map(|at| async move { (at, self.admin(at).await.exists(name).await) });
        join_all(each).await.into_iter().filter_map(|(at, there)| there.then_some(at)).collect()
    }

    /// Waits until no key and no subscription is left on these servers.
    pub async fn clean_at(&self, at: &[usize]) {
        for at in at {
            let admin = self.admin(*at).await;
            let left = async || (admin.keys().await, admin.channels().await);
            becomes(&format!("keys and channels on server {at}"), (Vec::new(), Vec::new()), left).await;
        }
    }

    pub async fn clean(&self) {
        self.clean_at(&self.all()).await;
    }

    /// Asserts that nothing is left on any server, and no connection after the shutdown.
    async fn end(self) {
        self.clean().await;
        let clients = std::mem::take(&mut *self.clients.lock());
        join_all(clients.iter().map(|client| async move {
            match client.shutdown(PATIENCE).await {
                // Closed: the test has shut the client down.
                Ok(()) | Err(Error::Closed) => {}
                Err(error) => panic!("shutdown of {client:?}: {error}, {:?}", client.stats()),
            }
            idle(client).await;
        }))
        .await;
        drop(clients);
        self.clean().await;
        for server in self.servers {
            let admin = server.admin().await;
            eventually("no connection is left", async || admin.others().await.is_empty()).await;
            server.leave(&admin).await;
        }
    }
}

/// Runs a test body over five servers that keep nothing on disk.
pub async fn five(body: impl AsyncFnOnce(&Five)) {
    run(Five::start(RedisServer::builder), body).await;
}

/// Runs a test body over five servers. With a cluster topology, runs it three times: over three clusters of three
/// primaries, over two clusters and a single server, and over one cluster and two single servers.
pub async fn everywhere(body: impl AsyncFn(&Five)) {
    if !is_cluster() {
        return five(body).await;
    }
    for alone in 0..3 {
        run(Five::clusters(3 - alone, alone).await, &body).await;
    }
}

pub async fn run(five: Five, body: impl AsyncFnOnce(&Five)) {
    tokio::time::timeout(LIMIT, body(&five))
        .await
        .unwrap_or_else(|_| panic!("the test has not ended within {LIMIT:?}"));
    five.end().await;
}

/// An acquire with a lease that outlasts the test, so that leftovers do not expire unnoticed.
pub fn long() -> Acquire {
    Acquire::new().lease(secs(600)).wait(PATIENCE)
}

/// Returns the counts of a `NoQuorum`: granted and needed.
#[track_caller]
pub fn no_quorum<T: std::fmt::Debug>(outcome: Result<T>) -> (usize, usize) {
    match outcome {
        Err(Error::NoQuorum { granted, needed, .. }) => (granted, needed),
        other => panic!("expected NoQuorum: {other:?}"),
    }
}

/// Acquires the lock on all servers. Repeats the acquire if a server still had an earlier hold, because a RedLock tries
/// such a server only once.
pub async fn by_all(lock: &RedLock, how: Acquire) -> Guard {
    for _ in 0..50 {
        let guard =
            ends("an acquire at five servers", lock.acquire(how.clone())).await.unwrap().expect("the lock is free");
        for _ in 0..1_000 {
            if guard.members().len() == 5 {
                return guard;
            }
            tokio::time::sleep(ms(2)).await;
        }
        guard.unlock().await.unwrap();
    }
    panic!("not all of five servers grant a lock that is free");
}
