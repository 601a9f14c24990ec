//! One language frees a lock by `force_unlock`. The waiter acquires, and the holder learns of the loss.

use std::sync::Arc;

use distlock::{Client, Error, Lost};
use distlock_support::agent::Kind;

use crate::fair_rig::Lane;
use crate::rig::{Rig, channel, lasting, replied, soon, wait_for_lock};
use crate::sides::flavour;

/// The sides of the holder, of the caller of `force_unlock`, and of the waiter: J for Java, R for our client.
const CASES: [&str; 5] = ["RJJ", "RJR", "JRJ", "JRR", "JJR"];

pub async fn force_unlock_admits_the_waiter_and_ends_the_hold(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, other) = (rig.client().await, rig.client().await);
    for kind in [Kind::Reentrant, Kind::Fair] {
        for case in CASES {
            force(&rig, &client, &other, kind, case).await;
        }
    }
    rig.end([client, other]).await;
}

/// Our holder is `other`. Our forcer and our waiter are `client`.
async fn force(rig: &Rig, client: &Client, other: &Client, kind: Kind, case: &str) {
    let name = &format!("{kind:?}:{case}");
    let [holds, forces, waits] = [0, 1, 2].map(|at| case.as_bytes()[at] == b'R');
    let lock = client.lock(flavour(kind), name);
    let [holder, waiter, forcer] = [1, 2, 3].map(|thread| rig.agents[0].at(kind, name, thread));
    let mut guard = None;
    if holds {
        guard = Some(other.lock(flavour(kind), name).lock().await.expect("lock"));
    } else {
        replied(holder.lock()).await;
    }
    let ours = waits.then(|| wait_for_lock(Arc::clone(&lock)));
    let theirs = (!waits).then(|| waiter.start_lock());
    if kind == Kind::Fair {
        Lane::new(rig, name).joined(1).await;
    } else {
        rig.listeners(&channel(name), 1).await;
    }
    let was_held =
        if forces { lock.force_unlock().await.expect("force_unlock") } else { forcer.force_unlock().await == Ok(true) };
    assert!(was_held, "{name}");
    let mut taken = None;
    if let Some(ours) = ours {
        taken = Some(soon(ours).await.expect("the waiter"));
    } else if let Some(theirs) = theirs {
        replied(theirs).await;
    }

    match guard {
        // Our renewal leaves the waiter's hold unchanged.
        Some(guard) => {
            assert_eq!(other.renew_now().await.lost, 1, "{name}");
            let error = soon(guard.lost()).await;
            assert!(matches!(error, Error::Lost { why: Lost::Gone, .. }), "{name}: {error:?}");
            assert!(!guard.is_held(), "{name}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })), "{name}");
        }
        None => {
            assert_eq!(holder.unlock().await.expect_err("forced open").error, "IllegalMonitorStateException", "{name}");
            assert_eq!(holder.is_held().await, Ok(false), "{name}");
        }
    }
    let owner = taken.as_ref().map_or_else(|| rig.agents[0].holder(kind, 2), |guard| guard.owner().to_string());
    assert_eq!(rig.admin.hgetall(name).await, [(owner, "1".to_owned())].into(), "{name}");
    match taken {
        Some(guard) => drop(guard.unlock().await.expect("unlock")),
        None => drop(replied(waiter.unlock()).await),
    }
    assert!(!lock.force_unlock().await.expect("force_unlock"), "{name} was free");
    assert_eq!(forcer.force_unlock().await, Ok(false), "{name} was free");
}
