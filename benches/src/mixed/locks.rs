//! Our locks, and the request that starts the loops of a process.

use std::sync::Arc;

use distlock::{Client, DistLock};
use serde::{Deserialize, Serialize};

use crate::args::Flavour;

/// The request of one loop, for a process of either language. Times are on the monotonic clock, in ns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The Java agent's operation.
    pub op: String,
    pub flavour: Flavour,
    pub name: String,
    /// The names of a multi lock; otherwise empty.
    pub names: Vec<String>,
    pub threads: u64,
    pub reads: u8,
    pub seed: u64,
    /// The longest hold.
    pub hold_us: u64,
    pub from: u64,
    pub to: u64,
    /// The file for events. Empty: nothing is recorded.
    pub file: String,
}

impl Job {
    /// Returns the names of a multi lock, all in one slot.
    pub fn names_of(flavour: Flavour, name: &str) -> Vec<String> {
        let count = if flavour == Flavour::Multi { 3 } else { 0 };
        (0..count).map(|number| format!("{{{name}}}:{number}")).collect()
    }
}

/// The locks of one worker.
pub struct Locks {
    /// Present for read-write locks only.
    pub read: Option<Arc<dyn DistLock>>,
    /// The write lock of read-write locks.
    pub exclusive: Arc<dyn DistLock>,
}

impl Locks {
    pub fn of(client: &Client, job: &Job) -> Self {
        let name = job.name.as_str();
        let exclusive: Arc<dyn DistLock> = match job.flavour {
            Flavour::Fair => Arc::new(client.fair(name)),
            Flavour::Rw => Arc::new(client.rw(name).write()),
            Flavour::Reentrant => Arc::new(client.reentrant(name)),
            Flavour::Fenced => Arc::new(client.fenced(name)),
            Flavour::Spin => Arc::new(client.spin(name)),
            Flavour::Multi => Arc::new(client.multi(&job.names)),
        };
        let read = (job.flavour == Flavour::Rw).then(|| Arc::new(client.rw(name).read()) as Arc<dyn DistLock>);
        Self { read, exclusive }
    }
}
