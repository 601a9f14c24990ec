//! One party of a round: it arrives, looks, and leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;

use crate::config::millis;
use crate::engine::Engine;
use crate::engine::once::{Command, Once, exactly_once};
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::owner::Owner;
use crate::runtime::reaper::{Busy, Finished};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

/// The text of a script of barriers: the shared functions, then this file.
macro_rules! script {
    ($($front:literal,)? own $file:literal) => {
        concat!(
            $(include_str!(concat!("../../lua/", $front, ".lua")),)?
            include_str!("../../lua/barrier/rounds.lua"),
            include_str!(concat!("../../lua/barrier/", $file, ".lua")),
        )
    };
}

static ARRIVE: Script = Script::new("barrier/arrive", script!("common/once", own "arrive")).announcing();
static LEAVE: Script = Script::new("barrier/leave", script!("common/once", own "leave"));
static LOOK: Script = Script::new("barrier/look", script!(own "look")).announcing();
static COUNT: Script = Script::new("barrier/count", include_str!("../../lua/barrier/count.lua")).reading();

/// How a round ended for a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Released,
    Broken,
}

/// A party that has arrived. If it is dropped before [`Party::mark_ended`], it leaves the round in the background.
pub(super) struct Party {
    engine: Arc<Engine>,
    name: Arc<LockName>,
    owner: Owner,
    /// The reply of the arrival: 2 * round, and 1 more for the last party.
    arrival: u64,
    ended: AtomicBool,
    /// Makes a shutdown wait until this party has left. Dropped after the leave was queued.
    _busy: Busy,
}

impl Party {
    /// Arrives. Once begun, the arrival is completed. If the caller was dropped, the party leaves the round.
    pub(super) async fn arrive(engine: &Arc<Engine>, name: &Arc<LockName>, n: u32) -> Result<Self> {
        engine.check(name)?;
        engine.check_open()?;
        let (engine, name) = (Arc::clone(engine), Arc::clone(name));
        let reaper = engine.reaper.clone();
        let arriving = async move {
            let owner = engine.owner();
            loop {
                // None: this arrival found a dead party and ended its round. Arrive again.
                if let Some(arrival) = arrive_once(&engine, &name, &owner, n).await? {
                    let ended = AtomicBool::new(arrival % 2 == 1);
                    let busy = engine.reaper.busy();
                    return Ok(Self { engine, name, owner, arrival, ended, _busy: busy });
                }
            }
        };
        Finished::new(&reaper, arriving).await
    }

    pub(super) const fn round(&self) -> u64 {
        self.arrival / 2
    }

    pub(super) const fn is_last(&self) -> bool {
        self.arrival % 2 == 1
    }

    /// Asks whether the round has ended. If not (`None`), renews the lease.
    pub(super) fn look(self: &Arc<Self>) -> BoxFuture<'static, Result<Option<End>>> {
        let party = Arc::clone(self);
        Box::pin(async move {
            let Self { engine, name, owner, .. } = &*party;
            let round = Arg::Int(i64::try_from(party.round()).unwrap_or(i64::MAX));
            let mut words = vec![Arg::Text(name.key.clone()), Arg::Text(name.parties()), Arg::Text(owner.bytes())];
            words.extend([round, Arg::Int(millis(engine.options.watchdog))]);
            words.extend([engine.topology.publish(), name.channel.clone()].map(Arg::Text));
            match engine.run(name, Call { script: &LOOK, keys: 2, words }).await? {
                Reply::Int(0) => Ok(None),
                Reply::Int(1) => Ok(Some(End::Released)),
                Reply::Int(2) => Ok(Some(End::Broken)),
                odd => Err(Error::odd_reply(LOOK.name, &odd)),
            }
        })
    }

    /// Leaves the round. Returns false if the round has ended.
    pub(super) async fn leave(&self) -> Result<bool> {
        let (engine, name, owner) = (Arc::clone(&self.engine), Arc::clone(&self.name), self.owner.clone());
        let reaper = engine.reaper.clone();
        let leaving =
            async move { Ok(exactly_once(&engine, &name, leave(&name, &owner), None, engine.patience()).await? == 1) };
        Finished::new(&reaper, leaving).await
    }

    /// After this call, dropping the party sends nothing.
    pub(super) fn mark_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Relaxed) {
            let once = Once::new(&self.engine, &self.name);
            self.engine.reaper.finish(Box::pin(once.finish(leave(&self.name, &self.owner))));
        }
    }
}

/// Sends one arrival. Returns its reply, or `None` if the party must arrive again. If the outcome is unknown, the party
/// leaves in the background.
async fn arrive_once(engine: &Arc<Engine>, name: &Arc<LockName>, owner: &Owner, n: u32) -> Result<Option<u64>> {
    let lease = millis(engine.options.watchdog);
    let mut arrive = Command::new(&ARRIVE, [Arg::Text(owner.bytes()), Arg::Int(n.into()), Arg::Int(lease)]);
    arrive.keys.push(name.parties());
    let undo = Some(leave(name, owner));
    Ok(u64::try_from(exactly_once(engine, name, arrive, undo, engine.patience()).await?).ok())
}

fn leave(name: &LockName, owner: &Owner) -> Command {
    let mut leave = Command::new(&LEAVE, [Arg::Text(owner.bytes())]);
    leave.keys.push(name.parties());
    leave
}

/// Returns the number of waiting parties of the current round.
pub(super) async fn waiting(engine: &Arc<Engine>, name: &Arc<LockName>) -> Result<u64> {
    let call = Call { script: &COUNT, keys: 1, words: vec![Arg::Text(name.parties())] };
    match engine.ask(name, call).await? {
        Reply::Int(count @ 0..) => Ok(count.unsigned_abs()),
        odd => Err(Error::odd_reply(COUNT.name, &odd).about(&name.as_written)),
    }
}
