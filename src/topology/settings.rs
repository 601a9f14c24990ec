//! Settings of a client with several servers.

use std::time::Duration;

use super::acknowledgement::AckRule;
use super::address::Address;
use crate::config::{CLUSTER_SCAN_INTERVAL, Options, Sharded};
use crate::runtime::reaper::Reaper;

pub(crate) struct Settings {
    /// The servers that the URL names.
    pub(crate) seeds: Vec<Address>,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) scan_interval: Duration,
    pub(crate) sharded: Sharded,
    /// If true, a renewed lease starts no later than the latest confirmation of the primary by most sentinels.
    pub(crate) confirm_primary: bool,
    pub(crate) acks: AckRule,
    /// Options for batches of calls, and the reaper that runs the batches. `None` if calls are not batched.
    pub(crate) coalesce: Option<(Options, Reaper)>,
}

impl Settings {
    pub(crate) fn new(seeds: Vec<Address>, options: &Options, reaper: &Reaper) -> Self {
        let scan_interval = options.scan_interval.unwrap_or(CLUSTER_SCAN_INTERVAL);
        Self {
            seeds,
            command_timeout: options.command_timeout,
            connect_timeout: options.connect_timeout,
            scan_interval: if options.confirm_primary {
                scan_interval.min(options.watchdog / 6)
            } else {
                scan_interval
            },
            confirm_primary: options.confirm_primary,
            sharded: options.sharded,
            acks: AckRule::of_several(options),
            coalesce: options.batching.then(|| (options.clone(), reaper.clone())),
        }
    }
}
