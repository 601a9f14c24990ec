//! Our RedLock and Redisson's over the same servers.

use std::sync::Arc;

use bed::in_vain;
use distlock::{DistLock, RedLock};
use distlock_support::agent::AgentOptions;

use crate::counter::count_together;
use crate::listener::Listener;
use crate::reentry::Step::{self, Leased, Lock, Stray, Try, TryLeased, Unlock};
use crate::reentry::{Left, Ours, Theirs};
use crate::rig::{PATIENCE, Rig, channel, had, lasting, ms, replied, soon, until_is, wait_for_lock};
use crate::several::{clients_of, hang_up, held_by, is_javas, is_ours, java_red, may_have_retried, red, take, waiting};

const ROWS: [&[Step]; 4] = [
    &[Lock, Unlock, Stray],
    &[Lock, Lock, Unlock, Unlock],
    &[Leased(8_000), Unlock],
    &[Try, Unlock, TryLeased(7_000), Unlock],
];

/// Number of servers: five with the newest version, three with the oldest.
fn servers(version: &str) -> usize {
    if version == "4.7.0" { 5 } else { 3 }
}

/// On every server, each of our steps leaves the same fields, counts, leases and messages as Redisson's step.
pub async fn red_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::several(servers(version), vec![lasting(version)]).await;
    let clients = clients_of(&rig).await;
    let mut listeners = Vec::new();
    for server in rig.servers() {
        listeners.push(Listener::open(server.addr()).await);
    }
    let mut compared = 0;
    for (number, steps) in ROWS.iter().enumerate() {
        let (a, b) = (format!("java:{number}:x"), format!("rust:{number}:x"));
        let theirs = Theirs::of(&rig, &listeners[0], &a, java_red(&rig, 0, &a, 7));
        let mut ours = Ours::of(&rig, &listeners[0], &b, red(&clients, &b), clients[0].owner());
        for (at, step) in steps.iter().enumerate() {
            // Redisson's unlock ignores every error. Our release reports the error.
            let took = match step {
                Stray => {
                    replied(theirs.lock.unlock()).await;
                    ms(0)
                }
                _ => theirs.act(*step).await,
            };
            if may_have_retried(*step, took) {
                for (admin, listener) in rig.admins().zip(&listeners) {
                    listener.take(admin).await;
                }
            }
            ours.act(*step).await;
            let holds = steps[..=at].iter().fold(0, |holds: usize, step| match step {
                Unlock => holds - 1,
                Stray => holds,
                _ => holds + 1,
            });
            let there = if holds > 0 { rig.servers().count() } else { 0 };
            // Servers beyond the majority may execute the command after the call has returned.
            held_by(&rig, &a, there, is_javas).await;
            held_by(&rig, &b, there, is_ours).await;
            rig.latches_gone().await;
            for (server, (admin, listener)) in rig.admins().zip(&listeners).enumerate() {
                let what = format!("{version}, server {server}, step {at} of {steps:?}");
                counted(&rig, server, &a, &b, holds).await;
                let messages = listener.take(admin).await;
                let of = |name: &str| messages.iter().filter(|one| one.channel == channel(name)).count();
                assert_eq!((of(&a), of(&b)), (usize::from(holds == 0 && *step == Unlock), of(&a)), "{what}");
                let mut left = [Left::look(admin, &a, listener).await, Left::look(admin, &b, listener).await];
                for left in &mut left {
                    left.others.retain(|key| !key.starts_with(crate::rig::LATCH));
                    left.messages.clear();
                }
                left[1].assert_like(&what, &left[0]);
                compared += 1;
            }
        }
    }
    println!("{version}: {compared} states compared");
    drop(listeners);
    rig.end(clients).await;
}

/// Waits until both sides have `holds` holds on this server.
async fn counted(rig: &Rig, server: usize, a: &str, b: &str, holds: usize) {
    let admin = rig.admins().nth(server).expect("a server");
    let counts = async || [admin.hgetall(a).await, admin.hgetall(b).await];
    until_is("counts", counts, |both| both.iter().all(|one| one.values().all(|count| *count == holds.to_string())))
        .await;
}

/// The side that holds most servers excludes the other, and wakes it by the release. The loser leaves nothing. A third
/// client that holds a minority excludes neither side (Redisson's `testLockFailed`, `testLockSuccess`).
pub async fn red_locks_exclude_each_other(version: &str) {
    let rig = Rig::several(3, vec![AgentOptions::version(version)]).await;
    let clients = clients_of(&rig).await;
    let (name, wait) = ("only", ms(150));
    let (java, ours) = (java_red(&rig, 0, name, 1), red(&clients, name));

    let guard = ours.lock().await.expect("lock");
    assert_eq!(java.try_lock().await, Ok(false));
    assert_eq!(had(java.start_try_lock(wait, None).await), None);
    held_by(&rig, name, 3, is_ours).await;
    guard.unlock().await.expect("unlock");
    held_by(&rig, name, 0, is_ours).await;

    replied(java.lock()).await;
    assert!(ours.try_lock().await.expect("try_lock").is_none());
    let outcome = ours.lock_for(wait).await;
    assert!(in_vain(&outcome), "lock_for: {outcome:?}");
    held_by(&rig, name, 3, is_javas).await;
    let state = ours.state().await.expect("state");
    assert!(state.is_locked(), "{state:?}");
    let waiter = wait_for_lock(ours.clone());
    // The waiter is subscribed at one server: the first that refused.
    waiting(&clients, 1).await;
    replied(java.unlock()).await;
    let guard = soon(waiter).await.expect("the waiter");
    let before = rig.scripts().await;
    let waiter = java.start_lock();
    rig.scripts_since(before, 2).await;
    guard.unlock().await.expect("unlock");
    replied(waiter).await;
    replied(java.unlock()).await;
    held_by(&rig, name, 0, is_javas).await;

    // A third client holds the lock on the first server, so neither side is granted there.
    let third = take(&clients[0].reentrant(name)).await;
    assert_eq!(java.try_lock().await, Ok(true));
    assert!(ours.try_lock().await.expect("try_lock").is_none());
    replied(java.unlock()).await;
    let guard = ours.lock_for(PATIENCE).await.expect("lock_for").expect("most of the servers");
    assert_eq!(java.try_lock().await, Ok(false));
    guard.unlock().await.expect("unlock");
    held_by(&rig, name, 1, is_ours).await;

    let more = take(&clients[1].reentrant(name)).await;
    assert_eq!(java.try_lock().await, Ok(false));
    let outcome = ours.lock_for(wait).await;
    assert!(in_vain(&outcome), "lock_for: {outcome:?}");
    held_by(&rig, name, 2, is_ours).await;
    drop((third, more));
    hang_up(&rig).await;
    rig.end(clients).await;
}

/// Four threads of Java's and four tasks of ours count, over three servers. Then one server is killed.
pub async fn red_counter_of_both_languages_is_exact(version: &str) {
    // Redisson gives up on a dead server after one retry.
    let options = AgentOptions { retries: Some(1), ..AgentOptions::version(version) };
    let rig = Rig::several(3, vec![options; 2]).await;
    let clients = [clients_of(&rig).await, clients_of(&rig).await];
    let name = "till";
    let java = [(0, 1), (0, 2), (1, 1), (1, 2)].map(|(agent, thread)| java_red(&rig, agent, name, thread));
    // Our client does not wait long for a dead server either.
    let ours =
        || [0, 0, 1, 1].map(|at| Arc::new(RedLock::new(clients[at].clone(), name)) as Arc<dyn DistLock>).to_vec();
    count_together(&format!("{version}, RedLock over three servers"), &rig, &java, ours(), (20, 40)).await;

    let (gone, _) = &rig.more[1];
    gone.kill9();
    // Redisson also sends commands to the dead server and waits for its retries. So there are few rounds.
    let what = format!("{version}, RedLock, one of three servers down");
    count_together(&what, &rig, &java[..1], ours()[1..3].to_vec(), (2, 15)).await;
    gone.restart();
    // Calls to the dead server end by timeout.
    held_by(&rig, name, 0, |_| true).await;
    rig.end(clients.into_iter().flatten()).await;
}
