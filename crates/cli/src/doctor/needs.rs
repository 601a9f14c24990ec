//! Rights that each kind of lock needs, as in `docs/acl.md`. Rights whose absence only slows a lock down are left out.

use clap::ValueEnum;

/// A kind of lock or counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    Reentrant,
    Spin,
    Fair,
    #[value(aliases = ["read", "write"])]
    ReadWrite,
    Fenced,
    Plain,
    Permits,
    Semaphore,
    Latch,
    Barrier,
    Leader,
}

/// A rule of an access list, and a key or channel that the rule must admit.
///
/// `@` stands for the name prefix, `%` for a whole name, and `#` for that name in braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sample {
    rule: &'static str,
    example: &'static str,
}

/// Commands of the reentrant lock.
const HASH: &[&str] = &[
    "exists", "del", "type", "pexpire", "pttl", "hset", "hget", "hmget", "hdel", "hexists", "hkeys", "hgetall", "time",
];

const fn sample(rule: &'static str, example: &'static str) -> Sample {
    Sample { rule, example }
}

const OF_REDISSON: &str = "~redisson_lock_*:{@*}*";
const ONCE: &str = "~distlock_once:*{@*}:*";
const RELEASES: &str = "&redisson_*:{@*}*";

pub(super) const NAME: Sample = sample("~@*", "%");
const QUEUE: Sample = sample(OF_REDISSON, "redisson_lock_queue:#");
const DEADLINES: Sample = sample(OF_REDISSON, "redisson_lock_timeout:#");
const WAITERS: Sample = sample(OF_REDISSON, "redisson_lock_waiters:#:%");
const COUNTER: Sample = sample(OF_REDISSON, "redisson_lock_token:#");
const COVER: Sample = sample("~{@*}:*", "#:probe:1:rwlock_timeout:1");
const MARKS: Sample = sample("~{@*}:*", "#:rwlock_waiting");
const LEASES: Sample = sample("~{@*}:*", "#:timeout");
const TOKEN: Sample = sample(ONCE, "distlock_once:#:probe:1");
const PARTIES: Sample = sample("~distlock_barrier:{@*}*", "distlock_barrier:#");
const PARTY_TOKEN: Sample = sample(ONCE, "distlock_once:distlock_barrier:#:probe:1");

impl Kind {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant locks",
            Self::Spin => "spin locks",
            Self::Fair => "fair locks",
            Self::ReadWrite => "read-write locks",
            Self::Fenced => "fenced locks",
            Self::Plain => "plain locks",
            Self::Permits => "permits",
            Self::Semaphore => "semaphores",
            Self::Latch => "latches",
            Self::Barrier => "barriers",
            Self::Leader => "leaders",
        }
    }

    /// The commands of its scripts.
    pub(super) fn commands(self) -> impl Iterator<Item = &'static str> {
        let (common, own): (&[&str], &[&str]) = match self {
            Self::Reentrant | Self::Spin => (HASH, &[]),
            Self::Fair => (
                HASH,
                &[
                    "hlen", "zadd", "zrem", "lindex", "llen", "lrange", "lpop", "lrem", "rpush", "zcard", "zincrby",
                    "zrange", "zscore",
                ],
            ),
            Self::ReadWrite => (HASH, &["set", "hlen"]),
            Self::Fenced | Self::Leader => (HASH, &["incr", "get", "persist"]),
            Self::Plain => (&[], &["del", "pexpire", "pttl", "time", "get", "set"]),
            Self::Permits => (
                &["del", "exists", "pexpire", "pttl", "time"],
                &["get", "set", "incrby", "zadd", "zrem", "zcount", "zcard", "zrange", "zscore", "zrangebyscore"],
            ),
            Self::Semaphore => (&["del", "exists", "time"], &["get", "set", "incrby", "decrby"]),
            Self::Latch => (&["del", "time"], &["get", "set", "incrby", "decrby"]),
            Self::Barrier => (
                &["del", "hget", "hmget", "hset", "pexpire", "time"],
                &["get", "set", "zadd", "zrem", "zcard", "zcount", "zscore"],
            ),
        };
        common.iter().chain(own).copied()
    }

    /// The keys that its scripts use.
    pub(super) const fn keys(self) -> &'static [Sample] {
        match self {
            Self::Reentrant | Self::Spin | Self::Plain => &[NAME],
            Self::Fair => &[NAME, QUEUE, DEADLINES, WAITERS],
            Self::ReadWrite => &[NAME, COVER, MARKS],
            Self::Fenced | Self::Leader => &[NAME, COUNTER],
            Self::Permits => &[NAME, LEASES],
            Self::Semaphore | Self::Latch => &[NAME, TOKEN],
            Self::Barrier => &[PARTIES, PARTY_TOKEN],
        }
    }

    /// The channel of its release messages.
    pub(super) const fn channel(self) -> Option<Sample> {
        match self {
            Self::Reentrant | Self::Fenced => Some(sample(RELEASES, "redisson_lock__channel:#")),
            Self::Fair => Some(sample(RELEASES, "redisson_lock__channel:#:probe:1")),
            Self::ReadWrite => Some(sample(RELEASES, "redisson_rwlock:#")),
            Self::Permits | Self::Semaphore => Some(sample(RELEASES, "redisson_sc:#")),
            Self::Spin => None,
            Self::Plain => Some(sample("&distlock_plain:{@*}", "distlock_plain:#")),
            Self::Latch => Some(sample("&redisson_countdownlatch__*{@*}", "redisson_countdownlatch__channel__{%}")),
            Self::Barrier => Some(sample("&distlock_barrier_*:{@*}", "distlock_barrier__channel:#")),
            Self::Leader => Some(sample("&distlock_leader:{@*}", "distlock_leader:#")),
        }
    }
}

impl Sample {
    /// The rule for names with this prefix.
    pub(super) fn rule(self, prefix: &str) -> String {
        self.rule.replace('@', prefix)
    }

    /// The example for this name.
    pub(super) fn example(self, name: &str) -> String {
        let mut text = String::new();
        for letter in self.example.chars() {
            match letter {
                '%' => text += name,
                // As in Redisson, a name with braces gets no further braces.
                '#' if name.contains('{') => text += name,
                '#' => text += &format!("{{{name}}}"),
                other => text.push(other),
            }
        }
        text
    }
}

/// Everything that any kind needs, each once.
fn each<T: Ord>(needed: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = needed.collect();
    all.sort();
    all.dedup();
    all
}

pub(super) fn all_commands() -> Vec<&'static str> {
    each(Kind::value_variants().iter().flat_map(|kind| kind.commands()))
}

pub(super) fn all_keys() -> Vec<Sample> {
    each(Kind::value_variants().iter().flat_map(|kind| kind.keys().iter().copied()))
}

pub(super) fn all_channels() -> Vec<Sample> {
    each(Kind::value_variants().iter().filter_map(|kind| kind.channel()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_contain_the_name_as_redisson_writes_it() {
        let queue = sample("~redisson_lock_*:{@*}*", "redisson_lock_waiters:#:%");
        assert_eq!(queue.example("a:b"), "redisson_lock_waiters:{a:b}:a:b");
        assert_eq!(queue.example("x{y}"), "redisson_lock_waiters:x{y}:x{y}");
        assert_eq!(queue.rule("app:"), "~redisson_lock_*:{app:*}*");
    }

    #[test]
    fn page_about_access_lists_has_every_right() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/acl.md")).unwrap();
        let (_, list) = page.split_once("```acl\n").unwrap();
        let rules: Vec<&str> = list.split("```").next().unwrap().split_whitespace().collect();
        let commands = all_commands().into_iter().map(|command| format!("+{command}"));
        let samples = all_keys().into_iter().chain(all_channels()).map(|sample| sample.rule("app:"));
        for right in commands.chain(samples) {
            assert!(rules.contains(&right.as_str()), "docs/acl.md has no {right}");
        }
    }
}
