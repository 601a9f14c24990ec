//! Which server is accepted as the primary.

use super::*;

#[tokio::test(start_paused = true)]
async fn sentinel_reply_with_highest_epoch_wins() {
    let net = net();
    net.promote(TWO);
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 6)));
    let primary = net.by_sentinels().await;
    assert_eq!(primary.address(), address(TWO));
    // The first server was cut off, and still calls itself primary. A stale sentinel agrees.
    settle(60_000).await;
    net.announce(SENTINELS[0], "locks 10.0.0.1 2 10.0.0.1 1");
    assert_eq!(after(1_000, &primary).await, address(TWO));
    primary.run(&call).await.unwrap();
    assert_eq!((net.0[ONE].scripts.load(Ordering::SeqCst), net.0[TWO].scripts.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn announcement_is_followed_once_server_confirms_primary_role() {
    let (net, primary) = by_sentinels().await;
    net.says(SENTINELS[2], |says| says.told = Some((TWO, 6)));
    let tell = || net.announce(SENTINELS[2], "locks 10.0.0.1 1 10.0.0.1 2");
    tell();
    assert_eq!(after(100, &primary).await, address(ONE), "it says that it is a replica");
    net.starts_as_primary(TWO);
    tell();
    assert_eq!(after(10, &primary).await, address(TWO));
    // The announcement is about a set of another name.
    net.announce(SENTINELS[2], "other 10.0.0.1 1 10.0.0.1 3");
    assert_eq!(after(10_000, &primary).await, address(TWO));
}

/// A primary that was found early is dropped only when it denies its role itself. Sentinels that have not learned of
/// the promotion do not count.
#[tokio::test(start_paused = true)]
async fn early_primary_stays_while_silent_until_it_denies_its_role() {
    let (net, primary) = by_sentinels().await;
    net.says(ONE, |says| says.is_silent = true);
    net.promote(TWO);
    primary.suspicion.raise();
    assert_eq!(after(1_000, &primary).await, address(TWO));
    net.says(TWO, |says| says.is_silent = true);
    net.says(ONE, |says| says.is_silent = false);
    primary.suspicion.raise();
    assert_eq!(after(5_000, &primary).await, address(TWO));
    // The promotion is reverted.
    net.says(TWO, |says| (says.is_silent, says.is_primary) = (false, false));
    assert_eq!(after(2_000, &primary).await, address(ONE));
}

/// For example because of a slow provider of credentials, or TLS over a slow link.
#[tokio::test(start_paused = true)]
async fn slowly_connecting_server_is_accepted_as_primary() {
    let net = net();
    net.says(ONE, |says| says.connects_within = 2_500);
    let primary = net.by_sentinels().await;
    net.says(TWO, |says| (says.connects_within, says.is_primary) = (2_500, true));
    net.sentinels_say(TWO, 6);
    assert_eq!(after(10_000, &primary).await, address(TWO));
    assert_eq!(net.open(TWO), 1, "one connection for names, and none that was given up");
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Bytes>>);

impl MemberListener for Heard {
    fn message(&self, _channel: &[u8], payload: &[u8]) {
        self.0.lock().push(Bytes::copy_from_slice(payload));
    }

    fn missed(&self, _member: MemberId) {}

    fn reconnected(&self, _member: MemberId) {}

    fn slots_moved(&self, _slots: &[u16]) {}

    fn resubscribed(&self, _channel: &[u8]) {}

    fn unsubscribed(&self, _channel: &[u8]) {}
}

/// This also holds if the primary is replaced before a listener is set.
#[tokio::test(start_paused = true)]
async fn listener_gets_messages_of_new_primary() {
    let (net, primary) = by_sentinels().await;
    let listener: Arc<Heard> = Arc::default();
    let listening: Arc<dyn MemberListener> = Arc::<Heard>::clone(&listener);
    for (place, at) in [TWO, THREE].into_iter().enumerate() {
        net.says(at, |says| says.is_primary = true);
        let epoch = 6 + u64::try_from(place).unwrap();
        net.says(SENTINELS[0], |says| says.told = Some((at, epoch)));
        if place == 1 {
            primary.listen(&Arc::downgrade(&listening));
        }
        assert_eq!(after(3_000, &primary).await, address(at));
        if place == 0 {
            primary.listen(&Arc::downgrade(&listening));
        }
        net.0[at].each(|of| of.message(b"x", at.as_bytes()));
        assert_eq!(listener.0.lock().pop().as_deref(), Some(at.as_bytes()));
    }
}

/// The sentinel has the epoch of the next primary before it names that primary.
#[tokio::test(start_paused = true)]
async fn sentinel_leading_failover_does_not_confirm_old_primary() {
    let (net, primary) = by_sentinels().await;
    net.replaces(SENTINELS[0]);
    settle(3_000).await;
    // This server does not continue the first server's history, so the sentinels decide.
    net.starts_as_primary(TWO);
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 6)));
    assert_eq!(after(1_100, &primary).await, address(TWO));
    // The same at connect.
    let net = self::net();
    net.says(ONE, |says| says.is_primary = false);
    SENTINELS.iter().for_each(|sentinel| net.replaces(sentinel));
    let starting = tokio::spawn({
        let net = net.clone();
        async move { net.by_sentinels().await.address() }
    });
    settle(1_000).await;
    net.promote(TWO);
    SENTINELS.iter().for_each(|sentinel| net.has_replaced(sentinel));
    assert_eq!(starting.await.unwrap(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn new_primary_is_accepted_at_epoch_seen_during_failover() {
    let (net, primary) = by_sentinels().await;
    net.replaces(SENTINELS[1]);
    net.promote(TWO);
    assert_eq!(after(10_000, &primary).await, address(ONE), "it says that it is the primary");
    net.has_replaced(SENTINELS[1]);
    net.announce(SENTINELS[1], "locks 10.0.0.1 1 10.0.0.1 2");
    assert_eq!(after(10, &primary).await, address(TWO));
    // A client that connects now may ask the sentinel that leads the failover.
    net.replaces(SENTINELS[1]);
    let primary = net.by_sentinels().await;
    assert_eq!(primary.address(), address(ONE));
    net.says(SENTINELS[2], |says| says.told = Some((TWO, 6)));
    assert_eq!(after(5_000, &primary).await, address(TWO));
}

#[tokio::test(start_paused = true)]
async fn promoted_replica_is_found_before_sentinels_name_it_unless_emptied() {
    let (net, primary) = by_sentinels().await;
    net.says(ONE, |says| says.is_silent = true);
    primary.suspicion.raise();
    // The server was restarted without its data.
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["empty", "none"]));
    let asked = tokio::spawn({
        let primary = Arc::clone(&primary);
        async move { primary.run(&call).await.map(drop) }
    });
    assert_eq!(after(2_000, &primary).await, address(ONE));
    net.promote(THREE);
    assert_eq!(after(250, &primary).await, address(THREE));
    // A command in flight at the silent server fails at once, in doubt.
    let fault = asked.await.unwrap().unwrap_err();
    assert!(fault.in_doubt(), "{fault:?}");
    // Sentinels that have not learned of the promotion do not revert it, even when the first server runs again.
    net.says(ONE, |says| says.is_silent = false);
    assert_eq!(after(20_000, &primary).await, address(THREE));
    // The sentinels still consider the first server the primary, and do not list it as a replica. It still counts as a
    // replica.
    assert_eq!(*primary.replicas.read(), [ONE, TWO].map(address).into());
    net.sentinels_say(THREE, 6);
    assert_eq!(after(5_000, &primary).await, address(THREE));
    assert_eq!(net.open(ONE), 0, "nothing leads there any more");
}

#[tokio::test(start_paused = true)]
async fn sentinels_without_newer_epoch_need_majority_and_denial_by_primary() {
    let (net, primary) = by_sentinels().await;
    net.sentinels_say(TWO, 0);
    net.starts_as_primary(TWO);
    assert_eq!(after(5_000, &primary).await, address(ONE), "it says that it is the primary");
    net.says(SENTINELS[0], |says| says.told = Some((ONE, 5)));
    net.says(SENTINELS[1], |says| says.told = Some((ONE, 5)));
    net.says(ONE, |says| says.is_primary = false);
    assert_eq!(after(5_000, &primary).await, address(ONE), "one of three says so");
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 5)));
    net.says(SENTINELS[0], |says| says.told = Some((TWO, 5)));
    assert_eq!(after(5_000, &primary).await, address(TWO));
}
