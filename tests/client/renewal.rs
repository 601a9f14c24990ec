//! Renewal on a real server. A failed renewal of one lock does not affect other locks, and a release is not a loss.

use bed::{becomes, enter, ms, reentrant};
use distlock::Released;

/// Some batches have a key that is missing or has another type.
#[tokio::test]
async fn bad_key_does_not_stop_renewal_of_other_locks() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let mut guards = Vec::new();
        for n in 0..250 {
            guards.push(client.reentrant(&format!("job {n:03}")).lock().await.unwrap());
        }
        let bad = [0, 99, 100, 180, 249];
        for n in bad {
            let name = format!("job {n:03}");
            let spoils = if n % 2 == 0 { vec!["SET", &name, "no lock"] } else { vec!["DEL", &name] };
            bed.admin.cmd::<()>(&spoils).await;
        }
        let round = client.renew_now().await;
        assert_eq!((round.renewed, round.failed, round.lost), (245, 0, 5));
        for (n, guard) in guards.into_iter().enumerate() {
            assert_eq!(guard.is_held(), !bad.contains(&n), "job {n}");
            assert_eq!(guard.unlock().await.is_ok(), !bad.contains(&n), "job {n}");
        }
        for n in bad.iter().filter(|n| **n % 2 == 0) {
            assert_eq!(bed.admin.cmd::<i64>(&["DEL", &format!("job {n:03}")]).await, 1);
        }
    })
    .await;
}

// testLockReentrantRenew
#[tokio::test]
async fn released_holds_do_not_stop_renewal_of_next_owner() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let lock = client.reentrant("job");
        let me = client.owner();
        for guard in [enter(&lock, &me).await, enter(&lock, &me).await] {
            guard.unlock().await.unwrap();
        }
        let guard = lock.lock().await.unwrap();
        let () = bed.admin.cmd(&["PEXPIRE", "job", "60000"]).await;
        assert_eq!(client.renew_now().await.renewed, 1);
        assert!(guard.is_held() && bed.admin.pttl("job").await > 60_000);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// Many sections (times in which a lock is held) listen for a loss, and renewals race with the releases. A release
/// never signals a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_beside_renewals_signals_no_loss() {
    reentrant(async |bed| {
        const TASKS: u32 = 64;
        let client = bed.connect(bed.still_builder().configure(|options| options.subscription_linger = ms(100))).await;
        let tasks = (0..TASKS).map(|n| {
            let lock = client.reentrant(&format!("x{}", n % 48));
            tokio::spawn(async move {
                for round in 0..300 {
                    let guard = lock.lock().await.unwrap();
                    let mut lost = std::pin::pin!(guard.lost());
                    assert!(futures::poll!(lost.as_mut()).is_pending() && guard.is_held(), "round {round}: lost");
                    guard.unlock().await.unwrap();
                    assert!(
                        futures::poll!(lost.as_mut()).is_pending(),
                        "round {round}: the release was taken for a loss"
                    );
                }
            })
        });
        let mut all = std::pin::pin!(futures::future::join_all(tasks));
        let mut renewing = tokio::time::interval(ms(1));
        loop {
            tokio::select! {
                done = &mut all => break done.into_iter().for_each(|task| task.unwrap()),
                _ = renewing.tick() => assert_eq!(client.renew_now().await.lost, 0),
            }
        }
        becomes("names in the registry", 0, async || client.stats().names).await;
    })
    .await;
}
