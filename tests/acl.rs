//! The minimal access list of `docs/acl.md`, to the letter: enough for locks, and for nothing else.

mod bed;

use bed::{eventually, ms, reentrant, secs};
use distlock::{Acquire, Client, DistLock, Released};

const PAGE: &str = include_str!("../docs/acl.md");

fn rules() -> Vec<String> {
    let (_, block) = PAGE.split_once("```acl").expect("the page has the list");
    let (block, _) = block.split_once("```").expect("the block ends");
    block.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_minimal_access_list_is_enough() {
    reentrant(async |bed| {
        let rules = rules();
        let mut setuser = vec!["ACL", "SETUSER"];
        setuser.extend(rules.iter().map(String::as_str));
        bed.admin.cmd::<String>(&setuser).await;
        bed.admin.cmd::<String>(&["ACL", "LOG", "RESET"]).await;
        let login = || bed.builder().username("locks").password("SECRET").name_prefix("app:");
        let one = bed.connect(login().subscription_linger(ms(50))).await;
        let two = bed.connect(login()).await;

        let guard = one.reentrant("x").lock().await.unwrap();
        let me = guard.owner().clone();
        let inner = one.reentrant("x").acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        assert_eq!(one.renew_now().await.renewed, 1);
        inner.extend(secs(10)).await.unwrap();
        assert_eq!(one.reentrant("x").hold_count(&me).await.unwrap(), 2);
        let lock = two.reentrant("x");
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        eventually("it listens", secs(5), async || bed.admin.numsub("redisson_lock__channel:{app:x}").await == 1).await;
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        let guard = tokio::time::timeout(secs(2), waiter).await.expect("not woken").unwrap();
        assert!(one.reentrant("x").force_unlock().await.unwrap());
        drop(guard);
        // Each of these in turn: queueing, being passed the lock, giving up, being asked, forcing.
        let fair = one.fair("fair");
        let guard = fair.lock().await.unwrap();
        let lock = two.fair("fair");
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        let queued = async |n| fair.queue_len().await.unwrap() == n;
        eventually("it queues", secs(5), async || queued(1).await).await;
        assert!(one.fair("fair").lock_for(ms(50)).await.unwrap().is_none());
        eventually("one gave up", secs(5), async || queued(1).await).await;
        let left = async || fair.queue().await.unwrap().waiters[0].remaining;
        let mut last = left().await;
        let refreshed = async || std::mem::replace(&mut last, left().await) < last;
        eventually("its place is refreshed", secs(5), refreshed).await;
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        let guard = tokio::time::timeout(secs(2), waiter).await.expect("not served").unwrap();
        assert!(fair.force_unlock().await.unwrap());
        drop(guard);
        // Many at a time share commands; that needs no more.
        let many = (0..64).map(|n| {
            let lock = one.reentrant(&format!("many{n}"));
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        futures::future::join_all(many).await;

        let refused: Vec<redis::Value> = bed.admin.cmd(&["ACL", "LOG"]).await;
        assert!(refused.is_empty(), "{refused:?}");

        // And it is no more than enough: other names are out of reach.
        let stray = Client::builder(&bed.server.url()).username("locks").password("SECRET").preflight(false);
        let stray = bed.connect(stray).await;
        assert!(stray.reentrant("other").try_lock().await.is_err());
        assert!(!bed.admin.exists("other").await);
    })
    .await;
}
