//! One server: its `INFO`, settings, clock and latency.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distlock::ServerRole;
use fred::types::Value;

use super::{reason, text, texts, words};
use crate::connect::Raw;
use crate::doctor::facts::{Clock, Fields, Latency, NotChecked, Refusal, Server};
use crate::exit::Failure;
use crate::keys::reply;

const SETTINGS: &[&str] = &[
    "save",
    "appendfsync",
    "stop-writes-on-bgsave-error",
    "timeout",
    "tcp-keepalive",
    "maxclients",
    "client-output-buffer-limit",
    "busy-reply-threshold",
    "lua-time-limit",
    "min-replicas-to-write",
    "cluster-node-timeout",
    "cluster-require-full-coverage",
];

/// The sample with the shortest round trip has the smallest error.
const CLOCK_SAMPLES: usize = 5;
const PINGS: usize = 100;

/// Reads one server.
///
/// # Errors
///
/// Only if the server does not answer. Refusals are added to `not_checked`.
pub(super) async fn read(raw: &Raw, role: ServerRole, not_checked: &mut Vec<NotChecked>) -> Result<Server, Failure> {
    let mut server = Server::new(raw.address(), role);
    let mut not = |what, why| not_checked.push(NotChecked { server: raw.address().to_owned(), what, why });
    match answered(raw.call(["INFO"]).await)? {
        Ok(info) => server.info = Fields::of_lines(&text(&info)),
        Err(why) => not("INFO", why),
    }
    if let Ok(user) = answered(raw.call(["ACL", "WHOAMI"]).await)? {
        server.user = Some(text(&user));
    }
    if let Err(why) = answered(raw.call(["WAIT", "0", "1"]).await)? {
        server.wait_refused = Refusal::of(&why).map(|_| why);
    }
    match settings(raw).await? {
        Ok(settings) => server.settings = settings,
        Err(why) => not("settings", format!("CONFIG is refused: {why}")),
    }
    if server.info.is("cluster_enabled", "1") {
        match answered(raw.call(["CLUSTER", "INFO"]).await)? {
            Ok(info) => server.cluster = Fields::of_lines(&text(&info)),
            Err(why) => not("state of the cluster", why),
        }
    }
    match clock(raw).await? {
        Ok(clock) => server.clock = Some(clock),
        Err(why) => not("clock", why),
    }
    match latency(raw).await? {
        Ok(latency) => server.latency = Some(latency),
        Err(why) => not("latency", why),
    }
    Ok(server)
}

/// Separates the server's refusal from a missing answer.
fn answered<T>(outcome: Result<T, Failure>) -> Result<Result<T, String>, Failure> {
    match outcome {
        Ok(answer) => Ok(Ok(answer)),
        Err(failure @ Failure::Server(_)) => Ok(Err(reason(failure))),
        Err(failure) => Err(failure),
    }
}

/// Reads the settings one by one. Servers before Redis 7 take one name per command, and a pattern would also return
/// passwords.
async fn settings(raw: &Raw) -> Result<Result<Fields, String>, Failure> {
    let mut settings = Fields::default();
    let commands = SETTINGS.iter().map(|&name| words(&["CONFIG", "GET", name])).collect();
    for reply in raw.calls(commands).await? {
        match answered(reply)? {
            // A setting that the server does not know is an empty list.
            Ok(pair) => {
                if let [name, value] = &texts(pair)[..] {
                    settings.insert(name, value);
                }
            }
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(settings))
}

/// The time of day of this machine, in microseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The reply of `TIME` in microseconds since 1970.
fn micros(time: &Value) -> Option<i64> {
    Some(reply::int(reply::nth(time, 0))? * 1_000_000 + reply::int(reply::nth(time, 1))?)
}

async fn clock(raw: &Raw) -> Result<Result<Clock, String>, Failure> {
    let mut best: Option<Clock> = None;
    for _ in 0..CLOCK_SAMPLES {
        let before = now();
        let reply = match answered(raw.call(["TIME"]).await)? {
            Ok(reply) => reply,
            Err(why) => return Ok(Err(why)),
        };
        let error = (now() - before) / 2;
        let Some(there) = micros(&reply) else { return Ok(Err(format!("odd reply of TIME: {reply:?}"))) };
        let clock = Clock { offset: there - (before + error), error };
        // A negative round trip means that this machine's clock was set back meanwhile.
        if error >= 0 && best.is_none_or(|best| error < best.error) {
            best = Some(clock);
        }
    }
    Ok(best.ok_or_else(|| "the clock of this machine was set back meanwhile".to_owned()))
}

async fn latency(raw: &Raw) -> Result<Result<Latency, String>, Failure> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        if let Err(why) = answered(raw.call(["PING"]).await)? {
            return Ok(Err(why));
        }
        times.push(began.elapsed());
    }
    times.sort();
    Ok(Ok(Latency { p50: times[PINGS / 2 - 1], p99: times[PINGS * 99 / 100 - 1] }))
}
