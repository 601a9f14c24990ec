//! Messages of sentinels to their subscribers, with arrival times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

#[derive(Clone, Debug)]
pub struct Event {
    pub at: Instant,
    pub sentinel: SocketAddr,
    /// The channel, such as `+switch-master`.
    pub channel: String,
    /// The message, such as `locks 127.0.0.1 11000 127.0.0.1 11007`.
    pub text: String,
}

/// Listens to every sentinel, on its own thread, so that a busy test does not delay the arrival times.
#[derive(Debug)]
pub(super) struct Events {
    log: Arc<Mutex<Vec<Event>>>,
    // Dropping this ends the thread.
    listen: mpsc::UnboundedSender<Listened>,
}

#[derive(Debug)]
struct Listened {
    sentinel: SocketAddr,
    url: String,
    ready: oneshot::Sender<()>,
}

impl Events {
    pub(super) fn start() -> Self {
        let (listen, mut wanted) = mpsc::unbounded_channel();
        let log = Arc::<Mutex<Vec<Event>>>::default();
        let shared = log.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap_or_else(|e| panic!("no runtime to listen to sentinels on: {e}"));
            runtime.block_on(async {
                while let Some(listened) = wanted.recv().await {
                    tokio::spawn(listen_to(listened, shared.clone()));
                }
            });
        });
        Self { log, listen }
    }

    /// Subscribes to one more sentinel, and returns once subscribed. Resubscribes after each restart of the sentinel.
    pub(super) async fn listen_to(&self, sentinel: SocketAddr, url: &str) {
        let (ready, is_ready) = oneshot::channel();
        let listened = Listened { sentinel, url: url.to_owned(), ready };
        if self.listen.send(listened).is_err() || is_ready.await.is_err() {
            panic!("the thread that listens to sentinels has died");
        }
    }

    pub(super) fn all(&self) -> Vec<Event> {
        self.log.lock().clone()
    }
}

async fn listen_to(listened: Listened, log: Arc<Mutex<Vec<Event>>>) {
    let Listened { sentinel, url, ready } = listened;
    let client = redis::Client::open(&*url).unwrap_or_else(|e| panic!("bad url {url}: {e}"));
    let mut ready = Some(ready);
    loop {
        if let Ok(mut pubsub) = client.get_async_pubsub().await
            && pubsub.psubscribe("*").await.is_ok()
        {
            if let Some(ready) = ready.take() {
                let _ = ready.send(());
            }
            let mut messages = pubsub.on_message();
            while let Some(message) = messages.next().await {
                let channel = message.get_channel_name().to_owned();
                let text = message.get_payload().unwrap_or_default();
                log.lock().push(Event { at: Instant::now(), sentinel, channel, text });
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
