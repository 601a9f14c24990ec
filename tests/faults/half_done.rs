//! Servers that refuse a script's last command. The script's earlier writes must be undone. `tests/rwlock/refusal.rs`
//! has the read-write lock's acquires.

use distlock::{Acquire, Error, Flavour, Released};

use crate::rig::patient;
use bed::fault::refused;
use bed::{Bed, becomes, ends, eventually, fair, idle, ms, reentrant, secs, waiter};

/// Flavours whose key is a hash.
const HASHES: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Fenced, Flavour::Spin, Flavour::Read, Flavour::Write];

async fn rule(bed: &Bed, rule: &str) {
    let () = bed.admin.cmd(&["ACL", "SETUSER", "default", rule]).await;
}

/// The login may not set a lease. A free lock stays free, and a held lock keeps all its fields. The owner has one hold
/// or several.
#[tokio::test]
async fn acquire_without_pexpire_right_leaves_lock_unchanged() {
    reentrant(async |bed| {
        let client = bed.connect(patient(&bed.server.url()).configure(|options| options.batching = false)).await;
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Fenced, Flavour::Spin] {
            for listed in [false, true] {
                let label = format!("{flavour}, listed: {listed}");
                let lock = client.lock(flavour, "a");
                let how = Acquire::new().lease(secs(600));
                let how = if listed { how.owner(&client.owner()) } else { how };
                let guard = lock.acquire(how).await.unwrap().unwrap();
                let (me, before) = (guard.owner().clone(), bed.admin.hgetall("a").await);
                rule(bed, "-pexpire").await;
                // The lease is longer than the current one, so the script must set it.
                refused(lock.acquire(Acquire::new().owner(&me).lease(secs(900))).await, "");
                becomes("commands under way", 0, async || client.stats().under_way).await;
                assert_eq!(bed.admin.hgetall("a").await, before, "{label}");
                assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{label}");
                refused(lock.try_lock().await, "");
                refused(lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await, "");
                idle(&client).await;
                assert_eq!(bed.keys().await, [""; 0], "{label}");
                rule(bed, "+pexpire").await;
            }
        }
    })
    .await;
}

/// The release cannot set the first lease of the next holder, so it does not pass the lock on. A lock without a lease
/// would never expire. The lock becomes free, and the waiter acquires by itself.
#[tokio::test]
async fn fair_lock_is_not_passed_on_without_pexpire_right() {
    fair(async |bed| {
        let (client, other) =
            (bed.connect(patient(&bed.server.url())).await, bed.connect(patient(&bed.server.url())).await);
        let guard = client.fair("a").lock().await.unwrap();
        let lock = other.fair("a");
        let next = tokio::spawn(async move {
            loop {
                match lock.lock().await {
                    // The waiter's refresh may cause an attempt before the right is restored.
                    Err(Error::Server { .. }) => tokio::time::sleep(ms(10)).await,
                    outcome => return outcome.unwrap(),
                }
            }
        });
        eventually("it queues", async || client.fair("a").queue_len().await.unwrap() == 1).await;
        rule(bed, "-pexpire").await;
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert_eq!(bed.admin.hgetall("a").await.len(), 0, "passed on without an end");
        rule(bed, "+pexpire").await;
        let guard = ends("the waiter", next).await.unwrap();
        assert!(bed.admin.pttl("a").await > 0);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// An extend to a shorter lease must record its command number, so that a late copy has no effect. If the server
/// refuses this write, the lease does not change.
#[tokio::test]
async fn extend_to_shorter_lease_without_hset_right_keeps_lease() {
    reentrant(async |bed| {
        let client = bed.connect(patient(&bed.server.url())).await;
        for flavour in HASHES {
            let guard = client.lock(flavour, "a").lock_leased(secs(600)).await.unwrap();
            rule(bed, "-hset").await;
            refused(guard.extend(secs(200)).await, "");
            assert!(bed.admin.pttl("a").await > 200_000, "{flavour}");
            rule(bed, "+hset").await;
            guard.extend(secs(200)).await.unwrap();
            assert!(bed.admin.pttl("a").await <= 200_000, "{flavour}");
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        }
    })
    .await;
}

/// The login may not read a lease. The lock is not renewed, and the client reports no renewal.
#[tokio::test]
async fn renewal_without_pttl_right_reports_no_renewed_hold() {
    reentrant(async |bed| {
        let client = bed.connect(patient(&bed.server.url())).await;
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write] {
            let guard = client.lock(flavour, "a").lock().await.unwrap();
            rule(bed, "-pttl").await;
            assert_eq!(client.renew_now().await.renewed, 0, "{flavour}");
            rule(bed, "+pttl").await;
            assert_eq!(client.renew_now().await.renewed, 1, "{flavour}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A release, a force and a grant to the next waiter succeed although their message is refused. Waiters notice without
/// a message.
#[tokio::test]
async fn release_and_force_unlock_succeed_without_channel_rights() {
    fair(async |bed| {
        let able = bed.connect(patient(&bed.server.url()).configure(|options| options.poll_cap = secs(1))).await;
        let () = bed.admin.cmd(&["ACL", "SETUSER", "mute", "reset", "on", ">pw", "~*", "resetchannels", "+@all"]).await;
        let url = bed.server.url().replace("redis://", "redis://mute:pw@");
        let mute = bed.connect(patient(&url).configure(|options| options.preflight = false)).await;
        for flavour in HASHES {
            let lock = mute.lock(flavour, "a");
            assert_eq!(lock.lock().await.unwrap().unlock().await.unwrap(), Released::Free, "{flavour}");
            let guard = lock.lock().await.unwrap();
            assert!(lock.force_unlock().await.unwrap(), "{flavour}");
            drop(guard);
            let of_none = lock.release(&mute.owner()).await;
            assert!(matches!(of_none, Err(Error::NotHeld { .. })), "{flavour}: {of_none:?}");
        }
        let queued = async |n| able.fair("b").queue_len().await.unwrap() == n;
        for forced in [false, true] {
            let guard = mute.fair("b").lock().await.unwrap();
            let next = waiter(able.fair("b"));
            eventually("it queues", async || queued(1).await).await;
            if forced {
                assert!(mute.fair("b").force_unlock().await.unwrap());
                drop(guard);
            } else {
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
            }
            let (guard, _) = ends("the waiter, whom no message wakes", next).await.unwrap();
            guard.unlock().await.unwrap();
        }
        // Deletes the cover of the reader whose hold was ended by force.
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}
