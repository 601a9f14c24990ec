//! fred's connection for messages: passes every message on, and keeps the subscriptions. Used over native-tls, and by
//! [`over`](super::over).

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike as _, PubsubInterface as _};
use fred::types::config::Server;
use fred::types::{Message, Value};
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::connection::name_connection;
use super::together::MOST;
use distlock_wire::{Demotions, ListenerSlot};

/// Channel names are valid UTF-8, so nothing is lost.
pub(super) fn text(channel: &Bytes) -> String {
    String::from_utf8_lossy(channel).into_owned()
}

/// Subscribes to channels. Each sharded channel has a command of its own, because fred waits for one reply per command.
pub(super) async fn subscribe_to(subscriber: &Client, sharded: bool, channels: Vec<String>) -> Result<(), Error> {
    if sharded {
        let each = channels.into_iter().map(|channel| subscriber.ssubscribe(channel));
        return futures::future::try_join_all(each).await.map(drop);
    }
    subscriber.subscribe(channels).await
}

pub(super) async fn unsubscribe_from(subscriber: &Client, sharded: bool, channels: Vec<String>) -> Result<(), Error> {
    if sharded {
        let each = channels.into_iter().map(|channel| subscriber.sunsubscribe::<String>(channel));
        return futures::future::try_join_all(each).await.map(drop);
    }
    subscriber.unsubscribe::<Vec<String>>(channels).await
}

/// Passes every message on to the listener. This task does nothing else, so that it never falls behind for long.
pub(super) async fn dispatch(mut messages: Receiver<Message>, listener: ListenerSlot) {
    loop {
        match messages.recv().await {
            Ok(Message { channel, value, .. }) => drop(listener.tell(|listener| {
                listener.message(channel.as_bytes(), value.as_bytes().unwrap_or_default());
            })),
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(
                    missed,
                    "messages came in faster than they could be read: every waiter looks for itself"
                );
                listener.tell(|listener| listener.missed());
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Subscribes again to all wanted channels. Returns false if there are none.
///
/// Meanwhile other tasks change `wanted`, and send commands of their own. A command of this function may undo another
/// task's command that was sent earlier. So after each command, this function checks `wanted` again, and corrects the
/// channels that have changed.
async fn renew_subscriptions<E, S, U>(
    wanted: &Mutex<HashSet<Bytes>>,
    subscribe: impl Fn(Vec<String>) -> S,
    unsubscribe: impl Fn(Vec<String>) -> U,
) -> Result<bool, E>
where
    S: Future<Output = Result<(), E>>,
    U: Future<Output = Result<(), E>>,
{
    let mut all: Vec<String> = wanted.lock().iter().map(text).collect();
    let any = !all.is_empty();
    while !all.is_empty() {
        subscribe(all.clone()).await?;
        // No longer wanted: the other task's unsubscribe may have been sent before the subscribe above.
        all.retain(|channel| !wanted.lock().contains(channel.as_bytes()));
        if !all.is_empty() {
            unsubscribe(all.clone()).await?;
            // Wanted again: the other task's subscribe may have been sent before the unsubscribe above.
            all.retain(|channel| wanted.lock().contains(channel.as_bytes()));
        }
    }
    Ok(any)
}

/// Replaces the connection for messages when a connection for commands has reported a demotion.
pub(super) async fn follow(subscriber: Client, mut demotions: Demotions) {
    loop {
        demotions.reported().await;
        let error = "the server was demoted";
        tracing::warn!(%error, "the connection for messages follows that for commands: reconnecting");
        demotions.dials();
        let _ = subscriber.force_reconnection().await;
    }
}

/// Keeps the subscriptions alive: subscribes again after a reconnect, and replaces a silent connection.
pub(super) async fn keep_listening(
    subscriber: Client,
    mut reconnects: Receiver<Server>,
    channels: Arc<Mutex<HashSet<Bytes>>>,
    listener: ListenerSlot,
    ping_interval: Duration,
    sharded: bool,
    name: Arc<str>,
) {
    loop {
        tokio::select! {
            reconnect = reconnects.recv() => match reconnect {
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    tokio::spawn(name_connection(subscriber.clone(), Arc::clone(&name)));
                    let made = async {
                        let subscribe = async |all: Vec<String>| {
                            for some in all.chunks(MOST).filter(|_| !sharded) {
                                subscribe_to(&subscriber, false, some.to_vec()).await?;
                            }
                            for channel in all.into_iter().filter(|_| sharded) {
                                match subscriber.ssubscribe(channel.clone()).await {
                                    // The slot has moved to another server, which gets the subscription.
                                    Err(error) if error.details().starts_with("MOVED") => {
                                        channels.lock().remove(channel.as_bytes());
                                    }
                                    outcome => outcome?,
                                }
                            }
                            Ok(())
                        };
                        let unsubscribe = |ended| unsubscribe_from(&subscriber, sharded, ended);
                        if renew_subscriptions(&channels, subscribe, unsubscribe).await? {
                            subscriber.ping::<Value>(None).await?;
                        }
                        Ok::<_, Error>(())
                    };
                    if let Err(error) = made.await {
                        tracing::warn!(%error, "could not restore subscriptions after a reconnect");
                        let _ = subscriber.force_reconnection().await;
                    }
                    listener.tell(|listener| listener.missed());
                }
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep(ping_interval) => {
                if let Err(error) = subscriber.ping::<Value>(None).await {
                    tracing::warn!(%error, "the connection for messages is silent: reconnecting");
                    let _ = subscriber.force_reconnection().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use fred::types::MessageKind;

    use super::*;
    use crate::transport::Listener;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Vec<u8>>>, AtomicUsize);

    impl Listener for Heard {
        fn message(&self, _channel: &[u8], payload: &[u8]) {
            self.0.lock().push(payload.to_vec());
        }

        fn missed(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }

        fn reconnected(&self) {}
    }

    /// A server with subscriptions. `others` has what another task does while the nth command is in flight.
    struct Subscribed {
        wanted: Mutex<HashSet<Bytes>>,
        there: Mutex<HashSet<String>>,
        others: Mutex<Vec<Option<(bool, &'static str)>>>,
    }

    impl Subscribed {
        async fn command(&self, on: bool, channels: Vec<String>) -> Result<(), ()> {
            // The wish of the other task is noted, and its command takes effect, before this command does.
            if let Some((wants, channel)) = self.others.lock().pop().flatten() {
                let bytes = Bytes::from_static(channel.as_bytes());
                if wants {
                    self.wanted.lock().insert(bytes)
                } else {
                    self.wanted.lock().remove(&bytes)
                };
                self.set(wants, channel.to_owned());
            }
            tokio::task::yield_now().await;
            channels.into_iter().for_each(|channel| self.set(on, channel));
            Ok(())
        }

        fn set(&self, on: bool, channel: String) {
            if on {
                self.there.lock().insert(channel)
            } else {
                self.there.lock().remove(&channel)
            };
        }
    }

    #[tokio::test]
    async fn renewing_subscriptions_keeps_the_changes_of_other_tasks() {
        let acts = [None, Some((true, "a")), Some((false, "a")), Some((true, "b")), Some((false, "b"))];
        for n in 0..acts.len().pow(4) {
            let others: Vec<_> = (0..4).map(|at| acts[n / acts.len().pow(at) % acts.len()]).collect();
            let (wanted, there) = (Mutex::new(HashSet::from([Bytes::from_static(b"a")])), Mutex::default());
            let server = Subscribed { wanted, there, others: Mutex::new(others.clone()) };
            let (on, off) = (|all| server.command(true, all), |all| server.command(false, all));
            assert_eq!(renew_subscriptions(&server.wanted, on, off).await, Ok(true));
            let wanted: HashSet<String> = server.wanted.lock().iter().map(text).collect();
            assert_eq!(*server.there.lock(), wanted, "{others:?}");
        }
    }

    /// Sends `payloads` through a channel of this capacity, to a slow reader. Returns the messages that the listener
    /// got, and how often it was told that some were missed.
    async fn heard(places: usize, payloads: &[&'static str]) -> (Vec<Vec<u8>>, usize) {
        let (sender, messages) = tokio::sync::broadcast::channel(places);
        let heard = Arc::new(Heard::default());
        let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
        let slot = ListenerSlot::default();
        slot.set(Arc::downgrade(&listener));
        let task = tokio::spawn(dispatch(messages, slot));
        for payload in payloads {
            let message = Message {
                channel: "x".into(),
                kind: MessageKind::Message,
                value: Value::from(*payload),
                server: Server::new("localhost", 6379),
            };
            sender.send(message).unwrap();
        }
        drop(sender);
        task.await.unwrap();
        let texts = heard.0.lock().clone();
        (texts, heard.1.load(Ordering::Relaxed))
    }

    /// On a busy machine the first message may arrive before the task that passes it on has run.
    #[tokio::test]
    async fn message_received_before_first_poll_is_delivered() {
        assert_eq!(heard(8, &["0"]).await, (vec![b"0".to_vec()], 0));
    }

    /// There are more messages than places: the listener gets the rest, and all waiters are told to ask the server.
    #[tokio::test]
    async fn dropped_messages_are_reported_as_missed() {
        let (texts, missed) = heard(4, &["0", "1", "2", "3", "4", "5", "6"]).await;
        assert_eq!(texts, ["3", "4", "5", "6"].map(|text| text.as_bytes().to_vec()));
        assert_eq!(missed, 1);
    }
}
