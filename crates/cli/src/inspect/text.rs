//! The report as text.

use std::fmt::Write as _;

use super::report::{Barrier, Half, Holder, Permits, Report, Waiter};
use crate::keys::show::{bold, count, lasts, safe};
use crate::keys::{Language, to_hex};

/// The report as lines for people.
pub fn of(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}", bold(&safe(&report.name)), summary(report));
    let mut line = |title: &str, value: &str| {
        let _ = writeln!(text, "  {title:<16}{value}");
    };
    line("server", &report.server);
    if report.ttl.is_some() || !report.holders.is_empty() {
        line("lease", &lasts(report.ttl));
    }
    for one in &report.holders {
        let title = one.half.map_or("holder", |half| if half == Half::Read { "reader" } else { "writer" });
        line(title, &holder(report, one));
    }
    more(&mut line, report.more_holders);
    if let Some(permits) = &report.permits {
        of_permits(&mut line, report, permits);
    }
    if let Some(counter) = report.fencing_counter {
        line("fencing counter", &counter.to_string());
    }
    for (index, one) in report.queue.iter().enumerate() {
        let value = format!("{:>3}  {}{}", index + 1, waiter(one), label(report, &one.owner));
        line(if index == 0 { "queue" } else { "" }, &value);
    }
    more(&mut line, report.more_waiters);
    for one in &report.waiting_writers {
        line("waiting writer", &waiter(one));
    }
    if let Some(barrier) = &report.barrier {
        of_barrier(&mut line, barrier);
    }
    if report.subscribers > 0 {
        line("subscribers", &report.subscribers.to_string());
    }
    text
}

fn summary(report: &Report) -> String {
    let flavour = match (report.flavour, report.half()) {
        (Some("reentrant"), _) => "reentrant lock (or spin, or fair without waiters)".to_owned(),
        (Some("number"), _) => {
            let number = report.number.unwrap_or(0);
            return format!("{number}, the number of a semaphore, of a latch, or of permits that nobody holds");
        }
        (Some("permits"), _) => return "permits".to_owned(),
        (Some("barrier"), _) => return "barrier".to_owned(),
        (Some("read-write"), Some(half)) => format!("read-write lock in {} mode", half.as_str()),
        (Some(flavour), _) => format!("{flavour} lock"),
        (None, _) => {
            return match &report.foreign {
                Some(kind) => format!("no lock that is known: the key has the type {}", safe(kind)),
                None => "not locked".to_owned(),
            };
        }
    };
    let waiting = report.queue.len() + usize::try_from(report.more_waiters).unwrap_or(0);
    match (report.held, waiting) {
        (true, 0) => format!("{flavour}, held"),
        (true, n) => format!("{flavour}, held, {}", count(n, "waiter")),
        (false, 0) => format!("not locked ({flavour})"),
        (false, n) => format!("not locked ({flavour}), {}", count(n, "waiter")),
    }
}

fn named(owner: &str) -> String {
    match Language::of(owner) {
        Some(language) => format!("{} ({})", safe(owner), language.as_str()),
        None => safe(owner),
    }
}

/// The label of a client, for the end of a line. `holder`: an owner, or the id of a permit in hex.
fn label(report: &Report, holder: &str) -> String {
    report.label(holder).map(|label| format!(", label {}", safe(label))).unwrap_or_default()
}

/// One holder: its owner, its holds, its lease and its label.
pub fn holder(report: &Report, holder: &Holder) -> String {
    let mut text = named(&holder.owner);
    if holder.holds != 1 || !holder.ids.is_empty() {
        let _ = write!(text, ", {}", count(usize::try_from(holder.holds).unwrap_or(usize::MAX), "hold"));
    }
    if !holder.ids.is_empty() {
        let _ = write!(text, ": {}", safe(&holder.ids.join(" ")));
    }
    match holder.ttl {
        Some(0) => text.push_str(", dead: its lease has ended"),
        Some(ms) => {
            let _ = write!(text, ", lease {}", lasts(Some(ms)));
        }
        None => {}
    }
    text + &label(report, &holder.owner)
}

/// One permit: its id, and the language and the label of its holder.
pub fn permit(report: &Report, id: &[u8]) -> String {
    let hex = to_hex(id);
    format!("{hex} ({}){}", Language::of_permit(id).as_str(), label(report, &hex))
}

fn waiter(waiter: &Waiter) -> String {
    let left = match waiter.left {
        None => "no deadline".to_owned(),
        Some(ms) if ms <= 0 => "its deadline has passed".to_owned(),
        left => format!("deadline in {}", lasts(left)),
    };
    format!("{}, {left}", named(&waiter.owner))
}

fn more(line: &mut impl FnMut(&str, &str), n: i64) {
    if n > 0 {
        line("", &format!("and {n} more"));
    }
}

fn of_permits(line: &mut impl FnMut(&str, &str), report: &Report, permits: &Permits) {
    line("permits", &format!("{} held and {} free of {}", permits.held, permits.free, permits.total));
    for (id, ttl) in &permits.holders {
        line("permit", &format!("{}, lease {}", permit(report, id), lasts(*ttl)));
    }
    more(line, permits.held - i64::try_from(permits.holders.len()).unwrap_or(0));
}

fn of_barrier(line: &mut impl FnMut(&str, &str), barrier: &Barrier) {
    let parties = barrier.parties.map_or_else(|| "?".to_owned(), |parties| parties.to_string());
    let arrived = i64::try_from(barrier.arrived.len()).unwrap_or(0) + barrier.more;
    line("arrived", &format!("{arrived} of {parties} parties"));
    line("rounds", &format!("{} finished, {} broken", barrier.finished, barrier.broken));
    for one in &barrier.arrived {
        line("party", &waiter(one));
    }
    more(line, barrier.more);
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab:7";

    #[test]
    fn name_without_keys_is_not_locked() {
        let report = Report { name: "a\x1b".into(), server: "s".into(), ..Report::default() };
        assert_eq!(of(&report), "a\\u{1b}: not locked\n  server          s\n");
    }

    #[test]
    fn holder_queue_and_counter_are_listed() {
        let waiter = |left| Waiter { owner: OWNER.into(), left };
        let report = Report {
            name: "a".into(),
            server: "s".into(),
            flavour: Some("fair"),
            held: true,
            ttl: Some(29_900),
            holders: vec![Holder { owner: OWNER.into(), holds: 2, ids: vec!["i".into()], half: None, ttl: None }],
            queue: vec![waiter(Some(4_500)), waiter(None)],
            more_waiters: 3,
            fencing_counter: Some(9),
            subscribers: 2,
            labels: [("71b96ce827468c3a".to_owned(), "pod-7\n".to_owned())].into(),
            ..Report::default()
        };
        let expected = [
            "a: fair lock, held, 5 waiters",
            "  server          s",
            "  lease           29.9s",
            &format!("  holder          {OWNER} (rust), 2 holds: i, label pod-7\\n"),
            "  fencing counter 9",
            &format!("  queue             1  {OWNER} (rust), deadline in 4.5s, label pod-7\\n"),
            &format!("                    2  {OWNER} (rust), no deadline, label pod-7\\n"),
            "                  and 3 more",
            "  subscribers     2",
        ];
        assert_eq!(of(&report).lines().collect::<Vec<_>>(), expected);
    }
}
