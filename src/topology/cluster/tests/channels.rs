//! Subscriptions follow their slots.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{HOSTS, Rig, name, sleep};
use crate::names::LockName;
use crate::topology::{MemberId, MemberListener};

/// Records the channels whose waiters have to check their locks.
#[derive(Default)]
pub(super) struct Looks(Mutex<Vec<Bytes>>);

impl MemberListener for Looks {
    fn message(&self, _channel: &[u8], _payload: &[u8]) {}

    fn missed(&self, _member: MemberId) {}

    fn reconnected(&self, _member: MemberId) {}

    fn slots_moved(&self, _slots: &[u16]) {}

    fn resubscribed(&self, channel: &[u8]) {
        self.0.lock().push(Bytes::copy_from_slice(channel));
    }

    // Outside tests, waiters also check their locks in this case, and the subscription is retried.
    fn unsubscribed(&self, channel: &[u8]) {
        self.resubscribed(channel);
    }
}

async fn until(what: impl Fn() -> bool) {
    within(60, what).await;
}

async fn within(seconds: u64, what: impl Fn() -> bool) {
    let reached = async {
        while !what() {
            sleep(1).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(seconds), reached).await.expect("reached in time");
}

impl Rig {
    pub(super) fn listen(&self) -> Arc<Looks> {
        let looks: Arc<Looks> = Arc::default();
        let listener: Arc<dyn MemberListener> = Arc::<Looks>::clone(&looks);
        self.topology.listen(&Arc::downgrade(&listener));
        looks
    }

    fn is_subscribed(&self, server: usize, name: &LockName) -> bool {
        self.servers[server].subscribed.lock().contains(&name.channel)
    }

    /// Ends a subscription at the server, as a server does when the slot leaves it.
    fn end(&self, server: usize, name: &LockName) {
        assert!(self.servers[server].subscribed.lock().remove(&name.channel));
        self.listener(server).ended(&name.channel);
    }
}

#[tokio::test]
async fn ended_subscription_is_renewed_at_unmoved_slot() {
    // The slot has left and come back between two views.
    let (rig, name) = (Rig::start().await, name());
    let looks = rig.listen();
    rig.topology.subscribe(&name).await.unwrap();
    rig.end(0, &name);
    until(|| rig.is_subscribed(0, &name)).await;
    until(|| *looks.0.lock() == [name.channel.clone()]).await;
    rig.topology.unsubscribe(&name).await;
    assert!(!rig.is_subscribed(0, &name));
}

#[tokio::test]
async fn ended_subscription_follows_redirect() {
    let (rig, name) = (Rig::start().await, name());
    let looks = rig.listen();
    rig.topology.subscribe(&name).await.unwrap();
    *rig.servers[0].refuses.lock() = Some(format!("MOVED {} {}", name.slot(), HOSTS[1]));
    rig.end(0, &name);
    until(|| rig.is_subscribed(1, &name)).await;
    until(|| !looks.0.lock().is_empty()).await;
    // The next view has the slot at the first server again, which now accepts the subscription.
    *rig.servers[0].refuses.lock() = None;
    until(|| rig.is_subscribed(0, &name)).await;
}

#[tokio::test]
async fn subscription_ended_in_flight_stays_only_if_subscribed_again() {
    for restarts in [false, true] {
        let (rig, name) = (Rig::start().await, name());
        let _looks = rig.listen();
        rig.topology.subscribe(&name).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        *rig.servers[0].gate.lock() = Some(Arc::clone(&gate));
        // The subscription is made again, and waits at the gate.
        rig.end(0, &name);
        until(|| rig.cluster.is_under_way(&name)).await;
        rig.topology.unsubscribe(&name).await;
        let begun = async {
            if restarts {
                rig.topology.subscribe(&name).await.unwrap();
            }
        };
        let ((), ()) = tokio::join!(begun, async { gate.add_permits(2) });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        until(|| rig.is_subscribed(0, &name) == restarts).await;
        rig.topology.unsubscribe(&name).await;
        until(|| !rig.is_subscribed(0, &name)).await;
    }
}

/// Two names may share a channel, and each subscribes on its own.
#[tokio::test]
async fn failed_subscription_keeps_earlier_one_of_same_channel() {
    let (rig, one) = (Rig::start().await, name());
    let other = LockName::new("", "{orders:42}");
    assert_eq!(one.channel, other.channel);
    let looks = rig.listen();
    rig.topology.subscribe(&one).await.unwrap();
    *rig.servers[0].refuses.lock() = Some("LOADING the data".to_owned());
    rig.topology.subscribe(&other).await.unwrap_err();
    assert!(rig.servers[0].kept.lock().contains(&one.channel), "it is lost with the next break of the connection");
    // The state of the subscription is unknown, so it is made again, and its waiters check their locks.
    looks.0.lock().clear();
    *rig.servers[0].refuses.lock() = None;
    until(|| looks.0.lock().contains(&one.channel) && !rig.cluster.is_under_way(&one)).await;
    assert!(rig.is_subscribed(0, &one));
    rig.topology.unsubscribe(&one).await;
    assert!(!rig.is_subscribed(0, &one));
}

/// Moves the slot to the other server, which delays the subscription, and back meanwhile.
async fn move_slot_back_and_forth(rig: &Rig, name: &LockName) -> Arc<Semaphore> {
    let gate = Arc::new(Semaphore::new(0));
    *rig.servers[1].gate.lock() = Some(Arc::clone(&gate));
    let member = || rig.cluster.placement(name).member;
    let first = member();
    rig.move_to(1, name).await;
    until(|| rig.cluster.is_under_way(name)).await;
    // The redirect or a view moves the slot back to the first server.
    rig.move_to(0, name).await;
    until(|| member() == first).await;
    gate
}

/// The subscription at the other server failed. The first server must not forget the subscription that was made there
/// again: a new connection would not restore it.
#[tokio::test]
async fn reverted_move_keeps_renewed_subscription() {
    let (rig, name) = (Rig::start().await, name());
    let _looks = rig.listen();
    rig.topology.subscribe(&name).await.unwrap();
    let gate = move_slot_back_and_forth(&rig, &name).await;
    rig.end(0, &name);
    until(|| rig.is_subscribed(0, &name)).await;
    *rig.servers[1].refuses.lock() = Some(format!("MOVED {} {}", name.slot(), HOSTS[0]));
    gate.add_permits(9);
    sleep(2_000).await;
    assert!(rig.is_subscribed(0, &name) && !rig.cluster.is_under_way(&name));
    assert!(rig.servers[0].kept.lock().contains(&name.channel), "it is lost with the next break of the connection");
}

/// The waiters must not stay without messages until the other server answers or times out.
#[tokio::test]
async fn unresponsive_server_does_not_delay_subscription_at_slot_owner() {
    let (rig, name) = (Rig::start().await, name());
    let _looks = rig.listen();
    rig.topology.subscribe(&name).await.unwrap();
    // As real servers do: the subscription ends first, then a new one is refused.
    *rig.servers[0].refuses.lock() = Some(format!("MOVED {} {}", name.slot(), HOSTS[1]));
    rig.end(0, &name);
    let _gate = move_slot_back_and_forth(&rig, &name).await;
    *rig.servers[0].refuses.lock() = None;
    within(3, || rig.is_subscribed(0, &name)).await;
}

#[tokio::test]
async fn moving_waiter_looks_when_other_name_subscribes_to_its_channel() {
    let (rig, one) = (Rig::start().await, name());
    let other = LockName::new("", "{orders:42}");
    let looks = rig.listen();
    rig.topology.subscribe(&one).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    *rig.servers[1].gate.lock() = Some(Arc::clone(&gate));
    rig.move_to(1, &one).await;
    until(|| rig.cluster.is_under_way(&one)).await;
    let mut subscribing = Box::pin(rig.topology.subscribe(&other));
    assert!(futures::poll!(&mut subscribing).is_pending());
    looks.0.lock().clear();
    gate.add_permits(16);
    subscribing.await.unwrap();
    until(|| looks.0.lock().contains(&one.channel)).await;
}
