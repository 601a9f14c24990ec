//! The servers, a proxy in front of one of them, and the clients of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::{Builder, Client, Stats};
use distlock_support::{Admin, Proxy, RedisServer};
use parking_lot::RwLock;

use crate::history::{History, Section};
use crate::tally::Tally;

/// The number of clients of the main server. Clients with odd numbers connect through the proxy; two clients use our
/// own connections.
pub const CLIENTS: usize = 4;
const RED: usize = 3;
/// The longest time for which a dead client's lock stays.
pub const WATCHDOG: Duration = Duration::from_secs(6);
/// The time limit of every call and clean-up, even on a busy machine.
pub const BOUND: Duration = Duration::from_secs(120);

/// Returns a builder for clients that notice faults soon.
fn builder(url: &str) -> Builder {
    Client::builder(url)
        .watchdog(WATCHDOG)
        .command_timeout(Duration::from_secs(1))
        .connect_timeout(Duration::from_secs(3))
        .retry_attempts(5)
        .configure(|options| {
            options.retry_delay = (Duration::from_millis(20), Duration::from_millis(200));
            options.subscription_linger = Duration::from_millis(500);
            options.poll_cap = Duration::from_secs(2);
            options.ping_interval = Duration::from_millis(500);
        })
}

/// Connects, and retries while the server is still starting. `direct`: over our own connections.
pub async fn connect(url: &str, direct: bool, tally: &Tally) -> Client {
    let began = Instant::now();
    loop {
        match builder(url).configure(|options| options.use_fred = !direct).connect().await {
            Ok(client) => return client,
            Err(error) if began.elapsed() < BOUND => tally.error("connect", &error),
            Err(error) => panic!("no connection within {BOUND:?}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Receives the sections.
type Sink = dyn Fn(&str, Section) + Send + Sync;

/// The state that all workers share.
pub struct Shared {
    pub clients: RwLock<Vec<Client>>,
    pub red: RwLock<Vec<Client>>,
    pub stopped: AtomicBool,
    pub tally: Arc<Tally>,
    pub sink: Box<Sink>,
}

impl Shared {
    pub fn new(tally: Arc<Tally>, sink: Box<Sink>) -> Arc<Self> {
        let (clients, red, stopped) = (RwLock::default(), RwLock::default(), AtomicBool::default());
        Arc::new(Self { clients, red, stopped, tally, sink })
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

pub struct Bed {
    /// The first server is the main one, with most of the locks.
    pub servers: Vec<RedisServer>,
    pub admins: Vec<Admin>,
    pub proxy: Proxy,
    pub tally: Arc<Tally>,
    shared: Arc<Shared>,
}

impl Bed {
    pub async fn start(seed: u64) -> Self {
        // Each reply is in the file before it is sent, so a killed server loses no data.
        let start = || RedisServer::builder().aof(true).arg("--appendfsync", "no").start();
        let servers: Vec<_> = (0..=RED).map(|_| start()).collect();
        let mut admins = Vec::new();
        for server in &servers {
            admins.push(Admin::connect(server).await);
        }
        let proxy = Proxy::start(servers[0].addr());
        let (tally, log) = (Arc::new(Tally::default()), History::default());
        let told = Arc::clone(&tally);
        let sink = move |name: &str, section| {
            if let Some(wrong) = log.add(name, section) {
                told.violation(format!("{wrong} (--seed {seed})"));
            }
        };
        let shared = Shared::new(Arc::clone(&tally), Box::new(sink));
        Self { servers, admins, proxy, tally, shared }
    }

    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    pub fn url(&self, number: usize) -> String {
        if number.is_multiple_of(2) { self.servers[0].url() } else { self.proxy.url() }
    }

    pub async fn connect(&self, number: usize) -> Client {
        connect(&self.url(number), number % 4 >= 2, &self.tally).await
    }

    pub fn red_urls(&self) -> impl Iterator<Item = String> {
        self.servers[1..].iter().map(RedisServer::url)
    }

    pub async fn connect_all(&self) {
        for number in 0..CLIENTS {
            let client = self.connect(number).await;
            self.shared.clients.write().push(client);
        }
        for (number, url) in self.red_urls().enumerate() {
            let client = connect(&url, number == 0, &self.tally).await;
            self.shared.red.write().push(client);
        }
    }

    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
    }

    fn clients(&self) -> Vec<Client> {
        self.shared.clients.read().iter().chain(self.shared.red.read().iter()).cloned().collect()
    }

    /// Returns the summed statistics of all current clients.
    pub fn stats(&self) -> Stats {
        let each = self.clients().iter().map(Client::stats).collect::<Vec<_>>();
        let mut sum = each[0];
        for stats in &each[1..] {
            sum.holds += stats.holds;
            sum.waiting += stats.waiting;
            sum.names += stats.names;
            sum.under_way += stats.under_way;
        }
        sum
    }

    pub async fn close_all(&self) {
        let clients = self.clients();
        self.shared.clients.write().clear();
        self.shared.red.write().clear();
        for client in clients {
            if let Err(error) = client.shutdown(BOUND).await {
                self.tally.violation(format!("shutdown of an idle client: {error}"));
            }
        }
    }
}
