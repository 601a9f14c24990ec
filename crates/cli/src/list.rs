//! `distlock list`: all held locks, found by a `SCAN` over every primary.
//!
//! Prints while it scans, and remembers only a hash of each lock that it has printed, because `SCAN` may return a key
//! twice. A command looks at about 400 keys, which takes the server about a millisecond. So other clients are hardly
//! delayed.
//!
//! # Which keys are locks?
//!
//! The values are checked, not only the names:
//!
//! - a hash with one field `<uuid>:<number>` that holds a number: reentrant, spin, fair and fenced locks;
//! - a hash with a mode and such a field: read-write locks;
//! - text that this crate writes for a plain lock (other libraries write any text, so their locks are not listed);
//! - a number with held permits.
//!
//! Semaphores, latches and barriers have no holder, so they are not listed.
//!
//! A login without a right that this needs gets an error that names the right: `docs/acl.md` does not list `+scan`,
//! `+getrange` and `+hscan`.
//!
//! # JSON
//!
//! One object a line. Times are in ms. Later versions may add members.
//!
//! - `name`, `key`: the name, and its key with the prefix.
//! - `flavour`: `reentrant` (also spin locks, and fair locks without waiters), `reentrant or fenced` (the name has a
//!   fencing counter), `fair`, `read`, `write`, `plain` or `permits`.
//! - `owner`, `language`: the holder, and `rust` or `java`. For read locks, one of the readers; null for permits.
//! - `holds`: the owner's holds; for read locks the number of readers (dead ones included, unlike in `inspect`), for
//!   permits the number of held ones.
//! - `ttl_ms`: until the lease ends; for permits, until the last lease ends. Null means no end.
//! - `waiters`: for fair locks the length of the queue; for others the connections that subscribe to the lock's
//!   channel, one for each process that waits or has just waited.
//! - `fencing_counter`: for `reentrant or fenced`.
//! - `total`: for permits.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

use crate::connect::{Servers, Target};
use crate::exit::{Failure, say};
use crate::keys::show::{bold, count, lasts, print, safe};
use crate::keys::{Found, Language, look, reply};

/// Arguments of `list`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only names that match this pattern, as in SCAN: * ? [ab]
    #[arg(long = "match", value_name = "GLOB")]
    pattern: Option<String>,
    /// Prints one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    let servers = target.servers().await?;
    let outcome = list(&args, &servers, target.prefix()).await;
    servers.close().await;
    outcome?;
    Ok(0)
}

async fn list(args: &Args, servers: &Servers, prefix: &str) -> Result<(), Failure> {
    let pattern = look::pattern(prefix, args.pattern.as_deref());
    let bar = progress(servers, !pattern.is_empty()).await;
    if !args.json && !bar.suspend(|| print(&(bold(&titles()) + "\n")))? {
        return Ok(());
    }
    let mut seen = Seen::default();
    let mut looked = 0;
    for raw in servers.primaries() {
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let page = look::page(servers, raw, &cursor, &pattern).await?;
            looked += page.looked;
            bar.inc(page.looked);
            let new = page.locks.iter().filter(|lock| seen.is_new(&lock.key));
            let lines: String = new.map(|lock| line(lock, prefix, args.json)).collect();
            if !lines.is_empty() && !bar.suspend(|| print(&lines))? {
                return Ok(());
            }
            cursor = page.cursor;
            if &cursor[..] == b"0" {
                break;
            }
        }
    }
    bar.finish_and_clear();
    if !args.json {
        let keys = usize::try_from(looked).unwrap_or(usize::MAX);
        let kind = if pattern.is_empty() { "key" } else { "matching key" };
        say(format_args!("{} among {}", count(seen.hashes.len(), "lock"), count(keys, kind)));
    }
    Ok(())
}

/// The locks that were printed, by the hash of their key.
#[derive(Default)]
struct Seen {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl Seen {
    fn is_new(&mut self, key: &Bytes) -> bool {
        self.hashes.insert(self.hasher.hash_one(key))
    }
}

/// Progress on stderr; hidden if stderr is no terminal. The number of keys that match a pattern is unknown.
async fn progress(servers: &Servers, is_filtered: bool) -> ProgressBar {
    let all = if is_filtered { None } else { size(servers).await };
    let (bar, style) = match all {
        Some(keys) => (ProgressBar::new(keys), "{bar:30} {pos} of about {len} keys, {elapsed}"),
        None => (ProgressBar::new_spinner(), "{spinner} {pos} keys, {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// The number of keys. `None` if a server does not tell it, because this login may lack the right.
async fn size(servers: &Servers) -> Option<u64> {
    let mut keys = 0;
    for raw in servers.primaries() {
        keys += u64::try_from(reply::int(&raw.call(["DBSIZE"]).await.ok()?)?).ok()?;
    }
    Some(keys)
}

/// A line of the table. The name comes last, because its width is unknown.
fn columns(texts: [&str; 6], name: &str) -> String {
    let [flavour, holder, language, holds, ttl, waiters] = texts;
    let mut line = String::new();
    let _ = write!(line, "{flavour:<19}  {holder:<42}  {language:<4}  {holds:>5}  {ttl:>6}  {waiters:>7}  {name}");
    line
}

fn titles() -> String {
    columns(["FLAVOUR", "HOLDER", "LANG", "HOLDS", "LEASE", "WAITERS"], "NAME")
}

fn line(lock: &Found, prefix: &str, json: bool) -> String {
    if json {
        return format!("{}\n", lock.json(prefix));
    }
    let holder = lock.shown_holder();
    let language = lock.language().map_or("", Language::as_str);
    let (holds, ttl, waiters) = (lock.holds.to_string(), lasts(lock.ttl), lock.waiters.to_string());
    columns([lock.kind.as_str(), &holder, language, &holds, &ttl, &waiters], &safe(&lock.name(prefix))) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Kind;

    fn found(kind: Kind, holds: i64) -> Found {
        let holder = (kind != Kind::Permits).then(|| "71b96ce8-2746-4c3a-9d0e-0123456789ab:7".to_owned());
        Found { key: Bytes::from_static(b"p:a"), kind, ttl: Some(29_900), holder, holds, waiters: 3, number: Some(8) }
    }

    #[test]
    fn columns_of_all_lines_are_aligned() {
        let lines = [line(&found(Kind::Fair, 1), "p:", false), line(&found(Kind::Permits, 5), "p:", false)];
        assert_eq!(titles().find("  NAME"), Some(93));
        assert!(lines.iter().all(|line| line.find("  a\n") == Some(93)), "{lines:?}");
        assert!(lines[1].contains("5 of 8 permits"), "{lines:?}");
        assert!(line(&found(Kind::Read, 2), "p:", false).contains("2 readers"));
    }

    #[test]
    fn json_line_has_the_documented_members() {
        let line: serde_json::Value =
            serde_json::from_str(&line(&found(Kind::MaybeFenced, 1), "p:", true)).expect("JSON");
        let expected = serde_json::json!({
            "name": "a", "key": "p:a", "flavour": "reentrant or fenced",
            "owner": "71b96ce8-2746-4c3a-9d0e-0123456789ab:7", "language": "java", "holds": 1, "ttl_ms": 29_900,
            "waiters": 3, "fencing_counter": 8,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn lock_is_new_once() {
        let (mut seen, key) = (Seen::default(), Bytes::from_static(b"a"));
        assert!(seen.is_new(&key) && !seen.is_new(&key) && seen.is_new(&Bytes::from_static(b"b")));
    }
}
