//! Turns replies into a report. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use fred::types::Value;

use super::asks::{Answers, MOST, What};
use super::report::{Barrier, Half, Holder, Permits, Report, Waiter};
use crate::keys::{MAYBE_FENCED, hold_ids, is_owner, of_plain, reply};

/// Score that Redisson writes for a permit that never expires.
const NO_END: f64 = 922_337_203_685_477.0;

/// The report of these replies. Leases of readers are unknown until [`set_covers`].
pub fn report(answers: &Answers) -> Report {
    let int = |what| reply::int(answers.get(what)).unwrap_or(0);
    let now = reply::time(answers.get(What::Time)).unwrap_or(0);
    let mut report = Report {
        server: answers.server.clone(),
        ttl: reply::int(answers.get(What::Ttl)).filter(|ms| *ms >= 0),
        fencing_counter: reply::int(answers.get(What::Counter)),
        queue: waiters(answers.get(What::Queue), answers.get(What::Deadlines), now),
        barrier: barrier(answers, now),
        subscribers: subscribers(answers.get(What::Subscribers)) + subscribers(answers.get(What::ShardSubscribers)),
        ..Report::default()
    };
    report.more_waiters = int(What::QueueLength) - size(&report.queue);
    match reply::text(answers.get(What::Type)).as_deref() {
        Some("hash") => hash(answers, now, &mut report),
        Some("string") => string(answers, now, &mut report),
        Some("none") => {
            // The other keys of the name may outlive the lock.
            report.permits = permits(answers, 0, now);
            report.flavour = if report.permits.is_some() {
                Some("permits")
            } else if !report.queue.is_empty() {
                Some("fair")
            } else if report.fencing_counter.is_some() {
                Some("fenced")
            } else {
                report.barrier.as_ref().map(|_| "barrier")
            };
            report.held = report.permits.is_some() || report.flavour == Some("barrier");
        }
        _ => {}
    }
    if report.flavour.is_none() {
        report.foreign = reply::text(answers.get(What::Type)).filter(|kind| kind != "none");
    }
    report
}

fn size<T>(list: &[T]) -> i64 {
    i64::try_from(list.len()).unwrap_or(i64::MAX)
}

/// The lock of a hash. A hash of another program has no holder, and no flavour.
fn hash(answers: &Answers, now: i64, report: &mut Report) {
    let mode = reply::text(answers.get(What::Mode)).filter(|mode| mode == "read" || mode == "write");
    // A page of a large hash may repeat a field.
    let fields: BTreeMap<String, String> = reply::pairs(reply::nth(answers.get(What::Fields), 1)).into_iter().collect();
    report.holders = holders(&fields, mode.is_some());
    if report.holders.is_empty() {
        return;
    }
    report.held = true;
    let is_whole = reply::int(reply::nth(answers.get(What::Fields), 0)) == Some(0);
    if !is_whole || report.holders.len() > MOST {
        report.holders.truncate(MOST);
        // The mode is no holder. The fields that were not read may include lists of holds, so the result is an upper
        // bound.
        let shown = fields.keys().filter(|field| *field != "mode").count().min(MOST);
        let all = reply::int(answers.get(What::Size)).unwrap_or(0) - i64::from(mode.is_some());
        report.more_holders = (all - i64::try_from(shown).unwrap_or(0)).max(0);
    }
    if mode.is_some() {
        report.flavour = Some("read-write");
        let marks = reply::scores(answers.get(What::Marks)).into_iter();
        report.waiting_writers = marks.map(|(owner, until)| waiter(&owner, Some(until), now)).collect();
    } else if report.queue.is_empty() {
        report.flavour = Some(if report.fencing_counter.is_some() { MAYBE_FENCED } else { "reentrant" });
    } else {
        report.flavour = Some("fair");
    }
}

fn holders(fields: &BTreeMap<String, String>, is_read_write: bool) -> Vec<Holder> {
    let holder = |(field, count): (&String, &String)| {
        let (owner, half) = match (field.strip_suffix(":write"), is_read_write) {
            (Some(owner), true) => (owner, Some(Half::Write)),
            (_, true) => (field.as_str(), Some(Half::Read)),
            _ => (field.as_str(), None),
        };
        let holds = count.parse::<u64>().ok().filter(|_| is_owner(owner))?;
        let ids = fields.get(&format!("{field}:holds")).map(|list| hold_ids(list)).unwrap_or_default();
        Some(Holder { owner: owner.to_owned(), holds, ids, half, ttl: None })
    };
    fields.iter().filter_map(holder).collect()
}

/// A plain lock, permits, or a number: a semaphore, a latch, or permits that nobody holds.
fn string(answers: &Answers, now: i64, report: &mut Report) {
    let text = reply::text(answers.get(What::Text)).unwrap_or_default();
    if let Ok(number) = text.parse::<i64>() {
        report.permits = permits(answers, number, now);
        report.held = true;
        if report.permits.is_some() {
            report.flavour = Some("permits");
        } else {
            (report.flavour, report.number) = (Some("number"), Some(number));
        }
        return;
    }
    // Locks of other libraries have any value, but always a lease.
    if report.ttl.is_none() {
        return;
    }
    let (owner, hold) = of_plain(&text).unwrap_or((text, None));
    let ids = hold.into_iter().collect();
    report.holders = vec![Holder { owner, holds: 1, ids, half: None, ttl: None }];
    (report.flavour, report.held) = (Some("plain"), true);
}

/// Permits, if any are held or expired. `free`: the stored number.
fn permits(answers: &Answers, free: i64, now: i64) -> Option<Permits> {
    let all = reply::int(answers.get(What::LeaseCount)).filter(|all| *all > 0)?;
    let leases = reply::scores(answers.get(What::Leases));
    let is_expired = |ends: f64| ends <= now as f64;
    // Permits are sorted by the end of their lease, so the expired ones come first.
    let expired = leases.iter().filter(|(_, ends)| is_expired(*ends)).count();
    let expired = i64::try_from(expired).unwrap_or(0);
    let holders = leases.into_iter().filter(|(_, ends)| !is_expired(*ends)).map(|(id, ends)| (id, left(ends, now)));
    Some(Permits { total: free + all, free: free + expired, held: all - expired, holders: holders.collect() })
}

/// Sets the held permits of a set that was too large to be read at once. `list`: the permits whose leases end first.
pub fn set_held(permits: &mut Permits, held: i64, list: &Value, now: i64) {
    (permits.free, permits.held) = (permits.total - held, held);
    permits.holders = reply::scores(list).into_iter().map(|(id, ends)| (id, left(ends, now))).collect();
}

fn left(ends: f64, now: i64) -> Option<i64> {
    (ends < NO_END).then_some(ends as i64 - now)
}

fn waiter(owner: &Bytes, until: Option<f64>, now: i64) -> Waiter {
    let owner = String::from_utf8_lossy(owner).into_owned();
    Waiter { owner, left: until.map(|until| until as i64 - now) }
}

fn waiters(queue: &Value, deadlines: &Value, now: i64) -> Vec<Waiter> {
    let deadlines: BTreeMap<Bytes, f64> = reply::scores(deadlines).into_iter().collect();
    let owners = reply::list(queue).iter().filter_map(reply::bytes);
    owners.map(|owner| waiter(&owner, deadlines.get(&owner).copied(), now)).collect()
}

fn barrier(answers: &Answers, now: i64) -> Option<Barrier> {
    let state = answers.get(What::Barrier);
    let round = reply::int(reply::nth(state, 0))?;
    let first = reply::int(reply::nth(state, 1)).unwrap_or(round);
    let broken = reply::text(reply::nth(state, 3)).unwrap_or_default();
    let parties = reply::scores(answers.get(What::Parties));
    let arrived: Vec<Waiter> = parties.iter().map(|(owner, until)| waiter(owner, Some(*until), now)).collect();
    Some(Barrier {
        parties: reply::int(reply::nth(state, 2)),
        finished: round - first,
        broken: broken.split(',').filter(|round| !round.is_empty()).count(),
        more: reply::int(answers.get(What::PartyCount)).unwrap_or(0) - size(&arrived),
        arrived,
    })
}

/// The sum of a reply of `PUBSUB NUMSUB`: channel, number, channel, number, ..
fn subscribers(numsub: &Value) -> i64 {
    reply::list(numsub).chunks(2).filter_map(|pair| reply::int(pair.get(1)?)).sum()
}

/// Adds the waiters for fair permits: the owner that is being served, then the queue behind it.
pub fn add_line(answers: &Answers, report: &mut Report) {
    let now = reply::time(answers.get(What::Time)).unwrap_or(0);
    let fields: BTreeMap<String, String> = reply::pairs(reply::nth(answers.get(What::Line), 1)).into_iter().collect();
    let lease = reply::int(answers.get(What::LineTtl)).filter(|ms| *ms >= 0);
    let served = holders(&fields, false).into_iter().map(|holder| Waiter { owner: holder.owner, left: lease });
    let behind = waiters(answers.get(What::LineQueue), answers.get(What::LineDeadlines), now);
    report.more_waiters = reply::int(answers.get(What::LineLength)).unwrap_or(0) - size(&behind);
    report.queue = served.chain(behind).collect();
}

/// Sets the leases of the readers. `covers`: for each cover the index of its reader, and the cover's `PTTL`.
pub fn set_covers(report: &mut Report, covers: impl IntoIterator<Item = (usize, i64)>) {
    for (index, ms) in covers {
        if let Some(reader) = report.holders.get_mut(index) {
            reader.ttl = Some(reader.ttl.unwrap_or(0).max(ms));
        }
    }
    report.held = report.more_holders > 0 || report.holders.iter().any(|holder| !holder.is_dead());
}
