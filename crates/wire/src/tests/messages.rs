//! Subscriptions, and what the listener is told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::*;
use crate::dial::Dialer;
use crate::{Demotions, Listener, ListenerSlot, MessageLine};

#[derive(Default)]
struct Heard {
    reconnected: AtomicU32,
    missed: AtomicU32,
    deaf: AtomicU32,
    messages: Mutex<Vec<Vec<u8>>>,
}

impl Listener for Heard {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        self.messages.lock().push([channel, b" ", payload].concat());
    }

    fn deaf(&self) {
        self.deaf.fetch_add(1, Ordering::SeqCst);
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }

    fn reconnected(&self) {
        self.reconnected.fetch_add(1, Ordering::SeqCst);
    }
}

/// A connection for messages alone, which reports to `listener` and comes up when it can.
fn messages_of(
    server: &Server,
    settings: &Settings,
    listener: Weak<dyn Listener>,
    demotions: &Demotions,
) -> MessageLine {
    let dialer = Arc::new(Dialer::new(server.target(), settings));
    let line = MessageLine::over(dialer, false, ListenerSlot::default(), None, demotions.clone());
    line.listen(listener);
    line
}

async fn reaches(count: &AtomicU32, expected: u32) {
    while count.load(Ordering::SeqCst) < expected {
        tokio::time::sleep(ms(1)).await;
    }
}

#[tokio::test]
async fn deaf_is_reported_once_per_outage() {
    let (server, heard) = (Server::start().await, Arc::new(Heard::default()));
    let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
    let settings = Settings { deaf_after: ms(100), ..Settings::default() };
    let _line = messages_of(&server, &settings, Arc::downgrade(&listener), &Demotions::default());
    for outage in 0..3 {
        let mut messages = server.accept().await;
        if outage > 0 {
            reaches(&heard.deaf, outage).await;
            // Connections that break before their subscriptions are confirmed belong to the same outage.
            for _ in 0..2 {
                drop(messages);
                messages = server.accept().await;
                tokio::time::sleep(settings.deaf_after / 2).await;
            }
        }
        assert_eq!(messages.words().await, [b"PING"]);
        messages.say("+PONG\r\n").await;
        reaches(&heard.missed, outage + 1).await;
        assert_eq!(heard.deaf.load(Ordering::SeqCst), outage);
    }
}

#[tokio::test]
async fn messages_follow_a_demotion_unless_they_connected_after_it() {
    let (server, heard, mut demotions) = (Server::start().await, Arc::new(Heard::default()), Demotions::default());
    let listener: Arc<dyn Listener> = heard;
    demotions.report();
    let line = messages_of(&server, &Settings::default(), Arc::downgrade(&listener), &demotions);
    let mut messages = server.accept().await;
    assert_eq!(messages.words().await, [b"PING"]);
    messages.say("+PONG\r\n").await;
    let subscribing = line.subscribe(Bytes::from_static(b"c"));
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"], "the same connection");
    drop(subscribing);
    demotions.report();
    let mut messages = server.accept().await;
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"], "another connection");
}

#[tokio::test]
async fn subscriptions_are_confirmed_by_the_server_and_renewed() {
    let server = Server::start().await;
    let (connections, _commands, mut messages) = server.connect(Duration::from_secs(30)).await;
    let heard = Arc::new(Heard::default());
    let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
    connections.listen(Arc::downgrade(&listener));
    let mut subscribing = connections.subscribe(Bytes::from_static(b"c"));
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    assert!(tokio::time::timeout(ms(50), subscribing.as_mut()).await.is_err(), "it was only sent");
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n>3\r\n+message\r\n+c\r\n+0\r\n").await;
    subscribing.await.unwrap();
    // A refused subscription is reported, and not renewed.
    let refused = connections.subscribe(Bytes::from_static(b"d"));
    assert_eq!(messages.word().await, b"d");
    messages.say("-NOPERM no\r\n").await;
    assert_eq!(refused.await.unwrap_err().kind, FaultKind::Refused);
    drop(messages);
    let mut messages = server.accept().await;
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    assert_eq!(messages.words().await, [b"PING"]);
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n").await;
    assert_eq!(heard.missed.load(Ordering::SeqCst), 0);
    // A refused `PING` is an answer too.
    messages.say("-NOPERM no\r\n*3\r\n+message\r\n+c\r\n+1\r\n").await;
    let ended = connections.unsubscribe(Bytes::from_static(b"c"));
    assert_eq!(messages.words().await, [&b"UNSUBSCRIBE"[..], b"c"]);
    messages.say(">3\r\n+unsubscribe\r\n+c\r\n:0\r\n").await;
    ended.await;
    assert_eq!(*heard.messages.lock(), [b"c 0", b"c 1"]);
    assert_eq!((heard.missed.load(Ordering::SeqCst), heard.reconnected.load(Ordering::SeqCst)), (1, 0));
}

/// Two names may share a channel, and each name subscribes for itself.
#[tokio::test]
async fn subscription_timeout_leaves_an_earlier_subscription_in_force() {
    let server = Server::start().await;
    let settings = Settings { subscribe_timeout: ms(200), pool_size: 1, ..Settings::default() };
    let (connections, _commands, mut messages) = server.connect_with(&settings).await;
    let c = || Bytes::from_static(b"c");
    let subscribing = connections.subscribe(c());
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n").await;
    subscribing.await.unwrap();
    let late = connections.subscribe(c());
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    assert_eq!(late.await.unwrap_err().kind, FaultKind::TimedOut);
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n").await;
    let _other = connections.subscribe(Bytes::from_static(b"d"));
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"d"], "the first one hears no message any more");
    // A caller that does not need the channel ends the subscription.
    let ended = connections.unsubscribe(c());
    assert_eq!(messages.words().await, [&b"UNSUBSCRIBE"[..], b"c"]);
    drop(ended);
}
