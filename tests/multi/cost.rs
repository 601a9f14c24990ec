//! What a multi lock sends, by the server's own counts (design §5).

use distlock::{Acquire, DistLock, Flavour, MultiLock};

use crate::rig::{Second, fair, member, multi, settled, warm};
use bed::{enter, idle, kin, ms, reentrant};

/// Members, and the commands that take them and give them back.
type Case = (&'static [(Flavour, &'static str)], u64, u64);

/// Free: one command for all plain ones of a client, and one for each other; released: one each, together where many.
#[tokio::test]
async fn free_ones() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let cases: [Case; 5] = [
            (&[(Flavour::Reentrant, "a")], 1, 1),
            (&[(Flavour::Reentrant, "a"), (Flavour::Reentrant, "b")], 1, 2),
            (&[(Flavour::Reentrant, "a"), (Flavour::Spin, "b"), (Flavour::Reentrant, "c")], 1, 3),
            (&[(Flavour::Reentrant, "a"), (Flavour::Fair, "b"), (Flavour::Reentrant, "c")], 2, 3),
            (&[(Flavour::Fenced, "a"), (Flavour::Fair, "b"), (Flavour::Read, "c"), (Flavour::Write, "d")], 4, 4),
        ];
        for (members, taking, releasing) in cases {
            let names: Vec<_> = members.iter().map(|(flavour, name)| (*flavour, kin(name))).collect();
            let lock = multi(&client, &names.iter().map(|(flavour, name)| (*flavour, &**name)).collect::<Vec<_>>());
            // The server knows the scripts from the first time on.
            lock.lock().await.unwrap().unlock().await.unwrap();
            lock.state().await.unwrap();
            idle(&client).await;
            bed.admin.reset_stats().await;
            let guard = lock.lock().await.unwrap();
            assert_eq!(bed.admin.calls("evalsha").await, taking, "{members:?}");
            guard.unlock().await.unwrap();
            let all = bed.admin.calls("evalsha").await;
            assert!(all > taking && all <= taking + releasing, "{members:?}: {all}");
            bed.admin.reset_stats().await;
            lock.state().await.unwrap();
            assert_eq!(bed.admin.calls("evalsha").await, members.len() as u64, "{members:?}");
        }
        assert_eq!(bed.admin.calls("eval").await, 0);
    })
    .await;
}

/// Of two servers: one command at each.
#[tokio::test]
async fn over_two_servers() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let second = Second::start().await;
        let there = second.admin().await;
        warm(&bed.admin, &client).await;
        warm(&there, &second.client).await;
        let lock = MultiLock::of(vec![
            member(client.reentrant(&kin("a"))),
            member(second.client.reentrant("a")),
            member(client.spin(&kin("b"))),
            member(second.client.spin("b")),
        ]);
        let guard = lock.lock().await.unwrap();
        assert_eq!((bed.admin.calls("evalsha").await, there.calls("evalsha").await), (1, 1));
        guard.unlock().await.unwrap();
        second.end().await;
    })
    .await;
}

/// Busy: one command says so, when plain; and one that waits is silent, whatever it holds meanwhile.
#[tokio::test]
async fn busy_ones() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        let theirs = stranger.reentrant(&kin("b")).lock().await.unwrap();
        let lock = client.multi(["a", "b", "c"].map(kin));
        warm(&bed.admin, &client).await;
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(bed.admin.calls("evalsha").await, 1);
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        settled(bed, &client, 1).await;
        bed.admin.reset_stats().await;
        tokio::time::sleep(ms(600)).await;
        let sent = bed.admin.calls("evalsha").await;
        assert!(sent <= 1, "{sent} commands while it waits");
        theirs.unlock().await.unwrap();
        waiter.await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// One that takes them one by one: it gives back what it holds after half a second or so, once, and is silent afterwards.
#[tokio::test]
async fn who_holds_while_waiting_does_not_go_on_asking() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        let theirs = stranger.reentrant("b").lock().await.unwrap();
        let lock = fair(&client, &["a"]);
        lock.lock().await.unwrap().unlock().await.unwrap();
        let lock = client.multi(["a", "b", "c", "d"]);
        let me = client.owner();
        bed.admin.reset_stats().await;
        let waiter = tokio::spawn(async move { enter(&lock, &me).await });
        tokio::time::sleep(ms(3_000)).await;
        let sent = bed.admin.calls("evalsha").await;
        // 4 attempts, 2 given back, 2 looks before and after the subscription; a is given back, and 2 looks again.
        assert!(sent <= 16, "{sent} commands in three seconds");
        assert!(!bed.admin.exists("a").await, "a is held still");
        theirs.unlock().await.unwrap();
        let guard = waiter.await.unwrap();
        assert_eq!(guard.members().len(), 4);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// One of its members is held by this process: the multi lock asks no more than that member's other waiters.
#[tokio::test]
async fn behind_a_task_of_the_same_client() {
    reentrant(async |bed| {
        let client = bed.client().await;
        warm(&bed.admin, &client).await;
        let mine = client.reentrant(&kin("b")).lock().await.unwrap();
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let lock = client.multi(["a", "b", "c"].map(kin));
                tokio::spawn(async move {
                    let guard = lock.acquire(Acquire::new()).await.unwrap().unwrap();
                    guard.unlock().await.unwrap();
                })
            })
            .collect();
        settled(bed, &client, 10).await;
        // A look each at all, one each at the busy one, and two of the first in the queue.
        let sent = bed.admin.calls("evalsha").await;
        assert!(sent <= 22, "{sent} commands");
        bed.admin.reset_stats().await;
        tokio::time::sleep(ms(300)).await;
        assert!(bed.admin.calls("evalsha").await <= 1);
        mine.unlock().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
    })
    .await;
}
