//! A server with one lock, and a small client that waits for the lock by the registry's rules.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::config::Options;
use crate::engine::hold::{FLAVOUR, Grant, Hold, Protocol};
use crate::engine::registry::{Courtesy, HeldAs, Registry, Until};
use crate::names::LockName;
use crate::runtime::reaper::Reaper;
use crate::sync::Mutex;
use crate::topology::{MemberListener as _, Topology};
use crate::world::Moment;

const CHANNEL: &[u8] = b"channel";
pub(crate) const FOREVER: Duration = Duration::MAX;
const NOW: Moment = Moment(1);

#[derive(Debug, Default)]
struct State {
    held: bool,
    subscribed: bool,
    /// True if a subscription began while another one existed.
    begun_twice: bool,
    /// True if a subscription ended after a second one had begun. The second subscriber then gets no messages.
    cut_off: bool,
    refuses: bool,
    /// The number of other clients that get the message of every release.
    others: u32,
}

/// One lock with one channel.
#[derive(Debug, Default)]
pub(crate) struct Server(Mutex<State>);

impl Server {
    pub(crate) fn try_acquire(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().held, true)
    }

    /// Frees the lock. Returns whether this client gets a message, and the total number of clients that get it.
    fn free(&self) -> (bool, u32) {
        let mut state = self.0.lock();
        assert!(std::mem::replace(&mut state.held, false), "released what nobody held");
        (state.subscribed, u32::from(state.subscribed) + state.others)
    }

    /// Sets the number of other clients that get the message of every release.
    pub(crate) fn tells(&self, others: u32) {
        self.0.lock().others = others;
    }

    pub(crate) fn subscribe(&self) -> Result<(), &'static str> {
        let mut state = self.0.lock();
        // The subscription exists even if the call fails, because its reply may be lost.
        state.begun_twice = std::mem::replace(&mut state.subscribed, true);
        if state.refuses { Err("refused") } else { Ok(()) }
    }

    pub(crate) fn unsubscribe(&self) {
        let mut state = self.0.lock();
        state.cut_off |= std::mem::take(&mut state.begun_twice);
        state.subscribed = false;
    }

    /// Returns whether a subscription ended after another one had been confirmed.
    pub(crate) fn has_cut_off(&self) -> bool {
        self.0.lock().cut_off
    }

    /// From now on, the replies to subscribe commands are lost.
    pub(crate) fn refuse(&self) {
        self.0.lock().refuses = true;
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.0.lock().subscribed
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.lock().held
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) registry: Arc<Registry>,
    pub(crate) server: Arc<Server>,
    pub(crate) reaper: Reaper,
    this: Weak<Self>,
    closing: watch::Sender<bool>,
}

/// Creates a name. All names share one channel.
pub(crate) fn name(text: &str) -> Arc<LockName> {
    Arc::new(LockName { as_written: text.to_owned(), channel: Bytes::from_static(CHANNEL), lock: None })
}

impl Client {
    /// `handoffs`: the number of times in a row that the client hands the lock over to its own waiters.
    pub(crate) fn new(handoffs: u32) -> Arc<Self> {
        let (server, reaper) = (Arc::new(Server::default()), Reaper::default());
        let options = Options {
            local_handoff_limit: handoffs,
            local_handoff_time: FOREVER,
            yield_after_release: true,
            subscription_linger: Duration::ZERO,
        };
        let (closing, closes) = watch::channel(false);
        let topology = Topology(Arc::clone(&server));
        let registry = Arc::new(Registry::new(&options, topology, reaper.clone(), Arc::default(), closes));
        Arc::new_cyclic(|this| Self { registry, server, reaper, this: this.clone(), closing })
    }

    fn grant(&self, name: &Arc<LockName>) -> Grant {
        Grant(Arc::new(Hold { name: Arc::clone(name), protocol: Protocol, client: self.this.clone() }))
    }

    /// Waits for the lock, as `engine::wait` does: turn, attempt, subscription, second attempt, sleep.
    pub(crate) async fn lock(&self, name: &Arc<LockName>) -> Grant {
        let mut waiter = self.registry.enter(name, Some((FLAVOUR, 0)));
        while !waiter.has_turn() {
            waiter.park(FOREVER, Until::Turn).await;
        }
        loop {
            waiter.give_way(FOREVER).await;
            let got = match waiter.handed() {
                Some(grant) => Some(grant),
                None => self.server.try_acquire().then(|| self.grant(name)),
            };
            if let Some(grant) = got {
                waiter.acquired(&grant.0, NOW, HeldAs::MayHandOver);
                return grant;
            }
            waiter.sit();
            if !waiter.is_listening() {
                waiter.listen(FOREVER).await;
                if waiter.is_listening() {
                    continue;
                }
            }
            // A waiter without a subscription polls.
            let limit = if waiter.is_listening() { FOREVER } else { Duration::ZERO };
            waiter.park(limit, Until::Message).await;
        }
    }

    /// Releases a hold: hands it over to the next waiter of this client, or frees it at the server.
    pub(crate) fn release(&self, hold: &Arc<Hold>) {
        if self.registry.hand_over(hold, NOW, || Some(Grant(Arc::clone(hold)))) {
            return;
        }
        self.freed(&hold.name);
    }

    /// Frees the lock and notifies all subscribers.
    pub(crate) fn freed(&self, name: &Arc<LockName>) {
        let (heard, told) = self.server.free();
        if heard {
            self.registry.message(&name.channel, b"0");
        }
        self.registry.released(name, told, Courtesy::ByMessage);
    }

    /// Frees the lock as another client would. This client only gets the message.
    pub(crate) fn freed_elsewhere(&self) {
        if self.server.free().0 {
            self.registry.message(CHANNEL, b"0");
        }
    }

    /// Asserts that nothing is left at the end.
    pub(crate) fn assert_clean(&self) {
        self.reaper.join();
        self.reaper.run_sleepers();
        self.reaper.join();
        assert!(!self.server.is_held(), "the lock stayed taken");
        assert_eq!(self.registry.waiting(), 0, "somebody waits");
        assert_eq!(self.registry.names(), 0, "a name stayed");
        assert!(!self.server.is_subscribed(), "a subscription stayed");
    }

    pub(crate) fn close(&self) {
        let _ = self.closing.send(true);
    }
}

/// Returns the output of `work`. If `work` is not done after `polls` polls, drops it and returns `None`.
pub(crate) async fn dropped_after<F: Future>(polls: usize, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                loom::thread::yield_now();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}
