//! Distributed locks over Redis or Valkey: the lock family of Java's Redisson, on the same keys and messages, so that
//! Rust and Java services exclude and wake one another.
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
//! | you need | flavour | state |
//! |---|---|---|
//! | one holder at a time | [reentrant](mod@reentrant) | here |
//! | turns in order of arrival, over all processes | [fair](mod@fair) | here |
//! | many readers or one writer | [read, write](mod@rwlock) | here |
//! | a number that the storage can check | [fenced](mod@fenced) | here |
//! | no messages, many short holds | [spin](mod@spin) | here |
//! | one holder at a time, also of other languages' libraries | [plain](mod@plain) | here |
//! | several names at once, all or none | [multi](mod@multi) | here |
//! | a majority of independent servers | [RedLock](mod@redlock) | here |
//! | one hot resource, cut into parts | [striped](mod@striped) | here |
//! | at most n holders; waiting for n events | semaphores, latch | planned |
//!
//! # Safety in five sentences
//!
//! A lease is a promise with an end: when it ends, somebody else may hold the lock, whatever the first holder is doing.
//! A guard knows its end by a local clock that goes on during suspend, and says [`is_held`](Guard::is_held) until then
//! and not longer; [`run`](Guard::run) stops the work, and [`lost`](Guard::lost) tells, before the server's lease ends.
//! Mutual exclusion holds as long as the server keeps the key (no failover or restart that loses it, no eviction, no
//! deletion by hand), its clock does not step forward, and nobody hostile writes the keys.
//! Redis replicates asynchronously, so a failover may lose a lock that was just taken.
//! What must never happen twice has to be refused where it happens: by a fencing token, a unique key, a version check.
//!
//! # Where to read on
//!
//! - [`DistLock`]: what every lock can do, with the cost of each call. [`Guard`]: what a held lock can do.
//! - [`Builder`]: the options. [`Error`]: what can go wrong.
//! - [`guide`]: guarantees, a page per mechanism, wire format, operation, performance, writing a flavour.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod acquire;
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
mod lock;
pub mod multi;
mod names;
mod object;
mod owner;
pub mod plain;
#[cfg(feature = "config")]
mod redisson;
pub mod redlock;
pub mod reentrant;
mod runtime;
pub mod rwlock;
#[cfg(feature = "serde")]
mod settings;
mod slim;
pub mod spin;
mod state;
pub mod striped;
mod topology;
#[cfg(not(feature = "unstable-transport"))]
mod transport;
#[cfg(feature = "unstable-transport")]
pub mod transport;
mod world;

pub use acquire::Acquire;
pub use capabilities::Capabilities;
pub use client::{Builder, Client, Renewed, Stats};
pub use config::{Acks, Backoff, Credentials, Options, Prefer, Sharded, Tls};
pub use error::{Deadlock, Error, Lost, NotHeld, Origin, Result, Step};
pub use fair::{FairLock, Queue, Waiter};
pub use fenced::FencedLock;
pub use flavour::Flavour;
pub use guard::{Guard, Member};
pub use lock::DistLock;
pub use multi::MultiLock;
pub use object::Lock;
pub use owner::Owner;
pub use plain::{PlainLock, PlainValue};
#[cfg(feature = "config")]
#[cfg_attr(docsrs, doc(cfg(feature = "config")))]
pub use redisson::{LeftOut, RedissonConfig, RedissonYaml};
pub use redlock::RedLock;
pub use reentrant::ReentrantLock;
pub use rwlock::{ReadLock, RwLock, WriteLock};
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
