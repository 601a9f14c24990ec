//! The list of members: twice the same, two halves of one, none, odd names, prefixes.

use distlock::{DistLock, Error, Flavour, MultiLock};

use crate::rig::{Second, counts, member, multi, only_keys, soon, warm};
use bed::{enter, reentrant, secs};

/// Every use of it is refused with what is wrong, and nothing is sent.
async fn refused(lock: &MultiLock) {
    let config = |error: Error| {
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(!error.is_retryable() && error.to_string().len() > 20, "{error}");
    };
    let me: distlock::Owner = "71b96ce8-2746-8c3a-9d0e-0123456789ab:1".parse().unwrap();
    config(lock.try_lock().await.unwrap_err());
    config(lock.lock().await.unwrap_err());
    config(lock.lock_for(secs(1)).await.unwrap_err());
    config(lock.lock_leased(secs(1)).await.unwrap_err());
    config(lock.state().await.unwrap_err());
    config(lock.is_locked().await.unwrap_err());
    config(lock.hold_count(&me).await.unwrap_err());
    config(lock.force_unlock().await.unwrap_err());
    config(lock.release(&me).await.unwrap_err());
}

#[tokio::test]
async fn lists_that_cannot_work_are_refused() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        bed.admin.reset_stats().await;
        refused(&client.multi([""; 0])).await;
        refused(&MultiLock::of(Vec::new())).await;
        // It would wait for itself.
        refused(&multi(&client, &[(Flavour::Read, "a"), (Flavour::Write, "a")])).await;
        for (one, two) in [
            (Flavour::Reentrant, Flavour::Fair),
            (Flavour::Fenced, Flavour::Reentrant),
            (Flavour::Spin, Flavour::Reentrant),
            (Flavour::Write, Flavour::Fair),
        ] {
            refused(&multi(&client, &[(one, "a"), (Flavour::Reentrant, "b"), (two, "a")])).await;
            // Also where two clients are of one server.
            refused(&MultiLock::of(vec![client.lock(one, "a"), other.lock(two, "a")])).await;
        }
        for name in [String::new(), "x".repeat(5_000)] {
            refused(&client.multi([&name])).await;
            // Beside names that will do.
            refused(&client.multi(["a", &name])).await;
            refused(&multi(&client, &[(Flavour::Fair, "a"), (Flavour::Fair, &name)])).await;
        }
        // An empty one as a member.
        refused(&MultiLock::of(vec![member(client.multi([""; 0])), member(client.multi([""; 0]))])).await;
        let sent = bed.admin.calls("evalsha").await + bed.admin.calls("eval").await;
        assert_eq!(sent, 0, "nothing is sent");
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// The same lock twice, by one client or by two, is one member.
#[tokio::test]
async fn the_same_lock_twice_is_taken_once() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for lock in [
            client.multi(["a", "b", "a", "a"]),
            MultiLock::of(vec![
                member(client.reentrant("a")),
                member(other.reentrant("a")),
                member(other.reentrant("b")),
                member(client.reentrant("b")),
            ]),
            multi(&client, &[(Flavour::Fair, "a"), (Flavour::Fair, "b"), (Flavour::Fair, "a")]),
        ] {
            assert_eq!(lock.locks().len(), 2, "{lock:?}");
            let me = client.owner();
            let guard = enter(&lock, &me).await;
            counts(&bed.admin, &me, &[("a", 1), ("b", 1)]).await;
            assert_eq!(guard.members().len(), 2);
            guard.unlock().await.unwrap();
            lock.lock().await.unwrap().unlock().await.unwrap();
            only_keys(&bed.admin, &[]).await;
        }
    })
    .await;
}

/// One name on two servers, or in two databases of one server, is two members.
#[tokio::test]
async fn one_name_in_two_places_is_two_locks() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let second = Second::start().await;
        let elsewhere = bed.connect(bed.builder().database(3)).await;
        let lock = MultiLock::of(vec![
            member(second.client.reentrant("a")),
            member(elsewhere.reentrant("a")),
            member(client.reentrant("a")),
        ]);
        assert_eq!(lock.locks().len(), 3);
        let guard = lock.lock().await.unwrap();
        counts(&bed.admin, guard.owner(), &[("a", 1)]).await;
        counts(&second.admin().await, guard.owner(), &[("a", 1)]).await;
        assert!(elsewhere.reentrant("a").try_lock().await.unwrap().is_none());
        assert!(lock.is_held_by(guard.owner()).await.unwrap());
        guard.unlock().await.unwrap();
        second.end().await;
    })
    .await;
}

/// Whatever order they are listed in, they are waited for in one; and any name will do (lesson 18).
#[tokio::test]
async fn odd_names() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let names =
            ["{", "}", "{}", "a:{b}:c", " ", "\n", "ключ", "🔒", "a\0b", "redisson_lock__channel:{a}", "+", "*", "a b"];
        let mut back = names;
        back.reverse();
        let (one, two) = (client.multi(names), other.multi(back));
        let order = |lock: &MultiLock| lock.locks().iter().map(|lock| lock.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(order(&one), order(&two));
        assert_eq!(one.name(), two.name());
        let guard = one.lock().await.unwrap();
        let mut keys = bed.admin.keys().await;
        keys.sort();
        let mut expected = names.map(str::to_owned);
        expected.sort();
        assert_eq!(keys, expected);
        assert!(two.try_lock().await.unwrap().is_none());
        let waiter = tokio::spawn(async move { two.lock().await.unwrap() });
        bed::eventually("it listens", async || !bed.admin.channels().await.is_empty()).await;
        guard.unlock().await.unwrap();
        soon("it is told", secs(4), waiter).await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// Its own name says which locks they are.
#[tokio::test]
async fn its_name_tells_the_first_of_them() {
    reentrant(async |bed| {
        let client = bed.client().await;
        assert_eq!(client.multi(["b"]).name(), "b");
        assert_eq!(client.multi(["b", "a", "b"]).name(), "a+b");
        assert_eq!(client.multi(["c", "b", "a"]).name(), "a+b+c");
        let many = client.multi((0..10).map(|n| format!("n{n}")));
        assert_eq!(many.name(), "n0+n1+n2+7 more");
        let guard = many.lock().await.unwrap();
        assert_eq!(guard.name(), many.name());
        assert!(format!("{guard:?} {many:?}").contains("n0+n1+n2+7 more"));
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Clients that put a prefix before every name: members are told apart, and ordered, by what stands in Redis.
#[tokio::test]
async fn prefixes() {
    reentrant(async |bed| {
        let plain = bed.client().await;
        let app = bed.connect(bed.builder().name_prefix("app:")).await;
        let lock = MultiLock::of(vec![member(app.reentrant("a")), member(plain.reentrant("a"))]);
        assert_eq!(lock.locks().len(), 2);
        warm(&bed.admin, &plain).await;
        let guard = lock.lock().await.unwrap();
        counts(&bed.admin, guard.owner(), &[("a", 1), ("app:a", 1)]).await;
        let mut names: Vec<_> = guard.members().into_iter().map(|member| member.name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["a", "a"], "as their users know them");
        guard.unlock().await.unwrap();
        // The same key by two names.
        let lock = MultiLock::of(vec![member(app.reentrant("a")), member(plain.reentrant("app:a"))]);
        assert_eq!(lock.locks().len(), 1);
        lock.lock().await.unwrap().unlock().await.unwrap();
        refused(&MultiLock::of(vec![member(app.reentrant("a")), member(plain.fair("app:a"))])).await;
        // One order for both, by key: app:b, app:z, b, c.
        let all = |reverse: bool| {
            let mut locks = vec![
                member(plain.reentrant("c")),
                member(app.reentrant("z")),
                member(plain.reentrant("b")),
                member(app.reentrant("b")),
            ];
            if reverse {
                locks.reverse();
            }
            MultiLock::of(locks)
        };
        for lock in [all(false), all(true)] {
            let names: Vec<_> = lock.locks().iter().map(|lock| lock.name()).collect();
            assert_eq!(names, ["b", "z", "b", "c"]);
        }
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// A clone is the same lock; one of one member is as that one.
#[tokio::test]
async fn clones_and_singles() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.multi(["a", "b"]);
        let copy = lock.clone();
        let guard = lock.lock().await.unwrap();
        assert!(copy.is_locked().await.unwrap() && copy.try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        let single = client.multi(["a"]);
        let guard = single.lock().await.unwrap();
        assert!(client.reentrant("a").is_held_by(guard.owner()).await.unwrap());
        assert_eq!(guard.unlock().await.unwrap(), distlock::Released::Free);
        let dynamic: std::sync::Arc<dyn DistLock> = std::sync::Arc::new(lock);
        dynamic.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// One server by two addresses: members of different names are as any others.
#[tokio::test]
async fn one_server_by_two_addresses() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let url = bed.server.url().replace("127.0.0.1", "localhost");
        assert_ne!(url, bed.server.url());
        let alias = bed.connect(distlock::Client::builder(&url)).await;
        let lock = MultiLock::of(vec![member(alias.reentrant("a")), member(client.reentrant("b"))]);
        for _ in 0..3 {
            let guard = lock.lock().await.unwrap();
            counts(&bed.admin, guard.owner(), &[("a", 1), ("b", 1)]).await;
            assert!(client.multi(["a", "b"]).try_lock().await.unwrap().is_none());
            guard.unlock().await.unwrap();
        }
    })
    .await;
}
