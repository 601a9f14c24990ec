//! Real sentinels over a real primary and its replicas, for each test. They end with the test process.
//!
//! ```no_run
//! # async fn example() {
//! use distlock_support::{Sentinels, SentinelsOptions};
//!
//! let bed = Sentinels::start(SentinelsOptions::default()).await;
//! let primary = bed.primary().await;
//! bed.server(primary).kill();
//! let promotion = bed.promotion(primary).await;
//! let told = bed.switched(promotion.cause).await;
//! println!("{} after {:?}", bed.server(promotion.server).addr(), promotion.took);
//! println!("told {:?} after that", told.at - promotion.at);
//! # }
//! ```

use std::sync::Arc;

use parking_lot::RwLock;

use crate::replicas::{Member, Replicas};

mod agree;
mod events;
mod failover;
mod options;

pub use events::Event;
pub use failover::Promotion;
pub use options::SentinelsOptions;

use events::Events;

/// Sentinels and the servers that they watch, on the loopback interface. Dropping this kills all of them and removes
/// their folders.
#[derive(Debug)]
pub struct Sentinels {
    // Dropped first, because sentinels would promote another server while the servers die.
    sentinels: RwLock<Vec<Arc<Member>>>,
    servers: Replicas,
    events: Events,
    options: SentinelsOptions,
}

impl Sentinels {
    /// Starts a primary, its replicas and the sentinels, and waits until every sentinel knows all of them (see
    /// [`Sentinels::whole`]).
    pub async fn start(options: SentinelsOptions) -> Self {
        let servers = Replicas::start(options.servers.clone()).await;
        let bed = Self { sentinels: RwLock::default(), servers, events: Events::start(), options };
        bed.launch(bed.options.count, 0).await;
        bed.whole().await;
        bed
    }

    /// `redis-sentinel://host:port,host:port,.../name` with all sentinels, and with user and password of the servers,
    /// if any; `rediss-sentinel://` with TLS.
    pub fn url(&self) -> String {
        let secure = if self.options.servers.certificates.is_some() { "s" } else { "" };
        let hosts: Vec<String> = self.sentinels().iter().map(|sentinel| sentinel.addr().to_string()).collect();
        format!("redis{secure}-sentinel://{}{}/{}", self.servers.userinfo(), hosts.join(","), self.options.name)
    }

    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The watched servers. The sentinels decide which one is the primary: see [`Sentinels::primary`].
    pub fn servers(&self) -> &Replicas {
        &self.servers
    }

    pub fn server(&self, n: usize) -> &Member {
        self.servers.node(n)
    }

    pub fn sentinels(&self) -> Vec<Arc<Member>> {
        self.sentinels.read().clone()
    }

    /// The nth sentinel. A sentinel that was frozen for more than 2 s does nothing for another 30 s (`TILT`).
    pub fn sentinel(&self, n: usize) -> Arc<Member> {
        self.sentinels.read()[n].clone()
    }

    /// All messages of the sentinels since their start, in order of arrival.
    pub fn events(&self) -> Vec<Event> {
        self.events.all()
    }

    /// Starts one more sentinel, and waits until all know it. Returns its number.
    pub async fn add_sentinel(&self) -> usize {
        let primary = self.primary().await;
        self.launch(1, primary).await;
        self.whole().await;
        self.sentinels.read().len() - 1
    }

    /// Kills a sentinel permanently, and makes the others forget it (`SENTINEL RESET`). The numbers of all later
    /// sentinels decrease by one.
    pub async fn remove_sentinel(&self, n: usize) {
        let removed = self.sentinels.write().remove(n);
        removed.kill();
        for sentinel in self.running() {
            sentinel.admin().cmd::<u64>(&["SENTINEL", "RESET", self.name()]).await;
        }
        self.whole().await;
    }

    async fn launch(&self, count: usize, primary: usize) {
        let port = self.servers.node(primary).addr().port();
        let wanted = (0..count).map(|_| self.options.sentinel(port)).collect();
        for sentinel in Member::launch(wanted).await {
            for (name, ms) in &self.options.periods {
                // Servers before 7.0 do not have this command.
                let _ = sentinel.admin().raw(&["SENTINEL", "DEBUG", name, &ms.to_string()]).await;
            }
            self.events.listen_to(sentinel.addr(), sentinel.admin_url()).await;
            self.sentinels.write().push(Arc::new(sentinel));
        }
    }

    fn running(&self) -> Vec<Arc<Member>> {
        self.sentinels.read().iter().filter(|sentinel| sentinel.is_running()).cloned().collect()
    }
}
