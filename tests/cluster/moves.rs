//! Slots that move, while locks in them are held and waited for.

use distlock::Flavour;
use distlock_support::slot_of;
use tokio::time::Instant;

use crate::{FLAVOURS, client, end, exclusive, kept, lock, ms, primaries, secs};

/// A held lock moves with its slot; nobody takes it, it is not lost, and its release finds it.
#[tokio::test]
async fn what_is_held_moves_along() {
    let cluster = primaries(2).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in FLAVOURS {
        let name = format!("held:{flavour}");
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        let from = cluster.primary_of(&name).await;
        let to = cluster.other_primary(from).await;
        cluster.move_slot(slot_of(&name), to).await;
        if exclusive().any(|one| one == flavour) {
            assert!(lock(&other, flavour, &name).try_lock().await.unwrap().is_none(), "{flavour}");
        }
        kept(&one, 1).await;
        assert!(guard.is_held(), "{flavour}");
        guard.unlock().await.unwrap();
        lock(&other, flavour, &name).try_lock().await.unwrap().expect("free").unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

/// Who waits is woken by a release at the slot's new place, be it right behind the move.
#[tokio::test]
async fn who_waits_is_woken_where_the_slot_is_now() {
    const ROUNDS: usize = 7;
    let cluster = primaries(2).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Fenced, Flavour::Plain] {
        let mut woken_after = Vec::new();
        for round in 0..ROUNDS {
            let name = format!("waited:{round}:{flavour}");
            let guard = lock(&one, flavour, &name).lock().await.unwrap();
            let waiter = lock(&other, flavour, &name);
            let waiting = tokio::spawn(async move { waiter.lock().await.map(|guard| (Instant::now(), guard)) });
            while other.stats().waiting == 0 || other.stats().under_way > 0 {
                tokio::time::sleep(ms(5)).await;
            }
            let from = cluster.primary_of(&name).await;
            let to = cluster.other_primary(from).await;
            cluster.move_slot(slot_of(&name), to).await;
            let released = Instant::now();
            guard.unlock().await.unwrap();
            let (at, guard) = waiting.await.unwrap().unwrap();
            woken_after.push(at - released);
            guard.unlock().await.unwrap();
        }
        woken_after.sort_unstable();
        println!("{flavour}: woken after {woken_after:?}");
        // Plain locks have no messages. Of the others none waits for a look at the map, which comes each 5 s; that the machine
        // is away for a while may happen to a few of them.
        let typical = woken_after[ROUNDS / 2];
        assert!(typical < if flavour == Flavour::Plain { secs(2) } else { ms(50) }, "{flavour}: {woken_after:?}");
        assert!(woken_after[ROUNDS - 1] < secs(3), "{flavour}: {woken_after:?}");
    }
    end(one).await;
    end(other).await;
}

/// Half of a slot's keys are at either side: a lock of one key is had and given back, the others once the slot is whole again.
#[tokio::test]
async fn a_slot_that_is_half_moved_keeps_nobody_in_or_out() {
    let cluster = primaries(2).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in FLAVOURS {
        let name = format!("half:{flavour}");
        let slot = slot_of(&name);
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        let from = cluster.primary_of(&name).await;
        let to = cluster.other_primary(from).await;
        cluster.open_slot(slot, to).await;
        cluster.move_keys(slot, &[&name]).await;
        let is_one_key = matches!(flavour, Flavour::Reentrant | Flavour::Spin | Flavour::Plain);
        if exclusive().any(|one| one == flavour) {
            match lock(&other, flavour, &name).try_lock().await {
                Ok(taken) => assert!(taken.is_none(), "{flavour}: two holders"),
                Err(error) => assert!(!is_one_key && error.is_retryable(), "{flavour}: {error}"),
            }
        }
        assert_eq!(one.renew_now().await.lost, 0, "{flavour}");
        assert!(guard.is_held(), "{flavour}");
        let releasing = tokio::spawn(guard.unlock());
        if is_one_key {
            releasing.await.unwrap().unwrap();
            cluster.close_slot(slot).await;
        } else {
            let rest = cluster.keys_in_slot(slot).await;
            cluster.move_keys(slot, &rest).await;
            cluster.close_slot(slot).await;
            releasing.await.unwrap().unwrap();
        }
        let guard = lock(&other, flavour, &name).lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}
