//! Members that are made of several locks themselves.

use std::sync::Arc;
use std::time::Instant;

use distlock::{Acquire, DistLock, Error, Flavour, MultiLock, RedLock};

use crate::rig::{Second, counts, fair, member, only_keys, soon};
use bed::{enter, eventually, idle, ms, reentrant, secs};

/// Multi locks of multi locks: all of all, as one owner; and two that are nested in another way keep each other out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_multi_locks() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = MultiLock::of(vec![
            member(client.multi(["c", "a"])),
            member(client.reentrant("b")),
            member(fair(&client, &["e", "d"])),
        ]);
        assert_eq!(lock.name(), "a+c+b+d+e");
        let guard = lock.lock().await.unwrap();
        let me = guard.owner().clone();
        counts(&bed.admin, &me, &[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)]).await;
        assert_eq!(guard.members().len(), 5);
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
        assert_eq!(client.renew_now().await.renewed, 5);
        guard.extend(secs(9)).await.unwrap();
        let again = enter(&lock, &me).await;
        counts(&bed.admin, &me, &[("a", 2), ("e", 2)]).await;
        again.unlock().await.unwrap();
        // One of the inner ones' members is lost: so is the whole.
        let () = bed.admin.cmd(&["DEL", "e"]).await;
        assert!(guard.is_held());
        let lost = guard.lost();
        guard.extend(secs(9)).await.unwrap_err();
        let error = soon("it is lost", secs(3), lost).await;
        assert!(matches!(&error, Error::Lost { name, .. } if **name == *lock.name()), "{error:?}");
        assert!(guard.unlock().await.is_err());
        only_keys(&bed.admin, &[]).await;
        // By turns with another nesting.
        let flat = other.multi(["a", "b", "c", "d", "e"]);
        let counter = Arc::new(bed::Counter::default());
        let mut tasks = Vec::new();
        for lock in [lock, flat] {
            let counter = Arc::clone(&counter);
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let guard = soon("a turn", secs(30), lock.lock()).await.unwrap();
                    counter.bump(ms(0)).await;
                    guard.unlock().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(counter.get(), 40);
    })
    .await;
}

/// A RedLock over three servers beside a plain lock: a majority of it is enough, also while one server is away; without one
/// the whole is not had, and the plain one is left free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_redlock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mut servers = Vec::new();
        for _ in 0..3 {
            let options =
                |builder: distlock::Builder| builder.command_timeout(ms(300)).watchdog(secs(3)).retry_attempts(1);
            servers.push(Second::with(options).await);
        }
        let red = || RedLock::new(servers.iter().map(|server| server.client.clone()), "r").node_timeout(ms(200));
        let lock = MultiLock::of(vec![member(red()), member(client.reentrant("a"))]);
        let guard = lock.lock().await.unwrap();
        let me = guard.owner().clone();
        counts(&bed.admin, &me, &[("a", 1)]).await;
        assert!(red().is_held_by(&me).await.unwrap() && lock.is_held_by(&me).await.unwrap());
        assert!(red().try_lock().await.unwrap().is_none());
        assert!(client.reentrant("a").try_lock().await.unwrap().is_none());
        assert!(guard.members().len() >= 3);
        // A minority of the RedLock's servers lose it: held still.
        let there = servers[0].admin().await;
        eventually("it is there too", async || there.exists("r").await).await;
        let () = there.cmd(&["DEL", "r"]).await;
        servers[0].client.renew_now().await;
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        eventually("all is free", async || !lock.is_locked().await.unwrap() && !bed.admin.exists("a").await)
            .await;

        servers[0].server.kill9();
        let guard = soon("two of three", secs(5), lock.lock()).await.unwrap();
        guard.unlock().await.unwrap();
        servers[1].server.kill9();
        // At once, and when the wait is over, whose last attempt may be cut short: the attempts before it count.
        for wait in [ms(0), ms(1500)] {
            let began = Instant::now();
            let error = lock.lock_for(wait).await.unwrap_err();
            let told = matches!(&error, Error::NoQuorum { granted: 0..=1, needed: 2, name, .. } if &**name == "r");
            assert!(told && error.is_retryable(), "{wait:?}: {error:?}");
            assert!(began.elapsed() >= wait && began.elapsed() < wait + secs(1), "{wait:?}: {:?}", began.elapsed());
            only_keys(&bed.admin, &[]).await;
        }
        idle(&client).await;
        let third = servers[2].admin().await;
        eventually("nothing on the third", async || third.keys().await.is_empty()).await;
        for server in &servers {
            // What is owed to a server that is away goes with its lease.
            drop(server.client.shutdown(ms(500)).await);
        }
    })
    .await;
}

/// Any segment of a striped lock, and a lock besides.
#[tokio::test]
async fn of_a_striped_lock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = client.striped("s", 3);
        let lock = |n: usize| MultiLock::of(vec![member(striped.clone()), member(client.reentrant(&format!("a{n}")))]);
        let mut guards = Vec::new();
        for n in 0..3 {
            guards.push(lock(n).try_lock().await.unwrap().expect("a free segment"));
        }
        let mut names: Vec<_> = guards.iter().flat_map(|guard| guard.members()).map(|member| member.name).collect();
        names.sort();
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a0", "a1", "a2", "s:0", "s:1", "s:2"]);
        assert!(lock(3).try_lock().await.unwrap().is_none());
        only_keys(&bed.admin, &["a0", "a1", "a2", "s:0", "s:1", "s:2"]).await;
        let (all, fourth) = (striped.all(), lock(3));
        let waiter = tokio::spawn(async move { fourth.lock().await.unwrap() });
        eventually("it waits", async || client.stats().waiting > 0).await;
        guards.pop().unwrap().unlock().await.unwrap();
        guards.push(soon("a segment is free", secs(5), waiter).await.unwrap());
        assert!(all.try_lock().await.unwrap().is_none());
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        let guard = MultiLock::of(vec![member(all), member(client.reentrant("a0"))]).lock().await.unwrap();
        assert!(striped.try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
    })
    .await;
}

/// One of a RedLock's fair locks, in a multi lock, as an owner that holds it already.
#[tokio::test]
async fn of_a_redlock_that_is_held_already() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let second = Second::start().await;
        let clients = || [client.clone(), second.client.clone()];
        let red = RedLock::over(clients(), Flavour::Fair, "r");
        let me = client.owner();
        let outer = enter(&red, &me).await;
        let lock = MultiLock::of(vec![member(red.clone()), member(client.reentrant("a"))]);
        let guard = lock.acquire(Acquire::new().owner(&me).wait(secs(5))).await.unwrap().unwrap();
        assert_eq!(red.hold_count(&me).await.unwrap(), 2);
        guard.unlock().await.unwrap();
        assert_eq!(red.hold_count(&me).await.unwrap(), 1);
        assert!(outer.is_held());
        outer.unlock().await.unwrap();
        eventually("free there too", async || !red.is_locked().await.unwrap()).await;
        second.end().await;
    })
    .await;
}
