//! Segments that cannot be had for a while: their keys hold something else.

use bed::{Bed, eventually, ms, reentrant, secs};
use distlock::{Acquire, Client, Deadlock, Error, Flavour, Striped};

/// A client that soon sees what has become of a key, and whose patience ends soon.
async fn quick(bed: &Bed) -> Client {
    let builder = Client::builder(&bed.server.url()).poll_cap(ms(200)).command_timeout(ms(300));
    bed.connect(builder.retry_attempts(1).retry_delay((ms(10), ms(50)))).await
}

/// A strange holder of this lock, for longer than the test.
async fn hold(bed: &Bed, key: &str) {
    let _: i64 = bed.admin.cmd(&["DEL", key]).await;
    let _: i64 = bed.admin.cmd(&["HSET", key, "5b0e1a4c-0000-4000-8000-000000000000:1", "1"]).await;
    let _: i64 = bed.admin.cmd(&["PEXPIRE", key, "600000"]).await;
}

async fn spoil(bed: &Bed, key: &str) {
    let _: String = bed.admin.cmd(&["SET", key, "no lock"]).await;
}

async fn free(bed: &Bed, key: &str) {
    let _: i64 = bed.admin.cmd(&["DEL", key]).await;
}

/// A bad segment that is mended while a queue lives serves it again; and one that has waited for long behind its holder
/// since then is no failure when another one goes bad.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mended_segment_serves_again() {
    reentrant(async |bed| {
        let client = quick(bed).await;
        let striped = client.striped("s", 2);
        spoil(bed, "s:0").await;
        hold(bed, "s:1").await;
        let lock = striped.clone();
        let first = tokio::spawn(async move { lock.any(Acquire::new()).await });
        eventually("it waits at the other", async || client.stats().waiting == 1).await;
        hold(bed, "s:0").await;
        eventually("it waits at both", async || client.stats().waiting == 2).await;
        // For longer than errors are put up with.
        tokio::time::sleep(secs(2)).await;
        spoil(bed, "s:1").await;
        eventually("the other has failed", async || client.stats().waiting == 1 || first.is_finished()).await;
        tokio::time::sleep(ms(500)).await;
        if first.is_finished() {
            panic!("told although one segment is only busy: {:?}", first.await);
        }
        free(bed, "s:0").await;
        let (at, guard) = tokio::time::timeout(secs(20), first).await.expect("never served").unwrap().unwrap().unwrap();
        assert_eq!(at, 0);
        guard.unlock().await.unwrap();
        // All bad is told still.
        spoil(bed, "s:0").await;
        assert!(matches!(striped.any(Acquire::new()).await, Err(Error::WrongType { .. })));
        free(bed, "s:0").await;
        free(bed, "s:1").await;
    })
    .await;
}

/// Those who wait are told when all segments go bad.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_told_when_all_go_bad() {
    reentrant(async |bed| {
        let client = quick(bed).await;
        let striped = client.striped("s", 2);
        for owner in [None, Some(client.owner())] {
            hold(bed, "s:0").await;
            hold(bed, "s:1").await;
            let lock = striped.clone();
            let how = owner.map_or_else(Acquire::new, |owner| Acquire::new().owner(&owner));
            let waiter = tokio::spawn(async move { lock.any(how).await });
            eventually("it waits at both", async || client.stats().waiting == 2).await;
            spoil(bed, "s:0").await;
            spoil(bed, "s:1").await;
            let told = tokio::time::timeout(secs(20), waiter).await.expect("waits for what cannot be").unwrap();
            assert!(matches!(told, Err(Error::WrongType { .. })), "{told:?}");
            eventually("nobody waits", async || client.stats().waiting == 0).await;
            free(bed, "s:0").await;
            free(bed, "s:1").await;
        }
    })
    .await;
}

/// Nobody comes into a plain lock again; an owner that holds one segment may have another all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_of_ones_own_is_passed_over() {
    reentrant(async |bed| {
        let client = quick(bed).await;
        let striped = Striped::over(&client, Flavour::Plain, "s", 3);
        let me = client.owner();
        let how = || Acquire::new().owner(&me).lease(secs(60));
        let held = striped.segment(1).unwrap().acquire(how()).await.unwrap().unwrap();
        // Wherever the search begins.
        for _ in 0..6 {
            let (at, guard) = striped.any(how().wait(secs(5))).await.unwrap().expect("two are free");
            assert_ne!(at, 1);
            guard.unlock().await.unwrap();
        }
        let not_again = striped.any(how().not_reentrant()).await;
        let is_own = |outcome: &Result<_, Error>| {
            matches!(outcome, Err(Error::WouldDeadlock { why: Deadlock::NotReentrant, .. }))
        };
        assert!(is_own(&not_again.map(drop)));
        let others =
            [striped.segment(0).unwrap().lock().await.unwrap(), striped.segment(2).unwrap().lock().await.unwrap()];
        for _ in 0..4 {
            let once = striped.any(how().wait(ms(0))).await.unwrap();
            assert!(once.is_none(), "others have the rest");
            let waited = striped.any(how().wait(ms(50))).await.unwrap();
            assert!(waited.is_none(), "others have the rest");
        }
        let (lock, again) = (striped.clone(), how());
        let waiter = tokio::spawn(async move { lock.any(again).await });
        eventually("it waits for the others'", async || client.stats().waiting == 2).await;
        let [first, second] = others;
        first.unlock().await.unwrap();
        let (at, guard) =
            tokio::time::timeout(secs(20), waiter).await.expect("never served").unwrap().unwrap().unwrap();
        assert_eq!(at, 0);
        second.unlock().await.unwrap();
        let last = striped.segment(2).unwrap().acquire(how()).await.unwrap().unwrap();
        // It would wait for itself.
        let told = tokio::time::timeout(secs(20), striped.any(how())).await.expect("waits for itself");
        assert!(is_own(&told.map(drop)));
        for guard in [held, guard, last] {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}
