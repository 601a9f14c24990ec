//! Lists of members: duplicates, two halves of one lock, an empty list, odd names, prefixes.

use distlock::{Error, Flavour, MultiLock};

use crate::rig::{Second, counts, member, multi, only_keys, waits_at};
use bed::{ends, enter, passer, reentrant, secs};

/// Asserts that every call returns `Config` with the reason.
async fn refused(lock: &MultiLock) {
    let me: distlock::Owner = "71b96ce8-2746-8c3a-9d0e-0123456789ab:1".parse().unwrap();
    let outcomes = [
        lock.try_lock().await.map(drop),
        lock.lock().await.map(drop),
        lock.lock_for(secs(1)).await.map(drop),
        lock.lock_leased(secs(1)).await.map(drop),
        lock.state().await.map(drop),
        lock.is_locked().await.map(drop),
        lock.hold_count(&me).await.map(drop),
        lock.force_unlock().await.map(drop),
        lock.release(&me).await.map(drop),
    ];
    for error in outcomes.map(Result::unwrap_err) {
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(!error.is_retryable() && error.to_string().len() > 20, "{error}");
    }
}

#[tokio::test]
async fn invalid_lists_are_refused_without_sending_scripts() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        bed.admin.reset_stats().await;
        refused(&client.multi([""; 0])).await;
        refused(&MultiLock::of(vec![member(client.multi([""; 0])), member(client.multi([""; 0]))])).await;
        // An acquire of both halves would wait for its own hold.
        refused(&multi(&client, &[(Flavour::Read, "a"), (Flavour::Write, "a")])).await;
        for (one, two) in [
            (Flavour::Reentrant, Flavour::Fair),
            (Flavour::Fenced, Flavour::Reentrant),
            (Flavour::Spin, Flavour::Reentrant),
            (Flavour::Write, Flavour::Fair),
        ] {
            refused(&multi(&client, &[(one, "a"), (Flavour::Reentrant, "b"), (two, "a")])).await;
            // The same is refused if the halves belong to two clients of one server.
            refused(&MultiLock::of(vec![client.lock(one, "a"), other.lock(two, "a")])).await;
        }
        for name in [String::new(), "x".repeat(5_000)] {
            refused(&client.multi(["a", &name])).await;
            refused(&multi(&client, &[(Flavour::Fair, "a"), (Flavour::Fair, &name)])).await;
        }
        let sent = bed.admin.calls("evalsha").await + bed.admin.calls("eval").await;
        assert_eq!(sent, 0, "scripts sent");
    })
    .await;
}

/// One client or two name the lock twice. The last lock has no duplicates, but two addresses of one server.
#[tokio::test]
async fn duplicate_members_are_acquired_once() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let url = bed.server.url().replace("127.0.0.1", "localhost");
        assert_ne!(url, bed.server.url());
        let alias = bed.connect(bed::builder(&url)).await;
        for lock in [
            client.multi(["a", "b", "a", "a"]),
            MultiLock::of(vec![
                member(client.reentrant("a")),
                member(other.reentrant("a")),
                member(other.reentrant("b")),
                member(client.reentrant("b")),
            ]),
            multi(&client, &[(Flavour::Fair, "a"), (Flavour::Fair, "b"), (Flavour::Fair, "a")]),
            MultiLock::of(vec![member(alias.reentrant("a")), member(client.reentrant("b"))]),
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

/// The same name is used at two servers, or in two databases of one server.
#[tokio::test]
async fn same_name_on_other_server_or_database_is_another_lock() {
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

/// Two clients list the same names, one of them in reverse order.
#[tokio::test]
async fn member_order_does_not_depend_on_list_order() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let names =
            ["{", "}", "{}", "a:{b}:c", " ", "\n", "ключ", "🔒", "a\0b", "redisson_lock__channel:{a}", "+", "*", "a b"];
        let mut back = names;
        back.reverse();
        let (one, two) = (client.multi(names), other.multi(back));
        let order = |lock: &MultiLock| lock.locks().iter().map(|lock| lock.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(order(&one), order(&two));
        assert_eq!(one.name(), two.name());
        let guard = one.lock().await.unwrap();
        only_keys(&bed.admin, &names).await;
        assert!(two.try_lock().await.unwrap().is_none());
        let first = one.locks()[0].name().to_owned();
        let waiter = passer(two);
        waits_at(bed, &other, &first).await;
        guard.unlock().await.unwrap();
        ends("the waiter", waiter).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn multi_lock_name_joins_its_first_member_names() {
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

#[tokio::test]
async fn members_are_distinguished_and_ordered_by_their_keys() {
    reentrant(async |bed| {
        let plain = bed.client().await;
        let app = bed.connect(bed.builder().name_prefix("app:")).await;
        let lock = MultiLock::of(vec![member(app.reentrant("a")), member(plain.reentrant("a"))]);
        assert_eq!(lock.locks().len(), 2);
        let guard = lock.lock().await.unwrap();
        counts(&bed.admin, guard.owner(), &[("a", 1), ("app:a", 1)]).await;
        let names: Vec<_> = guard.members().into_iter().map(|member| member.name.to_string()).collect();
        assert_eq!(names, ["a", "a"], "as their users know them");
        guard.unlock().await.unwrap();
        // The two names lead to the same key.
        let lock = MultiLock::of(vec![member(app.reentrant("a")), member(plain.reentrant("app:a"))]);
        assert_eq!(lock.locks().len(), 1);
        lock.lock().await.unwrap().unlock().await.unwrap();
        refused(&MultiLock::of(vec![member(app.reentrant("a")), member(plain.fair("app:a"))])).await;
        let locks = [plain.reentrant("c"), app.reentrant("z"), plain.reentrant("b"), app.reentrant("b")].map(member);
        for locks in [locks.to_vec(), locks.iter().rev().cloned().collect()] {
            let lock = MultiLock::of(locks);
            let names: Vec<_> = lock.locks().iter().map(|lock| lock.name()).collect();
            assert_eq!(names, ["b", "z", "b", "c"]);
        }
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}
