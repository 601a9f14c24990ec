//! With `TRACE=1`: prints the crate's log and the tests' messages, with virtual times.

use crate::prelude::*;
use std::cell::Cell;
use std::fmt::{Debug, Write as _};
use std::sync::OnceLock;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// Starts printing on this thread if `TRACE` is set. Stops when the result is dropped.
pub fn start() -> Option<tracing::subscriber::DefaultGuard> {
    wished().then(|| tracing::subscriber::set_default(Printer(Instant::now())))
}

fn wished() -> bool {
    static WISHED: OnceLock<bool> = OnceLock::new();
    *WISHED.get_or_init(|| std::env::var_os("TRACE").is_some())
}

thread_local! {
    static MUTE: Cell<bool> = const { Cell::new(false) };
}

pub fn mute(mute: bool) {
    MUTE.set(mute);
}

/// Prints a line if `TRACE` is set.
pub fn say(line: impl FnOnce() -> String) {
    if wished() && !MUTE.get() {
        eprintln!("{}", line());
    }
}

struct Printer(Instant);

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("distlock")
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if MUTE.get() {
            return;
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        eprintln!("{:>12?} {}", self.0.elapsed(), line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}
