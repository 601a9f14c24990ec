//! The renewal scheduler: keeps the leases of watched holds running, in batches, all in flight together.
//!
//! A round goes out every third of the watchdog, and at once when a connection comes back. Errors are retried at a
//! tenth of that until the lease's own end; one bad entry never stops the others.

use std::ops::AddAssign;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Engine;
use super::hold::{Hold, valid_until};
use super::ledger::Entry as _;
use super::protocol::Renewed;
use crate::config::millis;
use crate::error::Error;
use crate::owner::Owner;
use crate::topology::MemberId;
use crate::transport::Reply;

/// How a round went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) renewed: usize,
    pub(crate) failed: usize,
    pub(crate) lost: usize,
}

impl AddAssign for Round {
    fn add_assign(&mut self, part: Self) {
        self.renewed += part.renewed;
        self.failed += part.failed;
        self.lost += part.lost;
    }
}

/// Which holds a round renews, of those that the watchdog keeps. A regular one looks after long explicit leases too, where
/// others may cut them short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    All,
    /// Those at these servers.
    At(&'a [MemberId]),
    /// Those that were not renewed a moment ago.
    Due,
    /// Those with less left than a regular round leaves to any: locks that were passed on for a short first lease.
    Short,
}

/// Servers that are back after a break, and whose holds are to be confirmed at once.
#[derive(Debug, Default)]
pub(crate) struct Kick {
    members: Mutex<Vec<MemberId>>,
    notify: Notify,
}

impl Kick {
    /// Has the holds at this server renewed.
    pub(crate) fn renew_at(&self, member: MemberId) {
        let mut members = self.members.lock();
        if !members.contains(&member) {
            members.push(member);
        }
        drop(members);
        self.notify.notify_one();
    }

    async fn kicked(&self) -> Vec<MemberId> {
        self.notify.notified().await;
        std::mem::take(&mut *self.members.lock())
    }
}

/// Renews until the client closes. Holds the engine only while a round is under way.
pub(crate) async fn run(engine: Weak<Engine>, kick: Arc<Kick>, mut closing: watch::Receiver<bool>, watchdog: Duration) {
    let period = watchdog / 3;
    let mut due = Instant::now() + period;
    let (mut failed, mut regular) = (false, due);
    loop {
        let kicked = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            members = kick.kicked() => Some(members),
            () = tokio::time::sleep_until(due) => None,
        };
        let Some(engine) = engine.upgrade() else { return };
        // A round that repeats failures spares holds that were renewed a moment ago; a regular one spares none, so that a loss
        // is noticed within a period whenever it happens, and is due once a period whatever fails meanwhile.
        let which = match &kicked {
            Some(members) if !engine.topology.is_all(members) => Which::At(members),
            None if failed && Instant::now() < regular => Which::Due,
            _ => Which::All,
        };
        if which == Which::All {
            regular = Instant::now() + period;
        }
        let round = round(&engine, which).await;
        let of_some = matches!(which, Which::At(_));
        if of_some && round.failed == 0 {
            // The round of the other servers comes when it would have come.
            continue;
        }
        failed = round.failed > 0;
        let mut pause = if failed { (period / 10).max(Duration::from_millis(20)) } else { period };
        // Clients that started together shall not renew together for ever.
        pause -= engine.jitter(pause) / 20;
        let next = Instant::now() + pause;
        due = if of_some { due.min(next) } else { next };
    }
}

/// Renews watched holds.
pub(crate) async fn round(engine: &Arc<Engine>, which: Which<'_>) -> Round {
    let now = engine.now();
    let due = (now - engine.options.watchdog / 6).as_nanos();
    let short = (now + engine.options.watchdog / 2).as_nanos();
    let mut holds = engine.holds.collect(|book| match which {
        Which::All | Which::At(_) => book.is_watched() || book.lasts(short),
        Which::Due => book.is_watched() && book.renewed_at() <= due,
        Which::Short => book.is_watched() && book.watched() <= short,
    });
    let placement = |hold: &Hold| engine.topology.placement(hold.name());
    if let Which::At(members) = which {
        holds.retain(|hold| members.contains(&placement(hold).member));
    }
    let mut round = Round { lost: holds.iter().map(|hold| engine.expire(hold)).sum(), ..Round::default() };
    holds.retain(|hold| {
        let book = hold.book();
        book.is_watched() || hold.protocol.nature().leases_apart && !book.is_idle()
    });
    // A command renews holds of one kind at one server. Where each is, is read once: names may move meanwhile.
    let kind = |hold: &Hold| (placement(hold), std::ptr::from_ref(hold.protocol.nature().renewal) as usize);
    let mut placed: Vec<_> = holds.into_iter().map(|hold| (kind(&hold), hold)).collect();
    placed.sort_by_key(|(kind, _)| *kind);
    let (kinds, holds): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
    let mut batches = FuturesUnordered::new();
    let mut rest = &holds[..];
    for same in kinds.chunk_by(|a, b| a == b) {
        let (part, behind) = rest.split_at(same.len());
        rest = behind;
        for chunk in part.chunks(engine.options.watchdog_batch) {
            batches.push(batch(engine, chunk));
        }
    }
    while let Some(part) = batches.next().await {
        round += part;
    }
    super::metrics::renewed(round.renewed, round.failed);
    if round.failed > 0 {
        tracing::warn!(?round, "some locks could not be renewed yet");
    }
    round
}

async fn batch(engine: &Arc<Engine>, holds: &[Arc<Hold>]) -> Round {
    let part = send(engine, holds).await;
    let Err(error) = part else { return part.unwrap_or_default() };
    if holds.len() > 1 && error.crosses_slots() {
        // A cluster behind a proxy: names of several slots do not go together.
        let mut round = Round::default();
        let mut singles: FuturesUnordered<_> = holds.chunks(1).map(|single| send(engine, single)).collect();
        while let Some(part) = singles.next().await {
            round += part.unwrap_or(Round { failed: 1, ..Round::default() });
        }
        return round;
    }
    tracing::debug!(locks = holds.len(), %error, "a renewal failed");
    Round { failed: holds.len(), ..Round::default() }
}

async fn send(engine: &Arc<Engine>, holds: &[Arc<Hold>]) -> Result<Round, Error> {
    let Some(first) = holds.first() else { return Ok(Round::default()) };
    let watchdog = engine.options.watchdog;
    // What an answer of "not held" is about: by the time it comes some holds may have been released, and acquired anew.
    let asked: Vec<Asked> = holds.iter().map(|hold| Asked::of(hold)).collect();
    let each = holds.iter().zip(&asked).map(|(hold, asked)| Renewed {
        name: hold.name(),
        owner: &hold.owner,
        holds: asked.ids(engine, &hold.owner),
        extend: asked.watched,
    });
    let call = first.protocol.nature().renewal.call(millis(watchdog), 0, each);
    let sent = engine.now();
    let outcome = engine.topology.run_placed(first.name(), call).await;
    let (reply, asked_at) = outcome.map_err(|fault| fault.to_error(&first.name().as_written))?;
    let entries = match reply {
        Reply::List(entries) if entries.len() == holds.len() => entries,
        odd => return Err(Error::odd_reply(first.protocol.nature().renewal.script.name, &odd)),
    };
    let until = valid_until(sent, watchdog).as_nanos();
    let mut round = Round::default();
    for ((hold, asked), entry) in holds.iter().zip(asked).zip(entries) {
        let tenure = asked.tenure;
        if engine.topology.placement(hold.name()) != asked_at {
            // Neither a yes nor a no counts of a server that may have lost the name before it answered.
            round.failed += 1;
            continue;
        }
        let entry = match entry {
            // Somebody else gave back some of these holds.
            Reply::List(gone) => {
                round.lost += asked.lose(engine, hold, &at_positions(&asked.numbers, &gone));
                Reply::Int(1)
            }
            entry => entry,
        };
        match entry {
            Reply::Int(1) => {
                let mut book = hold.book();
                let now = engine.now().as_nanos();
                // The hold was released meanwhile, or has ended; or it was asked to be kept up only, and another guard is
                // watched by now.
                if !asked.watched || !book.is_watched() {
                    continue;
                }
                let in_time = book.renewed(now, sent.as_nanos(), until);
                drop(book);
                if in_time {
                    round.renewed += 1;
                    hold.changed.notify_waiters();
                } else {
                    round.lost += engine.expire(hold);
                }
            }
            Reply::Int(0) => round.lost += asked.all_gone(engine, hold),
            Reply::Text(text) if text.starts_with(b"WRONGTYPE") => {
                round.lost += engine.refuted(hold, tenure);
            }
            odd => {
                tracing::warn!(lock.name = %hold.name().as_written, reply = ?odd, "the server refused to renew this lock");
                round.failed += 1;
            }
        }
    }
    Ok(round)
}

/// What an answer is about: by then some of it may have been released, and acquired anew.
struct Asked {
    tenure: u32,
    watched: bool,
    /// The holds that are relied on.
    numbers: Vec<u64>,
    /// True when the command names them by their owner alone, which has no others.
    only: bool,
}

impl Asked {
    fn of(hold: &Hold) -> Self {
        let book = hold.book();
        let numbers: Vec<u64> = book.holds().collect();
        let only = !hold.owner.is_known() && numbers.iter().all(|number| *number == 0);
        Self { tenure: book.tenure(), watched: book.is_watched(), numbers, only }
    }

    fn ids(&self, engine: &Engine, owner: &Owner) -> Bytes {
        if self.only { Bytes::new() } else { engine.hold_ids(owner, &self.numbers) }
    }

    /// The server has none of them. What the owner has acquired since is another matter. How many guards that concerns.
    fn all_gone(&self, engine: &Arc<Engine>, hold: &Arc<Hold>) -> usize {
        self.lose(engine, hold, &self.numbers)
    }

    /// Ends those that the server says are gone. How many guards that concerns.
    fn lose(&self, engine: &Arc<Engine>, hold: &Arc<Hold>, gone: &[u64]) -> usize {
        if hold.book().tenure() != self.tenure {
            return 0;
        }
        engine.lose_holds(hold, gone)
    }
}

/// The entries of a list at these positions, counted from 1: so the answer to a renewal names the holds that are gone.
pub(crate) fn at_positions(numbers: &[u64], positions: &[Reply]) -> Vec<u64> {
    let at = |position: &Reply| match position {
        Reply::Int(position) => numbers.get(usize::try_from(*position).ok()?.checked_sub(1)?).copied(),
        _ => None,
    };
    positions.iter().filter_map(at).collect()
}
