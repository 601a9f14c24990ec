//! Acknowledgement by the replicas of one server: the rule of [`Acks`], and the replica counts that the rule needs.
//!
//! 1. `concerns` tells whether a call needs acknowledgement.
//! 2. `how` returns how many replicas to wait for. If needed, `how` queries the server for its replicas (`INFO
//!    replication`).
//! 3. The transport sends the call with a `WAIT` behind it, and reports how many replicas acknowledged.
//! 4. `judge` decides whether that number is enough.
//!
//! A script that leaves its owner with the lock always writes, even if the lease stays the same. Reason: `WAIT` counts
//! the replicas that have the last write of its own connection. From Redis 7.2 on, a `WAIT` after a script that wrote
//! nothing counted even a frozen replica. A replica that has the write also has all earlier writes of any client,
//! because the replication stream is ordered.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::role::{Replication, replication};
use crate::config::{Acks, Options};
use crate::error::{Error, Result};
use crate::transport::script::Script;
use crate::transport::{Acknowledge, Arg, Call, Fault, FaultKind, Transport};
use crate::world::Moment;

#[cfg(test)]
mod tests;

static WAIT: Script = Script::bare("acks/wait", "WAIT");

/// Under [`Acks::Redisson`], calls to a server without replicas skip acknowledgement for this long. Under
/// [`Acks::All`], a server is queried for its replicas again after this long.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The acknowledgement rule of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckRule {
    acks: Acks,
    within: Duration,
    /// True if the topology reports the replicas of a server. If false, only the server itself reports them.
    is_told: bool,
}

impl AckRule {
    /// Rule for a single server, where [`Acks::Redisson`] means [`Acks::Off`].
    pub(crate) fn single(options: &Options) -> Self {
        let acks = if options.acks == Acks::Redisson { Acks::Off } else { options.acks };
        Self { acks, within: options.acknowledged_within(), is_told: false }
    }

    /// Rule for servers whose replicas the topology knows.
    pub(crate) fn of_several(options: &Options) -> Self {
        Self { acks: options.acks, within: options.acknowledged_within(), is_told: true }
    }

    pub(crate) const fn off() -> Self {
        Self { acks: Acks::Off, within: Duration::ZERO, is_told: true }
    }

    pub(crate) const fn is_strict(self) -> bool {
        self.acks.is_strict()
    }

    /// True if all replicas must acknowledge, so that their number must be known.
    pub(super) fn is_all(self) -> bool {
        self.acks == Acks::All
    }
}

#[derive(Debug)]
pub(crate) struct Acknowledgement {
    rule: AckRule,
    /// Number of replicas that the topology reports, including unreachable replicas.
    told: AtomicUsize,
    /// Number of replicas in the server's last report. Under [`Acks::Redisson`], this counts replicas that are up to
    /// date. Under [`Acks::All`], it counts connected replicas. On a single server, it is the largest number seen.
    connected: AtomicUsize,
    /// Start of the last answered query for replicas, in ns of the local clock; 0 = none was answered.
    asked: AtomicU64,
    /// Under [`Acks::Redisson`], the server counts as having no replicas until this moment, in ns of the local clock.
    none_until: AtomicU64,
    /// True if acknowledgement is not possible at this server. Set only if the rule is not strict.
    is_off: AtomicBool,
    /// Number of calls that wait for replicas now. `wanted` is the number of replicas that the latest of them waits
    /// for.
    waiting: AtomicUsize,
    wanted: AtomicUsize,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Acknowledgement {
    pub(super) const fn new(rule: AckRule) -> Self {
        Self {
            rule,
            told: AtomicUsize::new(0),
            connected: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            none_until: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
        }
    }

    /// Awaits `acknowledged`. Meanwhile the call counts as waiting for `wanted` replicas.
    pub(super) async fn waiting<T>(&self, wanted: usize, acknowledged: impl Future<Output = T>) -> T {
        self.wanted.store(wanted, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        acknowledged.await
    }

    /// Number of replicas that calls wait for now; 0 if no call waits.
    pub(super) fn awaited(&self) -> usize {
        if self.waiting.load(Ordering::Relaxed) == 0 { 0 } else { self.wanted.load(Ordering::Relaxed).max(1) }
    }

    /// Sets the number of replicas that the topology reports.
    pub(crate) fn knows_of(&self, replicas: usize) {
        self.told.store(replicas, Ordering::Relaxed);
    }

    /// Like [`knows_of`](Self::knows_of), but the number never falls. For replicated setups.
    pub(super) fn has_seen(&self, replicas: usize) {
        self.told.fetch_max(replicas, Ordering::Relaxed);
    }

    pub(super) fn known(&self) -> usize {
        self.told.load(Ordering::Relaxed)
    }

    pub(super) fn concerns(&self, script: &Script, now: Moment) -> bool {
        script.gains.is_some()
            && match self.rule.acks {
                Acks::Off => false,
                // Without replicas, acknowledgement costs nothing, not even a connection.
                Acks::Redisson => self.told.load(Ordering::Relaxed) > 0,
                Acks::AtLeast(_) | Acks::All => true,
            }
            && !self.is_off.load(Ordering::Relaxed)
            && now.as_nanos() >= self.none_until.load(Ordering::Relaxed)
    }

    /// Returns how to acknowledge a call. `None` if the call needs no acknowledgement, or if acknowledgement is
    /// impossible and the rule is not strict.
    pub(super) async fn how(
        &self,
        transport: &dyn Transport,
        now: Moment,
        asking: bool,
    ) -> Result<Option<Acknowledge>, Fault> {
        if !transport.acknowledges() {
            let why = "replicas cannot be asked over this connection";
            return if self.rule.is_strict() { Err(unsupported(why)) } else { Ok(self.turn_off(transport, why)) };
        }
        let replicas = match self.rule.acks {
            Acks::Off => return Ok(None),
            Acks::Redisson if !self.has_replicas(transport, now).await? => return Ok(None),
            // Redisson waits for all connected replicas, but accepts a single acknowledgement. Waiting for all would
            // cost every acquire the full timeout while one replica is frozen.
            Acks::Redisson => 1,
            Acks::AtLeast(replicas) => replicas,
            Acks::All => self.all(transport, now).await?,
        };
        Ok(Some(Acknowledge { replicas, within: self.rule.within, asking }))
    }

    /// Returns whether any replica is known to be up to date. Without such a replica, [`Acks::Redisson`] skips `WAIT`,
    /// which would take the full timeout.
    async fn has_replicas(&self, transport: &dyn Transport, now: Moment) -> Result<bool, Fault> {
        if self.connected.load(Ordering::Relaxed) > 0 {
            return Ok(true);
        }
        if self.asked.load(Ordering::Relaxed) != 0 {
            // The server had no replica, so other calls skip acknowledgement during this query. Before the first
            // answer, every call must query the server.
            self.none_until.store((now + KNOWN_FOR).as_nanos(), Ordering::Relaxed);
        }
        match told(transport).await {
            // A replica that is still catching up cannot acknowledge.
            Ok(Replication { online, .. }) => {
                self.note(online, now);
                Ok(online > 0)
            }
            // The login may not run `INFO`, so the number of replicas cannot be known.
            Err(fault) if fault.kind == FaultKind::Refused => {
                self.turn_off(transport, &fault.message);
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Notes the number of up-to-date replicas, for [`Acks::Redisson`].
    fn note(&self, online: usize, now: Moment) {
        self.connected.store(online, Ordering::Relaxed);
        self.asked.store(now.as_nanos().max(1), Ordering::Relaxed);
        let none_until = if online == 0 { (now + KNOWN_FOR).as_nanos() } else { 0 };
        self.none_until.store(none_until, Ordering::Relaxed);
    }

    /// Number of all replicas, including unreachable replicas. The server itself is queried too, because the topology
    /// may not know the replicas of a server that was just promoted.
    async fn all(&self, transport: &dyn Transport, now: Moment) -> Result<usize, Fault> {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked == 0 || now.since(Moment::from_nanos(asked)) >= KNOWN_FOR {
            let connected = told(transport).await?.connected;
            if self.rule.is_told {
                self.connected.store(connected, Ordering::Relaxed);
            } else {
                self.connected.fetch_max(connected, Ordering::Relaxed);
            }
            self.asked.store(now.as_nanos().max(1), Ordering::Relaxed);
        }
        Ok(self.told.load(Ordering::Relaxed).max(self.connected.load(Ordering::Relaxed)).max(1))
    }

    /// Decides whether enough replicas have acknowledged. `outcome` is the number of replicas that have acknowledged,
    /// or the reason why it is unknown.
    pub(super) async fn judge(
        &self,
        transport: &dyn Transport,
        wanted: usize,
        outcome: Result<usize, Fault>,
        now: Moment,
    ) -> Result<(), Fault> {
        let got = match outcome {
            Ok(got) => got,
            Err(fault) if fault.kind == FaultKind::Refused && is_unsupported(&fault.message) => {
                if !self.rule.is_strict() {
                    self.turn_off(transport, &fault.message);
                    return Ok(());
                }
                return Err(too_few(0, wanted, &fault.message));
            }
            // A demoted server refuses `WAIT`, as every replica does.
            Err(fault) if fault.kind == FaultKind::Refused => return Err(too_few(0, wanted, &fault.message)),
            Err(fault) => return Err(fault),
        };
        if !self.rule.is_told {
            self.connected.fetch_max(got, Ordering::Relaxed);
        }
        if got >= wanted {
            return Ok(());
        }
        if self.rule.acks == Acks::Redisson {
            match told(transport).await {
                Ok(Replication { online: 0, .. }) => {
                    self.note(0, now);
                    return Ok(());
                }
                Err(fault) if fault.kind == FaultKind::Refused => {
                    self.turn_off(transport, &fault.message);
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(too_few(got, wanted, "WAIT"))
    }

    fn turn_off(&self, transport: &dyn Transport, why: &str) -> Option<Acknowledge> {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = transport.address(),
                why,
                "replicas cannot be asked for acknowledgement: nothing is acknowledged here"
            );
        }
        None
    }

    /// Checks at connect whether the server can do what the rule demands. Changes nothing.
    pub(super) async fn check(&self, transport: &dyn Transport) -> Result<()> {
        if !self.rule.is_strict() {
            return Ok(());
        }
        self.check_connection(transport)?;
        let words = vec![Arg::Int(0), Arg::Int(0)];
        match transport.run(Call { script: &WAIT, keys: 0, words }).await {
            Err(fault) if fault.kind == FaultKind::Refused && is_unsupported(&fault.message) => {
                return Err(cannot(transport, &fault.message));
            }
            // Other failures do not matter here, because every call checks again.
            _ => {}
        }
        match self.rule.acks {
            Acks::All => match told(transport).await {
                Err(fault) if fault.kind == FaultKind::Refused => Err(cannot(transport, &fault.message)),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Like [`check`](Self::check), but sends nothing to the server.
    pub(super) fn check_connection(&self, transport: &dyn Transport) -> Result<()> {
        if self.rule.is_strict() && !transport.acknowledges() {
            return Err(cannot(transport, "replicas cannot be asked over this connection"));
        }
        Ok(())
    }
}

fn cannot(transport: &dyn Transport, why: &str) -> Error {
    let what = format!(
        "{}: replicas cannot acknowledge here ({why}): use Acks::Redisson or Acks::Off, or connect to the server itself",
        transport.address()
    );
    Error::Unsupported { what }
}

fn unsupported(why: &str) -> Fault {
    Fault::new(FaultKind::NotSent, why)
}

fn too_few(got: usize, wanted: usize, why: &str) -> Fault {
    let message = format!("{got} replicas of {wanted} have acknowledged it: {why}");
    Fault::new(FaultKind::Unacknowledged { got, wanted }, message)
}

/// True if the server, or a proxy in front of it, does not support `WAIT`, or if the login may not use `WAIT`.
fn is_unsupported(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    error.starts_with("noperm")
        || ["unknown command", "unsupported", "not supported", "not allowed", "not implemented"]
            .iter()
            .any(|text| error.contains(text))
}

async fn told(transport: &dyn Transport) -> Result<Replication, Fault> {
    transport.run(replication()).await.map(|reply| Replication::of(&reply))
}
