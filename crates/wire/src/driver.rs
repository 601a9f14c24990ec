//! The task of a connection for commands.
//!
//! 1. The task connects, with a back-off.
//! 2. It reads replies, writes the bytes that callers left, and fails commands whose time is up.
//! 3. When the connection is broken, dead (`silence.rs`), or follows a demotion (`demotions.rs`), the task starts
//!    again.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use tokio::time::{Instant, Sleep};

use super::connection::Connection;
use super::dial::{Dialer, Opened, Pauses, Trouble};
use super::link::Reader;
use super::resp::{Answer, Incoming, Input};
use crate::passing::Passing;
use crate::standstill::{OVERDUE, RECOVERY};
use crate::{Demotions, Fault, ListenerSlot, Outage};

/// Fails waiting commands when the connection's task is dropped: its runtime has ended, or the client was shut down.
struct EndOnDrop(Arc<Connection>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Fault::runtime_gone());
    }
}

/// Keeps the connection up while the client lives. `first`: a connection that is already up. `demotions` is shared by
/// all connections to this endpoint.
pub(super) async fn drive(
    connection: Arc<Connection>,
    dialer: Arc<Dialer>,
    listener: ListenerSlot,
    first: Option<Opened>,
    mut demotions: Demotions,
) {
    let _end = EndOnDrop(Arc::clone(&connection));
    let mut limits = Limits::default();
    let (mut pauses, mut outage, mut next) = (Pauses::default(), Outage::default(), first);
    // `Demotions::count` when the previous socket was refused by a replica. `None` if that socket ended otherwise.
    let mut met = None;
    loop {
        let is_new = next.is_none();
        let opened = match next.take() {
            Some(opened) => opened,
            None => {
                let report = |trouble: Trouble| connection.troubled(trouble.at(&dialer.server));
                limits.beside(&connection, dialer.persist(&mut pauses, &mut demotions, report)).await
            }
        };
        let Opened { reader, writer, input } = opened;
        connection.up(writer);
        // Reports the demotion, unless another connection has reported one between the refusal and this dial. After
        // such a report, this dial has reached the reporter's server already.
        if met.take().is_some_and(|count| count == demotions.dialed()) {
            demotions.report();
        }
        let since = Instant::now();
        outage.ends(&listener);
        if is_new {
            listener.tell(|listener| listener.reconnected());
        }
        let (why, served) = serve(&connection, &mut limits, &demotions, reader, input).await;
        met = served.is_demoted.then(|| demotions.count());
        connection.down(why.at(&dialer.server));
        outage.begins(&listener);
        pauses.stood(since.elapsed(), served.is_of_use);
    }
}

/// Reads and writes until the connection is gone. Returns the reason, and the connection's last state.
async fn serve(
    connection: &Connection,
    limits: &mut Limits,
    demotions: &Demotions,
    reader: Reader,
    input: Input,
) -> (Trouble, Served) {
    let mut seen = demotions.clone();
    let mut reported = pin!(seen.reported());
    let mut is_registered = false;
    let mut served = Served {
        reader,
        input,
        answers: Vec::new(),
        wakers: Vec::new(),
        has_yielded: false,
        is_blocked: false,
        is_of_use: false,
        is_demoted: false,
    };
    let why = poll_fn(|context| {
        connection.driver.register(context.waker());
        // `reported` is polled only once, to register the waker, because each poll takes a lock.
        let is_first = !std::mem::replace(&mut is_registered, true);
        if is_first && reported.as_mut().poll(context).is_ready() || demotions.is_behind() {
            return Poll::Ready(follows());
        }
        if let Err(why) = served.read(connection, demotions, context) {
            return Poll::Ready(why);
        }
        if connection.attention.swap(false, Ordering::AcqRel) || served.has_yielded || served.is_blocked {
            if let Err(error) = served.write(connection, context) {
                return Poll::Ready(error.into());
            }
            limits.look();
        }
        if limits.poll(connection, context) {
            tracing::warn!("a connection for commands does not answer: reconnecting");
            return Poll::Ready(Trouble::new("the connection was given up: it did not answer"));
        }
        Poll::Pending
    })
    .await;
    (why, served)
}

/// Reason for a reconnect after another connection to the endpoint has reported a demotion.
fn follows() -> Trouble {
    tracing::warn!("a connection for commands follows another one, whose server was demoted: reconnecting");
    Trouble::new("the connection was given up: its server was demoted, as another connection has found")
}

struct Served {
    reader: Reader,
    input: Input,
    answers: Vec<Answer>,
    wakers: Vec<Waker>,
    has_yielded: bool,
    /// The socket had no room for all bytes.
    is_blocked: bool,
    /// The server has answered a command with anything but a replica's refusal.
    is_of_use: bool,
    /// The server was demoted.
    is_demoted: bool,
}

impl Served {
    fn read(
        &mut self,
        connection: &Connection,
        demotions: &Demotions,
        context: &mut Context<'_>,
    ) -> Result<(), Trouble> {
        loop {
            match pin!(self.input.receive(&mut self.reader)).poll(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(received) => received?,
            }
            // Checked after the read: replies that were read after a report may come from the old primary, which lacks
            // the locks that were acquired at the new primary since.
            if demotions.is_behind() {
                return Err(follows());
            }
            let garbage = loop {
                match self.input.next() {
                    Ok(Some(Incoming::Reply(answer))) => self.answers.push(answer),
                    // This connection has no subscriptions.
                    Ok(Some(Incoming::Push(_))) => {}
                    Ok(None) => break None,
                    Err(garbage) => break Some(garbage),
                }
            };
            let is_demoted = self.answers.iter().any(is_demoted);
            let has_answered = !self.answers.is_empty() && !is_demoted;
            if !self.answers.is_empty() && !connection.answered(&mut self.answers, &mut self.wakers) {
                return Err(Trouble::new("the server sent a reply that nobody asked for"));
            }
            self.is_of_use |= has_answered;
            if let Some(garbage) = garbage {
                return Err(garbage.into());
            }
            if is_demoted {
                self.is_demoted = true;
                tracing::warn!("the server of a connection for commands was demoted: reconnecting");
                return Err(Trouble::new("the connection was given up: its server was demoted"));
            }
        }
    }

    /// Yields at the first call, so that all ready tasks can add their commands to one write. Writes at the next call.
    fn write(&mut self, connection: &Connection, context: &mut Context<'_>) -> io::Result<()> {
        self.has_yielded = !self.has_yielded && !self.is_blocked;
        if self.has_yielded {
            context.waker().wake_by_ref();
            return Ok(());
        }
        self.is_blocked = connection.poll_write(context)?;
        Ok(())
    }
}

/// True for an error of a demoted server. A new connection may lead to the promoted server.
fn is_demoted(answer: &Answer) -> bool {
    answer.as_ref().is_err_and(|error| Passing::of(error).is_some_and(|row| row.is_replica))
}

/// Deadlines of the commands of one connection. They share one timer.
#[derive(Default)]
struct Limits {
    sleep: Option<Pin<Box<Sleep>>>,
    /// Deadline that the timer is set to.
    due: Option<Instant>,
    /// True if the deadline passed in a standstill of this process (`standstill.rs`). Answers that have already arrived
    /// then get time to be read.
    recovers: bool,
}

impl Limits {
    /// Makes `poll` read the earliest deadline again, because that deadline may have changed.
    fn look(&mut self) {
        if !self.recovers {
            self.due = None;
        }
    }

    /// Fails commands whose time is up. Returns true if the connection is dead.
    fn poll(&mut self, connection: &Connection, context: &mut Context<'_>) -> bool {
        loop {
            if self.due.is_none() {
                let Some(due) = connection.due() else { return false };
                self.set(due);
            }
            let Some(sleep) = self.sleep.as_mut() else { return false };
            if sleep.as_mut().poll(context).is_pending() {
                return false;
            }
            let now = Instant::now();
            let late = self.due.map(|due| now.saturating_duration_since(due)).unwrap_or_default();
            if late >= OVERDUE {
                self.recovers = true;
                self.set(now + RECOVERY);
                continue;
            }
            (self.recovers, self.due) = (false, None);
            if connection.expire(now) {
                return true;
            }
        }
    }

    fn set(&mut self, due: Instant) {
        self.due = Some(due);
        match self.sleep.as_mut() {
            Some(sleep) => sleep.as_mut().reset(due),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(due))),
        }
    }

    /// Runs `work`, and meanwhile fails commands whose time is up.
    async fn beside<T>(&mut self, connection: &Connection, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            connection.driver.register(context.waker());
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            if connection.attention.swap(false, Ordering::AcqRel) {
                self.look();
            }
            self.poll(connection, context);
            Poll::Pending
        })
        .await
    }
}
