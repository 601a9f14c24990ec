//! Our fenced lock and Redisson's share one counter.

use std::sync::Arc;

use distlock_support::agent::{JavaLock, Kind};

use crate::listener::Listener;
use crate::reentry::Step::{self, Leased, Lock, Stray, Try, TryLeased, Unlock};
use crate::reentry::{Left, Ours, Theirs};
use crate::rig::{LATCH, Rig, lasting, replied};
use crate::several::take;

pub fn counter(name: &str) -> String {
    format!("redisson_lock_token:{{{name}}}")
}

pub fn java_fenced(rig: &Rig, name: &str, thread: i64) -> JavaLock {
    rig.agents[0].at(Kind::Fenced, name, thread)
}

/// Deletes the counters, which outlive their locks.
pub async fn forget(rig: &Rig, names: &[&str]) {
    for name in names {
        rig.admin.cmd::<()>(&["DEL", &counter(name)]).await;
    }
}

/// Each step with the counter after it: Redisson's, and ours.
type Row = &'static [(Step, u64, u64)];

const ROWS: [Row; 3] = [
    &[(Lock, 1, 1), (Unlock, 1, 1), (Try, 2, 2), (Unlock, 2, 2), (Leased(6_000), 3, 3), (Unlock, 3, 3)],
    &[(Stray, 0, 0), (TryLeased(7_000), 1, 1), (Unlock, 1, 1), (Stray, 1, 1), (Lock, 2, 2), (Unlock, 2, 2)],
    // Redisson counts re-entries, so one section has two numbers.
    &[
        (Lock, 1, 1),
        (Lock, 2, 1),
        (Try, 3, 1),
        (Unlock, 3, 1),
        (Unlock, 3, 1),
        (Unlock, 3, 1),
        (Lock, 4, 2),
        (Unlock, 4, 2),
    ],
];

pub async fn fenced_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let mut compared = 0;
    for (number, row) in ROWS.iter().enumerate() {
        let (a, b) = (format!("java:{number}:x"), format!("rust:{number}:x"));
        let lock = client.fenced(&b);
        let theirs = Theirs::of(&rig, &listener, &a, java_fenced(&rig, &a, 7));
        let mut ours = Ours::of(&rig, &listener, &b, Arc::new(lock.clone()), client.owner());
        for (step, in_java, with_us) in *row {
            let what = format!("{version}, {step:?} of {row:?}");
            theirs.act(*step).await;
            let mut left = [Left::look(&rig.admin, &a, &listener).await, {
                ours.act(*step).await;
                Left::look(&rig.admin, &b, &listener).await
            }];
            for (left, name) in left.iter_mut().zip([&a, &b]) {
                left.others.retain(|key| *key != counter(name) && !key.starts_with(LATCH));
            }
            left[1].assert_like(&what, &left[0]);
            for (name, count) in [(&a, *in_java), (&b, *with_us)] {
                let (stands, end): (Option<u64>, _) =
                    (rig.admin.cmd(&["GET", &counter(name)]).await, rig.admin.pttl(&counter(name)).await);
                assert_eq!(stands.unwrap_or(0), count, "{what}: {name}");
                assert_eq!(end, if count == 0 { -2 } else { -1 }, "{what}: {name}");
            }
            assert_eq!(lock.last_token().await.expect("last_token"), *with_us, "{what}");
            if let Some(guard) = ours.guards.last() {
                assert_eq!(guard.fencing_token().ok(), Some(*with_us), "{what}");
            }
            compared += 1;
        }
        // Each side continues the other's numbers.
        let (java, last) = (java_fenced(&rig, &b, 1), lock.last_token().await.expect("last_token"));
        assert_eq!(java.token().await, Ok(last as i64));
        assert_eq!(java.lock_token().await, Ok(last as i64 + 1));
        replied(java.unlock()).await;
        let guard = take(&lock).await;
        assert_eq!(guard.fencing_token().ok(), Some(last + 2));
        guard.unlock().await.expect("unlock");
        listener.take(&rig.admin).await;
        forget(&rig, &[&a, &b]).await;
        rig.latches_gone().await;
    }
    println!("{version}: {compared} states compared");
    drop(listener);
    rig.end([client]).await;
}
