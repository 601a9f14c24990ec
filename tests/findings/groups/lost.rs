use std::sync::Arc;

use std::time::Duration;

use distlock::{Acquire, DistLock, Error, Lost, RedLock};

use super::rig::{Away, Path, SOON, by_all, five, quick};
use bed::{eventually, ms, reentrant, secs};

/// 19: three of five lose the key. The guard is told, and the two votes that are left are given back although it lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_19_a_lost_redlock_gives_its_last_votes_back() {
    five(async |five| {
        let user = five.warm(Path::Direct, quick).await;
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        for at in [0, 1, 2] {
            let () = five.admin(at).await.cmd(&["DEL", "x"]).await;
        }
        let gone = |error: &Error| matches!(error, Error::Lost { name, why: Lost::Gone } if **name == *"x");
        let lost = tokio::time::timeout(secs(5), guard.lost()).await.expect("not told");
        assert!(gone(&lost), "{lost:?}");
        let left = tokio::time::timeout(secs(4), async {
            while !five.having("x").await.is_empty() {
                tokio::time::sleep(ms(10)).await;
            }
        });
        let left = left.await;
        assert!(left.is_ok(), "votes are kept on {:?}", five.having("x").await);
        user.idle_at(&[0, 1, 2, 3, 4]).await;
        // It says what it said, and how many it had.
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let again = guard.lost().await;
        assert!(gone(&again), "{again:?}");
        let run = guard.run(async {}).await.unwrap_err();
        assert!(gone(&run), "{run:?}");
        let extended = guard.extend(secs(5)).await.unwrap_err();
        assert!(gone(&extended), "{extended:?}");
        let members = guard.members();
        assert!(members.len() == 5 && members.iter().all(|member| !member.is_held), "{members:?}");
        // Another one has it, and keeps it when the first lets go.
        let next = by_all(&user.red("x"), Acquire::new().wait(Duration::ZERO)).await;
        let told = guard.unlock().await.unwrap_err();
        assert!(gone(&told), "{told:?}");
        assert!(next.is_held() && five.having("x").await.len() == 5);
        next.unlock().await.unwrap();
    })
    .await;
}

/// 19: three of five are frozen while it is extended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_19_a_redlock_lost_in_extend_gives_its_votes_back() {
    five(async |five| {
        let user = five.warm(Path::Direct, quick).await;
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        for at in [0, 1, 2] {
            five.take(at, Away::Stopped);
        }
        let extended = guard.extend(secs(60)).await;
        println!("extended: {extended:?}");
        assert!(extended.is_err());
        let lost = tokio::time::timeout(secs(5), guard.lost()).await.expect("not told");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        let left = async |at| five.admin(at).await.exists("x").await;
        let within = tokio::time::timeout(secs(4), async {
            while left(3).await || left(4).await {
                tokio::time::sleep(ms(10)).await;
            }
        });
        let within = within.await;
        for at in [0, 1, 2] {
            five.back(at, Away::Stopped);
        }
        assert!(within.is_ok(), "votes are kept for a minute");
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        eventually("all are free", async || five.having("x").await.is_empty()).await;
    })
    .await;
}

/// 19: a multi lock that is lost with one of its members keeps none of the others from anybody; nor does one of RedLocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_19_a_lost_multi_lock_gives_the_others_back() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let red: Arc<dyn DistLock> = Arc::new(RedLock::new([client.clone()], "r"));
        let nested = distlock::MultiLock::of(vec![red, Arc::new(client.reentrant("a")), Arc::new(client.fair("c"))]);
        for (lock, gone) in [(client.multi(["a", "b", "c"]), "b"), (nested.clone(), "c"), (nested, "r")] {
            let guard = lock.lock().await.unwrap();
            let () = bed.admin.cmd(&["DEL", gone]).await;
            let lost = tokio::time::timeout(secs(5), guard.lost()).await.expect("not told");
            assert!(matches!(&lost, Error::Lost { name, why: Lost::Gone } if **name == *lock.name()), "{lost:?}");
            let left = tokio::time::timeout(secs(4), async {
                while !bed.admin.keys().await.is_empty() {
                    tokio::time::sleep(ms(5)).await;
                }
            });
            let left = left.await;
            assert!(left.is_ok(), "kept: {:?}", bed.admin.keys().await);
            let told = guard.unlock().await.unwrap_err();
            assert!(matches!(told, Error::Lost { why: Lost::Gone, .. }), "{told:?}");
        }
    })
    .await;
}
