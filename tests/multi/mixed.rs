//! Members that are locks of several locks themselves.

use distlock::{Acquire, Error, Flavour, MultiLock, RedLock};

use crate::rig::{Second, counts, fair, member, only_keys};
use bed::{PATIENCE, becomes, ends, enter, eventually, idle, ms, reentrant, waiter};

/// One owner holds all members of all nested locks.
#[tokio::test]
async fn nested_multi_lock_holds_all_inner_members() {
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
        assert!(other.multi(["d", "x"]).try_lock().await.unwrap().is_none());
        let again = enter(&lock, &me).await;
        counts(&bed.admin, &me, &[("a", 2), ("e", 2)]).await;
        again.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// A majority of the RedLock's servers is enough. Without a majority, the whole lock is not granted, and the other
/// member stays free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_member_needs_majority_of_its_servers() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let servers = [Second::start().await, Second::start().await, Second::start().await];
        let red = || RedLock::new(servers.iter().map(|server| server.client.clone()), "r").node_timeout(PATIENCE);
        let beside = |red| MultiLock::of(vec![member(red), member(client.reentrant("a"))]);
        let lock = beside(red());
        let guard = lock.lock().await.unwrap();
        let me = guard.owner().clone();
        counts(&bed.admin, &me, &[("a", 1)]).await;
        assert!(red().is_held_by(&me).await.unwrap() && lock.is_held_by(&me).await.unwrap());
        // A minority of the RedLock's servers lose it.
        becomes("members", 4, async || guard.members().len()).await;
        let () = servers[0].admin().await.cmd(&["DEL", "r"]).await;
        servers[0].client.renew_now().await;
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        eventually("all is free", async || !lock.is_locked().await.unwrap()).await;

        servers[0].server.kill9();
        ends("two of three servers", lock.lock()).await.unwrap().unlock().await.unwrap();
        servers[1].server.kill9();
        let error = ends("an attempt at one of three servers", beside(red().node_timeout(ms(200))).try_lock())
            .await
            .unwrap_err();
        let told = matches!(&error, Error::NoQuorum { granted: 0..=1, needed: 2, name, .. } if &**name == "r");
        assert!(told && error.is_retryable(), "{error:?}");
        only_keys(&bed.admin, &[]).await;
        idle(&client).await;
        only_keys(&servers[2].admin().await, &[]).await;
        for server in &servers {
            // Votes at the unreachable server expire with their leases.
            drop(server.client.shutdown(ms(500)).await);
        }
    })
    .await;
}

#[tokio::test]
async fn striped_lock_member_acquires_any_segment() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let striped = client.striped("s", 3);
        let lock = |n: usize| MultiLock::of(vec![member(striped.clone()), member(client.reentrant(&format!("a{n}")))]);
        let mut guards = Vec::new();
        for n in 0..3 {
            guards.push(lock(n).try_lock().await.unwrap().expect("a segment is free"));
        }
        let mut names: Vec<_> = guards.iter().flat_map(|guard| guard.members()).map(|member| member.name).collect();
        names.sort();
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a0", "a1", "a2", "s:0", "s:1", "s:2"]);
        assert!(lock(3).try_lock().await.unwrap().is_none());
        only_keys(&bed.admin, &["a0", "a1", "a2", "s:0", "s:1", "s:2"]).await;
        let waiting = waiter(lock(3));
        eventually("it waits", async || client.stats().waiting > 0).await;
        guards.pop().unwrap().unlock().await.unwrap();
        guards.push(ends("the waiter", waiting).await.unwrap().0);
        assert!(striped.all().try_lock().await.unwrap().is_none());
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        let all = MultiLock::of(vec![member(striped.all()), member(client.reentrant("a0"))]);
        let guard = all.lock().await.unwrap();
        assert!(striped.try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn redlock_member_already_held_by_owner_is_held_twice() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let red = RedLock::over([client.clone()], Flavour::Fair, "r").node_timeout(PATIENCE);
        let me = client.owner();
        let outer = enter(&red, &me).await;
        let lock = MultiLock::of(vec![member(red.clone()), member(client.reentrant("a"))]);
        let guard = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        assert_eq!(red.hold_count(&me).await.unwrap(), 2);
        guard.unlock().await.unwrap();
        assert_eq!(red.hold_count(&me).await.unwrap(), 1);
        assert!(outer.is_held());
        outer.unlock().await.unwrap();
        eventually("the RedLock is free", async || !red.is_locked().await.unwrap()).await;
    })
    .await;
}
