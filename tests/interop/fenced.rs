//! Our fenced lock and Redisson's share one counter.

use std::sync::Arc;

use distlock::{Acquire, Client, Flavour, Guard};
use distlock_support::Admin;
use distlock_support::agent::{AgentOptions, JavaLock, Kind};
use futures::future::join_all;
use serde_json::json;

use crate::listener::Listener;
use crate::reentry::Step::{self, Leased, Lock, Stray, Try, TryLeased, Unlock};
use crate::reentry::{Left, Ours, Theirs};
use crate::rig::{LATCH, NEVER, Rig, lasting, ms};
use crate::wake::{java_to_us, us_to_java};

const FENCED: (Kind, Flavour) = (Kind::Fenced, Flavour::Fenced);

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

const SEEN: &str = "tokens";
const ROUNDS: u64 = 130;

/// Two clients of Java's and two of ours acquire a lock in all ways, and append each token to a list while they hold
/// the lock. The tokens grow (Redisson's `testTokenIncrease`), also after re-entries of Java's.
pub async fn fenced_tokens_grow_across_both_languages(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let clients = [rig.client().await, rig.client().await];
    let (name, url, lease) = ("ledger", rig.server.url(), NEVER.as_millis() as u64);
    let java = rig.agents.iter().map(|agent| {
        agent.at(Kind::Fenced, name, 5).start("token_loop", json!({"rounds": ROUNDS, "list": SEEN, "lease_ms": lease}))
    });
    let java = join_all(java.collect::<Vec<_>>());
    let ours = clients.iter().map(|client| tokio::spawn(note_tokens(client.clone(), name, url.clone())));
    let (java, ours) = futures::join!(java, join_all(ours.collect::<Vec<_>>()));
    java.into_iter().for_each(|ended| drop(ended.expect("the loop in Java")));
    ours.into_iter().for_each(|ended| ended.expect("our loop"));

    let seen: Vec<u64> = rig.admin.cmd(&["LRANGE", SEEN, "0", "-1"]).await;
    let again = (0..ROUNDS).filter(|round| round % 6 == 1).count() as u64;
    assert_eq!(seen.len() as u64, 4 * ROUNDS + 2 * again);
    let falls: Vec<_> = seen.windows(2).filter(|pair| pair[0] >= pair[1]).collect();
    assert!(falls.is_empty(), "{version}: tokens that do not grow: {falls:?}");
    let last: u64 = rig.admin.cmd(&["GET", &counter(name)]).await;
    assert_eq!(last, *seen.last().expect("tokens"));
    assert_eq!(last, seen.len() as u64, "a token was given out that no section had");
    rig.admin.cmd::<()>(&["DEL", SEEN]).await;
    forget(&rig, &[name]).await;
    rig.end(clients).await;
}

/// Uses all our ways to acquire in turn.
async fn note_tokens(client: Client, name: &'static str, url: String) {
    let admin = Admin::from_url(&url).await;
    let lock = client.fenced(name);
    let patient = Acquire::new().wait(NEVER);
    for round in 0..ROUNDS {
        let guard: Guard = match round % 6 {
            0 => lock.lock().await.expect("lock"),
            1 => lock.lock_for(NEVER).await.expect("lock_for").expect("the lock"),
            2 => lock.lock_leased(NEVER).await.expect("lock_leased"),
            3 => loop {
                if let Some(guard) = lock.try_lock().await.expect("try_lock") {
                    break guard;
                }
                tokio::time::sleep(ms(1)).await;
            },
            4 => lock.acquire(patient.clone().not_reentrant()).await.expect("acquire").expect("the lock"),
            _ => lock.acquire(patient.clone().owner(&client.owner())).await.expect("acquire").expect("the lock"),
        };
        let token = guard.token().expect("a token");
        admin.cmd::<()>(&["RPUSH", SEEN, &token.to_string()]).await;
        if round % 6 == 5 {
            let again = Acquire::new().owner(guard.owner());
            let again = lock.acquire(again).await.expect("acquire").expect("once more");
            assert_eq!(again.token(), Some(token), "one section, one number");
            again.unlock().await.expect("unlock");
        }
        guard.unlock().await.expect("unlock");
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
                assert_eq!(guard.token(), Some(*with_us), "{what}");
            }
            compared += 1;
        }
        // Each side reads the other's counter.
        assert_eq!(java_fenced(&rig, &b, 1).token().await, Ok(lock.last_token().await.expect("last_token") as i64));
        forget(&rig, &[&a, &b]).await;
        rig.latches_gone().await;
    }
    println!("{version}: {compared} states compared");
    drop(listener);
    rig.end([client]).await;
}

/// The messages are the same as for the reentrant lock.
pub async fn fenced_releases_wake_the_other_side(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    java_to_us(&rig, &client, FENCED, "section", 5).await;
    us_to_java(&rig, &client, FENCED, "section", 5).await;
    forget(&rig, &["section"]).await;
    rig.end([client]).await;
}
