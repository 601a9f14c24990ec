//! Records all logs: of `tracing` on one thread, and of the `log` facade (used by fred) in the whole process.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// `tracing` events on this thread while the guard of [`Ears::open`] lives.
#[derive(Clone, Default)]
pub struct Ears {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Ears {
    /// Records every level on this thread until the guard is dropped.
    pub fn open() -> (Self, DefaultGuard) {
        // With only one subscriber, tracing asks the first thread that reaches a call site whether it is interested. A
        // thread without a subscriber would disable the call site for good.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(NoSubscriber::default()));
        let ears = Self::default();
        let guard = tracing::subscriber::set_default(ears.clone());
        (ears, guard)
    }

    /// All lines so far, spans included.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?} {value:#?}", field.name());
    }
}

impl Subscriber for Ears {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut text = Text(format!("{} {}", attributes.metadata().target(), attributes.metadata().name()));
        attributes.record(&mut text);
        self.lines.lock().push(text.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = Text(String::from("recorded"));
        values.record(&mut text);
        self.lines.lock().push(text.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().target().to_owned());
        event.record(&mut text);
        self.lines.lock().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A logger for the `log` facade. It keeps messages that show the password, and counts all messages.
pub struct Facade {
    found: Mutex<Vec<String>>,
    heard: AtomicU64,
}

impl Facade {
    /// Records every level until [`close`](Self::close).
    pub fn listen() -> &'static Self {
        static FACADE: Facade = Facade { found: Mutex::new(Vec::new()), heard: AtomicU64::new(0) };
        static ONCE: Once = Once::new();
        ONCE.call_once(|| log::set_logger(&FACADE).expect("the only logger"));
        log::set_max_level(log::LevelFilter::Trace);
        &FACADE
    }

    pub fn close(&self) {
        log::set_max_level(log::LevelFilter::Off);
    }

    /// Returns the number of messages, and the texts of messages that contain the password.
    pub fn found(&self) -> (u64, Vec<String>) {
        (self.heard.load(Ordering::Relaxed), self.found.lock().clone())
    }
}

impl log::Log for Facade {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        let line = format!("{} {} {}", record.level(), record.target(), record.args());
        if super::secrets::shows(&line) {
            self.found.lock().push(line);
        }
    }

    fn flush(&self) {}
}
