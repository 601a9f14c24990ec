//! Where we differ from Redisson on purpose: what Redisson does, and what we do.

use std::time::Duration;

use distlock_support::agent::AgentOptions;

use crate::listener::Listener;
use crate::reentry::Step::{Leased, Lock, Unlock};
use crate::reentry::{Left, Ours, Step, Theirs};
use crate::rig::{Rig, renewed, until_is};

/// The watchdog's lease of both sides where no other is set.
const USUAL: i64 = 30_000;

/// Steps with the lease that each leaves in Redisson, and with us.
type Row = &'static [(Step, i64, i64)];

const ROWS: [Row; 4] = [
    // An inner lease shortens Redisson's outer one, and stays when it is given back.
    &[(Leased(90_000), 90_000, 90_000), (Leased(20_000), 20_000, 90_000), (Unlock, 20_000, 90_000)],
    &[(Lock, USUAL, USUAL), (Leased(20_000), 20_000, USUAL), (Unlock, 20_000, USUAL)],
    // A longer inner lease outlives its release in Redisson; with us the outer one is set again.
    &[(Leased(40_000), 40_000, 40_000), (Leased(90_000), 90_000, 90_000), (Unlock, 90_000, 40_000)],
    // Redisson starts a watched hold with whatever lease the lock object had last.
    &[(Leased(20_000), 20_000, 20_000), (Lock, 20_000, USUAL), (Unlock, 20_000, 20_000)],
];

/// Coming in again never takes from what an outer hold was promised.
pub async fn a_shorter_lease_never_shortens(version: &str) {
    let rig = Rig::with(version).await;
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

/// A holder renews every third of it.
const WATCHDOG: Duration = Duration::from_secs(6);

/// A watched hold with a leased one inside, given back: Redisson stops the watchdog of the outer hold, ours
/// goes on.
pub async fn the_outer_hold_stays_watched(version: &str) {
    let options = AgentOptions { watchdog: Some(WATCHDOG), ..AgentOptions::version(version) };
    let rig = Rig::start(vec![options]).await;
    let (client, listener) = (rig.watched_client(WATCHDOG).await, Listener::open(rig.server.addr()).await);
    let (theirs, mut ours) = (Theirs::new(&rig, &listener, "java:x"), Ours::new(&rig, &listener, &client, "rust:x"));
    for step in [Lock, Leased(6_000), Unlock] {
        theirs.take(step).await;
        ours.take(step).await;
    }
    until_is("the lock in Java", async || rig.admin.exists("java:x").await, |there| !there).await;
    assert_eq!(theirs.lock.is_held().await, Ok(false), "Redisson has learnt to keep it");

    for _ in 0..3 {
        renewed(&rig.admin, "rust:x").await;
    }
    assert!(ours.guards[0].is_held(), "the outer hold was not kept");
    let held = rig.admin.hgetall("rust:x").await;
    assert_eq!(held.into_iter().collect::<Vec<_>>(), [(ours.me.to_string(), "1".to_owned())]);
    ours.take(Unlock).await;
    drop(listener);
    rig.end([client]).await;
}

/// A lease that lapsed is the next hold's too in Redisson, if it is the same lock object's (part 4, row 2); with us a
/// lease is one acquire's.
pub async fn a_lapsed_lease_does_not_stick(version: &str) {
    let rig = Rig::with(version).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let (theirs, mut ours) = (Theirs::new(&rig, &listener, "java:x"), Ours::new(&rig, &listener, &client, "rust:x"));
    theirs.take(Leased(4_000)).await;
    ours.take(Leased(4_000)).await;
    until_is("lapsed leases", async || rig.keys().await, Vec::is_empty).await;
    assert!(ours.guards.pop().expect("a guard").unlock().await.is_err());

    let (left_by_them, left_by_us): (Left, Left) = (theirs.take(Lock).await, ours.take(Lock).await);
    left_by_them.assert_lease("Redisson", 4_000);
    left_by_us.assert_lease("we", USUAL);
    until_is("the watched lock in Java", async || rig.admin.exists("java:x").await, |there| !there).await;
    ours.take(Unlock).await;
    drop(listener);
    rig.end([client]).await;
}
