//! The protected resource, on a server of its own. It keeps the largest token of each name, and a history of entries
//! and exits.

use std::time::SystemTime;

use distlock_support::Admin;

/// Time of day in µs, the same for all processes and the resource.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("some more years")
}

const ENTER: &str = "
local now, largest = redis.call('time'), tonumber(redis.call('hget', 'largest', ARGV[1]) or '0')
if tonumber(ARGV[3]) > largest then redis.call('hset', 'largest', ARGV[1], ARGV[3]) end
local at = string.format('%.0f', now[1] * 1000000 + now[2])
redis.call('rpush', 'history', table.concat({'enter', ARGV[1], ARGV[2], ARGV[3], largest, at}, ' '))";

pub(crate) struct Resource(Admin);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A section entered with `token`. `largest` was the largest token before.
    Enter { name: String, section: String, token: u64, largest: u64, at: u64 },
    /// A section exited. It ended at `ended`, by its own clock.
    Leave { section: String, why: Why, ended: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Done,
    /// The guard reported a loss: the lease ended by the local clock.
    Expired,
    /// The guard reported a loss: the server does not have the lock.
    Gone,
}

impl Why {
    /// The reason with this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        [Self::Done, Self::Expired, Self::Gone].into_iter().find(|one| format!("{one:?}") == name)
    }
}

impl Resource {
    pub(crate) async fn connect(url: &str) -> Self {
        Self(Admin::from_url(url).await)
    }

    pub(crate) async fn enter(&self, name: &str, section: &str, token: u64) {
        self.0.cmd::<()>(&["EVAL", ENTER, "0", name, section, &token.to_string()]).await;
    }

    pub(crate) async fn leave(&self, section: &str, why: Why, ended: u64) {
        self.note("history", &[format!("leave {section} {why:?} {ended}")]).await;
    }

    pub(crate) async fn note(&self, list: &str, lines: &[String]) {
        let words: Vec<&str> = ["RPUSH", list].into_iter().chain(lines.iter().map(String::as_str)).collect();
        self.0.cmd::<()>(&words).await;
    }

    pub(crate) async fn notes(&self, list: &str) -> Vec<String> {
        self.0.cmd(&["LRANGE", list, "0", "-1"]).await
    }

    pub(crate) async fn history(&self) -> Vec<Event> {
        self.notes("history").await.iter().map(|line| parse(line).expect("a line of ours")).collect()
    }
}

fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["enter", name, section, token, largest, at] => Some(Event::Enter {
            name: name.to_owned(),
            section: section.to_owned(),
            token: token.parse().ok()?,
            largest: largest.parse().ok()?,
            at: at.parse().ok()?,
        }),
        ["leave", section, why, ended] => {
            Some(Event::Leave { section: section.to_owned(), why: Why::of(why)?, ended: ended.parse().ok()? })
        }
        _ => None,
    }
}
