//! Redisson's non-reentrant locks (since 4.4.0) and our locks with `not_reentrant`.

use distlock::{Acquire, Client, Deadlock, Error, Flavour};
use distlock_support::agent::Kind;

use crate::listener::Listener;
use crate::reentry::Step::{Lock, TryLeased, Unlock};
use crate::reentry::{Left, Ours, Theirs};
use crate::rig::{LATCH, Rig, lasting, ms, replied, soon, until, wait_for_lock};

const BOTH: [(Kind, Flavour); 2] = [(Kind::NonReentrant, Flavour::Reentrant), (Kind::NonReentrantFair, Flavour::Fair)];

/// A holder that acquires again gets an error at once and keeps its hold, while the other side waits (Redisson's
/// `testSameThreadReacquireThrows`). State, lease and messages are the same after every step.
pub async fn nonreentrant_states_are_the_same(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    for (kind, flavour) in BOTH {
        let (a, b) = (format!("java:{flavour}:x"), format!("rust:{flavour}:x"));
        let theirs = Theirs::of(&rig, &listener, &a, rig.agents[0].at(kind, &a, 7));
        let mut ours = Ours::of(&rig, &listener, &b, client.lock(flavour, &b), client.owner());
        for step in [Lock, Unlock, TryLeased(7_000), Unlock] {
            theirs.act(step).await;
            ours.act(step).await;
            for refused in [false, true] {
                let what = format!("{version}, {flavour}, {step:?}, refused: {refused}");
                if refused && !ours.guards.is_empty() {
                    for wait in [None, Some(ms(0)), Some(ms(5000))] {
                        let fields = serde_json::json!({"wait_ms": wait.map(|wait| wait.as_millis() as u64)});
                        let op = if wait.is_some() { "try_lock" } else { "lock" };
                        let error = theirs.lock.start(op, fields).await.expect_err("held by itself");
                        assert_eq!(error.error, "IllegalMonitorStateException", "{what}");
                        let how = Acquire::new().owner(&ours.me).not_reentrant();
                        let how = wait.map_or(how.clone(), |wait| how.wait(wait));
                        let error = ours.lock.acquire(how).await.expect_err("held by itself");
                        let Error::WouldDeadlock { why: Deadlock::NotReentrant, .. } = error else {
                            panic!("{what}: {error:?}");
                        };
                    }
                }
                rig.latches_gone().await;
                let mut left =
                    [Left::look(&rig.admin, &a, &listener).await, Left::look(&rig.admin, &b, &listener).await];
                left.iter_mut().for_each(|left| left.others.retain(|key| !key.starts_with(LATCH)));
                let messages: Vec<_> = left.iter_mut().flat_map(|left| left.messages.drain(..)).collect();
                let told = usize::from(step == Unlock && flavour == Flavour::Reentrant && !refused);
                assert_eq!(messages.len(), 2 * told, "{what}: {messages:?}");
                left[1].assert_like(&what, &left[0]);
            }
        }
    }
    drop(listener);
    rig.end([client]).await;
}

/// Under one name, both sides exclude and wake each other (`testContendingThreadBlocksAndAcquiresOnRelease`).
pub async fn nonreentrant_locks_exclude_each_other(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for (kind, flavour) in BOTH {
        let name = &format!("one:{flavour}");
        let (java, ours) = (rig.agents[0].at(kind, name, 1), client.lock(flavour, name));
        replied(java.lock()).await;
        assert!(alone(&client, flavour, name).await.expect("acquire").is_none());
        let waiter = wait_for_lock(ours.clone());
        rig.waiting(&client, 1).await;
        until("a sleeper", async || !rig.admin.channels().await.is_empty()).await;
        replied(java.unlock()).await;
        let guard = soon(waiter).await.expect("the waiter");
        assert_eq!(java.try_lock().await, Ok(false));
        let before = rig.scripts().await;
        let theirs = java.start_lock();
        rig.scripts_since(before, 2).await;
        guard.unlock().await.expect("unlock");
        replied(theirs).await;
        replied(java.unlock()).await;
        let guard = alone(&client, flavour, name).await.expect("acquire").expect("a free lock");
        guard.unlock().await.expect("unlock");
    }
    rig.end([client]).await;
}

async fn alone(client: &Client, flavour: Flavour, name: &str) -> distlock::Result<Option<distlock::Guard>> {
    let how = Acquire::new().owner(&client.owner()).not_reentrant().wait(ms(0));
    client.lock(flavour, name).acquire(how).await
}
