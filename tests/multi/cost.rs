//! The commands of a multi lock, as the server counts them. No timer fires during these tests, so only the calls of the
//! test are counted.

use distlock::{Flavour, MultiLock};

use crate::rig::{Second, member, multi, warm};
use bed::{becomes, eventually, idle, kin, passer, reentrant, secs};

/// The members, the number of commands that acquire them, and the number that release them.
type Case = (&'static [(Flavour, &'static str)], u64, u64);

/// One command acquires all plain members of a client, and each other member needs its own command. Each release is one
/// command, but releases of many members share commands.
#[tokio::test]
async fn free_plain_members_share_one_command_and_others_cost_one_each() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
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
            // The first round loads the scripts.
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

#[tokio::test]
async fn members_on_two_servers_cost_one_command_per_server() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let second = Second::with(|builder| builder.watchdog(secs(3600))).await;
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

/// One command finds out that plain members are busy. A waiter then sends nothing until it is woken.
#[tokio::test]
async fn busy_member_costs_one_command_and_wait_at_most_ten() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.still_client().await, bed.still_client().await);
        let names = ["a", "b", "c"].map(kin);
        let theirs = stranger.reentrant(&names[1]).lock().await.unwrap();
        let lock = client.multi(&names);
        warm(&bed.admin, &client).await;
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(bed.admin.calls("evalsha").await, 1);
        let waiter = passer(lock);
        becomes("acquires that wait", 1, async || client.stats().waiting).await;
        eventually("it listens", async || !bed.admin.channels().await.is_empty()).await;
        theirs.unlock().await.unwrap();
        waiter.await.unwrap();
        let sent = bed.admin.calls("evalsha").await;
        // At most: the attempt above, one for all members, two at the busy member, its release, one after the wake-up,
        // one for the other members, and three releases.
        assert!(sent <= 10, "{sent} commands");
    })
    .await;
}

/// A task of the same client holds a member. Ten multi locks that wait send no more commands than ten waiters of that
/// member.
#[tokio::test]
async fn waiters_behind_a_task_of_the_same_client_cost_two_commands_each() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let names = ["a", "b", "c"].map(kin);
        warm(&bed.admin, &client).await;
        let mine = client.reentrant(&names[1]).lock().await.unwrap();
        let waiters: Vec<_> = (0..10).map(|_| passer(client.multi(&names))).collect();
        becomes("acquires that wait", 10, async || client.stats().waiting).await;
        // At most: the acquire above, one attempt of each lock at all members, one of each lock at the busy member, and
        // two of the first waiter.
        let sent = bed.admin.calls("evalsha").await;
        assert!(sent <= 23, "{sent} commands");
        mine.unlock().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
    })
    .await;
}
