//! The connection for messages: hands every one on, and keeps the subscriptions.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::{ClientLike as _, PubsubInterface as _};
use fred::types::config::Server;
use fred::types::{Message, Value};
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::transport::Listener;

/// Channel names are made from `str`s.
pub(super) fn text(channel: &Bytes) -> String {
    String::from_utf8_lossy(channel).into_owned()
}

/// Hands every message on to the listener. Does nothing else, so that it never falls behind for long.
pub(super) async fn dispatch(mut messages: Receiver<Message>, listener: Arc<OnceLock<Weak<dyn Listener>>>) {
    loop {
        let message = messages.recv().await;
        let Some(listener) = listener.get() else { continue };
        let Some(listener) = listener.upgrade() else { return };
        match message {
            Ok(message) => listener.message(message.channel.as_bytes(), message.value.as_bytes().unwrap_or_default()),
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(
                    missed,
                    "messages came in faster than they could be read: every waiter looks for itself"
                );
                listener.missed();
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Keeps the subscriptions alive: makes them anew after a reconnect, and notices a connection that has fallen silent.
pub(super) async fn keep_listening(
    subscriber: Client,
    mut reconnects: Receiver<Server>,
    channels: Arc<Mutex<HashSet<Bytes>>>,
    listener: Arc<OnceLock<Weak<dyn Listener>>>,
    ping_interval: Duration,
) {
    loop {
        tokio::select! {
            reconnect = reconnects.recv() => match reconnect {
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    let all: Vec<String> = channels.lock().iter().map(text).collect();
                    if !all.is_empty() {
                        let made = async {
                            subscriber.subscribe(all.clone()).await?;
                            // One that was ended meanwhile, by a command that went out before this one, is not wanted.
                            let ended: Vec<String> = {
                                let wanted = channels.lock();
                                all.into_iter().filter(|channel| !wanted.contains(channel.as_bytes())).collect()
                            };
                            if !ended.is_empty() {
                                subscriber.unsubscribe(ended).await?;
                            }
                            subscriber.ping::<Value>(None).await
                        };
                        if let Err(error) = made.await {
                            tracing::warn!(%error, "could not subscribe anew after a reconnect");
                            let _ = subscriber.force_reconnection().await;
                        }
                    }
                    if let Some(listener) = listener.get().and_then(Weak::upgrade) {
                        listener.missed();
                    }
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
    use fred::types::MessageKind;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Vec<u8>>>);

    impl Listener for Heard {
        fn message(&self, _channel: &[u8], payload: &[u8]) {
            self.0.lock().push(payload.to_vec());
        }

        fn missed(&self) {}

        fn reconnected(&self) {}
    }

    /// A client that was just connected, on a busy machine: its first message is here before the task has run that hands it
    /// on.
    #[tokio::test]
    async fn what_came_before_anybody_listened_is_heard() {
        let (sender, messages) = tokio::sync::broadcast::channel(8);
        let heard = Arc::new(Heard::default());
        let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
        let task = tokio::spawn(dispatch(messages, Arc::new(OnceLock::from(Arc::downgrade(&listener)))));
        let message = Message {
            channel: "x".into(),
            kind: MessageKind::Message,
            value: Value::from("0"),
            server: Server::new("localhost", 6379),
        };
        sender.send(message).unwrap();
        drop(sender);
        task.await.unwrap();
        assert_eq!(*heard.0.lock(), [b"0".to_vec()]);
    }
}
