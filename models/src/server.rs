//! A server with one lock, and a client in miniature that waits for it by the registry's rules.

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

/// What the server knows.
#[derive(Debug, Default)]
struct State {
    held: bool,
    subscribed: bool,
    /// A subscription began while there was one.
    begun_twice: bool,
    /// And ended behind that: whoever asked for the second one was cut off.
    cut_off: bool,
    refuses: bool,
    /// How many other clients are told of every release.
    others: u32,
}

/// One lock with one channel.
#[derive(Debug, Default)]
pub(crate) struct Server(Mutex<State>);

impl Server {
    pub(crate) fn try_acquire(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().held, true)
    }

    /// Frees the lock. Whether the client is told by a message, and how many are in all.
    fn free(&self) -> (bool, u32) {
        let mut state = self.0.lock();
        assert!(std::mem::replace(&mut state.held, false), "released what nobody held");
        (state.subscribed, u32::from(state.subscribed) + state.others)
    }

    /// From here on so many other clients are told of every release.
    pub(crate) fn tells(&self, others: u32) {
        self.0.lock().others = others;
    }

    pub(crate) fn subscribe(&self) -> Result<(), &'static str> {
        let mut state = self.0.lock();
        // A refusal may be a reply that was lost.
        state.begun_twice = std::mem::replace(&mut state.subscribed, true);
        if state.refuses { Err("refused") } else { Ok(()) }
    }

    pub(crate) fn unsubscribe(&self) {
        let mut state = self.0.lock();
        state.cut_off |= std::mem::take(&mut state.begun_twice);
        state.subscribed = false;
    }

    /// True when one subscription was ended after another one had been confirmed.
    pub(crate) fn has_cut_off(&self) -> bool {
        self.0.lock().cut_off
    }

    /// From here on the replies to subscriptions are lost.
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

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) registry: Arc<Registry>,
    pub(crate) server: Arc<Server>,
    pub(crate) reaper: Reaper,
    this: Weak<Self>,
    closing: watch::Sender<bool>,
}

/// A name; two with the same channel may be had.
pub(crate) fn name(text: &str) -> Arc<LockName> {
    Arc::new(LockName { as_written: text.to_owned(), channel: Bytes::from_static(CHANNEL), lock: None })
}

impl Client {
    /// `handoffs`: how often it hands a lock over to its own.
    pub(crate) fn new(handoffs: u32) -> Arc<Self> {
        let (server, reaper) = (Arc::new(Server::default()), Reaper::default());
        let options = Options {
            handoff_limit: handoffs,
            handoff_time: FOREVER,
            take_turns: true,
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

    /// Waits for the lock, as `engine::wait` does: the turn, an attempt, the subscription, another attempt, sleep.
    pub(crate) async fn lock(&self, name: &Arc<LockName>) -> Grant {
        let mut waiter = self.registry.enter(name, Some(FLAVOUR));
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
            // Without messages it polls.
            let limit = if waiter.is_listening() { FOREVER } else { Duration::ZERO };
            waiter.park(limit, Until::Message).await;
        }
    }

    /// Gives a hold back: to the next of this client, or to the server.
    pub(crate) fn release(&self, hold: &Arc<Hold>) {
        if self.registry.hand_over(hold, NOW, || Some(Grant(Arc::clone(hold)))) {
            return;
        }
        self.freed(&hold.name);
    }

    /// The lock becomes free, and whoever listens is told.
    pub(crate) fn freed(&self, name: &Arc<LockName>) {
        let (heard, told) = self.server.free();
        if heard {
            self.registry.message(&name.channel, b"0");
        }
        self.registry.released(name, told, Courtesy::ByMessage);
    }

    /// Another client, which holds the lock, frees it: a message is all that comes of it here.
    pub(crate) fn freed_elsewhere(&self) {
        if self.server.free().0 {
            self.registry.message(CHANNEL, b"0");
        }
    }

    /// All is over: nothing may be left.
    pub(crate) fn assert_clean(&self) {
        self.reaper.join();
        self.reaper.run_sleepers();
        self.reaper.join();
        assert!(!self.server.is_held(), "the lock stayed taken");
        assert_eq!(self.registry.waiting(), 0, "somebody waits");
        assert_eq!(self.registry.names(), 0, "a name stayed");
        assert!(!self.server.is_subscribed(), "a subscription stayed");
    }

    /// The client closes.
    pub(crate) fn close(&self) {
        let _ = self.closing.send(true);
    }
}

/// What `work` brings, unless its caller goes away first: after it was polled so often.
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
