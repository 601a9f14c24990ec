//! The task of a connection for commands: connects, reads replies, writes what its callers could not, ends what has had no answer
//! in time, and connects anew.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, Sleep};

use super::connection::{Connection, is_demoted};
use super::dial::{Dialer, Opened, Pauses, Trouble};
use super::link::Reader;
use super::wire::{Answer, Incoming, Input};
use crate::runtime::standstill::{OVERDUE, RECOVERY};
use crate::transport::demotions::Demotions;
use crate::transport::outage::Outage;
use crate::transport::{FaultKind, Listener};

/// Ends what waits for a connection whose task is dropped: its runtime has ended, or the client was shut down.
struct EndOnDrop(Arc<Connection>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(FaultKind::RuntimeGone);
    }
}

/// Keeps the connection for as long as the client lives. `first`: a connection that is already up. `demotions`: those that the connections
/// to this endpoint have met.
pub(super) async fn drive(
    connection: Arc<Connection>,
    dialer: Arc<Dialer>,
    listener: Arc<OnceLock<Weak<dyn Listener>>>,
    first: Option<Opened>,
    mut demotions: Demotions,
) {
    let _end = EndOnDrop(Arc::clone(&connection));
    let mut limits = Limits::default();
    let (mut pauses, mut outage, mut next) = (Pauses::default(), Outage::default(), first);
    // The number of reports when this connection met a demotion.
    let mut met = None;
    loop {
        let (opened, is_new) = match next.take() {
            Some(opened) => (opened, false),
            None => {
                (limits.beside(&connection, connect(&connection, &dialer, &mut pauses, &mut demotions)).await, true)
            }
        };
        let Opened { reader, writer, input } = opened;
        connection.up(writer);
        // Where another connection has reported since the refusal, this one was dialled after that, and has found the same server.
        if met.take().is_some_and(|count| count == demotions.dialed()) {
            demotions.report();
        }
        let since = Instant::now();
        outage.ends(&listener);
        if is_new && let Some(listener) = listener.get().and_then(Weak::upgrade) {
            listener.reconnected();
        }
        let (why, served) = serve(&connection, &mut limits, &demotions, reader, input).await;
        met = served.is_demoted.then(|| demotions.count());
        connection.down(why.at(&dialer.server));
        outage.begins(&listener);
        pauses.stood(since.elapsed(), served.is_of_use);
    }
}

async fn connect(connection: &Connection, dialer: &Dialer, pauses: &mut Pauses, demotions: &mut Demotions) -> Opened {
    loop {
        pauses.pause().await;
        demotions.dials();
        match dialer.open().await {
            Some(Ok(opened)) if !demotions.is_behind() => return opened,
            // A demotion was reported meanwhile. This connection may lead to the server that was demoted.
            Some(Ok(_)) => {}
            Some(Err(trouble)) => connection.troubled(trouble.at(&dialer.server)),
            None => connection.troubled(Trouble::new("the server does not answer to a login").at(&dialer.server)),
        }
    }
}

/// Reads and writes until the connection is gone. Returns why it is gone, and its last state.
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
        // Polled once, to be woken by a report: each poll takes a lock.
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

/// Another connection to the endpoint has met a demotion.
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
    /// The socket had no room for all.
    is_blocked: bool,
    /// The server has answered what was asked.
    is_of_use: bool,
    /// Its server was demoted.
    is_demoted: bool,
}

impl Served {
    /// Reads all there is, and hands it on.
    fn read(
        &mut self,
        connection: &Connection,
        demotions: &Demotions,
        context: &mut Context<'_>,
    ) -> Result<(), Trouble> {
        loop {
            let read = pin!(self.reader.read_buf(self.input.room())).poll(context);
            match read {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
            // Looked at after the read: these replies may be about locks that were acquired at the new primary since.
            if demotions.is_behind() {
                return Err(follows());
            }
            let garbage = loop {
                match self.input.next() {
                    Ok(Some(Incoming::Reply(answer))) => self.answers.push(answer),
                    // Nobody asks for messages here.
                    Ok(Some(Incoming::Push(_))) => {}
                    Ok(None) => break None,
                    Err(garbage) => break Some(garbage),
                }
            };
            let is_demoted = self.answers.iter().any(is_demoted);
            let has_answered = !self.answers.is_empty() && !is_demoted;
            if !self.answers.is_empty() && !connection.answered(&mut self.answers, &mut self.wakers) {
                return Err(Trouble::new("the server has answered what nobody asked"));
            }
            self.is_of_use |= has_answered;
            if let Some(garbage) = garbage {
                return Err(Trouble::new(garbage.to_string()));
            }
            if is_demoted {
                self.is_demoted = true;
                tracing::warn!("the server of a connection for commands was demoted: reconnecting");
                return Err(Trouble::new("the connection was given up: its server was demoted"));
            }
        }
    }

    /// Lets all run that are ready, so that what they have to say goes out together; then writes.
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

/// The limits of the commands of one connection, by one timer.
#[derive(Default)]
struct Limits {
    sleep: Option<Pin<Box<Sleep>>>,
    /// What the timer is set to.
    due: Option<Instant>,
    /// The limit was found to have passed in a standstill: answers that are here unread have a moment more to be read.
    recovers: bool,
}

impl Limits {
    /// The next limit may be another one.
    fn look(&mut self) {
        if !self.recovers {
            self.due = None;
        }
    }

    /// Ends commands whose time is up. True when the connection is to be taken for dead.
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

    /// Some work, beside which limits hold.
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
