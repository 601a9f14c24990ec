//! Checks of connections, limits, latency and clocks.

use super::Severity::{Note, Risk};
use super::{Found, Rule, each};
use crate::doctor::facts::{Clock, Facts, Server};

/// Interval of the watchdog's renewals, in seconds.
const RENEWAL_S: u64 = 10;
/// Buffers below this size overflow when many locks are released at once.
const SMALL_BUFFER: u64 = 1 << 20;
/// Share of the connection limit, in percent, at which few connections are left.
const FULL: u64 = 90;
/// Largest harmless difference of two clocks, in microseconds.
const CLOCK_DIFFERENCE: i64 = 1_000_000;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "idle-timeout",
        why: "The server closes the connections of idle clients. The next acquire has to reconnect, and a command that \
              is sent at that moment is in doubt. At 10 s or less, this also affects renewals.",
        fix: "CONFIG SET timeout 0, and the same line in the configuration file.",
        page: "docs/in-doubt.md",
        find: idle_timeout,
    },
    Rule {
        id: "keepalive-off",
        why: "Connections of dead machines stay open. A dead waiter counts as subscribed, and so delays a fair queue \
              for longer.",
        fix: "CONFIG SET tcp-keepalive 300, and the same line in the configuration file.",
        page: "docs/waiting.md#fair-locks",
        find: keepalive_off,
    },
    Rule {
        id: "message-buffer-small",
        why: "A burst of release messages fills this buffer. Then the server closes the connection of the waiters, \
              which poll until they are subscribed again.",
        fix: r#"CONFIG SET client-output-buffer-limit "pubsub 33554432 8388608 60""#,
        page: "docs/waiting.md",
        find: message_buffer_small,
    },
    Rule {
        id: "connections-nearly-used-up",
        why: "At the limit, the server refuses new connections. A client that has to reconnect loses its locks.",
        fix: "Close idle connections (CLIENT LIST), or CONFIG SET maxclients to a higher number.",
        page: "docs/faults.md#refusals-that-pass",
        find: connections_nearly_used_up,
    },
    Rule {
        id: "latency",
        why: "Every acquire and release takes at least this time. A stall that is longer than the rest of a lease \
              loses the lock.",
        fix: "Look for slow commands (SLOWLOG GET 10), a swapping or forking server (LATENCY DOCTOR), and the network \
              path.",
        page: "docs/performance.md",
        find: latency,
    },
    Rule {
        id: "clock-offset",
        why: "The clock of the server or of this machine is wrong. When the server's clock is set forward, all its \
              leases end early, while their holders still work.",
        fix: "Run chrony or ntpd on both machines, with slewing in place of steps.",
        page: "docs/semantics.md#premises",
        find: clock_offset,
    },
    Rule {
        id: "clocks-differ",
        why: "Replicas store the end of a lease as a time of day. After a failover to a server whose clock is ahead, \
              leases end early by the difference, while their holders still work.",
        fix: "Run chrony or ntpd on all servers, with slewing in place of steps.",
        page: "docs/semantics.md#premises",
        find: clocks_differ,
    },
];

fn idle_timeout(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let seconds = server.settings.number("timeout").filter(|seconds| *seconds > 0)?;
        let severity = if seconds <= RENEWAL_S { Risk } else { Note };
        Some((severity, format!("timeout {seconds}")))
    })
}

fn keepalive_off(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let is_off = server.settings.is("tcp-keepalive", "0");
        is_off.then(|| (Note, "tcp-keepalive 0".to_owned()))
    })
}

fn message_buffer_small(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        // A class is followed by its hard limit, its soft limit and the seconds of the soft limit.
        let mut words = server.settings.text("client-output-buffer-limit")?.split_whitespace();
        words.find(|word| *word == "pubsub")?;
        let (hard, soft): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let is_small = |limit: u64| limit > 0 && limit < SMALL_BUFFER;
        let what = || format!("client-output-buffer-limit pubsub: hard {hard}, soft {soft} bytes");
        (is_small(hard) || is_small(soft)).then(|| (Risk, what()))
    })
}

fn connections_nearly_used_up(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let most = server.info.number("maxclients").or_else(|| server.settings.number("maxclients"))?;
        let now = server.info.number("connected_clients")?;
        (now * 100 >= most * FULL).then(|| (Risk, format!("{now} of {most} connections (maxclients)")))
    })
}

fn latency(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let (found, limit) = (server.latency?, facts.wanted.latency);
        let what = || format!("p50 {:.1?}, p99 {:.1?} of PINGs, limit {limit:?}", found.p50, found.p99);
        (found.p99 > limit).then(|| (Risk, what()))
    })
}

/// True if two clocks differ by more than is harmless, whatever the errors of the measurement.
const fn differ(one: Clock, other: Clock) -> bool {
    (one.offset - other.offset).abs() - one.error - other.error > CLOCK_DIFFERENCE
}

fn seconds(micros: i64) -> String {
    let (sign, tenths) = (if micros < 0 { '-' } else { '+' }, micros.abs() / 100_000);
    format!("{sign}{}.{} s", tenths / 10, tenths % 10)
}

/// The servers with the lowest and the highest clock, if these clocks differ.
fn extremes(facts: &Facts) -> Option<[(&Server, Clock); 2]> {
    let clocks = || facts.servers.iter().filter_map(|server| Some((server, server.clock?)));
    let lowest = clocks().min_by_key(|(_, clock)| clock.offset)?;
    let highest = clocks().max_by_key(|(_, clock)| clock.offset)?;
    differ(lowest.1, highest.1).then_some([lowest, highest])
}

/// If the servers disagree among themselves, only that is reported.
fn clock_offset(facts: &Facts) -> Vec<Found> {
    if extremes(facts).is_some() {
        return Vec::new();
    }
    let here = Clock { offset: 0, error: 0 };
    each(facts, |server| {
        let clock = server.clock?;
        let what = || format!("{} against this machine, ± {} ms", seconds(clock.offset), clock.error / 1000);
        differ(clock, here).then(|| (Risk, what()))
    })
}

fn clocks_differ(facts: &Facts) -> Vec<Found> {
    let found = extremes(facts).map(|[(low, lowest), (high, highest)]| {
        let what = format!("{} against {}", seconds(highest.offset - lowest.offset), low.address);
        Found::at(Risk, high, what)
    });
    found.into_iter().collect()
}
