//! Acquire, release and the numbers, on one client and on two.

use distlock::{Acquire, Error, Owner, PermitId};

use crate::rig::{counts, is_busy, permits, take, with};
use bed::cost::sent;
use bed::{becomes, ends, eventually, ms, secs};

#[tokio::test]
async fn permits_are_granted_up_to_their_number() {
    permits(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (here, there) = (with(&client, "gate", 5).await, other.permits("gate"));
        assert!(!there.try_set_permits(9).await.unwrap(), "the number is set already");
        let (one, two) = (take(&here, 1).await, take(&there, 3).await);
        assert_eq!((one.count(), two.count(), counts(&there).await), (1, 3, (1, 4)));
        assert!(is_busy(&here, 2).await && one.is_held() && two.is_held());
        let last = take(&here, 1).await;
        assert!(is_busy(&there, 1).await);
        two.release().await.unwrap();
        assert_eq!(counts(&here).await, (3, 2));
        drop((one, last));
        becomes("free and held permits", (5, 0), async || counts(&here).await).await;
    })
    .await;
}

#[tokio::test]
async fn release_wakes_waiters_of_this_and_of_another_client() {
    permits(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let here = with(&client, "gate", 1).await;
        for waits in [&client, &other] {
            let guard = take(&here, 1).await;
            let there = waits.permits("gate");
            let next = tokio::spawn(async move { there.acquire(1).await });
            becomes("waiters", 1, async || waits.stats().waiting).await;
            guard.release().await.unwrap();
            ends("the waiter", next).await.unwrap().unwrap().release().await.unwrap();
        }
        let guard = take(&here, 1).await;
        assert!(here.acquire_for(1, ms(50)).await.unwrap().is_none());
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn set_and_add_change_the_number_below_and_above_the_held_permits() {
    permits(async |bed| {
        let client = bed.client().await;
        let gate = with(&client, "gate", 2).await;
        let guard = take(&gate, 2).await;
        gate.set_permits(1).await.unwrap();
        assert_eq!(counts(&gate).await, (-1, 2));
        assert_eq!(gate.counts().await.unwrap().total(), 1);
        let waiting = gate.clone();
        let next = tokio::spawn(async move { waiting.acquire(1).await });
        becomes("waiters", 1, async || client.stats().waiting).await;
        gate.add_permits(2).await.unwrap();
        let more = ends("the waiter", next).await.unwrap().unwrap();
        gate.add_permits(-3).await.unwrap();
        assert_eq!(counts(&gate).await, (-3, 3));
        guard.release().await.unwrap();
        more.release().await.unwrap();
        assert_eq!(counts(&gate).await, (0, 0));
        gate.set_permits(7).await.unwrap();
        assert_eq!(counts(&gate).await, (7, 0));
        assert!(gate.delete().await.unwrap() && !gate.delete().await.unwrap());
        assert_eq!(counts(&gate).await, (0, 0));
        assert!(is_busy(&gate, 1).await);
    })
    .await;
}

#[tokio::test]
async fn lease_ends_at_its_time_and_wakes_the_waiter() {
    permits(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let gate = with(&client, "gate", 1).await;
        let guard = gate.acquire_with(1, Acquire::new().lease(ms(500))).await.unwrap().unwrap();
        // No message and no poll within the test: only the end of the lease wakes the waiter.
        let next = ends("the waiter", tokio::spawn(async move { other.permits("gate").acquire(1).await }))
            .await
            .unwrap()
            .unwrap();
        assert!(!guard.is_held());
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
        next.release().await.unwrap();
        eventually("the permit is free", async || counts(&gate).await == (1, 0)).await;
    })
    .await;
}

#[tokio::test]
async fn watchdog_renews_permits_and_an_explicit_lease_ends() {
    permits(async |bed| {
        let client = bed.quick().await;
        let gate = with(&client, "gate", 3).await;
        let watched = take(&gate, 2).await;
        let leased = gate.acquire_with(1, Acquire::new().lease(ms(700))).await.unwrap().unwrap();
        let lost = leased.lost();
        let last = ["ZRANGE", "{gate}:timeout", "-1", "-1", "WITHSCORES"];
        let ends = async || bed.admin.cmd::<Vec<Vec<u8>>>(&last).await[1].clone();
        for _ in 0..2 {
            let before = ends().await;
            eventually("a renewal", async || ends().await > before).await;
        }
        assert!(matches!(lost.await, Error::Lost { .. }));
        becomes("free and held permits", (1, 2), async || counts(&gate).await).await;
        assert!(watched.is_held());
        watched.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn permits_are_released_and_extended_by_id_from_another_client() {
    permits(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (here, there) = (with(&client, "gate", 5).await, other.permits("gate"));
        let guard = here.acquire_with(2, Acquire::new().lease(secs(60))).await.unwrap().unwrap();
        let ids = guard.ids();
        let held = there.holders().await.unwrap();
        assert_eq!(held.iter().map(|held| held.id).collect::<Vec<_>>(), ids);
        assert!(held.iter().all(|held| held.remaining.is_some_and(|left| left <= secs(60) && left > secs(20))));
        let unknown: PermitId = "00112233445566778899aabbccddeeff".parse().unwrap();
        assert!(!there.extend_ids(&[ids[0], unknown], secs(600)).await.unwrap());
        assert!(there.extend_ids(&ids, secs(600)).await.unwrap());
        assert!(there.holders().await.unwrap().iter().all(|held| held.remaining.is_some_and(|left| left > secs(500))));
        assert!(!there.release_ids(&[ids[0], unknown]).await.unwrap());
        assert_eq!(counts(&here).await, (3, 2));
        let lost = guard.lost();
        assert!(there.release_ids(&ids).await.unwrap());
        assert!(!there.release_ids(&ids).await.unwrap());
        assert_eq!(counts(&here).await, (5, 0));
        assert!(guard.extend(secs(1)).await.is_err());
        lost.await;
        assert!(!guard.is_held());
        drop(guard);
    })
    .await;
}

#[tokio::test]
async fn impossible_requests_are_refused_without_a_command() {
    permits(async |bed| {
        let client = bed.client().await;
        let gate = client.permits("gate");
        for n in [0, 1001, u32::MAX] {
            assert!(matches!(gate.try_acquire(n).await, Err(Error::Config { .. })), "{n}");
        }
        let owner: Owner = client.owner();
        let owned = gate.acquire_with(1, Acquire::new().owner(&owner)).await;
        assert!(matches!(owned, Err(Error::Config { .. })));
        assert!(matches!(client.permits("").try_acquire(1).await, Err(Error::Config { .. })));
        assert!(matches!(gate.extend_ids(&[], ms(1)).await, Err(Error::Config { .. })));
        // A key of another type.
        bed.admin.cmd::<()>(&["HSET", "odd", "a", "1"]).await;
        let odd = client.permits("odd");
        let error = odd.try_acquire(1).await.unwrap_err();
        assert!(matches!(&error, Error::WrongType { found: Some(found), .. } if &**found == "hash"), "{error:?}");
        assert!(odd.counts().await.is_err() && odd.set_permits(1).await.is_err());
    })
    .await;
}

/// A permit has no owner: in a scope of an owner, each acquire takes a permit of its own.
#[tokio::test]
async fn permits_ignore_the_owner_of_the_scope() {
    permits(async |bed| {
        let client = bed.client().await;
        let gate = with(&client, "gate", 2).await;
        client
            .owner()
            .scope(async {
                let both = (take(&gate, 1).await, take(&gate, 1).await);
                assert!(is_busy(&gate, 1).await);
                both.0.release().await.unwrap();
                both.1.release().await.unwrap();
            })
            .await;
    })
    .await;
}

/// Inside one process, permits go from guard to waiter without a command.
#[tokio::test]
async fn permits_are_handed_over_inside_the_process() {
    permits(async |bed| {
        let client = bed
            .connect(bed.still_builder().configure(|options| {
                options.local_handoff_limit = 1000;
                options.local_handoff_time = secs(600);
            }))
            .await;
        let gate = with(&client, "gate", 2).await;
        let guard = gate.acquire(2).await.unwrap();
        let mut waiting = Vec::new();
        for n in 0..20 {
            let gate = gate.clone();
            waiting.push(tokio::spawn(async move { gate.acquire(2).await.unwrap().release().await.unwrap() }));
            becomes("waiters", n + 1, async || client.stats().waiting).await;
        }
        becomes("subscribers", 1, async || bed.admin.channels().await.len()).await;
        sent(bed).await;
        guard.release().await.unwrap();
        for task in waiting {
            ends("the waiter", task).await.unwrap();
        }
        // The first waiter's second look, and the last release.
        let scripts = sent(bed).await.get("evalsha").copied().unwrap_or(0);
        assert!(scripts <= 2, "{scripts} commands for 20 acquires and 21 releases");
        assert_eq!(counts(&gate).await, (2, 0));
    })
    .await;
}

/// One message may announce several permits. Nothing but the message wakes these waiters.
#[tokio::test]
async fn one_message_about_several_permits_serves_several_waiters() {
    permits(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (gate, there) = (with(&client, "gate", 1).await, other.permits("gate"));
        let first = take(&gate, 1).await;
        for n in [1, 3] {
            let mut tasks = Vec::new();
            for count in 0..n {
                let gate = gate.clone();
                tasks.push(tokio::spawn(async move { gate.acquire(1).await }));
                becomes("waiters", count + 1, async || client.stats().waiting).await;
            }
            becomes("subscribers", 1, async || bed.admin.channels().await.len()).await;
            there.add_permits(n as i32).await.unwrap();
            let mut guards = Vec::new();
            for task in tasks {
                // All are held at once.
                guards.push(ends("the waiter", task).await.unwrap().unwrap());
            }
            assert!(guards.iter().all(distlock::PermitGuard::is_held));
            there.add_permits(-(n as i32)).await.unwrap();
            for guard in guards {
                guard.release().await.unwrap();
            }
            assert_eq!(counts(&gate).await, (0, 1));
        }
        first.release().await.unwrap();
    })
    .await;
}

/// An answer to an earlier waiter is stale once nobody listens for messages.
#[tokio::test]
async fn permit_released_while_nobody_waits_is_found_at_once() {
    permits(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (gate, there) = (with(&client, "gate", 1).await, other.permits("gate"));
        let held = take(&there, 1).await;
        assert!(gate.acquire_for(1, ms(200)).await.unwrap().is_none());
        held.release().await.unwrap();
        ends("the acquire", gate.acquire(1)).await.unwrap().release().await.unwrap();
    })
    .await;
}

/// Neither a renewal nor the shutdown of the first client changes the lease.
#[tokio::test]
async fn permits_given_up_by_their_guard_keep_their_lease_until_another_client_releases_them() {
    permits(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (here, there) = (with(&client, "gate", 3).await, other.permits("gate"));
        let watched = take(&here, 1).await.into_ids();
        let leased = here.acquire_with(2, Acquire::new().lease(secs(3600))).await.unwrap().unwrap().into_ids();
        assert_eq!((watched.len(), leased.len(), client.renew_now().await.renewed), (1, 2, 0));
        client.shutdown(secs(1)).await.unwrap();
        assert_eq!(counts(&there).await, (0, 3));
        assert!(there.extend_ids(&leased, secs(7200)).await.unwrap());
        assert!(there.release_ids(&leased).await.unwrap() && there.release_ids(&watched).await.unwrap());
        assert_eq!(counts(&there).await, (3, 0));
    })
    .await;
}
