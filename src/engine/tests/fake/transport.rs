//! The transport of the fake: applies fates to commands, and keeps subscriptions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use distlock_sim::distlock::transport::Transport as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::sleep;

use super::{Fake, Fate, Sent};
use crate::transport::{Call, Fault, FaultKind, Listener, Reply, Transport};
use crate::world::{Moment, World};

/// Time of a command to the server, and of its reply back.
const HOP: Duration = Duration::from_millis(1);

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// As at a real server, a command continues when the caller drops its future.
impl Transport for Arc<Fake> {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        Fake::run(Arc::clone(self), call).boxed()
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        let fake = Arc::clone(self);
        async move {
            let fails = {
                let mut state = fake.state.lock();
                state.subscribes.push(fake.begin.elapsed());
                state.subscribe_fails
            };
            fake.pass_gate().await;
            if fails {
                return Err(Fault::new(FaultKind::Lost, "no connection"));
            }
            sleep(HOP).await;
            let closed = |_| Fault::new(FaultKind::Closed, "closed");
            fake.line.subscribe(channel).await.map_err(closed)?;
            sleep(HOP).await;
            Ok(())
        }
        .boxed()
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        let fake = Arc::clone(self);
        async move {
            fake.state.lock().unsubscribes.push(fake.begin.elapsed());
            fake.pass_gate().await;
            // An unsubscribe takes longer than a subscribe that is requested at the same time.
            sleep(2 * HOP).await;
            fake.line.unsubscribe(channel).await;
            sleep(HOP).await;
        }
        .boxed()
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        assert!(self.listener.set(listener).is_ok(), "told twice");
    }

    fn address(&self) -> &str {
        "fake"
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Arc::clone(self))
    }

    fn prefers_bare_commands(&self) -> bool {
        self.prefers_bare.load(Ordering::Relaxed)
    }

    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        self.line.close(Duration::ZERO)
    }
}

impl Fake {
    async fn run(self: Arc<Self>, call: Call) -> Result<Reply, Fault> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let _alive = Alive(Arc::clone(&self.alive));
        let fate = {
            let mut state = self.state.lock();
            let script = call.script.name;
            state.sent.push(Sent { script, keys: call.keys, words: call.words.clone() });
            let fate = state.fates.iter().position(|(which, _)| script.ends_with(which));
            fate.map(|at| state.fates.remove(at).1)
        };
        let lost = || Fault::new(FaultKind::Lost, "connection lost");
        let (before, after) = match fate {
            None => (HOP, HOP),
            Some(Fate::Unacknowledged) => {
                sleep(HOP).await;
                let _ = self.carry_out(&call);
                sleep(HOP).await;
                return Err(Fault::new(FaultKind::Unacknowledged { got: 0, wanted: 1 }, "WAIT"));
            }
            Some(Fate::NotSent) => return Err(Fault::new(FaultKind::NotSent, "no connection")),
            Some(Fate::Lost(carried_out)) => {
                sleep(HOP).await;
                if carried_out {
                    let _ = self.carry_out(&call);
                }
                sleep(HOP).await;
                return Err(lost());
            }
            Some(Fate::Slow(slow)) => (slow, HOP),
            Some(Fate::Late(late)) => (HOP, late),
            Some(Fate::Refused(message)) => {
                sleep(2 * HOP).await;
                return Err(Fault::new(FaultKind::Refused, message));
            }
            Some(Fate::Answer(reply)) => {
                sleep(2 * HOP).await;
                return Ok(reply);
            }
            Some(Fate::Later(reply, after)) => {
                sleep(after).await;
                return Ok(reply);
            }
            Some(Fate::Ghost(after)) => {
                tokio::spawn(async move {
                    sleep(after).await;
                    let _ = self.carry_out(&call);
                });
                sleep(2 * HOP).await;
                return Err(lost());
            }
        };
        sleep(before).await;
        let reply = self.carry_out(&call);
        sleep(after).await;
        reply
    }
}

impl World for Arc<Fake> {
    fn now(&self) -> Moment {
        let suspended = Duration::from_millis(self.suspended.load(Ordering::Relaxed));
        Moment::from_nanos(1_000_000_000) + self.begin.elapsed() + suspended
    }

    fn random(&self) -> u64 {
        self.numbers.lock().any()
    }
}
