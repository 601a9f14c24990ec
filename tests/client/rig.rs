//! Helpers that several client tests share.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use distlock::{Client, DistLock, Flavour, Guard, Owner};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use bed::{Bed, becomes, ends, reentrant};

/// The reentrant flavours: an owner may have several holds.
pub const REENTRANT: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

/// Runs a test body for each of [`REENTRANT`], one after the other, on one server.
pub async fn each(body: impl AsyncFn(&Bed, Flavour)) {
    reentrant(async |bed| {
        for flavour in REENTRANT {
            body(bed, flavour).await;
        }
    })
    .await;
}

/// This owner, as another process would know it.
pub fn elsewhere(owner: &Owner) -> Owner {
    owner.as_str().parse().unwrap()
}

pub fn takes(lock: impl DistLock + 'static) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.unwrap_or_else(|error| panic!("lock(): {error:?}")) })
}

pub async fn is_served(who: &str, task: JoinHandle<Guard>) {
    ends(who, task).await.unwrap().unlock().await.unwrap_or_else(|error| panic!("unlock() of {who}: {error:?}"));
}

pub async fn waiting(client: &Client, count: usize) {
    becomes("waiting tasks", count, async || client.stats().waiting).await;
}

/// Waits until the client has no command in flight. Tasks may still wait for locks.
pub async fn nothing_under_way(client: &Client) {
    becomes("commands under way", 0, async || client.stats().under_way).await;
}

pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Records the warnings that this crate logs on one thread.
#[derive(Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Records on this thread until the guard is dropped.
    pub fn listen() -> (Self, DefaultGuard) {
        // With only one subscriber, tracing would disable an event for good if another thread reached it first.
        std::mem::forget(Dispatch::new(NoSubscriber::default()));
        let warnings = Self::default();
        let guard = tracing::subscriber::set_default(warnings.clone());
        (warnings, guard)
    }

    pub fn count(&self, texts: &[&str]) -> usize {
        self.0.lock().iter().filter(|warning| texts.iter().all(|text| warning.contains(text))).count()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("distlock")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
