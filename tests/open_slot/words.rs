//! Translates the words of cases for servers.

use std::sync::OnceLock;

use distlock_support::cluster::{SLOTS, key_in};
use distlock_support::slot_of;

use super::slot::{NAME, now_ms};

const OWNERS: [(&str, &str); 4] = [
    ("$a", "0a1b2c3d-0000-8000-9000-00000000000a:1"),
    ("$b", "0a1b2c3d-0000-8000-9000-00000000000b:1"),
    ("$c", "0a1b2c3d-0000-8000-9000-00000000000c:1"),
    ("$j", "0a1b2c3d-0000-4000-9000-00000000000d:1"),
];

/// A name in another slot of the node that has [`NAME`] at first. Each of the two nodes has half of the slots.
fn other(word: &str) -> &'static str {
    static OTHERS: OnceLock<Vec<String>> = OnceLock::new();
    let is_other = |slot: u16| slot != slot_of(NAME) && slot / (SLOTS / 2) == slot_of(NAME) / (SLOTS / 2);
    let find = || (0..SLOTS).filter(|slot| is_other(*slot)).map(|slot| key_in(slot, "other")).take(2).collect();
    &OTHERS.get_or_init(find)[usize::from(word == "$p")]
}

/// Translates words at one moment.
pub struct Words {
    at: i64,
    publish: &'static str,
}

impl Words {
    pub fn now(publish: &'static str) -> Self {
        Self { at: now_ms(), publish }
    }

    pub fn list(&self, text: &str) -> Vec<String> {
        text.split_whitespace().map(|word| self.word(word)).collect()
    }

    pub fn commands(&self, state: &[&str]) -> Vec<Vec<String>> {
        state.iter().map(|command| self.list(command)).collect()
    }

    fn word(&self, word: &str) -> String {
        let beside = |what: &str| format!("{{{NAME}}}{what}");
        match word {
            "''" => String::new(),
            "$q" | "$d" | "$w" | "$m" | "$n" => beside(&word[1..]),
            "$l" => beside(":timeout"),
            "$t" => format!("distlock_once:{{{NAME}}}:client:1"),
            "$o" | "$p" => other(word).to_owned(),
            "{$o}v" | "{$p}v" | "{$o}:timeout" | "{$p}:timeout" => format!("{{{}}}{}", other(&word[1..3]), &word[4..]),
            "$ch" => format!("channel:{{{NAME}}}"),
            "$pub" => self.publish.to_owned(),
            "$never" => "9999999999999".to_owned(),
            "$a/1" | "$a/2" | "$b/1" | "$c/1" => {
                let (owner, n) = word.split_once('/').expect("a number");
                beside(&format!(":{}:rwlock_timeout:{n}", self.word(owner)))
            }
            _ => match (word.strip_prefix('@'), word.strip_prefix('#')) {
                (Some(ms), _) => self.moment(ms),
                // The id of a permit has 16 bytes.
                (_, Some(permits)) => permits.chars().map(|n| format!("permit{n:0>10}")).collect(),
                _ => OWNERS.iter().fold(word.to_owned(), |word, (short, owner)| word.replace(short, owner)),
            },
        }
    }

    /// A deadline. Java's deadlines are whole numbers, and ours encode when they were set (`lua/fair/queue.lua`).
    fn moment(&self, ms: &str) -> String {
        let due = |ms: &str| self.at + ms.parse::<i64>().expect("ms");
        match ms.strip_prefix('j') {
            Some(ms) => due(ms).to_string(),
            None => {
                let ticks = (self.at * 2 / 125 % 4096).max(1);
                format!("{}", due(ms) as f64 + ticks as f64 / 4096.0)
            }
        }
    }
}
