//! One call: its command, and a second command with the script's source if the server does not know the script.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;

use super::connection::Connection;
use super::pipeline::Ticket;
use super::resp::write_call;
use crate::{Call, Fault, FaultKind, Reply};

#[derive(Clone, Copy, Debug)]
enum Stage {
    Command(&'static str),
    Hash,
    Source,
    /// The call was answered.
    Over,
}

/// A call in flight. If it is dropped, the command still runs, and its answer is discarded.
pub(super) struct Exchange {
    connection: Arc<Connection>,
    call: Call,
    stage: Stage,
    /// Common deadline of both commands.
    deadline: Option<Instant>,
    ticket: Option<Ticket>,
}

impl Exchange {
    pub(super) fn new(connection: Arc<Connection>, call: Call, script_cache: bool) -> Self {
        let stage = match call.script.command {
            Some(command) => Stage::Command(command),
            None if script_cache => Stage::Hash,
            None => Stage::Source,
        };
        Self { connection, call, stage, deadline: None, ticket: None }
    }

    fn send(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        let connection = &self.connection;
        let deadline = *self.deadline.get_or_insert_with(|| {
            let now = Instant::now();
            now.checked_add(connection.timeout()).unwrap_or(now)
        });
        let call = &self.call;
        let ticket = match self.stage {
            Stage::Over => Err(Fault::new(FaultKind::Lost, "asked for twice")),
            Stage::Command(command) => connection.send(deadline, context, |out| write_call(out, command, None, call)),
            Stage::Hash => {
                let sha: Bytes = call.script.sha();
                connection.send(deadline, context, |out| write_call(out, "EVALSHA", Some(&sha), call))
            }
            Stage::Source => {
                let source = call.script.source.as_bytes();
                connection.send(deadline, context, |out| write_call(out, "EVAL", Some(source), call))
            }
        };
        self.ticket = Some(ticket?);
        Ok(())
    }
}

impl Future for Exchange {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(ticket) = this.ticket else {
            return match this.send(context) {
                Ok(()) => Poll::Pending,
                Err(fault) => Poll::Ready(Err(fault)),
            };
        };
        let Poll::Ready(outcome) = this.connection.poll_answer(ticket, context) else { return Poll::Pending };
        this.ticket = None;
        match outcome {
            Ok(Err(error)) if matches!(this.stage, Stage::Hash) && error.starts_with("NOSCRIPT") => {
                this.stage = Stage::Source;
                match this.send(context) {
                    Ok(()) => Poll::Pending,
                    Err(fault) => Poll::Ready(Err(fault)),
                }
            }
            outcome => {
                this.stage = Stage::Over;
                Poll::Ready(outcome.and_then(|answer| answer.map_err(refusal)))
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.connection.abandon(ticket);
        }
    }
}

pub(super) fn refusal(message: String) -> Fault {
    let is_elsewhere = matches!(message.split(' ').next(), Some("MOVED" | "ASK" | "TRYAGAIN"));
    Fault::new(if is_elsewhere { FaultKind::Elsewhere } else { FaultKind::Refused }, message)
}
