//! `distlock inspect NAME`: everything that the servers know about a name.
//!
//! Reads only, from the primary that has the name's slot, in one pipeline. Read-write locks with readers need a second
//! pipeline, for the readers' leases. A login without the rights to `HSCAN` and `GETRANGE` needs one more. At most 1000
//! elements of each collection are read. The number of the others is shown. The labels of the clients follow one by
//! one, at most 100.
//!
//! Exit status: 0 if somebody holds the lock, 1 if nobody does, 70 if this login may not read who holds it. Permits,
//! numbers and barriers count as held if they exist.
//!
//! # JSON
//!
//! Times are in ms, by the server's clock. Later versions may add members.
//!
//! - `name`, `key`, `server`: the name, its key with the prefix, and the server that has the key.
//! - `flavour`: see below. Null if nothing is known about the name.
//! - `key_type`: only if the key exists and is no lock.
//! - `held`: true if the exit status is 0.
//! - `ttl_ms`: lease of the key. Null means no end, or no key.
//! - `holders`: list of `{owner, language, holds, hold_ids}`. `language` is `rust`, `java` or null. `hold_ids` has the
//!   ids of the holds that the keys list; a single hold is usually not listed. A `+` in front means that the guard was
//!   turned into an owner. Read-write locks also have `half` (`read` or `write`), and for readers `ttl_ms` (0 = the
//!   reader is dead). Holders, waiters in `queue` and holders of permits have `label` if their client has one.
//! - `queue`: the waiters of a fair lock or for fair permits, the next one first: list of
//!   `{position, owner, language, deadline_ms}`. Null means no deadline.
//! - `more_holders`, `more_waiters`: how many are not listed.
//! - `subscribers`: connections that subscribe to the name's channels at this server, one for each waiting process.
//! - `mode`: for read-write locks, `read` or `write`.
//! - `waiting_writers`: for read-write locks, the writers that hold back readers: list of
//!   `{owner, language, deadline_ms}`.
//! - `fencing_counter`: if the name has one.
//! - `number`: if the flavour is `number`.
//! - `permits`: `{total, free, held, holders}`. Holders are `{id, language, ttl_ms}`, null = no end.
//! - `barrier`: `{parties, finished_rounds, broken_rounds, arrived, more_arrived}`. `arrived` is a list like
//!   `waiting_writers`.
//!
//! | flavour | keys |
//! |---|---|
//! | `reentrant` | a hash with one owner: also a spin lock, and a fair lock without waiters |
//! | `reentrant or fenced` | the same with a fencing counter: the holder may use either lock |
//! | `fenced` | a fencing counter alone: nobody holds the lock |
//! | `fair` | a hash with one owner, and a queue; without the hash if `held` is false |
//! | `read-write` | a hash with a mode |
//! | `plain` | text with a lease |
//! | `permits` | a number, and held or expired permits |
//! | `number` | a number alone: a semaphore, a latch, or permits that nobody holds |
//! | `barrier` | a barrier |

use std::collections::BTreeMap;

use bytes::Bytes;
use clap::builder::NonEmptyStringValueParser;
use distlock::Client;

use crate::connect::{Servers, Target};
use crate::exit::{Failure, NOT_HELD, say};
use crate::keys::{Names, reply, show};

mod asks;
mod parse;
mod report;
#[cfg(test)]
mod tests;
mod text;

use asks::{Answers, MOST, What};
pub use report::{Half, Report};
pub use text::{holder, permit};

/// At most this many labels are read.
const LABELS: usize = 100;

/// Arguments of `inspect`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the lock
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    let servers = target.servers().await?;
    let report = read(&servers, target.prefix(), &args.name).await;
    servers.close().await;
    let report = report?;
    let text = if args.json { format!("{:#}\n", report.json()) } else { text::of(&report) };
    show::print(&text)?;
    Ok(if report.held { 0 } else { NOT_HELD })
}

/// Reads everything about a name. Keys that this login may not read are listed on stderr.
///
/// # Errors
///
/// [`Failure::Unreachable`]; [`Failure::Server`] if this login may not read whether somebody holds the lock.
pub async fn read(servers: &Servers, prefix: &str, name: &str) -> Result<Report, Failure> {
    let names = Names::new(format!("{prefix}{name}"));
    let answers = asks::ask(servers, &names).await?;
    if let Some(unread) = answers.undecided() {
        let (why, name) = (&unread.why, show::safe(name));
        return Err(Failure::Server(format!("{why}: so it is unknown whether {name} is locked")));
    }
    for unread in &answers.unread {
        say(format_args!("not readable: {}", show::safe(&unread.to_string())));
    }
    let mut report = parse::report(&answers);
    report.name = name.to_owned();
    report.key = String::from_utf8_lossy(&names.key).into_owned();
    if report.permits.is_some() {
        parse::add_line(&answers, &mut report);
        read_more_permits(servers, &names, &answers, &mut report).await?;
    }
    if report.half().is_some() {
        read_covers(servers, &names, &mut report).await?;
    }
    report.labels = labels(servers.client(), &report).await;
    Ok(report)
}

/// Reads the labels of the clients that hold or wait. None are read if this login has no right to them.
async fn labels(client: &Client, report: &Report) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for id in report.clients().into_iter().take(LABELS) {
        match client.label_of(&id).await {
            Ok(Some(label)) => drop(labels.insert(id, label)),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    labels
}

/// If the permits were too many to be read at once, reads the held ones. The permits that were read may all have
/// expired.
async fn read_more_permits(
    servers: &Servers,
    names: &Names,
    answers: &Answers,
    report: &mut Report,
) -> Result<(), Failure> {
    let Some(permits) = report.permits.as_mut() else { return Ok(()) };
    if reply::int(answers.get(What::LeaseCount)).is_none_or(|all| all <= MOST as i64) {
        return Ok(());
    }
    let now = reply::time(answers.get(What::Time)).unwrap_or(0);
    let (leases, after) = (names.leases(), format!("({now}"));
    let held = [Bytes::from_static(b"ZCOUNT"), leases.clone(), Bytes::from(after.clone()), Bytes::from_static(b"+inf")];
    let list = ["ZRANGEBYSCORE", "", &after, "+inf", "WITHSCORES", "LIMIT", "0", "1000"];
    let list = list.map(|word| if word.is_empty() { leases.clone() } else { Bytes::copy_from_slice(word.as_bytes()) });
    let replies = servers.of(&leases)?.calls(vec![held.to_vec(), list.to_vec()]).await?;
    let [held, list] = &replies[..] else { return Ok(()) };
    let (held, list) = (held.as_ref().map_err(Clone::clone)?, list.as_ref().map_err(Clone::clone)?);
    parse::set_held(permits, reply::int(held).unwrap_or(0), list, now);
    report.more_holders = (permits.held - MOST as i64).max(0);
    Ok(())
}

/// Reads the leases of the readers, at most [`MOST`] covers.
async fn read_covers(servers: &Servers, names: &Names, report: &mut Report) -> Result<(), Failure> {
    let mut covers = Vec::new();
    for (index, reader) in report.holders.iter().enumerate().filter(|(_, holder)| holder.half == Some(Half::Read)) {
        covers.extend((1..=reader.holds).map(|n| (index, names.cover(&reader.owner, n))).take(MOST));
        if covers.len() >= MOST {
            covers.truncate(MOST);
            break;
        }
    }
    let mut leases = Vec::with_capacity(covers.len());
    // All covers of a name are in one slot, except with unusual braces.
    let Some((_, first)) = covers.first() else { return Ok(()) };
    let raw = servers.of(first)?;
    let asks = covers.iter().map(|(_, cover)| vec![Bytes::from_static(b"PTTL"), cover.clone()]).collect();
    for ((index, _), lease) in covers.iter().zip(raw.calls(asks).await?) {
        leases.push((*index, reply::int(&lease?).unwrap_or(0)));
    }
    parse::set_covers(report, leases);
    Ok(())
}
