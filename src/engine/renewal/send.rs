//! A round at one server: sends the batches of a plan, and repeats the holds that a reply leaves open.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::plan::{Batch, Due, Which, plan};
use super::settle::{Asked, Cause, Outcome};
use super::{Part, Round, at_once};
use crate::config::millis;
use crate::engine::Engine;
use crate::engine::hold::Hold;
use crate::engine::ledger::Entry as _;
use crate::engine::metrics;
use crate::engine::protocol::Renewed;
use crate::error::Error;
use crate::topology::Placement;
use crate::transport::undeclared::{Undeclared, undeclared};
use crate::transport::{FaultKind, Reply};

/// Renews or confirms the holds of one server.
pub(super) async fn renew(engine: &Arc<Engine>, placed: Part, which: Which) -> Round {
    let mut round = Round::lost(placed.iter().map(|(_, hold)| engine.expire(hold)).sum());
    let knowledge = placed.first().and_then(|(placement, _)| engine.topology.undeclared(*placement));
    let due = placed.into_iter().filter_map(|(placement, hold)| {
        let nature = hold.protocol.nature();
        let (only_confirms, delay) = {
            let book = hold.book();
            (which.only_confirms(&book, nature.leases_apart)?, book.delay())
        };
        let delay = if only_confirms { Duration::ZERO } else { delay };
        let work = (hold.protocol.permits() as usize).max(1);
        Some(Due { placement, renewal: nature.renewal, only_confirms, delay, work, hold })
    });
    let batches = plan(due.collect(), engine.options.watchdog_batch, knowledge.is_some());
    round += run(engine, batches, knowledge.as_deref()).await;
    metrics::renewed(round.renewed, round.failed);
    let Round { renewed, failed, lost, cause } = &round;
    let cause = cause.as_deref().unwrap_or_default();
    if *failed > 0
        && let Some(left_out) = engine.warnings.due("renewal", cause)
    {
        tracing::warn!(renewed, failed, lost, cause, left_out, "some locks could not be renewed yet");
    }
    round
}

/// Runs these batches in parallel. `knowledge`: for batches over several slots, whether the server accepts undeclared
/// keys.
fn run<'a>(engine: &'a Arc<Engine>, batches: Vec<Batch>, knowledge: Option<&'a Undeclared>) -> BoxFuture<'a, Round> {
    Box::pin(at_once(batches.into_iter().map(move |batch| {
        let undeclared = knowledge.filter(|_| batch.over_slots);
        async move { run_batch(engine, batch, undeclared).await }
    })))
}

/// Sends a batch, settles each hold that the reply decides, and sends the other holds again. `undeclared`: set if the
/// command declares no keys.
///
/// The recursion ends: a hold that is sent alone is not sent again, and `again` has fewer holds than the batch.
async fn run_batch(engine: &Arc<Engine>, batch: Batch, undeclared: Option<&Undeclared>) -> Round {
    let sent = engine.now();
    let asked: Vec<Asked> = batch.holds.iter().map(|due| Asked::of(due, sent)).collect();
    let answer = send(engine, &batch, &asked).await;
    let mut round = Round::default();
    let (mut again, mut alone) = (Vec::new(), Vec::new());
    let each = batch.holds.into_iter().zip(asked);
    match answer {
        Answer::Entries(entries, at) => {
            // If a hold is gone, the reply may leave the other holds open: their entries are Nil
            // (`replies::gone_alone`).
            let leaves_open = entries.contains(&Reply::Int(0));
            let is_elsewhere = |text: &[u8]| {
                undeclared.is_some_and(|undeclared| undeclared.is_elsewhere(&String::from_utf8_lossy(text)))
            };
            for ((due, asked), entry) in each.zip(entries) {
                match entry {
                    Reply::Text(text) if is_elsewhere(&text) => alone.push(due),
                    _ if engine.topology.placement(due.hold.name()) != at.unwrap_or(due.placement) => {
                        round += asked.settle(engine, &due.hold, Outcome::Unanswered(Cause::Moved));
                    }
                    Reply::Nil if leaves_open => again.push(due),
                    entry => {
                        if let Some(undeclared) = undeclared {
                            undeclared.worked();
                        }
                        round += asked.settle(engine, &due.hold, asked.read(entry));
                    }
                }
            }
        }
        Answer::OnlyAlone => alone.extend(each.map(|(due, _)| due)),
        Answer::Failed(cause) => {
            for (due, asked) in each {
                round += asked.settle(engine, &due.hold, Outcome::Unanswered(Cause::Failed(Arc::clone(&cause))));
            }
        }
    }
    round += run_alone(engine, alone, undeclared).await;
    round += run(engine, plan(again, engine.options.watchdog_batch, undeclared.is_some()), undeclared).await;
    round
}

/// Renews each of these holds with its own command, which declares its keys. Each reply comes with the placement at
/// which the command ran.
async fn run_alone(engine: &Arc<Engine>, refused: Vec<Due>, knowledge: Option<&Undeclared>) -> Round {
    let placed: Part = refused.iter().map(|due| (due.placement, Arc::clone(&due.hold))).collect();
    let round = run(engine, plan(refused, 1, false), None).await;
    let has_stayed = |(placement, hold): &(_, Arc<Hold>)| engine.topology.placement(hold.name()) == *placement;
    if let Some(knowledge) = knowledge.filter(|_| round.renewed > 0 && placed.iter().all(has_stayed)) {
        knowledge.note_needless_refusal();
    }
    round
}

enum Answer {
    /// One entry for each hold, and the placement of the locks when the command ran. `None`: the planned placement.
    Entries(Vec<Reply>, Option<Placement>),
    /// The server refused these holds in one command, but may accept each of them alone.
    OnlyAlone,
    Failed(Arc<str>),
}

async fn send(engine: &Arc<Engine>, Batch { holds, over_slots }: &Batch, asked: &[Asked]) -> Answer {
    let first = &holds[0];
    let each = holds.iter().zip(asked).map(|(Due { hold, .. }, asked)| Renewed {
        name: hold.name(),
        owner: &hold.owner,
        permits: hold.protocol.permits(),
        holds: asked.ids(engine, hold),
        extend: asked.watched,
    });
    let lease = if first.only_confirms { 0 } else { millis(engine.options.watchdog + first.delay) };
    let (name, call) = (first.hold.name(), first.renewal.call(lease, 0, each));
    let answered = if *over_slots {
        engine.topology.run_at(first.placement, undeclared(call)).await.map(|reply| (reply, None))
    } else {
        engine.topology.run_placed(name, call).await.map(|(reply, at)| (reply, Some(at)))
    };
    let error = match answered {
        Ok((Reply::List(entries), at)) if entries.len() == holds.len() => return Answer::Entries(entries, at),
        Ok((odd, _)) => Error::odd_reply(first.renewal.script.name, &odd).about(&name.as_written),
        // The server refuses undeclared keys, or a slot has moved.
        Err(fault) if *over_slots && matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere) => {
            return Answer::OnlyAlone;
        }
        Err(fault) => Error::of_fault(&fault, &name.as_written),
    };
    if holds.len() > 1 && error.may_concern_one_name() {
        return Answer::OnlyAlone;
    }
    tracing::debug!(locks = holds.len(), %error, "a renewal failed");
    Answer::Failed(error.brief().into())
}
