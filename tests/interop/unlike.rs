//! Intended differences from Redisson: what Redisson does, and what this crate does.

use crate::listener::Listener;
use crate::reentry::Step::{Leased, Lock, Unlock};
use crate::reentry::{Ours, Step, Theirs};
use crate::rig::{NEVER, Rig, WATCHDOG, lasting, renewed, until_is};

/// The watchdog's lease of both sides, in seconds.
const USUAL: u64 = NEVER.as_secs();

/// Each step with its resulting lease in seconds: in Redisson, and in this crate.
type Row = &'static [(Step, u64, u64)];

const ROWS: [Row; 4] = [
    // In Redisson, a shorter inner lease shortens the outer lease, even after the inner release.
    &[(Leased(9_000), 9_000, 9_000), (Leased(2_000), 2_000, 9_000), (Unlock, 2_000, 9_000)],
    &[(Lock, USUAL, USUAL), (Leased(2_000), 2_000, USUAL), (Unlock, 2_000, USUAL)],
    // In Redisson, a longer inner lease outlasts its release. Here, the outer lease is restored.
    &[(Leased(5_000), 5_000, 5_000), (Leased(9_000), 9_000, 9_000), (Unlock, 9_000, 5_000)],
    // Redisson starts a watched hold with the lock object's last lease.
    &[(Leased(2_000), 2_000, 2_000), (Lock, 2_000, USUAL), (Unlock, 2_000, 2_000)],
];

pub async fn inner_shorter_lease_does_not_shorten_the_outer_lease(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    for (number, row) in ROWS.iter().enumerate() {
        let (a, b) = (format!("java:{number}:x"), format!("rust:{number}:x"));
        let (theirs, mut ours) = (Theirs::new(&rig, &listener, &a), Ours::new(&rig, &listener, &client, &b));
        for (step, in_redisson, with_us) in *row {
            let (left_by_them, left_by_us) = (theirs.take(*step).await, ours.take(*step).await);
            left_by_them.assert_lease(&format!("{version}, {step:?} of {row:?}, Redisson"), *in_redisson);
            left_by_us.assert_lease(&format!("{version}, {step:?} of {row:?}, we"), *with_us);
            assert_eq!(left_by_us.counts, left_by_them.counts, "{step:?} of {row:?}");
        }
        theirs.take(Unlock).await;
        ours.take(Unlock).await;
    }
    drop(listener);
    rig.end([client]).await;
}

/// A leased hold inside a watched one is released: Redisson stops the watchdog of the outer hold, and ours continues.
pub async fn outer_hold_is_renewed_after_inner_release(version: &str) {
    let rig = Rig::with(version).await;
    let (client, listener) = (rig.watched_client().await, Listener::open(rig.server.addr()).await);
    let (theirs, mut ours) = (Theirs::new(&rig, &listener, "java:x"), Ours::new(&rig, &listener, &client, "rust:x"));
    for step in [Lock, Leased(WATCHDOG.as_secs()), Unlock] {
        theirs.take(step).await;
        ours.take(step).await;
    }
    until_is("the lock in Java", async || rig.admin.exists("java:x").await, |there| !there).await;
    assert_eq!(theirs.lock.is_held().await, Ok(false), "Redisson has learnt to keep it");

    // After a whole lease, our lock exists only because it is renewed.
    renewed(&rig.admin, "rust:x").await;
    assert!(ours.guards[0].is_held(), "the outer hold was not kept");
    let held = rig.admin.hgetall("rust:x").await;
    assert_eq!(held.into_iter().collect::<Vec<_>>(), [(ours.me.to_string(), "1".to_owned())]);
    ours.take(Unlock).await;
    drop(listener);
    rig.end([client]).await;
}

/// In Redisson, an expired lease applies to the next hold of the same lock object. Here, a lease belongs to one
/// acquire.
pub async fn expired_lease_does_not_apply_to_next_hold(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let (theirs, mut ours) = (Theirs::new(&rig, &listener, "java:x"), Ours::new(&rig, &listener, &client, "rust:x"));
    theirs.take(Leased(4)).await;
    ours.take(Leased(4)).await;
    until_is("lapsed leases", async || rig.keys().await, Vec::is_empty).await;
    assert!(ours.guards.pop().expect("a guard").unlock().await.is_err());

    theirs.take(Lock).await;
    ours.take(Lock).await.assert_lease("we", USUAL);
    // With a watchdog of an hour the lock would stay.
    until_is("the watched lock in Java", async || rig.admin.exists("java:x").await, |there| !there).await;
    ours.take(Unlock).await;
    drop(listener);
    rig.end([client]).await;
}
