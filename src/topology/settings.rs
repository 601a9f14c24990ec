//! Settings of a client with several servers.

use std::time::Duration;

use super::acknowledgement::AckRule;
use super::address::Address;
use crate::config::{Options, Sharded};
use crate::runtime::reaper::Reaper;

pub(crate) struct Settings {
    /// The servers that the URL names.
    pub(crate) seeds: Vec<Address>,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) scan_interval: Duration,
    pub(crate) sharded: Sharded,
    /// True if a renewal counts only if most sentinels confirmed the primary within the last lease of the watchdog.
    pub(crate) confirm_primary: bool,
    pub(crate) acks: AckRule,
    /// Options for calls that share commands, and the reaper that runs the shared commands. `None` if calls share
    /// none.
    pub(crate) coalesce: Option<(Options, Reaper)>,
}

impl Settings {
    pub(crate) fn new(seeds: Vec<Address>, options: &Options, reaper: &Reaper) -> Self {
        Self {
            seeds,
            command_timeout: options.command_timeout,
            connect_timeout: options.connect_timeout,
            scan_interval: if options.confirm_primary {
                options.scan_interval.min(options.watchdog / 6)
            } else {
                options.scan_interval
            },
            confirm_primary: options.confirm_primary,
            sharded: options.sharded,
            acks: AckRule::of_several(options),
            coalesce: options.coalesce.then(|| (options.clone(), reaper.clone())),
        }
    }
}
