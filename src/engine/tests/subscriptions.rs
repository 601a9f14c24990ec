//! Subscriptions that fail or are lost while a task waits.

use tokio::time::timeout;

use super::{client, done, ms, secs, settle, waiter};
use crate::names::LockName;

/// The server refuses the subscription on a new connection. The waiter then polls ten times as often, and retries the
/// subscription with growing pauses. Once the subscription succeeds, a message wakes the waiter.
#[tokio::test(start_paused = true)]
async fn lost_subscription_is_retried_until_it_is_confirmed() {
    let (client, fake) = client(|options| options.poll_cap = secs(10));
    fake.steal("x", secs(3600));
    let waits = waiter(&client.reentrant("x"));
    settle().await;
    assert_eq!(fake.subscriptions().0.len(), 1);
    let asked = fake.sent("acquire").len();
    fake.subscribe_fails(true);
    fake.listener().ended(&LockName::new("", "x").channel);
    tokio::time::sleep(secs(30)).await;
    let looks = fake.sent("acquire").len() - asked;
    assert!((28..36).contains(&looks), "{looks} polls in 30 s at a poll cap of 10 s");
    let subscribes = fake.subscriptions().0.len() - 1;
    assert!((28..75).contains(&subscribes), "{subscribes} retries of the subscription in 30 s");
    fake.subscribe_fails(false);
    tokio::time::sleep(secs(2)).await;
    let (asked, subscribes) = (fake.sent("acquire").len(), fake.subscriptions().0.len());
    tokio::time::sleep(secs(5)).await;
    assert_eq!((fake.sent("acquire").len(), fake.subscriptions().0.len()), (asked, subscribes), "still retrying");
    fake.free("x");
    let guard = timeout(ms(20), waits).await.expect("woken by the message").unwrap();
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

/// Names that share a channel share its subscription. If it fails for one name, all of these names lose it.
#[tokio::test(start_paused = true)]
async fn failed_subscription_is_retried_for_all_names_of_its_channel() {
    let (client, fake) = client(|options| options.poll_cap = secs(3600));
    for name in ["a", "{a}"] {
        fake.steal(name, secs(3600));
    }
    let first = waiter(&client.reentrant("a"));
    settle().await;
    fake.subscribe_fails(true);
    let second = waiter(&client.reentrant("{a}"));
    settle().await;
    fake.subscribe_fails(false);
    tokio::time::sleep(secs(3)).await;
    for (name, waits) in [("a", first), ("{a}", second)] {
        fake.free(name);
        timeout(ms(20), waits).await.expect("woken by the message").unwrap().unlock().await.unwrap();
    }
    done(client, &fake).await;
}

/// While there is no connection for messages, waiters poll ten times as often.
#[tokio::test(start_paused = true)]
async fn waiters_without_a_connection_for_messages_poll_more_often() {
    let (client, fake) = client(|options| options.poll_cap = secs(10));
    fake.steal("x", secs(3600));
    let waits = waiter(&client.reentrant("x"));
    settle().await;
    for (is_deaf, expected) in [(false, 2..4), (true, 28..36), (false, 2..5)] {
        if is_deaf {
            fake.listener().deaf()
        } else {
            fake.listener().missed()
        }
        let asked = fake.sent("acquire").len();
        tokio::time::sleep(secs(30)).await;
        let looks = fake.sent("acquire").len() - asked;
        assert!(expected.contains(&looks), "deaf: {is_deaf}: {looks} polls in 30 s");
    }
    assert_eq!(fake.subscriptions().0.len(), 1, "the subscription is kept");
    fake.free("x");
    waits.await.unwrap().unlock().await.unwrap();
    done(client, &fake).await;
}
