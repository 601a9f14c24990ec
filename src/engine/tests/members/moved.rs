//! Names that move to another server while a command about them is in flight.

use std::sync::Arc;
use std::time::Duration;

use super::{client_of_two, done, sent};
use crate::engine::tests::fake::{Fake, Fate};
use crate::engine::tests::{ms, secs, waiter};
use crate::{Acquire, Client, Guard};

/// Acquires a lock that lives at the first server, and delays the next renewal there. `held`: true if the first server
/// has the hold, false if the second server has it.
async fn hold_at_first_server(held: bool, how: Acquire) -> (Client, [Arc<Fake>; 2], Guard) {
    let (client, fakes) = client_of_two();
    let topology = &client.engine().topology;
    if !held {
        topology.move_on();
    }
    let guard = client.reentrant("moves:0").acquire(how).await.unwrap().unwrap();
    if !held {
        topology.move_on();
    }
    fakes[0].next("renew", Fate::Late(ms(500)));
    (client, fakes, guard)
}

/// A renewal is in flight while its name moves to another server. `held`: true if the old server has the hold, false if
/// the new server has it.
async fn move_during_renewal(held: bool) -> (Client, [Arc<Fake>; 2], Guard) {
    let (client, fakes, guard) = hold_at_first_server(held, Acquire::new()).await;
    let topology = &client.engine().topology;
    tokio::time::sleep(ms(10_200)).await;
    assert_eq!(sent(&fakes, "renew"), [1, 0]);
    topology.move_on();
    tokio::time::sleep(ms(400)).await;
    (client, fakes, guard)
}

/// The lease was extended at the old server, which no longer has the name.
#[tokio::test(start_paused = true)]
async fn renewal_by_server_that_lost_name_extends_no_lease() {
    let (client, fakes, guard) = move_during_renewal(true).await;
    assert!(guard.remaining() < secs(21), "{:?}", guard.remaining());
    let lost = tokio::time::timeout(secs(2), guard.lost()).await;
    assert!(lost.is_ok(), "the server that has the name now does not know of the hold");
    assert_eq!(sent(&fakes, "renew"), [1, 1]);
    fakes[0].delete("moves:0");
    drop(guard);
    done(client, &fakes).await;
}

#[tokio::test(start_paused = true)]
async fn loss_reported_to_renewal_by_server_that_lost_name_is_ignored() {
    let (client, fakes, guard) = move_during_renewal(false).await;
    assert!(guard.is_held());
    tokio::time::sleep(secs(30)).await;
    assert!(guard.is_held(), "kept by the server that has it");
    assert!(sent(&fakes, "renew")[1] >= 2);
    guard.unlock().await.unwrap();
    done(client, &fakes).await;
}

/// An extend is in flight while its name moves to another server. `held`: true if the old server has the hold, false if
/// the new server has it.
async fn move_during_extend(held: bool, lease: Duration) -> (Client, [Arc<Fake>; 2], Guard, crate::Result<()>) {
    let (client, fakes, guard) = hold_at_first_server(held, Acquire::new().lease(secs(30))).await;
    let extended = {
        let mut extend = std::pin::pin!(guard.extend(lease));
        assert!(tokio::time::timeout(ms(100), &mut extend).await.is_err());
        assert_eq!(sent(&fakes, "renew"), [1, 0]);
        client.engine().topology.move_on();
        extend.await
    };
    (client, fakes, guard, extended)
}

/// The lease was extended at the old server, which no longer has the name.
#[tokio::test(start_paused = true)]
async fn extend_granted_by_server_that_lost_name_is_not_counted() {
    for lease in [secs(60), secs(10)] {
        let (client, fakes, guard, extended) = move_during_extend(true, lease).await;
        assert!(matches!(extended, Err(crate::Error::Lost { .. })), "{extended:?}");
        assert!(sent(&fakes, "renew")[1] >= 1, "the server that has the name now is asked");
        assert!(!guard.is_held());
        fakes[0].delete("moves:0");
        drop(guard);
        done(client, &fakes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn loss_reported_to_extend_by_server_that_lost_name_is_ignored() {
    for lease in [secs(60), secs(10)] {
        let (client, fakes, guard, extended) = move_during_extend(false, lease).await;
        extended.unwrap();
        let left = guard.remaining();
        assert!(left < lease && left > lease - secs(2), "{left:?} of {lease:?}");
        assert!(fakes[1].left("moves:0").unwrap() >= left, "the server keeps it for as long");
        guard.unlock().await.unwrap();
        done(client, &fakes).await;
    }
}

/// The name moves before every answer, so the lease stays unknown.
#[tokio::test(start_paused = true)]
async fn extend_of_constantly_moving_name_ends_with_unknown_outcome() {
    let (client, _fakes) = client_of_two();
    let guard = client.reentrant("moves:0").lock_leased(secs(30)).await.unwrap();
    let engine = Arc::clone(client.engine());
    let moves = tokio::spawn(async move {
        loop {
            engine.topology.move_on();
            tokio::time::sleep(ms(1)).await;
        }
    });
    let error = tokio::time::timeout(secs(10), guard.extend(secs(60))).await.expect("asks for ever").unwrap_err();
    assert!(error.is_retryable() && error.outcome_unknown(), "{error:?}");
    assert!(guard.remaining() <= secs(30), "counts on no more than before");
    moves.abort();
}

/// A server loses the name and then answers. The answer is a grant or a refusal.
#[tokio::test(start_paused = true)]
async fn acquire_reply_from_server_that_lost_name_is_ignored() {
    for free in [true, false] {
        let (client, fakes) = client_of_two();
        if !free {
            fakes[0].steal("moves:0", secs(3600));
        }
        fakes[0].next("acquire", Fate::Late(ms(500)));
        let locked = waiter(&client.reentrant("moves:0"));
        tokio::time::sleep(ms(100)).await;
        client.engine().topology.move_on();
        let guard = tokio::time::timeout(secs(2), locked).await.expect("waits for the wrong server").unwrap();
        assert_eq!(fakes[1].held().len(), 1, "held where the name lives");
        guard.unlock().await.unwrap();
        fakes[0].delete("moves:0");
        done(client, &fakes).await;
    }
}

/// The names need more than one script, and move between two of them.
#[tokio::test(start_paused = true)]
async fn multi_lock_holds_moved_names_where_they_live_now() {
    let (client, fakes) = client_of_two();
    let names: Vec<String> = (0..1_400).map(|n| format!("many:{n}:{}", n % 2)).collect();
    for fake in &fakes {
        fake.next("multi/acquire", Fate::Late(ms(200)));
    }
    let multi = client.multi(&names);
    let locked = tokio::spawn(async move { multi.lock_for(secs(20)).await });
    tokio::time::sleep(ms(100)).await;
    client.engine().topology.move_on();
    let guard = locked.await.unwrap().unwrap().expect("all are free");
    // The first script acquired locks at a server that no longer has their names. These locks stay until their lease
    // ends.
    let owner = guard.owner().to_string();
    let owned = format!(" {} 1", owner.rsplit(':').next().unwrap());
    let mut held = 0;
    for (at, fake) in fakes.iter().enumerate() {
        for name in fake.held().iter().filter_map(|held| held.strip_suffix(&owned)) {
            let lives = usize::from(name.ends_with('0'));
            assert_eq!(at, lives, "{name} is held where it does not live");
            held += 1;
        }
    }
    assert_eq!(held, names.len());
    drop(guard);
    client.shutdown(secs(60)).await.unwrap();
}
