//! A group of calls on one lane (see `lanes.rs`): one write with a `WAIT` at its end, and the outcomes.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use futures::FutureExt as _;
use tokio::sync::oneshot;

use super::queue::{Queue, Queued};
use crate::connection::{Connection, deadline_in};
use crate::pipeline::{Outcome, Ticket};
use crate::resp::{Naming, write_call, write_words};
use crate::{Fault, FaultKind, Replied, Reply};

/// Sends a group, and passes its outcomes on. Returns the calls whose scripts the server does not know by their hashes.
///
/// `known`: hashes of scripts that have succeeded on this lane. Other scripts are sent by their source, because a
/// second group after `NOSCRIPT` has to wait for the first `WAIT`. A server that was just promoted has no replicas yet,
/// so there the first `WAIT` would time out.
pub(super) async fn carry(
    queue: &Queue,
    connection: &Connection,
    group: Vec<Queued>,
    naming: Naming,
    known: &mut HashSet<Bytes>,
) -> Vec<Queued> {
    let mut tickets = match send(queue, connection, &group, naming, known).await {
        Ok(tickets) => tickets,
        Err(fault) => {
            for queued in group {
                let _ = queued.answer.send(Err(fault.clone()));
            }
            return Vec::new();
        }
    };
    let (mut unknown, mut waiting) = (Vec::new(), Vec::new());
    for queued in group {
        if queued.how.asking {
            // This answer is ignored: if `ASKING` is refused, the call behind it is refused too.
            let _ = tickets.next().await;
        }
        let outcome = tickets.next().await;
        if outcome.as_ref().is_ok_and(|answer| naming.is_unknown(answer)) {
            unknown.push(queued);
            continue;
        }
        let outcome = outcome.and_then(|answer| answer.map_err(Fault::refused));
        if outcome.is_ok() {
            known.insert(queued.script());
        }
        waiting.extend(queued.hand_on(outcome));
    }
    let acknowledged = match tickets.next().await {
        Ok(Ok(Reply::Int(got))) => Ok(usize::try_from(got).unwrap_or(0)),
        Ok(Ok(odd)) => Err(Fault::new(FaultKind::Refused, format!("ERR unexpected reply of WAIT: {odd:?}"))),
        Ok(Err(error)) => Err(Fault::new(FaultKind::Refused, error)),
        Err(fault) => Err(fault),
    };
    for one in waiting {
        // Fails if the caller is gone.
        let _ = one.send(acknowledged.clone());
    }
    unknown
}

/// Sends a group and its `WAIT` together, or nothing.
async fn send<'a>(
    queue: &Queue,
    connection: &'a Connection,
    group: &[Queued],
    naming: Naming,
    known: &HashSet<Bytes>,
) -> Result<Tickets<'a>, Fault> {
    let replicas = group.iter().map(|queued| queued.how.replicas).max().unwrap_or(0);
    let span = group.iter().map(|queued| queued.how.within).max().unwrap_or_default();
    let commands: usize = group.iter().map(|queued| 1 + usize::from(queued.how.asking)).sum();
    let write = |out: &mut Vec<u8>| {
        for (at, queued) in group.iter().enumerate() {
            // The first call of a script in a group loads the script for the calls behind it.
            let loads = |before: &Queued| before.script() == queued.script();
            let is_known = known.contains(&queued.script()) || group[..at].iter().any(loads);
            if queued.how.asking {
                write_words(out, &[b"ASKING"]);
            }
            write_call(out, &queued.call, if is_known { naming } else { Naming::Source });
        }
        let words = [replicas.to_string(), span.as_millis().to_string()];
        write_words(out, &[b"WAIT", words[0].as_bytes(), words[1].as_bytes()]);
    };
    let deadline = deadline_in(queue.limit(span));
    let tickets =
        poll_fn(|context| Poll::Ready(connection.send_together(deadline, context, commands + 1, write))).await?;
    Ok(Tickets { connection, left: tickets.into() })
}

impl Queued {
    fn script(&self) -> Bytes {
        self.call.script.sha()
    }

    /// Passes the call's outcome on. Returns the sender for the acknowledgement, if the caller needs it.
    fn hand_on(self, outcome: Result<Reply, Fault>) -> Option<oneshot::Sender<Result<usize, Fault>>> {
        let gains = self.call.script.gains.unwrap_or(|_| false);
        let (replied, waiting) = match outcome {
            Ok(reply) if gains(&reply) => {
                let (done, acknowledged) = oneshot::channel();
                let lost = || Fault::new(FaultKind::Lost, "the connection is gone");
                let acknowledged = acknowledged.map(move |outcome| outcome.unwrap_or_else(|_| Err(lost())));
                (Ok(Replied { reply, acknowledged: Some(acknowledged.boxed()) }), Some(done))
            }
            outcome => (outcome.map(|reply| Replied { reply, acknowledged: None }), None),
        };
        // Fails if the caller is gone.
        let _ = self.answer.send(replied);
        waiting
    }
}

/// Unanswered commands of a group. If dropped, the commands still run, and their answers are discarded.
struct Tickets<'a> {
    connection: &'a Connection,
    left: VecDeque<Ticket>,
}

impl Tickets<'_> {
    async fn next(&mut self) -> Outcome {
        let Some(ticket) = self.left.front().copied() else {
            return Err(Fault::new(FaultKind::Lost, "asked for twice"));
        };
        let outcome = poll_fn(|context| self.connection.poll_answer(ticket, context)).await;
        self.left.pop_front();
        outcome
    }
}

impl Drop for Tickets<'_> {
    fn drop(&mut self) {
        for ticket in self.left.drain(..) {
            self.connection.abandon(ticket);
        }
    }
}
