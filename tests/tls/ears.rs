//! Reads every log line of this process at every level, from `tracing` and from the `log` facade (fred and rustls). A
//! secret in a line ends the process, so the logs of all tests in this binary are checked.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A part of every password in these tests.
pub const NEEDLE: &str = "hunter2";

static KEYS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LINES: (AtomicU64, AtomicU64) = (AtomicU64::new(0), AtomicU64::new(0));

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The form in which `Debug` prints bytes.
fn list(bytes: &[u8]) -> String {
    format!("{bytes:?}").trim_matches(['[', ']']).to_owned()
}

pub fn key(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).unwrap();
    // The private number of a P-256 key in PKCS #8. The bytes before it are the same in all keys.
    let number = &der.secret_der()[36..68];
    // The second line of the key's PEM text begins within the number.
    let line = text.lines().nth(2).unwrap().to_owned();
    let forms = [line, hex(number), hex(number).to_uppercase(), list(number), list(&number[8..24])];
    assert!(forms.iter().all(|form| squeezed(form) == *form), "a key with a long run, which would not be found");
    KEYS.lock().extend(forms);
}

/// Shortens long runs of one character, which no secret contains. Without this, the search in names of thousands of
/// characters would be slow.
fn squeezed(text: &str) -> String {
    const LONGEST: u32 = 16;
    let (mut last, mut run) = (None, 0);
    let is_kept = |character: &char| {
        run = if last == Some(*character) { run + 1 } else { 1 };
        last = Some(*character);
        run <= LONGEST
    };
    text.chars().filter(is_kept).collect()
}

pub fn shows(text: &str) -> bool {
    let text = squeezed(text);
    [NEEDLE, "104, 117, 110, 116, 101, 114, 50", "68756e74657232"].iter().any(|part| text.contains(part))
        || KEYS.lock().iter().any(|part| text.contains(part))
}

/// Ends the process if the text contains a secret.
pub fn look_through(what: &str, text: &str) {
    if shows(text) {
        eprintln!("A SECRET SHOWS in {what}: {text}");
        std::process::exit(101);
    }
}

/// Reads the logs until the process ends.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Facade).expect("the only logger");
        log::set_max_level(log::LevelFilter::Trace);
        tracing::subscriber::set_global_default(Ears).expect("the only subscriber");
    });
}

/// The numbers of lines so far, from `tracing` and from `log`.
pub fn heard() -> (u64, u64) {
    (LINES.0.load(Ordering::Relaxed), LINES.1.load(Ordering::Relaxed))
}

struct Facade;

impl log::Log for Facade {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.1.fetch_add(1, Ordering::Relaxed);
        look_through(record.target(), &record.args().to_string());
    }

    fn flush(&self) {}
}

struct Ears;

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?} {value:#?}", field.name());
    }
}

impl Text {
    fn hear(self, of: &str) {
        LINES.0.fetch_add(1, Ordering::Relaxed);
        look_through(of, &self.0);
    }
}

impl Subscriber for Ears {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        attributes.record(&mut text);
        text.hear(attributes.metadata().target());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        text.hear("a span");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        text.hear(event.metadata().target());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
