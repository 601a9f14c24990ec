pub use std::collections::BTreeMap;
pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use std::time::Duration;

pub use distlock::{
    Acquire, Backoff, Client, DistLock, Error, Flavour, Guard, Lost, MultiLock, Options, Owner, Prefer, RedLock,
    Released, Striped,
};
pub use distlock_sim::{Chaos, LinkOptions, Mishap, SimCluster, SimLink, SimReply, SimServer};
pub use distlock_support::Numbers;
pub use parking_lot::Mutex;
pub use tokio::task::{JoinHandle, JoinSet};
pub use tokio::time::{Instant, advance, sleep, sleep_until, timeout, timeout_at};

pub(crate) use crate::rig;
pub use crate::rig::*;
