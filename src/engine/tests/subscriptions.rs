//! Subscriptions that are lost, or not to be had, while somebody waits.

use tokio::time::timeout;

use super::{client, done, ms, secs, settle, waiter};
use crate::names::LockName;

/// The server refuses the subscription on a new connection, and goes on refusing it: the waiter looks ten times as often, asks for
/// the subscription ever more seldom, and is woken by a message once it is allowed.
#[tokio::test(start_paused = true)]
async fn subscription_that_is_lost_is_asked_for_until_it_stands() {
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
    assert!((28..36).contains(&looks), "{looks} looks in 30 s at a poll cap of 10 s");
    let subscribes = fake.subscriptions().0.len() - 1;
    assert!((28..75).contains(&subscribes), "{subscribes} subscriptions were asked for in 30 s");
    fake.subscribe_fails(false);
    tokio::time::sleep(secs(2)).await;
    let (asked, subscribes) = (fake.sent("acquire").len(), fake.subscriptions().0.len());
    tokio::time::sleep(secs(5)).await;
    assert_eq!((fake.sent("acquire").len(), fake.subscriptions().0.len()), (asked, subscribes), "it stands");
    fake.delete("x");
    fake.publish("x");
    let guard = timeout(ms(20), waits).await.expect("woken by the message").unwrap();
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

/// Names that share a channel share what becomes of its subscription.
#[tokio::test(start_paused = true)]
async fn subscription_that_one_name_cannot_have_is_lost_for_the_other_of_its_channel() {
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
        fake.delete(name);
        fake.publish(name);
        timeout(ms(20), waits).await.expect("woken by the message").unwrap().unlock().await.unwrap();
    }
    done(client, &fake).await;
}

/// No connection for messages comes to stand: waiters look ten times as often until one does.
#[tokio::test(start_paused = true)]
async fn waiters_without_a_connection_for_messages_look_more_often() {
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
        assert!(expected.contains(&looks), "deaf: {is_deaf}: {looks} looks in 30 s");
    }
    assert_eq!(fake.subscriptions().0.len(), 1, "the subscription is kept");
    fake.delete("x");
    fake.publish("x");
    waits.await.unwrap().unlock().await.unwrap();
    done(client, &fake).await;
}
