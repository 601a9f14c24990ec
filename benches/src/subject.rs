//! The subjects: clients that stay connected, and their locks of one kind.

mod ours;
mod tickets;

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use distlock_support::peer::Library;
use distributed_lock_redis::RedisLockProvider;
use futures::future::join_all;
use serde::{Deserialize, Serialize};

use crate::drive::{self, Kind, Plan, Sample};
use crate::raw::Raw;
use ours::Made;
use tickets::Tickets;

/// The lease for libraries that need one. It is the default of distlock and Redisson.
pub const LEASE: Duration = Duration::from_secs(30);

/// The library that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    Distlock,
    Raw,
    Redisson,
    Rslock,
    Rlock,
    /// Plain locks only.
    Redsync,
    /// Plain locks only.
    Redlock,
    /// Plain locks only.
    #[value(name = "redis-py")]
    RedisPy,
    /// The crate `distributed-lock-redis`. Permits only.
    #[value(name = "distributed-lock")]
    DistributedLock,
    /// Our reentrant lock, for comparison when `Distlock` is another of our locks. Not selectable.
    #[value(skip)]
    Reentrant,
    /// Like `Distlock`, but over its own connections instead of fred's. Not selectable.
    #[value(skip)]
    Direct,
}

impl Who {
    pub const ALL: [Self; 9] = [
        Self::Distlock,
        Self::Raw,
        Self::Redisson,
        Self::Rslock,
        Self::Rlock,
        Self::Redsync,
        Self::Redlock,
        Self::RedisPy,
        Self::DistributedLock,
    ];

    /// Returns the library of another language, whose process knows plain locks only.
    pub const fn peer(self) -> Option<Library> {
        match self {
            Self::Redsync => Some(Library::Redsync),
            Self::Redlock => Some(Library::Redlock),
            Self::RedisPy => Some(Library::RedisPy),
            _ => None,
        }
    }

    /// Returns whether the library takes part in the benches of the reentrant lock.
    pub const fn has_locks(self) -> bool {
        self.peer().is_none() && !matches!(self, Self::DistributedLock)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Distlock => "distlock",
            Self::Raw => "raw",
            Self::Redisson => "redisson",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::Redsync => "redsync",
            Self::Redlock => "redlock",
            Self::RedisPy => "redis-py",
            Self::DistributedLock => "distributed-lock",
            Self::Reentrant => "reentrant",
            Self::Direct => "direct",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Reentrant, Self::Direct]).find(|who| who.name() == name)
    }
}

/// A connected client.
pub trait Subject: Send + Sync + 'static {
    type Lock: Lock;

    /// Makes a lock of this name. Sends nothing.
    fn lock(&self, name: String) -> Self::Lock;
}

/// A lock that one task uses.
pub trait Lock: Send + 'static {
    type Guard: Send;

    fn acquire(&mut self) -> impl Future<Output = Self::Guard> + Send;
    fn release(&mut self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}

impl Subject for rslock::LockManager {
    type Lock = (Self, String);

    fn lock(&self, name: String) -> Self::Lock {
        (self.clone(), name)
    }
}

impl Lock for (rslock::LockManager, String) {
    type Guard = rslock::LockGuard;

    async fn acquire(&mut self) -> Self::Guard {
        self.0.acquire(self.1.as_str(), LEASE).await.unwrap_or_else(|error| panic!("rslock: {error}"))
    }

    async fn release(&mut self, guard: Self::Guard) {
        guard.release().await;
    }
}

/// rlock renews its locks by itself. Its poll interval is the default.
#[derive(Clone)]
pub struct Rlock {
    client: rlock::async_lock::RLock,
    options: rlock::AcquireOptions,
}

impl Subject for Rlock {
    type Lock = (Self, String);

    fn lock(&self, name: String) -> Self::Lock {
        (self.clone(), name)
    }
}

impl Lock for (Rlock, String) {
    type Guard = rlock::async_lock::RLockGuard;

    async fn acquire(&mut self) -> Self::Guard {
        let options = self.0.options.clone();
        let taken = self.0.client.acquire_mutex_with_options(&self.1, options).await;
        taken.unwrap_or_else(|error| panic!("rlock: acquire: {error}"))
    }

    async fn release(&mut self, mut guard: Self::Guard) {
        guard.release().await.unwrap_or_else(|error| panic!("rlock: release: {error}"));
    }
}

/// A client of any of the Rust libraries.
pub enum Any {
    Distlock(distlock::Client),
    /// One client per server.
    Red(Vec<distlock::Client>),
    Raw(Raw),
    Rslock(rslock::LockManager),
    Rlock(Rlock),
    Tickets(Arc<RedisLockProvider>),
}

impl Any {
    /// Connects, and completes one round trip. With several URLs (commas between), a lock on one server uses the
    /// first.
    pub async fn connect(who: Who, url: &str, pool: usize) -> Self {
        let client = async |url: &str| {
            let client = distlock::Client::builder(url)
                .pool_size(pool)
                .configure(|options| options.use_fred = who != Who::Direct)
                .connect()
                .await;
            client.unwrap_or_else(|error| panic!("distlock: {error}"))
        };
        match who {
            Who::Distlock if url.contains(',') => Self::Red(join_all(url.split(',').map(client)).await),
            Who::Distlock | Who::Reentrant | Who::Direct => {
                Self::Distlock(client(url.split(',').next().unwrap_or(url)).await)
            }
            Who::Raw => Self::Raw(Raw::connect(url, pool).await),
            Who::Rslock => Self::Rslock(rslock::LockManager::new(vec![url])),
            Who::Rlock => {
                let client = rlock::async_lock::RLock::new(url).await;
                let options = rlock::AcquireOptions::builder().ttl(LEASE).build();
                Self::Rlock(Rlock {
                    client: client.unwrap_or_else(|error| panic!("rlock: {error}")),
                    options: options.unwrap_or_else(|error| panic!("rlock: {error}")),
                })
            }
            Who::DistributedLock => Self::Tickets(tickets::connect(url).await),
            Who::Redisson | Who::Redsync | Who::Redlock | Who::RedisPy => {
                unreachable!("{} is driven through its agent", who.name())
            }
        }
    }

    pub async fn run(&self, plan: &Plan) -> Sample {
        match self {
            Self::Distlock(client) => ours::run(client, plan).await,
            Self::Red(clients) => {
                assert!(
                    matches!(plan.kind, Kind::Red(servers) if servers == clients.len()),
                    "a client for each server"
                );
                let clients = clients.clone();
                let make = move |name: &str, _| Arc::new(distlock::RedLock::new(clients.clone(), name)) as _;
                drive::run(&Made(make), plan).await
            }
            Self::Tickets(provider) => {
                let Kind::Permits(permits) = plan.kind else { panic!("only permits here") };
                drive::run(&Tickets(Arc::clone(provider), permits), plan).await
            }
            Self::Raw(_) if plan.kind == Kind::Plain => panic!("its commands are a reentrant lock's"),
            _ if !matches!(plan.kind, Kind::Reentrant | Kind::Plain) => panic!("only simple locks here"),
            Self::Raw(client) => drive::run(client, plan).await,
            Self::Rslock(client) => drive::run(client, plan).await,
            Self::Rlock(client) => drive::run(client, plan).await,
        }
    }

    pub async fn close(self) {
        match self {
            Self::Distlock(client) => {
                client.shutdown(Duration::from_secs(60)).await.unwrap_or_else(|error| panic!("distlock: {error}"));
            }
            Self::Red(clients) => {
                for client in clients {
                    // The server may be down.
                    let _ = client.shutdown(Duration::from_secs(2)).await;
                }
            }
            Self::Raw(client) => client.close().await,
            Self::Rslock(client) => drop(client),
            Self::Rlock(rlock) => rlock.client.shutdown().await,
            Self::Tickets(provider) => drop(provider),
        }
    }
}
