//! All or nothing: if one member cannot be acquired, no other member stays held. `tests/sim/timing/groups.rs` checks
//! how long the waits last.

use std::sync::Arc;

use distlock::{Acquire, Error, Flavour, MultiLock, RedLock, Striped};
use tokio::sync::Barrier;

use crate::rig::{Second, member, multi, only_keys, waits_at};
use bed::{PATIENCE, ends, idle, in_vain, ms, passer, reentrant, secs, waits_in_vain};

/// Plain members, which one script acquires, with members of other flavours between them.
const MIXED: [(Flavour, &str); 6] = [
    (Flavour::Reentrant, "a"),
    (Flavour::Fair, "b"),
    (Flavour::Spin, "c"),
    (Flavour::Write, "d"),
    (Flavour::Reentrant, "e"),
    (Flavour::Read, "f"),
];

/// The cases are an attempt, a wait that runs out, and a dropped wait. Another client holds each member in turn. Then
/// the member has a key of another type, which the error names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_member_leaves_other_members_free() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        for (flavour, name) in MIXED {
            // Two readers do not exclude each other.
            let flavour = if flavour == Flavour::Read { Flavour::Write } else { flavour };
            let theirs = stranger.lock(flavour, name).lock().await.unwrap();
            for owned in [false, true] {
                let lock = multi(&client, &MIXED);
                let how = || if owned { Acquire::new().owner(&client.owner()) } else { Acquire::new() };
                assert!(lock.acquire(how().wait(ms(0))).await.unwrap().is_none(), "{name}");
                only_keys(&bed.admin, &[name]).await;
                waits_in_vain(ms(40), async |wait| lock.acquire(how().wait(wait)).await).await;
                idle(&client).await;
                only_keys(&bed.admin, &[name]).await;
                let waiting = tokio::time::timeout(ms(40), lock.acquire(how())).await;
                assert!(waiting.is_err(), "{name}: {waiting:?}");
                idle(&client).await;
                only_keys(&bed.admin, &[name]).await;
            }
            theirs.unlock().await.unwrap();
            let () = bed.admin.cmd(&["SET", name, "x"]).await;
            let (lock, me) = (multi(&client, &MIXED), client.owner());
            for how in [Acquire::new().wait(ms(0)), Acquire::new().wait(secs(3600)), Acquire::new().owner(&me)] {
                let error = ends("an acquire of no lock", lock.acquire(how)).await.unwrap_err();
                let told = matches!(&error, Error::WrongType { name: told, .. } if **told == *name);
                assert!(told, "{name}: {error:?}");
                idle(&client).await;
                only_keys(&bed.admin, &[name]).await;
            }
            assert_eq!(bed.admin.cmd::<String>(&["GET", name]).await, "x");
            let () = bed.admin.cmd(&["DEL", name]).await;
        }
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// Concurrent attempts with a lease. A refused attempt leaves nothing that excludes other owners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_ten_concurrent_attempts_succeeds() {
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        for round in 0..20 {
            let gate = Arc::new(Barrier::new(10));
            let asking: Vec<_> = (0..10)
                .map(|n| {
                    let (gate, multi) = (Arc::clone(&gate), clients[n % 2 * (round % 2)].multi(["a", "b", "c"]));
                    tokio::spawn(async move {
                        gate.wait().await;
                        multi.acquire(Acquire::new().wait(ms(0)).lease(secs(600))).await.unwrap()
                    })
                })
                .collect();
            let mut guards = Vec::new();
            for task in asking {
                guards.extend(task.await.unwrap());
            }
            assert_eq!(guards.len(), 1, "holders in round {round}");
            guards.pop().unwrap().unlock().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn free_members_stay_free_while_multi_lock_waits() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.still_client().await, bed.still_client().await);
        let theirs = stranger.reentrant("b").lock().await.unwrap();
        let waiting = passer(client.multi(["a", "b", "c"]));
        waits_at(bed, &client, "b").await;
        stranger.reentrant("a").try_lock().await.unwrap().expect("a is free").unlock().await.unwrap();
        let c = stranger.reentrant("c").try_lock().await.unwrap().expect("c is free");
        theirs.unlock().await.unwrap();
        waits_at(bed, &client, "c").await;
        assert!(!waiting.is_finished());
        c.unlock().await.unwrap();
        ends("the waiter", waiting).await.unwrap();
    })
    .await;
}

/// Redisson's `RedissonMultiLockTest.test`, with a member on each of three servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_on_three_servers_are_held_and_released_together() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let (second, third) = (Second::start().await, Second::start().await);
        let lock = MultiLock::of(vec![
            member(client.reentrant("a")),
            member(second.client.reentrant("b")),
            member(third.client.reentrant("c")),
        ]);
        let guard = lock.lock().await.unwrap();
        for _ in 0..2 {
            assert!(lock.try_lock().await.unwrap().is_none());
        }
        for member in lock.locks() {
            assert!(member.try_lock().await.unwrap().is_none(), "{}", member.name());
        }
        guard.unlock().await.unwrap();
        lock.try_lock().await.unwrap().expect("all members are free").unlock().await.unwrap();
        second.end().await;
        third.end().await;
    })
    .await;
}

/// The member's server is frozen or killed, or its client is shut down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_member_leaves_other_members_free() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let second = Second::start().await;
        let lock = || {
            let (one, other) = (&client, &second.client);
            MultiLock::of(vec![
                member(one.reentrant("a")),
                member(other.reentrant("b")),
                member(other.reentrant("c")),
                member(one.fair("d")),
                member(one.reentrant("e")),
            ])
        };
        lock().lock().await.unwrap().unlock().await.unwrap();
        let me = client.owner();
        // On a slow machine, the wait may end before the client knows that the server is silent, and then it returns no
        // error.
        let in_vain = async |what: &str| {
            for how in [Acquire::new().wait(ms(400)), Acquire::new().wait(ms(400)).owner(&me)] {
                let outcome = ends(what, lock().acquire(how)).await;
                assert!(in_vain(&outcome) || matches!(outcome, Err(Error::Connection { .. })), "{what}: {outcome:?}");
                only_keys(&bed.admin, &[]).await;
            }
        };
        second.server.stop();
        in_vain("an acquire at a frozen server").await;
        // The resumed server runs the sent acquire, which is then undone.
        second.server.cont();
        lock().lock().await.unwrap().unlock().await.unwrap();
        idle(&second.client).await;
        second.server.kill9();
        in_vain("an acquire at a killed server").await;
        let waiting = lock();
        let waiting = tokio::spawn(async move { waiting.lock_for(PATIENCE).await });
        tokio::task::block_in_place(|| second.server.restart());
        let guard = ends("a waiter at a server that is back", waiting).await.unwrap().unwrap();
        guard.expect("all members are free").unlock().await.unwrap();
        second.client.shutdown(PATIENCE).await.unwrap();
        for how in [Acquire::new().wait(ms(0)), Acquire::new(), Acquire::new().owner(&me)] {
            let error = ends("an acquire with a closed client", lock().acquire(how)).await.unwrap_err();
            assert!(matches!(error, Error::Closed), "{error:?}");
            idle(&client).await;
            only_keys(&bed.admin, &[]).await;
        }
        assert_eq!(second.admin().await.keys().await, [""; 0], "keys on the second server");
    })
    .await;
}

/// The multi lock recognises locks of this crate behind the trait, including locks made of other locks.
#[tokio::test]
async fn locks_of_this_crate_are_recognized_behind_the_trait() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for flavour in Flavour::ALL {
            let one = || client.lock(*flavour, "a");
            assert_eq!(MultiLock::of(vec![one(), one()]).locks().len(), 1, "{flavour}");
            let striped = member(Striped::over(&client, *flavour, "b", 2));
            let multi = member(MultiLock::of(vec![one()]));
            let red = member(RedLock::of("c", vec![one()]));
            for made in [striped, multi, red] {
                let twice = RedLock::of("d", vec![one(), Arc::clone(&made)]).try_lock().await;
                assert!(matches!(twice, Err(Error::Config { .. })), "{flavour}, {made:?}: {twice:?}");
            }
        }
    })
    .await;
}
