//! Lock delays on a real server: the leases in Redis, lost guards, refusals and cost. `sim/timing/delay.rs` has the
//! times.

use std::sync::Arc;

use bed::cost::{only, renewal, sent, warm};
use bed::{EXCLUSIVE, becomes, ends, idle, kin, ms, reentrant, secs, with_longer_waits};
use distlock::{Acquire, DistLock, Error, Flavour, Lost, RedLock};

#[tokio::test]
async fn lost_lease_keeps_the_name_closed_and_release_opens_it() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
        for flavour in EXCLUSIVE {
            let name = flavour.as_str();
            let (mine, other) = (ours.lock(flavour, name), theirs.lock(flavour, name));
            let how = |lease| Acquire::new().lease(lease).lock_delay(secs(3600));
            let guard = mine.acquire(how(secs(600))).await.unwrap().unwrap();
            assert!(guard.remaining() <= secs(600) && bed.admin.pttl(name).await > 3_600_000, "{flavour}");
            guard.extend(secs(60)).await.unwrap();
            let left = bed.admin.pttl(name).await;
            assert!((3_600_001..=3_660_000).contains(&left), "{flavour}: extended to {left}");
            guard.unlock().await.unwrap();
            assert!(!bed.admin.exists(name).await, "{flavour}: closed after a release");

            let guard = with_longer_waits(ms(300), async |lease| match mine.acquire(how(lease)).await {
                Ok(guard) => guard,
                // The lease was too short for the reply.
                Err(error) => {
                    assert!(error.is_retryable(), "{flavour}: {error:?}");
                    idle(&ours).await;
                    None
                }
            })
            .await;
            let lost = ends("the lease", guard.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{flavour}: {lost:?}");
            drop(guard);
            idle(&ours).await;
            assert!(bed.admin.pttl(name).await > 3_000_000, "{flavour}: opened by a lost guard");
            assert!(other.try_lock().await.unwrap().is_none(), "{flavour}: two holders");
            assert!(other.force_unlock().await.unwrap(), "{flavour}");
            other.try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn lost_guards_of_one_owner_release_nothing() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let (lock, owner) = (client.reentrant("x"), client.owner());
        let mut guards = Vec::new();
        for _ in 0..2 {
            let how = Acquire::new().owner(&owner).lease(secs(1)).lock_delay(secs(3600));
            guards.push(lock.acquire(how).await.unwrap().unwrap());
        }
        for guard in &guards {
            ends("the lease", guard.lost()).await;
        }
        sent(bed).await;
        drop(guards);
        idle(&client).await;
        assert_eq!(sent(bed).await, only(&[]));
        assert!(bed.admin.pttl("x").await > 3_000_000, "opened by lost guards");
        assert!(lock.force_unlock().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn shared_locks_and_groups_refuse_a_delay_without_command() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let how = || Acquire::new().wait(secs(1)).lock_delay(ms(1));
        let locks: [Arc<dyn DistLock>; 4] = [
            client.lock(Flavour::Read, "x"),
            Arc::new(client.multi(["x", "y"])),
            Arc::new(RedLock::new([client.clone()], "x")),
            Arc::new(client.striped("x", 2)),
        ];
        sent(bed).await;
        for lock in &locks {
            let refused = lock.acquire(how()).await;
            assert!(matches!(&refused, Err(Error::Config { what }) if what.contains("lock delay")), "{refused:?}");
        }
        for gate in [client.permits("p"), client.permits("p").fair()] {
            let refused = gate.acquire_with(1, how()).await;
            assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
        }
        let long = client.reentrant("x").acquire(Acquire::new().lock_delay(secs(24 * 3600 + 1))).await;
        assert!(matches!(long, Err(Error::Config { .. })), "{long:?}");
        assert_eq!(sent(bed).await, only(&[]));
    })
    .await;
}

/// Holds with equal delays share a renewal.
#[tokio::test]
async fn delay_costs_no_command_except_one_renewal_per_delay() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        warm(bed, &client, Flavour::Reentrant).await;
        let mut guards = Vec::new();
        for n in 0..6_u64 {
            let how = Acquire::new().lock_delay(secs(n % 2 * 15));
            let lock = client.reentrant(&kin(&format!("x{n}")));
            guards.push(lock.acquire(how).await.unwrap().unwrap());
        }
        assert_eq!(sent(bed).await, only(&[("evalsha", 6)]));
        renewal(bed, &client, &guards, 2).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        becomes("keys", Vec::<String>::new(), async || bed.keys().await).await;
    })
    .await;
}
