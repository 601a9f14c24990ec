//! Keys and values in Redis: all forms of values, and key prefixes.

use bed::{Bed, becomes, ends, enter, ms, secs, waiter};
use distlock::{Acquire, Deadlock, Error, Flavour, NotHeld, Owner, PlainLock, PlainValue, Released};

use crate::rig::{plain, value};

const FORMS: [PlainValue; 3] = [PlainValue::Owner, PlainValue::Hex, PlainValue::Base64];

/// Asserts that every query names this owner.
async fn shows_its_owner(bed: &Bed, lock: &PlainLock, owner: &Owner) {
    assert_eq!(lock.state().await.unwrap().holders, [(owner.to_string(), 1)]);
    assert!(lock.is_held_by(owner).await.unwrap());
    let stranger = bed.client().await.owner();
    assert!(!lock.is_held_by(&stranger).await.unwrap());
    let refused = lock.release(&stranger).await;
    assert!(
        matches!(&refused, Err(Error::NotHeld { why: NotHeld::HeldBy { owner: told }, .. }) if *told == owner.to_string()),
        "{refused:?}"
    );
}

#[tokio::test]
async fn value_is_unique_per_acquire_and_names_its_owner() {
    plain(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for form in FORMS {
            let (lock, there) = (client.plain("job").value(form), other.plain("job").value(form));
            let guard = lock.lock().await.unwrap();
            let first = value(bed, "job").await.unwrap();
            let text = guard.owner().to_string();
            match form {
                PlainValue::Owner => assert_eq!(first, text),
                PlainValue::Hex => {
                    let (uuid, number) = text.split_once(':').unwrap();
                    assert_eq!(first, format!("{}{:016x}", uuid.replace('-', ""), number.parse::<u64>().unwrap()));
                }
                _ => assert_eq!(first.len(), 32),
            }
            shows_its_owner(bed, &there, guard.owner()).await;
            assert_eq!(bed.admin.keys().await, ["job"]);
            guard.unlock().await.unwrap();
            // Each acquire by an explicit owner writes a new value.
            let me = client.owner();
            let mut seen = vec![first];
            for _ in 0..3 {
                let guard = enter(&lock, &me).await;
                let found = value(bed, "job").await.unwrap();
                assert!(!seen.contains(&found), "{found} once more");
                seen.push(found);
                shows_its_owner(bed, &there, &me).await;
                assert_eq!(client.renew_now().await.renewed, 1, "{form:?}");
                guard.extend(secs(600)).await.unwrap();
                let ttl = bed.admin.pttl("job").await;
                assert!((30_001..=600_000).contains(&ttl), "{form:?}: {ttl}");
                // The other client has the owner's text only.
                let owner: Owner = guard.into_owner().to_string().parse().unwrap();
                assert_eq!(there.release(&owner).await.unwrap(), Released::Free, "{form:?}");
                assert!(matches!(there.release(&owner).await, Err(Error::NotHeld { why: NotHeld::Never, .. })));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn value_forms_exclude_each_other_and_wake_waiters() {
    plain(async |bed| {
        // The waiters' first poll would come after an hour.
        let clients = [bed.still_client().await, bed.still_client().await];
        for held in FORMS {
            for waits in FORMS {
                let guard = clients[0].plain("job").value(held).lock().await.unwrap();
                let lock = clients[1].plain("job").value(waits);
                assert!(lock.try_lock().await.unwrap().is_none(), "{held:?}, {waits:?}");
                let waiter = bed::passer(lock);
                becomes("listeners", 1, async || bed.admin.numsub("distlock_plain:{job}").await).await;
                becomes("calls under way", 0, async || clients[1].stats().under_way).await;
                guard.unlock().await.unwrap();
                ends(&format!("a waiter for {waits:?} behind {held:?}"), waiter).await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn owner_is_recognized_by_another_client_in_every_form() {
    plain(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        // An owner with unusual spelling is stored as text in every form.
        let odd = client.owner().to_string().to_uppercase();
        for held in FORMS {
            for asked in FORMS {
                for me in [client.owner().to_string(), odd.clone()] {
                    let me: Owner = me.parse().unwrap();
                    let guard = enter(&client.plain("job").value(held), &me).await;
                    let there = other.plain("job").value(asked);
                    for how in [Acquire::new().wait(ms(0)), Acquire::new().wait(secs(60))] {
                        let refused = there.acquire(how.owner(&me)).await;
                        let why = matches!(refused, Err(Error::WouldDeadlock { why: Deadlock::NotReentrant, .. }));
                        assert!(why, "{me} as {held:?}, asked as {asked:?}: {refused:?}");
                    }
                    assert!(guard.is_held());
                    shows_its_owner(bed, &there, &me).await;
                    drop(guard.into_owner());
                    let released = there.release(&me).await;
                    assert!(
                        matches!(released, Ok(Released::Free)),
                        "{me} as {held:?}, asked as {asked:?}: {released:?}"
                    );
                    assert!(!bed.admin.exists("job").await);
                }
            }
        }
    })
    .await;
}

/// A hold in one form is handed over to a waiter of another form.
#[tokio::test]
async fn handed_over_hold_keeps_its_value() {
    plain(async |bed| {
        let client = bed.connect(bed.builder().configure(|options| options.local_handoff_time = secs(600))).await;
        let guard = client.plain("job").value(PlainValue::Hex).lock().await.unwrap();
        let before = value(bed, "job").await;
        let waiter = waiter(client.plain("job"));
        becomes("waiters", 1, async || client.stats().waiting).await;
        guard.unlock().await.unwrap();
        let (guard, _) = ends("the waiter", waiter).await.unwrap();
        assert_eq!(value(bed, "job").await, before);
        assert_eq!(client.renew_now().await.renewed, 1);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(!bed.admin.exists("job").await);
    })
    .await;
}

#[tokio::test]
async fn lock_prefix_replaces_client_prefix() {
    plain(async |bed| {
        let client = bed.connect(bed.builder().name_prefix("app:")).await;
        let lock = client.plain("nightly").prefix("job-lock:default:");
        assert_eq!(lock.name(), "nightly");
        let guard = lock.lock().await.unwrap();
        assert_eq!(bed.admin.keys().await, ["job-lock:default:nightly"]);
        // The key does not depend on other options or on their order.
        let same = client.plain("nightly").value(PlainValue::Base64).prefix("job-lock:default:");
        assert!(same.try_lock().await.unwrap().is_none());
        let another = client.plain("nightly").lock().await.unwrap();
        assert_eq!(bed.admin.keys().await, ["app:nightly", "job-lock:default:nightly"]);
        another.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        let guard = client.plain("a").prefix("").lock().await.unwrap();
        assert_eq!(bed.admin.keys().await, ["a"]);
        guard.unlock().await.unwrap();
        let long = client.plain("x").prefix(&"p".repeat(5_000)).try_lock().await;
        assert!(matches!(long, Err(Error::Config { .. })), "{long:?}");
    })
    .await;
}

/// A client may use one name for a plain lock and for another lock. The type of the key tells them apart.
#[tokio::test]
async fn plain_lock_and_other_lock_of_one_name_exclude_each_other() {
    plain(async |bed| {
        let client = bed.client().await;
        for other in bed::FLAVOURS.into_iter().filter(|other| *other != Flavour::Plain) {
            let (plain, hash) = (client.lock(Flavour::Plain, "job"), client.lock(other, "job"));
            let guard = plain.lock().await.unwrap();
            for refused in [hash.try_lock().await, hash.lock_for(secs(600)).await] {
                assert!(matches!(refused, Err(Error::WrongType { .. })), "{other}: {refused:?}");
            }
            guard.unlock().await.unwrap();
            let me = client.owner();
            let guard = hash.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
            assert!(plain.try_lock().await.unwrap().is_none(), "{other}");
            let refused = plain.lock().await;
            assert!(matches!(refused, Err(Error::WrongType { .. })), "{other}: {refused:?}");
            assert!(matches!(plain.force_unlock().await, Err(Error::WrongType { .. })), "{other}");
            assert!(guard.is_held(), "{other}");
            guard.unlock().await.unwrap();
            bed::idle(&client).await;
            let () = bed.admin.cmd(&["FLUSHALL"]).await;
        }
    })
    .await;
}
