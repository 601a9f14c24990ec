//! Distributed locks over Redis or Valkey. They are the locks of Java's Redisson, with the same keys and messages:
//! Rust and Java services exclude and wake each other.
//!
//! ```no_run
//! use distlock::Client;
//!
//! #[tokio::main]
//! async fn main() -> distlock::Result<()> {
//!     let client = Client::connect("redis://127.0.0.1:6379").await?;
//!     let lock = client.reentrant("orders:42");
//!
//!     let guard = lock.lock().await?; // waits; renewed in the background while the guard lives
//!     // ... what must not happen twice at a time ...
//!     guard.unlock().await?; // or drop it: released in the background
//!     Ok(())
//! }
//! ```
//!
//! # Which flavour for what
//!
//! | you need | flavour |
//! |---|---|
//! | one holder at a time | [reentrant](mod@reentrant) |
//! | turns in order of arrival, over all processes | [fair](mod@fair) |
//! | many readers or one writer | [read, write](mod@rwlock) |
//! | a number that the storage can check | [fenced](mod@fenced) |
//! | no messages, many short holds | [spin](mod@spin) |
//! | one holder at a time, also of other languages' libraries | [plain](mod@plain) |
//! | several names at once, all or none | [multi](mod@multi) |
//! | a majority of independent servers | [RedLock](mod@redlock) |
//! | one hot resource, cut into parts | [striped](mod@striped) |
//! | at most n holders at a time | [permits](mod@permits) |
//! | permits that one process takes and another returns | [semaphore](mod@semaphore) |
//! | waiting until n events have happened | [latch](mod@latch) |
//! | n parties that wait for each other | [barrier](mod@barrier) |
//! | one leader at a time, and who it is | [lead](mod@lead) |
//!
//! [`Client::once`] runs a job on one of several replicas. [`Lock::with`] acquires, works and releases.
//!
//! # Safety in five sentences
//!
//! A lease has an end, after which another client may hold the lock, whatever the first holder is doing. A guard counts
//! its lease on a local clock that keeps running during suspend, and considers the lock lost before the server ends the
//! lease: [`is_held`](Guard::is_held) turns false, [`lost`](Guard::lost) completes, and [`run`](Guard::run) stops the
//! work. Mutual exclusion holds while the server keeps the key (no failover or restart that loses the key, no eviction,
//! no manual deletion), the server's clock does not step forward, and nobody hostile writes the keys. Redis replicates
//! asynchronously, so a failover may lose a lock that was just granted. If an action must never happen twice, let the
//! storage refuse the second one: by a fencing token, a unique key or a version check.
//!
//! # Where to read on
//!
//! - [`guide::start`]: start in five minutes. [`guide::choose`]: which flavour. [`guide::migrating`]: from Redisson.
//! - [`DistLock`]: what every lock can do, with the cost of each call. [`Guard`]: what a held lock can do.
//! - [`guide::permits`]: permits, semaphores, latches and barriers.
//! - [`guide::leader`], [`guide::jobs`]: leader election, and jobs that run once.
//! - `blocking` (feature `blocking`): the same API without async.
//! - [`Builder`], [`Options`]: how a client is configured. [`Error`]: what can go wrong.
//! - [`guide`]: guarantees, a page per mechanism, wire format, operation, performance, how to write a flavour.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod acquire;
pub mod barrier;
#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;
mod capabilities;
mod client;
mod config;
mod engine;
mod error;
pub mod fair;
pub mod fenced;
mod flavour;
mod group;
mod guard;
pub mod guide;
mod hash;
mod job;
pub mod latch;
pub mod lead;
mod lock;
mod methods;
pub mod multi;
mod names;
mod object;
mod owner;
pub mod permits;
pub mod plain;
#[cfg(feature = "redisson-yaml")]
mod redisson;
pub mod redlock;
pub mod reentrant;
mod runtime;
pub mod rwlock;
pub mod semaphore;
#[cfg(feature = "serde")]
mod settings;
pub mod spin;
mod state;
pub mod striped;
mod topology;
#[cfg(not(feature = "unstable-transport"))]
mod transport;
#[cfg(feature = "unstable-transport")]
pub mod transport;
mod with;
mod world;

use distlock_wire::slim;

pub use acquire::Acquire;
pub use barrier::{Barrier, BarrierWait};
pub use capabilities::Capabilities;
pub use client::{Builder, Client, Renewed, Stats};
pub use config::{Acks, Backoff, Credentials, Options, Prefer, Sharded, Tls};
pub use error::{Deadlock, Error, Lost, NotHeld, Origin, Result, Step};
pub use fair::{FairLock, Queue, Waiter};
pub use fenced::FencedLock;
pub use flavour::Flavour;
pub use guard::{Guard, Member};
pub use latch::Latch;
pub use lead::{Candidate, Leader, Observer, Term};
pub use lock::DistLock;
pub use multi::MultiLock;
pub use object::Lock;
pub use owner::Owner;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use permits::{Gated, Overloaded, PermitsLayer};
pub use permits::{HeldPermit, PermitCounts, PermitGuard, PermitId, Permits};
pub use plain::{PlainLock, PlainValue};
#[cfg(feature = "redisson-yaml")]
#[cfg_attr(docsrs, doc(cfg(feature = "redisson-yaml")))]
#[doc(inline)]
pub use redisson::{LeftOut, RedissonConfig, RedissonYaml};
pub use redlock::RedLock;
pub use reentrant::ReentrantLock;
pub use rwlock::{ReadLock, RwLock, WriteLock};
pub use semaphore::Semaphore;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use settings::Settings;
pub use spin::SpinLock;
pub use state::{Released, State};
pub use striped::Striped;
pub use topology::{ServerInfo, ServerRole, TopologyInfo, TopologyKind};

/// The README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The Chinese README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.zh-CN.md")]
pub struct ReadmeZhCn;
