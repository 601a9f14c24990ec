//! The task of the connection for messages.
//!
//! 1. The task connects, with a back-off. Subscriptions that are requested or ended meanwhile are noted (`Change`).
//! 2. It subscribes to all wanted channels, each by a command of its own, and sends a `PING`.
//! 3. After the reply to the `PING`, all subscriptions have been answered. The listener is notified that messages may
//!    have been missed.
//! 4. It passes messages on, and carries out changes. It sends a `PING` from time to time to detect a silent
//!    connection.
//! 5. When the connection breaks or is silent, or its server was demoted, the task starts again. If step 3 is not
//!    reached within `deaf_after`, `Listener::deaf` is called, once per outage.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::dial::{Dialer, Hope, Opened, Pauses, Trouble};
use crate::{Demotions, ListenerSlot, Outage};
use channels::{Channels, Request};
use standing::{Standing, over};
use words::{Kind, PLAIN, SHARDED};

mod channels;
mod standing;
mod words;

pub(super) use channels::Change;

/// Maximum number of changes between two reads.
const CHANGES_AT_ONCE: usize = 64;

pub(super) struct Messages {
    dialer: Arc<Dialer>,
    listener: ListenerSlot,
    kind: &'static Kind,
    changes: mpsc::UnboundedReceiver<Change>,
    /// Reports of demotions by the connections for commands.
    demotions: Demotions,
    channels: Channels,
    outage: Outage,
    deafness: Deafness,
}

impl Messages {
    pub(super) fn new(
        dialer: Arc<Dialer>,
        sharded: bool,
        listener: ListenerSlot,
        changes: mpsc::UnboundedReceiver<Change>,
        demotions: Demotions,
    ) -> Self {
        let deafness = Deafness { after: dialer.settings.deaf_after, timer: None, is_told: false };
        Self {
            dialer,
            listener,
            kind: if sharded { &SHARDED } else { &PLAIN },
            changes,
            demotions,
            channels: Channels::default(),
            outage: Outage::default(),
            deafness,
        }
    }

    /// Keeps the connection up until the sender of `changes` is gone. `first`: a connection that is already up.
    pub(super) async fn run(mut self, first: Option<Opened>) {
        let (mut pauses, mut next) = (Pauses::default(), first);
        let mut is_new = next.is_none();
        loop {
            let opened = match next.take() {
                Some(opened) => opened,
                None => match self.connect(&mut pauses).await {
                    Some(opened) => opened,
                    None => return,
                },
            };
            let (since, answered) = (Instant::now(), self.channels.answered);
            let mut standing = Standing::new(opened, self.kind, self.dialer.settings.command_timeout);
            if is_new {
                standing.renew(&self.channels);
            }
            self.serve(standing).await;
            if self.changes.is_closed() {
                return;
            }
            self.outage.begins(&self.listener);
            self.deafness.begins();
            pauses.stood(since.elapsed(), self.channels.answered > answered);
            is_new = true;
        }
    }

    /// Connects, and notes changes meanwhile. Returns `None` once their sender is gone.
    async fn connect(&mut self, pauses: &mut Pauses) -> Option<Opened> {
        let mut is_told = false;
        let report = |Trouble { message: error, hope, .. }| {
            if hope != Hope::Late && !std::mem::replace(&mut is_told, true) {
                tracing::warn!(error, "no connection for messages: waiters poll until it is restored");
            }
        };
        let mut connecting = Box::pin(self.dialer.persist(pauses, &mut self.demotions, report));
        loop {
            tokio::select! {
                opened = &mut connecting => return Some(opened),
                change = self.changes.recv() => {
                    if let Some(Request::Unsubscribe(_, done)) = self.channels.change(change?) {
                        // The subscription has ended with the connection.
                        let _ = done.send(Ok(()));
                    }
                }
                () = self.deafness.report(&self.listener) => {}
            }
        }
    }

    /// Serves a connection until it is gone, or until the sender of `changes` is gone.
    async fn serve(&mut self, mut standing: Standing) {
        let mut ping_due = Box::pin(tokio::time::sleep(self.dialer.settings.ping_interval));
        while self.step(&mut standing, ping_due.as_mut()).await.is_some() {}
    }

    /// Handles everything that was received or requested, then waits for more. Returns `None` at the end.
    async fn step(&mut self, standing: &mut Standing, mut ping_due: Pin<&mut Sleep>) -> Option<()> {
        standing.read_all(&mut self.channels, &self.listener)?;
        if !standing.is_renewing {
            // All subscriptions have been answered, so the outage has ended.
            self.outage.ends(&self.listener);
            self.deafness.ends();
        }
        // Changes are also taken here, because during a flood of messages the `select!` below only reads.
        for change in std::iter::from_fn(|| self.changes.try_recv().ok()).take(CHANGES_AT_ONCE) {
            standing.change(&mut self.channels, change);
        }
        let is_full = standing.write().ok()?;
        let Standing { opened: Opened { reader, writer, input }, overdue, .. } = &mut *standing;
        tokio::select! {
            biased;
            received = input.receive(reader) => received.ok()?,
            change = self.changes.recv() => standing.change(&mut self.channels, change?),
            room = writer.room(), if is_full => room.ok()?,
            () = over(overdue) => {
                let error = "no answer in time";
                tracing::warn!(%error, "the connection for messages is silent: reconnecting");
                return None;
            }
            () = self.deafness.report(&self.listener) => {}
            () = self.demotions.reported() => {
                let error = "the server was demoted";
                tracing::warn!(%error, "the connection for messages follows that for commands: reconnecting");
                return None;
            }
            () = &mut ping_due => {
                ping_due.reset(Instant::now() + self.dialer.settings.ping_interval);
                standing.ping();
            }
        }
        Some(())
    }
}

/// Reports to the listener, once per outage, that there has been no connection for a while.
struct Deafness {
    after: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// True from the report until all subscriptions are confirmed again.
    is_told: bool,
}

impl Deafness {
    /// Notes that the connection is gone. Several connections may break in one outage.
    fn begins(&mut self) {
        if !self.is_told {
            let after = self.after;
            self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        }
    }

    fn ends(&mut self) {
        (self.timer, self.is_told) = (None, false);
    }

    async fn report(&mut self, listener: &ListenerSlot) {
        over(&mut self.timer).await;
        (self.timer, self.is_told) = (None, true);
        listener.tell(|listener| listener.deaf());
    }
}
