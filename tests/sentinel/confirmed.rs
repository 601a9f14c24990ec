//! Renewals that count only while a majority of sentinels confirms the primary.

use std::time::Duration;

use distlock::{Acquire, Flavour};

use crate::{end, lock, secs, still_sentinels};

/// Two of three sentinels are frozen. The primary still answers, but no majority of sentinels confirms it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_confirm_primary_a_hold_is_lost_without_a_majority_of_sentinels() {
    let bed = still_sentinels().await;
    let connect = async |confirm: bool| {
        let builder = bed::builder(&bed.url())
            .watchdog(secs(20))
            .command_timeout(secs(6))
            .configure(|options| options.confirm_primary = confirm);
        builder.connect().await.unwrap()
    };
    let (with, without) = (connect(true).await, connect(false).await);
    let ends = lock(&with, Flavour::Reentrant, "confirmed").lock().await.unwrap();
    let (again, owner) = (lock(&with, Flavour::Reentrant, "again and again"), with.owner());
    let outer = again.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
    let stays = lock(&without, Flavour::Reentrant, "unconfirmed").lock().await.unwrap();
    [0, 1].iter().for_each(|n| bed.sentinel(*n).stop());
    bed::ends("the loss of the hold at an unconfirmed primary", ends.lost()).await;
    // Repeated re-entries and releases must not keep the owner's lock alive.
    bed::eventually("the loss of the hold that is entered again and again", async || {
        drop(again.acquire(Acquire::new().owner(&owner).wait(Duration::ZERO)).await);
        !outer.is_held()
    })
    .await;
    assert!(stays.is_held(), "by default only the primary is asked");
    [0, 1].iter().for_each(|n| bed.sentinel(*n).cont());
    bed::eventually("a confirmed primary grants and renews again", async || {
        let Ok(Some(guard)) = with.reentrant("again").try_lock().await else { return false };
        let renewed = with.renew_now().await.renewed == 1;
        drop(guard);
        renewed
    })
    .await;
    stays.unlock().await.unwrap();
    end(with).await;
    end(without).await;
}
