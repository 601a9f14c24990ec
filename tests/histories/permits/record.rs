//! The record of permits, on a server of its own: grants, ends, and processes that were killed.

use distlock_support::Admin;

use crate::resource::Why;

const TAKE: &str = "
local now, life = redis.call('time'), string.match(ARGV[1], '^%d+')
local at = string.format('%.0f', now[1] * 1000000 + now[2])
redis.call('rpush', 'history', table.concat({'take', ARGV[1], ARGV[2], at, ARGV[3]}, ' '))
redis.call('hset', 'inside', ARGV[1], life)
redis.call('hset', 'latest', life, at)";

const END: &str = "
redis.call('rpush', 'history', table.concat({'end', ARGV[1], ARGV[2], ARGV[3]}, ' '))
redis.call('hdel', 'inside', ARGV[1])";

/// Something that happened. A section is named by the life of its process and a number: `7:12`.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Permits were granted. `until`: the end of their lease, as it was then.
    Take { section: String, permits: u32, at: u64, until: u64 },
    /// A section ended at `ended`, by its own clock. Then the release began, or the permits were lost.
    End { section: String, why: Why, ended: u64 },
    /// A process was killed.
    Dead { life: u64, at: u64 },
}

pub(crate) struct Record(Admin);

impl Record {
    pub(crate) async fn connect(url: &str) -> Self {
        Self(Admin::from_url(url).await)
    }

    pub(crate) async fn take(&self, section: &str, permits: u32, until: u64) {
        self.0.cmd::<()>(&["EVAL", TAKE, "0", section, &permits.to_string(), &until.to_string()]).await;
    }

    pub(crate) async fn end(&self, section: &str, why: Why, ended: u64) {
        self.0.cmd::<()>(&["EVAL", END, "0", section, &format!("{why:?}"), &ended.to_string()]).await;
    }

    pub(crate) async fn dead(&self, life: u64, at: u64) {
        self.0.cmd::<()>(&["RPUSH", "history", &format!("dead {life} {at}")]).await;
    }

    /// Notes a call that failed.
    pub(crate) async fn failed(&self, what: &str) {
        self.0.cmd::<()>(&["RPUSH", "failed", what]).await;
    }

    pub(crate) async fn failures(&self) -> Vec<String> {
        self.0.cmd(&["LRANGE", "failed", "0", "-1"]).await
    }

    pub(crate) async fn history(&self) -> Vec<Event> {
        let lines: Vec<String> = self.0.cmd(&["LRANGE", "history", "0", "-1"]).await;
        lines.iter().map(|line| parse(line).expect("a line of ours")).collect()
    }

    /// Number of events.
    pub(crate) async fn events(&self) -> usize {
        self.0.cmd(&["LLEN", "history"]).await
    }

    /// True if this process holds permits, by its own record.
    pub(crate) async fn is_inside(&self, life: u64) -> bool {
        let inside: Vec<u64> = self.0.cmd(&["HVALS", "inside"]).await;
        inside.contains(&life)
    }

    /// When this process last got permits.
    pub(crate) async fn latest(&self, life: u64) -> Option<u64> {
        self.0.cmd(&["HGET", "latest", &life.to_string()]).await
    }
}

fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["take", section, permits, at, until] => Some(Event::Take {
            section: section.to_owned(),
            permits: permits.parse().ok()?,
            at: at.parse().ok()?,
            until: until.parse().ok()?,
        }),
        ["end", section, why, ended] => {
            Some(Event::End { section: section.to_owned(), why: Why::of(why)?, ended: ended.parse().ok()? })
        }
        ["dead", life, at] => Some(Event::Dead { life: life.parse().ok()?, at: at.parse().ok()? }),
        _ => None,
    }
}
