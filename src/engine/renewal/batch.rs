//! A round at one server: builds commands for many holds of one kind each, and books their replies.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::{Placed, Round, Which};
use crate::config::millis;
use crate::engine::Engine;
use crate::engine::hold::{Hold, valid_until};
use crate::engine::ledger::Entry as _;
use crate::engine::metrics;
use crate::engine::protocol::{Renewal, Renewed};
use crate::error::Error;
use crate::owner::Owner;
use crate::transport::undeclared::{Undeclared, undeclared};
use crate::transport::{Call, FaultKind, Reply};
use crate::world::Moment;

/// Renews or confirms the holds of one server.
pub(super) async fn renew(engine: &Arc<Engine>, mut placed: Vec<Placed>, which: Which) -> Round {
    let mut round = Round { lost: placed.iter().map(|placed| engine.expire(&placed.hold)).sum(), ..Round::default() };
    placed.retain_mut(|Placed { hold, only_confirms, .. }| {
        let book = hold.book();
        // Explicit leases that others may cut short are renewed too.
        let keeps = book.is_watched() || hold.protocol.nature().leases_apart && !book.is_idle();
        *only_confirms = !keeps && which.confirms() && !book.is_idle();
        keeps || *only_confirms
    });
    // One command either renews or confirms holds of one kind.
    let kind = |placed: &Placed| (std::ptr::from_ref(renewal(placed)) as usize, placed.only_confirms);
    placed.sort_by_key(|placed| (kind(placed), placed.placement));
    let mut batches = FuturesUnordered::new();
    for same in placed.chunk_by(|a, b| kind(a) == kind(b)) {
        // A cluster server that accepts undeclared keys gets one command for several slots. Otherwise the holds of a
        // command have equal placements: one slot, or a server outside a cluster.
        let undeclared = same.first().and_then(|first| engine.topology.undeclared(first.placement));
        let undeclared = undeclared.filter(|_| !renewal(&same[0]).script.reaches_beyond);
        let is_together = |a: &Placed, b: &Placed| undeclared.is_some() || a.placement == b.placement;
        for together in same.chunk_by(is_together) {
            for chunk in together.chunks(engine.options.watchdog_batch) {
                batches.push(batch(engine, chunk, undeclared.clone()));
            }
        }
    }
    while let Some(part) = batches.next().await {
        round += part;
    }
    metrics::renewed(round.renewed, round.failed);
    warn(engine, &round);
    round
}

fn warn(engine: &Engine, round: &Round) {
    let Round { renewed, failed, lost, cause } = round;
    let cause = cause.as_deref().unwrap_or_default();
    if *failed > 0
        && let Some(left_out) = engine.warnings.due("renewal", cause)
    {
        tracing::warn!(renewed, failed, lost, cause, left_out, "some locks could not be renewed yet");
    }
}

fn renewal(placed: &Placed) -> &'static Renewal {
    placed.hold.protocol.nature().renewal
}

async fn batch(engine: &Arc<Engine>, placed: &[Placed], undeclared: Option<Arc<Undeclared>>) -> Round {
    let is_of_one_slot = placed.windows(2).all(|two| two[0].placement == two[1].placement);
    if let Some(undeclared) = undeclared.filter(|_| !is_of_one_slot) {
        return over_slots(engine, placed, &undeclared).await;
    }
    let part = of_one_slot(engine, placed).await;
    let Err(error) = part else { return part.unwrap_or_default() };
    if placed.len() > 1 && (error.crosses_slots() || error.is_of_half_moved_slot()) {
        // A proxy in front of a cluster refuses names of several slots in one command. A slot that is being moved has
        // its names on two servers. Either way, each hold needs its own command.
        return singly(engine, placed.chunks(1)).await;
    }
    failed(placed, &error)
}

fn failed(placed: &[Placed], error: &Error) -> Round {
    tracing::debug!(locks = placed.len(), %error, "a renewal failed");
    Round { failed: placed.len(), cause: Some(error.brief().into()), ..Round::default() }
}

/// Renews each part by its own command.
async fn singly<'a>(engine: &Arc<Engine>, parts: impl Iterator<Item = &'a [Placed]>) -> Round {
    let mut singles: FuturesUnordered<_> =
        parts.map(|part| async move { (part, of_one_slot(engine, part).await) }).collect();
    let mut round = Round::default();
    while let Some((part, outcome)) = singles.next().await {
        round += outcome.unwrap_or_else(|error| failed(part, &error));
    }
    round
}

/// Renews holds in several slots of one server by one command without declared keys. A lock that the server reports as
/// elsewhere or inaccessible is renewed alone, with declared keys: that reply says where the lock is.
async fn over_slots(engine: &Arc<Engine>, placed: &[Placed], knowledge: &Undeclared) -> Round {
    let asking = Asking::of(engine, placed);
    let outcome = engine.topology.run_at(placed[0].placement, undeclared(asking.call(engine))).await;
    let entries = match outcome {
        Ok(Reply::List(entries)) if entries.len() == placed.len() => entries,
        Err(fault) if matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere) => {
            return declared(engine, placed.iter().collect(), knowledge).await;
        }
        outcome => {
            let error = match outcome {
                Ok(odd) => Error::odd_reply(renewal(&placed[0]).script.name, &odd),
                Err(fault) => Error::of_fault(&fault, &placed[0].hold.name().as_written),
            };
            return failed(placed, &error);
        }
    };
    let mut round = Round::default();
    let (mut elsewhere, mut again) = (Vec::new(), Vec::new());
    let is_of_gone_alone = entries.contains(&Reply::Int(0));
    for ((placed, asked), entry) in placed.iter().zip(&asking.asked).zip(entries) {
        match entry {
            Reply::Text(text) if knowledge.is_elsewhere(&String::from_utf8_lossy(&text)) => elsewhere.push(placed),
            // A reply about a name that has moved counts for nothing: the server may have lost the name before it
            // replied.
            _ if engine.topology.placement(placed.hold.name()) != placed.placement => moved(engine, placed, &mut round),
            Reply::Nil if is_of_gone_alone => again.push(placed.clone()),
            entry => {
                knowledge.worked();
                asked.book_answer(engine, &placed.hold, entry, asking.sent, &mut round);
            }
        }
    }
    if !elsewhere.is_empty() {
        round += declared(engine, elsewhere, knowledge).await;
    }
    if !again.is_empty() {
        round += Box::pin(over_slots(engine, &again, knowledge)).await;
    }
    round
}

/// Renews holds that the server refused without declared keys. Each gets its own command, because its slot may be half
/// moved.
async fn declared(engine: &Arc<Engine>, refused: Vec<&Placed>, knowledge: &Undeclared) -> Round {
    let placement = |placed: &Placed| engine.topology.placement(placed.hold.name());
    let again: Vec<Placed> =
        refused.iter().map(|&placed| Placed { placement: placement(placed), ..placed.clone() }).collect();
    let round = singly(engine, again.chunks(1)).await;
    if round.renewed > 0 && refused.iter().all(|placed| placement(placed) == placed.placement) {
        knowledge.was_in_vain();
    }
    round
}

/// Renews holds in one slot, or at one server outside a cluster.
async fn of_one_slot(engine: &Arc<Engine>, placed: &[Placed]) -> Result<Round, Error> {
    let Some(first) = placed.first() else { return Ok(Round::default()) };
    let asking = Asking::of(engine, placed);
    let outcome = engine.topology.run_placed(first.hold.name(), asking.call(engine)).await;
    let (reply, asked_at) = outcome.map_err(|fault| Error::of_fault(&fault, &first.hold.name().as_written))?;
    let entries = match reply {
        Reply::List(entries) if entries.len() == placed.len() => entries,
        odd => return Err(Error::odd_reply(renewal(first).script.name, &odd).about(&first.hold.name().as_written)),
    };
    let (mut round, mut again) = (Round::default(), Vec::new());
    let is_of_gone_alone = entries.contains(&Reply::Int(0));
    for ((placed, asked), entry) in placed.iter().zip(&asking.asked).zip(entries) {
        if engine.topology.placement(placed.hold.name()) != asked_at {
            // A reply about a name that has moved counts for nothing: the server may have lost the name before it
            // replied.
            moved(engine, placed, &mut round);
        } else if is_of_gone_alone && entry == Reply::Nil {
            again.push(placed.clone());
        } else {
            asked.book_answer(engine, &placed.hold, entry, asking.sent, &mut round);
        }
    }
    round += ask_again(engine, &again).await;
    Ok(round)
}

/// Renews again the holds that a reply left open, because other holds were gone (`replies::gone_alone`).
async fn ask_again(engine: &Arc<Engine>, again: &[Placed]) -> Round {
    if again.is_empty() {
        return Round::default();
    }
    Box::pin(of_one_slot(engine, again)).await.unwrap_or_else(|error| failed(again, &error))
}

/// Counts a hold that moved during its renewal as failed, and requests a round at its new server at once.
fn moved(engine: &Engine, placed: &Placed, round: &mut Round) {
    round.fails("the lock has moved to another server");
    engine.kick.renew_at(engine.topology.placement(placed.hold.name()).member);
}

/// A command for many holds.
struct Asking<'a> {
    placed: &'a [Placed],
    /// State of each hold when the command was sent.
    asked: Vec<Asked>,
    sent: Moment,
}

impl<'a> Asking<'a> {
    fn of(engine: &Engine, placed: &'a [Placed]) -> Self {
        let asked = placed.iter().map(Asked::of).collect();
        Self { placed, asked, sent: engine.now() }
    }

    fn call(&self, engine: &Engine) -> Call {
        let each = self.placed.iter().zip(&self.asked).map(|(Placed { hold, .. }, asked)| Renewed {
            name: hold.name(),
            owner: &hold.owner,
            holds: asked.ids(engine, &hold.owner),
            extend: asked.watched,
        });
        let lease = if self.placed[0].only_confirms { 0 } else { millis(engine.options.watchdog) };
        renewal(&self.placed[0]).call(lease, 0, each)
    }
}

/// State of one hold when a renewal was sent. The reply is about this state: by then, holds may have been released and
/// acquired again.
struct Asked {
    tenure: u32,
    watched: bool,
    numbers: Vec<u64>,
    /// True if the command names only the owner, which has no other holds.
    only: bool,
}

impl Asked {
    fn of(Placed { hold, only_confirms, .. }: &Placed) -> Self {
        let book = hold.book();
        let numbers: Vec<u64> = book.holds().collect();
        let only = !hold.owner.is_known() && numbers.iter().all(|number| *number == 0);
        Self { tenure: book.tenure(), watched: !only_confirms && book.is_watched(), numbers, only }
    }

    /// Books the server's reply about one hold.
    fn book_answer(&self, engine: &Arc<Engine>, hold: &Arc<Hold>, entry: Reply, sent: Moment, round: &mut Round) {
        let entry = match entry {
            // Some of these holds were released elsewhere.
            Reply::List(gone) => {
                round.lost += self.lose(engine, hold, &at_positions(&self.numbers, &gone));
                Reply::Int(1)
            }
            entry => entry,
        };
        match entry {
            Reply::Int(1) => {
                let mut book = hold.book();
                book.confirm(sent.as_nanos());
                let now = engine.now().as_nanos();
                // Nothing to book if the hold was released or has ended, or if the command extended no lease: a
                // watched guard may have been added since.
                if !self.watched || !book.is_watched() {
                    return;
                }
                let until = valid_until(engine.counted(sent), engine.options.watchdog).as_nanos();
                if until <= now {
                    round.fails("the reply took longer than the lease");
                    return;
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
            // The lease is over by the local clock too, so this is no loss.
            Reply::Int(0) if !self.watched && !hold.book().lasts(engine.now().as_nanos()) => {}
            Reply::Int(0) => round.lost += self.all_gone(engine, hold),
            Reply::Text(text) if text.starts_with(b"WRONGTYPE") => {
                round.lost += engine.refuted(hold, self.tenure);
            }
            odd => {
                let cause = match &odd {
                    Reply::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    odd => format!("{odd:?}"),
                };
                if let Some(left_out) = engine.warnings.due("refused renewal", &cause) {
                    let name = &hold.name().as_written;
                    tracing::warn!(lock.name = %name, %cause, left_out, "the server refused to renew this lock");
                }
                round.fails(&cause);
            }
        }
    }

    fn ids(&self, engine: &Engine, owner: &Owner) -> Bytes {
        if self.only { Bytes::new() } else { engine.hold_ids(owner, &self.numbers) }
    }

    /// Ends all these holds, but none that the owner acquired since. Returns how many guards lost their hold.
    fn all_gone(&self, engine: &Arc<Engine>, hold: &Arc<Hold>) -> usize {
        self.lose(engine, hold, &self.numbers)
    }

    /// Ends the holds that the server reported gone. Returns how many guards lost their hold.
    fn lose(&self, engine: &Arc<Engine>, hold: &Arc<Hold>, gone: &[u64]) -> usize {
        if hold.book().tenure() != self.tenure {
            return 0;
        }
        engine.lose_holds(hold, gone)
    }
}

/// The elements of `numbers` at these positions, counted from 1. A renewal's reply names gone holds by position.
pub(crate) fn at_positions(numbers: &[u64], positions: &[Reply]) -> Vec<u64> {
    let at = |position: &Reply| match position {
        Reply::Int(position) => numbers.get(usize::try_from(*position).ok()?.checked_sub(1)?).copied(),
        _ => None,
    };
    positions.iter().filter_map(at).collect()
}
