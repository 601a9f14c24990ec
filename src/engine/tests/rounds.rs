//! Rounds of renewal: their times, their holds, and the hold ids that they send.

use tokio::time::{sleep, timeout};

use super::fake::Fate;
use super::release::acquire;
use super::renewal::renew;
use super::{client, done, ms, secs, settle};

#[tokio::test(start_paused = true)]
async fn round_comes_each_third_of_watchdog_and_more_often_after_failure() {
    let (client, fake) = client(|_| ());
    let guard = client.reentrant("x").lock().await.unwrap();
    let sent = || fake.sent("renew").len();
    sleep(ms(10_100)).await;
    assert_eq!(sent(), 1);
    sleep(secs(49)).await;
    assert!((5..=6).contains(&sent()), "{}", sent());
    // No renewal fails. A round includes holds that were renewed just before, so that a loss is found soon.
    let before = sent();
    while sent() == before {
        sleep(ms(50)).await;
    }
    sleep(secs(8)).await;
    let late = client.reentrant("late").lock().await.unwrap();
    fake.delete("late");
    timeout(ms(2_100), late.lost()).await.expect("not told within a period");
    drop(late);
    // The first round fails, and its three retries fail.
    let before = sent();
    fake.times(4, "renew", || Fate::NotSent);
    sleep(secs(8)).await;
    assert_eq!(sent(), before);
    sleep(secs(7)).await;
    assert_eq!(sent(), before + 5);
    drop(guard);
    done(client, &fake).await;
}

/// After a long failure of the server, overdue holds are renewed together with all others.
#[tokio::test(start_paused = true)]
async fn regular_round_renews_all_watched_holds_and_no_others() {
    let (client, fake) = client(|_| ());
    let watched = client.reentrant("x").lock().await.unwrap();
    fake.times(1000, "renew", || Fate::NotSent);
    sleep(secs(20)).await;
    fake.calm();
    assert_eq!(renew(&client).await, (1, 0, 0));
    watched.unlock().await.unwrap();
    let leased = client.reentrant("y").lock_leased(secs(20)).await.unwrap();
    let sent = fake.sent("renew").len();
    assert_eq!(renew(&client).await, (0, 0, 0));
    assert_eq!(fake.sent("renew").len(), sent, "a lease of its own");
    leased.unlock().await.unwrap();
    done(client, &fake).await;
}

/// No task checks the guard meanwhile. The round that finds the loss counts it.
#[tokio::test(start_paused = true)]
async fn hold_renewed_too_late_by_a_round_counts_as_lost() {
    let (client, fake) = client(|_| ());
    let guard = client.reentrant("x").lock().await.unwrap();
    sleep(secs(5)).await;
    fake.next("renew", Fate::Late(ms(25_500)));
    // The regular round's reply comes even later.
    fake.next("renew", Fate::Late(secs(60)));
    assert_eq!(renew(&client).await, (0, 0, 1));
    assert!(!guard.is_held());
    settle().await;
    assert_eq!(fake.held(), Vec::<String>::new());
    drop(guard);
    assert_eq!(client.engine().registry.names(), 0, "no trace of it");
    sleep(secs(60)).await;
    done(client, &fake).await;
}

/// If others may know the owner, a renewal names the holds, because another client may have one of them.
#[tokio::test(start_paused = true)]
async fn renewal_names_holds_only_for_known_owners() {
    let (client, fake) = client(|_| ());
    let told = || fake.sent("renew").pop().unwrap().text(3);
    let guard = client.reentrant("x").lock().await.unwrap();
    assert_eq!((renew(&client).await, told()), ((1, 0, 0), String::new()));
    let _ = guard.owner().as_str();
    assert_eq!((renew(&client).await, told().as_str()), ((1, 0, 0), ",-"));
    guard.unlock().await.unwrap();
    let guard = acquire(&client, &client.owner()).await;
    renew(&client).await;
    assert!(told().starts_with(',') && told().len() > 2, "{}", told());
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

/// Other holds at the same server are not renewed, however many slots arrive one after the other.
#[tokio::test(start_paused = true)]
async fn holds_of_moved_slots_are_confirmed_at_once_without_others() {
    let (client, fake) = client(|_| ());
    let guards = [client.reentrant("one").lock().await.unwrap(), client.reentrant("other").lock().await.unwrap()];
    let slots = ["one", "other"].map(|name| crate::topology::slot_of(name.as_bytes()));
    assert_ne!(slots[0], slots[1]);
    client.engine().kick.renew_slots(&slots[..1]);
    settle().await;
    let renewed: Vec<_> = fake.sent("renew").iter().map(|sent| sent.words[0].clone()).collect();
    assert_eq!(renewed, [crate::transport::Arg::Text("one".into())]);
    // Slots that arrive close together share a round.
    for _ in 0..100 {
        client.engine().kick.renew_slots(&slots);
        sleep(std::time::Duration::from_micros(200)).await;
    }
    settle().await;
    assert!((2..=20).contains(&fake.sent("renew").len()), "{}", fake.sent("renew").len());
    // The regular round comes on time.
    let before = fake.sent("renew").len();
    sleep(ms(9_900)).await;
    assert_eq!(fake.sent("renew").len(), before + 1);
    drop(guards);
    done(client, &fake).await;
}

/// The new server does not have the hold. The loss is reported when the server answers, even if the lock was acquired
/// at the old server just before.
#[tokio::test(start_paused = true)]
async fn failed_confirmation_is_retried_for_recently_renewed_holds() {
    let (client, fake) = client(|_| ());
    sleep(secs(1)).await;
    let slot = crate::topology::slot_of(b"x");
    let member = client.engine().topology.homes()[0];
    for by_slot in [false, true] {
        let guard = client.reentrant("x").lock().await.unwrap();
        fake.delete("x");
        fake.times(2, "renew", || Fate::NotSent);
        if by_slot {
            client.engine().kick.renew_slots(&[slot])
        } else {
            client.engine().kick.renew_at(member)
        }
        timeout(ms(2_100), guard.lost())
            .await
            .unwrap_or_else(|_| panic!("by_slot: {by_slot}: not told with the third try"));
        drop(guard);
        settle().await;
    }
    // When every hold is confirmed, a retry includes only overdue holds.
    let guard = client.reentrant("y").lock().await.unwrap();
    fake.next("renew", Fate::NotSent);
    let before = fake.sent("renew").len();
    client.engine().kick.renew_at(member);
    sleep(ms(3_500)).await;
    // Two commands: the failed confirmation and its retry.
    assert_eq!(fake.sent("renew").len(), before + 2);
    drop(guard);
    done(client, &fake).await;
}
