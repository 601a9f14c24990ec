//! The loop of whoever waits.

use tokio::time::timeout;

use super::{client, done, ms, secs, settle, waiter};

/// Nobody hears the message that it is free: the channel is only just being listened to.
#[tokio::test(start_paused = true)]
async fn a_lock_that_becomes_free_before_the_subscription_stands_is_had_at_once() {
    let (client, fake) = client(|_| ());
    fake.steal("x", secs(3600));
    fake.gate(false);
    let waits = waiter(&client.reentrant("x"));
    settle().await;
    assert_eq!((fake.sent("acquire").len(), fake.subscriptions().0.len()), (1, 1));
    fake.delete("x");
    fake.publish("x");
    fake.gate(true);
    let guard = timeout(ms(10), waits).await.expect("no second look behind the subscription").unwrap();
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}
