//! Events of the workers of one process, and their turns.
//!
//! A process appends its events to a file, one a line: `A worker kind ns` (asks for the lock), `E worker ns` (has
//! entered), `L worker ns` (leaves), `X worker text` (an acquire or a release has failed). The Java agent writes the
//! same lines. The last line of a killed process may be incomplete.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The part of the lock that a turn takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Exclusive,
    Read,
    Write,
}

impl Kind {
    const fn letter(self) -> &'static str {
        match self {
            Self::Exclusive => "x",
            Self::Read => "r",
            Self::Write => "w",
        }
    }

    fn of(letter: &str) -> Option<Self> {
        [Self::Exclusive, Self::Read, Self::Write].into_iter().find(|kind| kind.letter() == letter)
    }
}

/// An event of a worker. The first number is the worker's; times are on the monotonic clock, in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Asked(u64, Kind, u64),
    Entered(u64, u64),
    Left(u64, u64),
    Failed(u64, String),
}

impl Event {
    pub fn line(&self) -> String {
        match self {
            Self::Asked(worker, kind, at) => format!("A {worker} {} {at}\n", kind.letter()),
            Self::Entered(worker, at) => format!("E {worker} {at}\n"),
            Self::Left(worker, at) => format!("L {worker} {at}\n"),
            Self::Failed(worker, why) => format!("X {worker} {}\n", why.replace('\n', " ")),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (letter, rest) = line.split_once(' ')?;
        let (worker, rest) = rest.split_once(' ')?;
        let worker = worker.parse().ok()?;
        Some(match letter {
            "A" => {
                let (kind, at) = rest.split_once(' ')?;
                Self::Asked(worker, Kind::of(kind)?, at.parse().ok()?)
            }
            "E" => Self::Entered(worker, rest.parse().ok()?),
            "L" => Self::Left(worker, rest.parse().ok()?),
            "X" => Self::Failed(worker, rest.to_owned()),
            _ => return None,
        })
    }
}

/// One turn of a worker: it asks, enters and leaves. An open turn has not entered or not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub kind: Kind,
    pub asked: u64,
    pub entered: Option<u64>,
    pub left: Option<u64>,
}

/// The events of one process, read while the process writes them.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line whose end is not written yet.
    part: Vec<u8>,
    open: BTreeMap<u64, Turn>,
    done: Vec<Turn>,
    failures: Vec<String>,
}

impl Trace {
    /// Prepares to read a file that may not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, part: Vec::new(), open: BTreeMap::new(), done: Vec::new(), failures: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the events that were written since the last call.
    pub fn read(&mut self) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return };
        let read = file.read_to_end(&mut self.part);
        read.unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        let Some(end) = self.part.iter().rposition(|byte| *byte == b'\n') else { return };
        let rest = self.part.split_off(end + 1);
        let lines = std::mem::replace(&mut self.part, rest);
        for line in String::from_utf8_lossy(&lines).lines() {
            let event = Event::parse(line);
            self.take(event.unwrap_or_else(|| panic!("{}: no event: {line:?}", self.path.display())));
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Asked(worker, kind, asked) => {
                self.open.insert(worker, Turn { kind, asked, entered: None, left: None });
            }
            Event::Entered(worker, at) => {
                if let Some(turn) = self.open.get_mut(&worker) {
                    turn.entered = Some(at);
                }
            }
            Event::Left(worker, at) => {
                self.done.extend(self.open.remove(&worker).map(|turn| Turn { left: Some(at), ..turn }));
            }
            Event::Failed(worker, why) => {
                // A failed acquire ends the turn. A failed release comes after the turn.
                self.open.remove(&worker);
                self.failures.push(why);
            }
        }
    }

    /// Whether a worker holds the lock, according to the events read so far.
    pub fn is_inside(&self) -> bool {
        self.open.values().any(|turn| turn.entered.is_some())
    }

    /// Returns all turns, open ones too, and the texts of all failures.
    pub fn finish(mut self) -> (Vec<Turn>, Vec<String>) {
        self.read();
        self.done.extend(self.open.into_values());
        (self.done, self.failures)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use distlock_support::reaper::Folder;

    use super::*;

    #[test]
    fn event_round_trips_through_its_line() {
        for event in [
            Event::Asked(1, Kind::Exclusive, 7),
            Event::Asked(2, Kind::Read, 8),
            Event::Asked(3, Kind::Write, 9),
            Event::Entered(4, 10),
            Event::Left(5, 11),
            Event::Failed(6, "unlock: not held".to_owned()),
        ] {
            assert_eq!(Event::parse(event.line().trim_end()), Some(event));
        }
    }

    #[test]
    fn trace_reads_growing_file_up_to_last_complete_line() {
        let folder = Folder::new();
        let mut trace = Trace::new(folder.path().join("events"));
        trace.read();
        let mut file = File::create(trace.path()).expect("a file");
        file.write_all(b"A 0 x 10\nA 1 r 11\nE 0 2").expect("written");
        trace.read();
        assert!(!trace.is_inside());
        file.write_all(b"0\n").expect("written");
        trace.read();
        assert!(trace.is_inside());
        file.write_all(b"L 0 30\nX 1 lock: no\nA 0 w 40\nE 0 50\nL 0 6").expect("written");
        let (turns, failures) = trace.finish();
        let exclusive = Turn { kind: Kind::Exclusive, asked: 10, entered: Some(20), left: Some(30) };
        let open = Turn { kind: Kind::Write, asked: 40, entered: Some(50), left: None };
        assert_eq!(turns, [exclusive, open]);
        assert_eq!(failures, ["lock: no"]);
    }
}
