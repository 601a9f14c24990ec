//! Helpers for tests of faults: clients with short time limits, and requests that are matched by script.

use std::time::Duration;

use distlock::{Acquire, Builder, Client, Error, Flavour, Guard, Lost, Released};
use distlock_support::Admin;
use distlock_support::proxy::Matcher;

use crate::harm::{TIMEOUT, runs};
use crate::{Bed, PATIENCE, eventually, idle, ms, secs};

pub const WATCHDOG: Duration = secs(6);

/// A builder for a client that notices faults and gives up early.
pub fn brisk(url: &str) -> Builder {
    crate::builder(url)
        .watchdog(WATCHDOG)
        .command_timeout(TIMEOUT)
        .connect_timeout(PATIENCE)
        .retry_attempts(10)
        .configure(|options| {
            options.retry_delay = (ms(20), ms(100));
            options.subscribe_timeout = secs(1);
            options.subscription_linger = ms(200);
            options.poll_cap = secs(2);
            options.ping_interval = ms(500);
        })
}

/// Matches the requests that run the reentrant lock's script `name`. The script is recognised by its hash.
pub fn script(name: &str) -> Matcher {
    runs(&["common/holds", &format!("reentrant/{name}")])
}

/// Runs each script of the reentrant lock at least once, so that the server has all of them in its script cache.
pub async fn warm(client: &Client) {
    let lock = client.reentrant("warm");
    let guard = lock.lock().await.expect("lock");
    let renewed = client.renew_now().await;
    assert_eq!(renewed.renewed, 1, "renewals: {renewed:?}");
    let locked = lock.is_locked().await;
    assert!(matches!(locked, Ok(true)), "is_locked: {locked:?}");
    let freed = lock.force_unlock().await;
    assert!(matches!(freed, Ok(true)), "force_unlock: {freed:?}");
    let outcome = guard.unlock().await;
    assert!(outcome.is_err(), "unlock, of a lock that was freed by force: {outcome:?}");
    lock.lock().await.expect("lock").unlock().await.expect("unlock");
    idle(client).await;
}

/// The hold count of the only holder in Redis; 0 without a key.
pub async fn count(admin: &Admin, key: &str) -> u64 {
    let fields = admin.hgetall(key).await;
    assert!(fields.len() <= 1, "two holders of {key}: {fields:?}");
    fields.values().next().map_or(0, |count| count.parse().expect("a hold count is a number"))
}

/// Unwraps the guard of an acquire that must succeed even if one command was lost, because nothing else wants the lock.
#[track_caller]
pub fn got(label: &str, what: &str, outcome: Result<Option<Guard>, Error>) -> Guard {
    match outcome {
        Ok(guard) => guard.unwrap_or_else(|| panic!("{label}: {what}: the wait ended without the lock")),
        Err(error) => panic!("{label}: {what}: {error:?}"),
    }
}

/// Like [`got`], for a release. Checks the number of remaining holds.
#[track_caller]
pub fn gave(label: &str, what: &str, outcome: Result<Released, Error>, left: Released) {
    match outcome {
        Ok(found) => assert_eq!(found, left, "{label}: {what}"),
        Err(error) => panic!("{label}: {what}: {error:?}"),
    }
}

/// Checks that the error says that the command may have run.
#[track_caller]
pub fn assert_doubt(error: &Error) {
    assert!(error.outcome_unknown() && error.is_retryable(), "{error:?}");
}

/// Checks that the server refused with this code, and that nothing is in doubt.
#[track_caller]
pub fn refused<T>(outcome: Result<T, Error>, code: &str) {
    match outcome {
        Err(error @ Error::Server { .. }) if error.outcome_unknown() => panic!("in doubt: {error:?}"),
        Err(Error::Server { message, .. }) if message.starts_with(code) => {}
        Err(error) => panic!("expected {code}: {error:?}"),
        Ok(_) => panic!("expected {code}: it succeeded"),
    }
}

/// Replaces `key` by a key of another type while a guard holds it. Checks that the guard is lost, and that every other
/// call returns `WrongType` (`release` of a hash: `NotHeld`) and leaves the key unchanged.
pub async fn told_and_left_alone(bed: &Bed, client: &Client, flavour: Flavour, make: &[&str]) {
    let lock = client.lock(flavour, "key");
    let guard = lock.lock().await.unwrap();
    let watched = client.lock(flavour, "watched").lock().await.unwrap();
    let () = bed.admin.cmd(&["DEL", "key"]).await;
    bed.admin.raw(make).await.expect("it becomes something else");
    let before: Vec<u8> = bed.admin.cmd(&["DUMP", "key"]).await;
    // The hold of `key` is lost. The hold of `watched`, renewed by the same command, is not.
    let renewed = client.renew_now().await;
    assert_eq!((renewed.renewed, renewed.lost), (1, 1), "{make:?}");
    assert!(matches!(guard.lost().await, Error::Lost { why: Lost::Gone, .. }));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })) && watched.is_held());
    watched.unlock().await.unwrap();
    let released = lock.release(&client.owner()).await.map(drop);
    let mut outcomes = vec![
        lock.try_lock().await.map(drop),
        lock.lock().await.map(drop),
        lock.lock_for(PATIENCE).await.map(drop),
        lock.acquire(Acquire::new().owner(&client.owner())).await.map(drop),
        lock.state().await.map(drop),
        lock.force_unlock().await.map(drop),
    ];
    if make[0] == "HSET" {
        // A release treats any hash as a lock that another owner holds.
        assert!(matches!(released, Err(Error::NotHeld { .. })), "{flavour}: {make:?}: {released:?}");
    } else {
        outcomes.push(released);
    }
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        let told = matches!(&error, Error::WrongType { name, .. } if &**name == "key");
        assert!(told && !error.is_retryable() && !error.outcome_unknown(), "{flavour}: {make:?}: {error:?}");
    }
    let after: Vec<u8> = bed.admin.cmd(&["DUMP", "key"]).await;
    assert_eq!(before, after, "{flavour}: {make:?}");
    // Other keys of a lost hold stay until the lease expires.
    let () = bed.admin.cmd(&["FLUSHALL"]).await;
}

/// Checks that an acquire is refused because only `most` of `wanted` replicas acknowledged the hold. Repeats the
/// acquire if fewer did, because a replica may be late.
///
/// # Panics
/// When an acquire ends in another way, or more than `most` replicas acknowledge it.
pub async fn refused_by(client: &Client, flavour: Flavour, name: &str, (most, wanted): (usize, usize)) {
    let refused = async || {
        let outcome = client.lock(flavour, name).try_lock().await;
        let told = match &outcome {
            Err(error @ Error::Replicas { got, wanted, .. }) if error.is_retryable() => (*got, *wanted),
            _ => panic!("{name}: {outcome:?}"),
        };
        assert!(told.0 <= most && told.1 == wanted, "{name}: refused with {told:?}, and not {most} of {wanted}");
        idle(client).await;
        told.0 == most
    };
    eventually(&format!("{name} is refused with {most} of {wanted}"), refused).await;
}
