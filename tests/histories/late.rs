//! When the processes were late, by no doing of theirs.

use std::time::Duration;

use crate::check::Section;

/// Of each process, from when to when, in µs.
pub(crate) struct Late(Vec<(String, u64, u64)>);

impl Late {
    pub(crate) fn of(lines: &[String]) -> Self {
        let parse = |line: &String| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        };
        Self(lines.iter().map(|line| parse(line).expect("a line of ours")).collect())
    }

    /// How long a section went on from then, while its process had time to notice.
    pub(crate) fn until(&self, section: &Section, from: u64) -> Duration {
        let own = self.0.iter().filter(|(late, ..)| late == section.process());
        let excused: u64 =
            own.map(|(_, begin, end)| (*end).min(section.ended).saturating_sub((*begin).max(from))).sum();
        Duration::from_micros(section.ended.saturating_sub(from).saturating_sub(excused))
    }
}
