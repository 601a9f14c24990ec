//! One call: its command, and a second command with the script's source if the server does not know the script.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::connection::{Connection, deadline_in};
use super::pipeline::Ticket;
use super::resp::{Naming, write_call};
use crate::{Call, Fault, FaultKind, Reply};

/// A call in flight. If the future is dropped, a sent command still runs, and its answer is discarded.
pub(super) struct Exchange {
    connection: Arc<Connection>,
    call: Call,
    naming: Naming,
    /// Common deadline of both commands.
    deadline: Option<Instant>,
    ticket: Option<Ticket>,
    is_answered: bool,
}

impl Exchange {
    pub(super) fn new(connection: Arc<Connection>, call: Call, script_cache: bool) -> Self {
        let naming = Naming::first(script_cache && call.script.command.is_none());
        Self { connection, call, naming, deadline: None, ticket: None, is_answered: false }
    }

    fn send(&mut self, context: &Context<'_>) -> Poll<Result<Reply, Fault>> {
        if self.is_answered {
            return Poll::Ready(Err(Fault::new(FaultKind::Lost, "asked for twice")));
        }
        let (connection, call, naming) = (&self.connection, &self.call, self.naming);
        let deadline = *self.deadline.get_or_insert_with(|| deadline_in(connection.timeout()));
        match connection.send(deadline, context, |out| write_call(out, call, naming)) {
            Ok(ticket) => {
                self.ticket = Some(ticket);
                Poll::Pending
            }
            Err(fault) => Poll::Ready(Err(fault)),
        }
    }
}

impl Future for Exchange {
    type Output = Result<Reply, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(ticket) = this.ticket else { return this.send(context) };
        let outcome = ready!(this.connection.poll_answer(ticket, context));
        this.ticket = None;
        if outcome.as_ref().is_ok_and(|answer| this.naming.is_unknown(answer)) {
            this.naming = Naming::Source;
            return this.send(context);
        }
        this.is_answered = true;
        Poll::Ready(outcome.and_then(|answer| answer.map_err(Fault::refused)))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.connection.abandon(ticket);
        }
    }
}
