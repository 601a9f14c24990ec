//! A session with a fenced, spin, plain, striped or multi lock, in which every command is lost, repeated, delayed or
//! cut off.

use std::collections::BTreeMap;
use std::sync::Arc;

use distlock::{Acquire, Client, Error, Flavour, Guard, MultiLock, Owner, Released};
use distlock_support::Admin;
use distlock_support::proxy::{Action, Matcher};

use crate::fault::{brisk, gave, got};
use crate::harm::ACTIONS;
use crate::{Bed, Make, becomes, eventually, idle, ms, secs, text};

/// A flavour under test.
#[derive(Clone, Copy)]
pub struct Kind {
    label: &'static str,
    make: Make,
    keys: fn(&str) -> Vec<String>,
    numbers: usize,
    /// Number of concurrent clients. Each client hits every `lanes`th command of the session.
    lanes: usize,
    /// True if an owner may re-enter and the holds are in a hash. Otherwise the key is a string that names the owner.
    again: bool,
    /// The command that acquires and releases the lock. `None` matches any command that names the lock.
    command: Option<&'static str>,
}

pub const FENCED: Kind = Kind {
    label: "fenced",
    make: |client, name| client.lock(Flavour::Fenced, name),
    keys: |name| vec![name.to_owned()],
    numbers: 1,
    lanes: 1,
    again: true,
    command: Some("EVALSHA"),
};

pub const SPIN: Kind = Kind {
    label: "spin",
    make: |client, name| client.lock(Flavour::Spin, name),
    keys: |name| vec![name.to_owned()],
    numbers: 0,
    lanes: 1,
    again: true,
    command: Some("EVALSHA"),
};

pub const PLAIN: Kind = Kind {
    label: "plain",
    make: |client, name| client.lock(Flavour::Plain, name),
    again: false,
    command: None,
    ..SPIN
};

/// A striped lock with one segment, so that a re-entry uses the same segment.
pub const STRIPED: Kind = Kind {
    label: "striped",
    make: |client, name| Arc::new(client.striped(name, 1)),
    keys: |name| vec![format!("{name}:0")],
    ..SPIN
};

/// One script acquires two members, another command acquires the third.
pub const MULTI: Kind = Kind {
    label: "multi",
    make: |client, name| {
        let member = |flavour, n: u8| client.lock(flavour, &format!("{name}/{n}"));
        let all = [(Flavour::Reentrant, 1), (Flavour::Spin, 2), (Flavour::Fenced, 3)];
        Arc::new(MultiLock::of(all.into_iter().map(|(flavour, n)| member(flavour, n)).collect()))
    },
    keys: |name| (1..=3).map(|n| format!("{name}/{n}")).collect(),
    numbers: 1,
    lanes: 3,
    again: true,
    command: Some("EVALSHA"),
};

/// The state of one lock in Redis, read without the proxy.
struct View<'a> {
    client: &'a Client,
    admin: &'a Admin,
    keys: Vec<String>,
    label: &'a str,
    text: bool,
}

impl View<'_> {
    /// Checks that each key has exactly these holds, once the client has nothing in flight.
    async fn holds(&self, expected: &[(&Owner, u64)]) {
        let expected: BTreeMap<_, _> = expected.iter().map(|(who, count)| (text(who), count.to_string())).collect();
        becomes(&format!("{}: commands in flight", self.label), 0, async || self.client.stats().under_way).await;
        for key in &self.keys {
            assert_eq!(self.holders(key).await, expected, "{}: holds in {key}", self.label);
            let ttl = self.admin.pttl(key).await;
            assert!(expected.is_empty() || ttl > 0, "{}: {key} has no end of life, {ttl}", self.label);
        }
    }

    async fn holders(&self, key: &str) -> BTreeMap<String, String> {
        if !self.text {
            return self.admin.hgetall(key).await;
        }
        let value: Option<String> = self.admin.cmd(&["GET", key]).await;
        value.iter().flat_map(|value| value.split('/').next()).map(|owner| (owner.to_owned(), "1".to_owned())).collect()
    }

    async fn is_free(&self) -> bool {
        for key in &self.keys {
            if self.admin.exists(key).await {
                return false;
            }
        }
        true
    }

    /// Waits until an unfinished acquire is undone.
    async fn free_soon(&self) {
        eventually(&format!("free again: {}", self.label), async || self.is_free().await).await;
    }
}

/// Checks that the tokens are larger than all tokens before them.
fn above(guard: &Guard, kind: Kind, last: &mut u64, label: &str) {
    let numbers: Vec<u64> = guard.members().iter().filter_map(|member| member.token).collect();
    assert_eq!(numbers.len(), kind.numbers, "{label}");
    for number in numbers {
        assert!(number > *last, "{label}: {number} after {last}");
        *last = number;
    }
}

/// Uses a lock in every way. One lost command must not fail an acquire that waits, or a release.
async fn session(kind: Kind, name: &str, view: &View<'_>) {
    let (client, label) = (view.client, view.label);
    let lock = (kind.make)(client, name);
    // A single attempt may fail with a retryable error, in doubt or not.
    let passing = |what: &str, error: &Error| {
        let passes = error.is_retryable() || matches!(error, Error::ReleasePending { .. });
        assert!(passes, "{label}: {what}: {error:?}");
    };
    let got = |what: &str, outcome| got(label, what, outcome);
    let gave = |what: &str, outcome, left| gave(label, what, outcome, left);
    let (me, mut last) = (client.owner(), 0);
    let mine = || Acquire::new().owner(&me).wait(secs(90));
    let first = got("acquire", lock.acquire(mine()).await);
    view.holds(&[(&me, 1)]).await;
    above(&first, kind, &mut last, label);
    let second = if kind.again {
        let second = got("come in again", lock.acquire(mine()).await);
        view.holds(&[(&me, 2)]).await;
        assert!(second.members().iter().all(|member| member.token.is_none_or(|token| token == last)), "{label}");
        Some(second)
    } else {
        let again = lock.acquire(mine()).await;
        assert!(matches!(again, Err(Error::WouldDeadlock { .. })), "{label}: {again:?}");
        None
    };
    match lock.try_lock().await {
        Ok(guard) => assert!(guard.is_none(), "{label}: two holders"),
        Err(error) => passing("try", &error),
    }
    if let Err(error) = first.extend(secs(900)).await {
        passing("extend", &error);
    }
    if let Some(second) = second {
        gave("give one back", second.unlock().await, Released::StillHeld(1));
    }
    view.holds(&[(&me, 1)]).await;
    assert!(first.is_held(), "{label}");
    gave("give the other back", first.unlock().await, Released::Free);
    view.holds(&[]).await;
    // With a fresh owner, one command acquires all members that can be batched.
    let guard = got("acquire alone", lock.lock_for(secs(90)).await);
    view.holds(&[(guard.owner(), 1)]).await;
    above(&guard, kind, &mut last, label);
    gave("release", guard.unlock().await, Released::Free);
    view.free_soon().await;
    match lock.try_lock().await {
        Ok(guard) => {
            let guard = guard.unwrap_or_else(|| panic!("{label}: busy, with nobody there"));
            view.holds(&[(guard.owner(), 1)]).await;
            above(&guard, kind, &mut last, label);
            drop(guard);
        }
        Err(error) => passing("try", &error),
    }
    view.free_soon().await;
    idle(client).await;
}

/// Runs one session for each n of this lane, in which the proxy does `action` to the nth command that names the lock.
/// Returns the number of commands that were hit.
async fn run(bed: &Bed, kind: Kind, action: Action, lane: usize) -> usize {
    let (proxy, admin) = (bed.proxy(), Admin::connect(&bed.server).await);
    // On a slow machine a release takes many retries.
    let patient = brisk(&proxy.url()).retry_attempts(1_000).watchdog(secs(3600));
    let client = bed.connect(patient.configure(|options| options.subscription_linger = ms(0))).await;
    let matching = |name: &str| kind.command.map_or_else(Matcher::any, Matcher::command).containing(name);
    let named = async |name: String, nth: Option<usize>| {
        let armed = nth.map(|n| proxy.on_request(matching(&name).nth(n), action));
        let keys = (kind.keys)(&name);
        let view = View { client: &client, admin: &admin, keys, label: &name, text: !kind.again };
        session(kind, &name, &view).await;
        armed.is_none_or(|armed| armed.has_fired())
    };
    // A session without a fault, by which the server caches the scripts.
    named(format!("{} {lane} {action:?} warm;", kind.label), None).await;
    // Ends when a session has no nth command. The number varies, because a busy machine may repeat commands.
    let mut hit = 0;
    for n in (1 + lane..).step_by(kind.lanes) {
        if !named(format!("{} {action:?}/{n};", kind.label), Some(n)).await {
            break;
        }
        hit += 1;
    }
    client.shutdown(crate::PATIENCE).await.unwrap();
    hit
}

/// Applies nine faults to every command of a session: lost, repeated, delayed, cut off. No hold is counted twice or
/// remains after an error, no member of a multi lock stays held, and no token is issued twice.
pub async fn in_every_way(bed: &Bed, kind: Kind) {
    let all = (0..kind.lanes).flat_map(|lane| ACTIONS.map(|action| (lane, action)));
    let running = all.map(async |(lane, action)| (action, run(bed, kind, action, lane).await));
    for (action, commands) in futures::future::join_all(running).await {
        println!("{}, {action:?}: {commands} commands", kind.label);
        assert!(commands >= 8, "{}, {action:?}: {commands}", kind.label);
    }
}
