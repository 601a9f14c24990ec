//! Invalid inputs, keys of other types, closed clients.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Lost, PermitId, Permits, Result};

use crate::mutex::Mutex;
use crate::subject::{Subject, cause, freed, waiting};
use bed::cost::{only, sent};
use bed::{PATIENCE, ends, ms, secs, waits_in_vain};

const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The outcome of a call, with the call's name.
type Outcome = (&'static str, Result<()>);

async fn every_call(client: &Client, mutex: &Mutex) -> Vec<Outcome> {
    let mut calls = vec![
        ("try_lock", mutex.try_lock().await.map(drop)),
        ("lock", mutex.lock().await.map(drop)),
        ("lock_for", mutex.lock_for(PATIENCE).await.map(drop)),
        ("lock_leased", mutex.lock_leased(secs(60)).await.map(drop)),
        ("is_locked", mutex.is_locked().await.map(drop)),
        ("remaining_ttl", mutex.remaining_ttl().await.map(drop)),
    ];
    calls.extend(match mutex {
        Mutex::Lock(lock) => calls_of_owners(client, &**lock).await,
        Mutex::Permits(permits) => calls_of_permits(permits).await,
    });
    calls
}

async fn calls_of_owners(client: &Client, lock: &dyn DistLock) -> Vec<Outcome> {
    let owner = client.owner();
    vec![
        ("as an owner", lock.acquire(Acquire::new().owner(&owner)).await.map(drop)),
        ("state", lock.state().await.map(drop)),
        ("hold_count", lock.hold_count(&owner).await.map(drop)),
        ("force_unlock", lock.force_unlock().await.map(drop)),
        ("release", lock.release(&owner).await.map(drop)),
    ]
}

async fn calls_of_permits(permits: &Permits) -> Vec<Outcome> {
    let ids = [PermitId::from_bytes([1; 16])];
    vec![
        ("counts", permits.counts().await.map(drop)),
        ("holders", permits.holders().await.map(drop)),
        ("try_set_permits", permits.try_set_permits(1).await.map(drop)),
        ("set_permits", permits.set_permits(1).await),
        ("add_permits", permits.add_permits(1).await),
        ("release_ids", permits.release_ids(&ids).await.map(drop)),
        ("extend_ids", permits.extend_ids(&ids, secs(60)).await.map(drop)),
        ("delete", permits.delete().await.map(drop)),
    ]
}

pub async fn invalid_names_are_refused_without_sending_commands(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    sent(bed).await;
    for name in [String::new(), "x".repeat(5 * 1024)] {
        for (call, outcome) in every_call(&client, &bed.mutex(&client, &name)).await {
            let refused = outcome.unwrap_err();
            let Error::Config { what } = &refused else { panic!("{call}: {refused:?}") };
            assert!(what.contains("name") && what.len() < 200, "{call}: {what}");
        }
    }
    assert_eq!(sent(bed).await, only(&[]));
    // A key may have at most 4 KiB.
    let longest = "x".repeat(4 * 1024 - bed.added_to_names());
    bed.prepare(&[&longest]).await;
    let guard = bed.mutex(&client, &longest).lock().await.unwrap();
    assert!(bed.rival(&client, &longest).try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

// `tests/client/durations.rs` has invalid leases for every kind of lock.
pub async fn longest_lease_is_set_and_shortest_leases_leave_the_lock_free(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let lock = bed.mutex(&client, "job");
    let guard = lock.lock_leased(TEN_YEARS).await.unwrap();
    let ttl = lock.remaining_ttl().await.unwrap().unwrap();
    assert!(ttl > TEN_YEARS / 2 && ttl <= TEN_YEARS, "{ttl:?}");
    assert!(guard.is_held() && guard.remaining() > TEN_YEARS / 2);
    let longer = TEN_YEARS + ms(1);
    assert!(matches!(guard.extend(longer).await, Err(Error::Config { .. })));
    guard.unlock().await.unwrap();
    assert!(matches!(lock.lock_leased(longer).await, Err(Error::Config { .. })));
    // So short that the early local deadline may pass before the acquire returns.
    for lease in [ms(3), ms(4), ms(5)] {
        match lock.acquire(Acquire::new().wait(ms(300)).lease(lease)).await {
            Ok(guard) => drop(guard),
            Err(error) => assert!(error.is_retryable(), "{lease:?}: {error:?}"),
        }
    }
    freed(&lock).await;
}

/// Puts a key in place of the lock's name in a command.
fn with_key<'a>(make: &[&'a str], key: &'a str) -> Vec<&'a str> {
    make.iter().map(|word| if *word == "job" { key } else { *word }).collect()
}

/// Creates the lock's keys by this command. Every call is refused and leaves the keys unchanged.
async fn refuse_every_call(bed: &Subject<'_>, client: &Client, make: &[&str]) {
    let admin = &bed.admin;
    let keys = bed.keys_of("job");
    for key in &keys {
        admin.raw(&with_key(make, key)).await.unwrap();
    }
    let dumps = async || {
        let mut dumps: Vec<Vec<u8>> = Vec::new();
        for key in &keys {
            dumps.push(admin.cmd(&["DUMP", key]).await);
        }
        dumps
    };
    let before = dumps().await;
    let lock = bed.mutex(client, "job");
    for (call, outcome) in every_call(client, &lock).await {
        // A plain lock's attempt is one `SET`, which reports only that the key exists.
        if bed.kind().is_text && call == "try_lock" && outcome.is_ok() {
            continue;
        }
        let refused = cause(outcome.unwrap_err());
        let Error::WrongType { name, .. } = &refused else { panic!("{make:?}, {call}: {refused:?}") };
        // The error names the key. A lock made of others names one of its members' keys.
        assert!(keys.iter().any(|key| **key == **name), "{call}: {name}");
        assert!(!refused.is_retryable() && !refused.outcome_unknown());
    }
    assert_eq!(before, dumps().await, "{make:?}");
    for key in &keys {
        admin.cmd::<()>(&["DEL", key]).await;
    }
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// Creates the lock's keys by this command, one at a time. The error names the created key.
async fn name_the_wrong_key(bed: &Subject<'_>, lock: &dyn DistLock, make: &[&str]) {
    let admin = &bed.admin;
    for key in bed.keys_of("job") {
        admin.raw(&with_key(make, &key)).await.unwrap();
        for outcome in [lock.try_lock().await, lock.lock().await.map(Some)] {
            if bed.kind().is_text && matches!(outcome, Ok(None)) {
                continue;
            }
            let refused = cause(outcome.unwrap_err());
            assert!(matches!(&refused, Error::WrongType { name, .. } if **name == *key), "{key}: {refused:?}");
        }
        admin.cmd::<()>(&["DEL", &key]).await;
    }
}

/// Overwrites the key while the lock is held. The holder learns of the loss, and its release leaves the key unchanged.
async fn overwrite_held_key(bed: &Subject<'_>, client: &Client, lock: &dyn DistLock) {
    let admin = &bed.admin;
    let guard = lock.lock().await.unwrap();
    let key = &bed.keys_of("job")[0];
    admin.cmd::<()>(&["SET", key, "x"]).await;
    assert_eq!(client.renew_now().await.lost, 1);
    assert!(!guard.is_held());
    let told = guard.name().to_owned();
    let lost = guard.unlock().await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { name, why: Lost::Gone } if **name == *told), "{lost:?}");
    assert_eq!(admin.cmd::<String>(&["GET", key]).await, "x");
    admin.cmd::<()>(&["DEL", key]).await;
}

pub async fn key_of_wrong_type_is_reported_and_left_unchanged(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let other: &[&str] = if bed.kind().is_text { &["HSET", "job", "f", "1"] } else { &["SET", "job", "x"] };
    let makers = [other, &["RPUSH", "job", "x"], &["ZADD", "job", "1", "x"], &["XADD", "job", "*", "f", "x"]];
    for make in makers {
        refuse_every_call(bed, &client, make).await;
    }
    let lock = bed.lock(&client, "job");
    name_the_wrong_key(bed, &*lock, other).await;
    overwrite_held_key(bed, &client, &*lock).await;
    bed.sweep_covers().await;
}

// The holder has no TTL and does not renew: Redisson left it, or a third party wrote it.
pub async fn wait_behind_a_stranger_without_a_lease_times_out(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let (mutex, rival) = (bed.mutex(&client, "job"), bed.rival(&client, "job"));
    for field in ["somebody", "not:a:uuid", "", "\u{0}"] {
        bed.prepare(&["job"]).await;
        bed.give_to(field, "job").await;
        assert!(rival.try_lock().await.unwrap().is_none());
        waits_in_vain(ms(50), async |wait| rival.lock_for(wait).await).await;
        if let Mutex::Lock(lock) = &mutex {
            assert_eq!(lock.state().await.unwrap().holders, [(field.to_owned(), 1)]);
        }
        assert_eq!((mutex.is_locked().await.unwrap(), mutex.remaining_ttl().await.unwrap()), (true, None));
        assert!(mutex.take_away().await.unwrap());
        assert!(!mutex.is_locked().await.unwrap());
    }
}

pub async fn closed_client_returns_closed_errors(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    bed.prepare(&["busy"]).await;
    let lock = bed.mutex(&ours, "job");
    let rival = bed.rival(&ours, "busy");
    let guard = bed.mutex(&theirs, "busy").lock().await.unwrap();
    let waiters = [Acquire::new(), Acquire::new().wait(secs(3600))].map(|how| {
        let rival = rival.clone();
        tokio::spawn(async move { rival.acquire(how).await.map(drop) })
    });
    waiting(&ours, bed.kind().two_wait_as).await;
    ours.shutdown(PATIENCE).await.expect("shutdown of a client that only waits");
    for waiter in waiters {
        let closed = ends("a waiter of a closed client", waiter).await.unwrap();
        assert!(matches!(closed.as_ref().map_err(|error| cause(error.clone())), Err(Error::Closed)), "{closed:?}");
    }
    for (call, outcome) in every_call(&ours, &lock).await {
        let outcome = outcome.map_err(cause);
        assert!(matches!(outcome, Err(Error::Closed)), "{call} of a closed client: {outcome:?}");
    }
    assert!(matches!(ours.shutdown(PATIENCE).await, Err(Error::Closed)));
    guard.unlock().await.unwrap();
}
