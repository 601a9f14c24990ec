//! Which votes count, which holders are named, and the votes of a lost lock.

use std::sync::Arc;

use distlock::{Acquire, DistLock, Error, Flavour, Lost, RedLock};

use crate::rig::{Path, by_all, five, long, patient};
use bed::{PATIENCE, becomes, ends, eventually, waiter};

/// Three of five servers lose the key. The guard is not dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_redlock_releases_its_remaining_votes() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        let lost = tokio::spawn(guard.lost());
        for at in [0, 1, 2] {
            let () = five.admin(at).await.cmd(&["DEL", "x"]).await;
        }
        user.renew().await;
        let gone = |error: &Error| matches!(error, Error::Lost { name, why: Lost::Gone } if **name == *"x");
        let lost = ends("the loss is signalled", lost).await.unwrap();
        assert!(gone(&lost), "{lost:?}");
        becomes("servers that still have a vote", Vec::new(), async || five.having("x").await).await;
        user.idle().await;
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let extended = guard.extend(bed::secs(5)).await.unwrap_err();
        assert!(gone(&extended), "{extended:?}");
        let members = guard.members();
        assert!(members.len() == 5 && members.iter().all(|member| !member.is_held), "{members:?}");
        // Another owner acquires the lock, and keeps it after the first guard's release.
        let next = by_all(&user.red("x"), Acquire::new()).await;
        let told = guard.unlock().await.unwrap_err();
        assert!(gone(&told), "{told:?}");
        assert!(next.is_held());
        assert_eq!(five.having("x").await.len(), 5);
        next.unlock().await.unwrap();
    })
    .await;
}

/// A writer waits behind a reader, and a reader waits behind a writer. The waiter queries both halves, and makes no
/// attempts that cannot succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_behind_the_other_half_queries_instead_of_attempting() {
    five(async |five| {
        let (holder, user) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        for (held, wanted) in [(Flavour::Read, Flavour::Write), (Flavour::Write, Flavour::Read)] {
            let guard = by_all(&holder.over(held, "x"), Acquire::new().lease(bed::secs(3600))).await;
            let waiting = waiter(user.over(wanted, "x"));
            // Attempts and their releases use HMGET, and queries do not. After its first attempts, the waiter only
            // queries.
            eventually("ten looks in a row without an attempt", async || {
                let before = five.calls("hmget").await;
                let looks = five.calls("evalsha").await;
                eventually("the waiter looks", async || five.calls("evalsha").await >= looks + 10).await;
                five.calls("hmget").await == before
            })
            .await;
            guard.unlock().await.unwrap();
            let (guard, _) = ends("the waiter", waiting).await.unwrap();
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_names_each_holder_by_its_owner() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let mut owners = Vec::new();
        for at in [1, 2, 3, 4] {
            let lock = user.clients[at].reentrant("x");
            owners.push((at, lock.acquire(long()).await.unwrap().expect("free").into_owner()));
        }
        let state = user.red("x").state().await.unwrap();
        assert_eq!(state.holders.len(), 4, "{:?}, held by {owners:?}", state.holders);
        for (holder, _) in &state.holders {
            assert!(owners.iter().any(|(_, owner)| owner.as_str() == holder), "nobody is {holder}");
        }
        for (at, owner) in owners {
            user.clients[at].reentrant("x").release(&owner).await.unwrap();
        }
    })
    .await;
}

/// The server is part of two RedLocks, which are members of a third.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_locks_that_share_a_server_are_refused() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let part = |name: &str, of: &[usize]| -> Arc<dyn DistLock> {
            Arc::new(RedLock::new(of.iter().map(|at| user.clients[*at].clone()), name).node_timeout(PATIENCE))
        };
        let multi = |at: usize| -> Arc<dyn DistLock> { Arc::new(user.clients[at].multi(["x", "y"])) };
        let striped: Arc<dyn DistLock> = Arc::new(user.clients[1].striped("x", 2));
        for (one, other) in [
            (part("x", &[0, 1, 2]), part("x", &[0, 3, 4])),
            (multi(1), part("x", &[1, 2, 3])),
            (striped, part("x", &[1, 2, 3])),
        ] {
            let refused = RedLock::of("x", vec![one, other]).try_lock().await;
            assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
        }
        // If each member uses one server, locks of any kind can be members.
        let locks = vec![multi(0), part("x", &[1, 2, 3]), Arc::new(user.clients[4].reentrant("x"))];
        let guard = RedLock::of("x", locks).node_timeout(PATIENCE).lock().await.unwrap();
        eventually("all have granted it", async || guard.members().len() >= 6).await;
        guard.unlock().await.unwrap();
    })
    .await;
}
