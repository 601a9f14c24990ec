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
    net.0[SENTINELS[0]].each(|listener| listener.message(b"+switch-master", b"locks 10.0.0.1 2 10.0.0.1 1"));
    settle(1_000).await;
    assert_eq!(primary.address(), address(TWO));
    primary.run(&call).await.unwrap();
    assert_eq!((net.0[ONE].scripts.load(Ordering::SeqCst), net.0[TWO].scripts.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn announcement_is_followed_once_server_confirms_primary_role() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(SENTINELS[2], |says| says.told = Some((TWO, 6)));
    let tell = || net.0[SENTINELS[2]].each(|of| of.message(b"+switch-master", b"locks 10.0.0.1 1 10.0.0.1 2"));
    tell();
    settle(100).await;
    assert_eq!(primary.address(), address(ONE), "it says that it is a replica");
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    tell();
    settle(10).await;
    assert_eq!(primary.address(), address(TWO));
    // The announcement is about a set of another name.
    net.0[SENTINELS[2]].each(|of| of.message(b"+switch-master", b"other 10.0.0.1 1 10.0.0.1 3"));
    settle(10_000).await;
    assert_eq!(primary.address(), address(TWO));
}

/// A primary that was found early is dropped only when it denies its role itself. Sentinels that have not learned of
/// the promotion do not count.
#[tokio::test(start_paused = true)]
async fn early_primary_stays_while_silent_until_it_denies_its_role() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(ONE, |says| says.is_silent = true);
    net.promote(TWO);
    primary.suspicion.raise();
    settle(1_000).await;
    assert_eq!(primary.address(), address(TWO));
    net.says(TWO, |says| says.is_silent = true);
    net.says(ONE, |says| says.is_silent = false);
    primary.suspicion.raise();
    settle(5_000).await;
    assert_eq!(primary.address(), address(TWO));
    // The promotion is reverted.
    net.says(TWO, |says| (says.is_silent, says.is_primary) = (false, false));
    settle(2_000).await;
    assert_eq!(primary.address(), address(ONE));
}

/// For example because of a slow provider of credentials, or TLS over a slow link.
#[tokio::test(start_paused = true)]
async fn slowly_connecting_server_is_accepted_as_primary() {
    let net = net();
    net.says(ONE, |says| says.connects_within = 2_500);
    let primary = net.by_sentinels().await;
    net.says(TWO, |says| (says.connects_within, says.is_primary) = (2_500, true));
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((TWO, 6)));
    }
    settle(10_000).await;
    assert_eq!(primary.address(), address(TWO));
    assert_eq!(net.0[TWO].open.load(Ordering::SeqCst), 1, "one connection for names, and none that was given up");
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
    let net = net();
    let primary = net.by_sentinels().await;
    let listener: Arc<Heard> = Arc::default();
    let listening: Arc<dyn MemberListener> = Arc::<Heard>::clone(&listener);
    for (place, at) in [TWO, THREE].into_iter().enumerate() {
        net.says(at, |says| says.is_primary = true);
        let epoch = 6 + u64::try_from(place).unwrap();
        net.says(SENTINELS[0], |says| says.told = Some((at, epoch)));
        if place == 1 {
            primary.listen(&Arc::downgrade(&listening));
        }
        settle(3_000).await;
        assert_eq!(primary.address(), address(at));
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
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(SENTINELS[0], |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    settle(3_000).await;
    // This server does not continue the first server's history, so the sentinels decide.
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 6)));
    settle(1_100).await;
    assert_eq!(primary.address(), address(TWO));
    // The same at connect.
    let net = self::net();
    net.says(ONE, |says| says.is_primary = false);
    for sentinel in SENTINELS {
        net.says(sentinel, |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    }
    let starting = tokio::spawn({
        let net = net.clone();
        async move { net.by_sentinels().await.address() }
    });
    settle(1_000).await;
    net.promote(TWO);
    for sentinel in SENTINELS {
        net.says(sentinel, |says| (says.told, says.is_replacing) = (Some((TWO, 6)), false));
    }
    assert_eq!(starting.await.unwrap(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn new_primary_is_accepted_at_epoch_seen_during_failover() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(SENTINELS[1], |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    net.promote(TWO);
    settle(10_000).await;
    assert_eq!(primary.address(), address(ONE), "it says that it is the primary");
    net.says(SENTINELS[1], |says| (says.told, says.is_replacing) = (Some((TWO, 6)), false));
    net.0[SENTINELS[1]].each(|of| of.message(b"+switch-master", b"locks 10.0.0.1 1 10.0.0.1 2"));
    settle(10).await;
    assert_eq!(primary.address(), address(TWO));
    // A client that connects now may ask the sentinel that leads the failover.
    net.says(SENTINELS[1], |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    let primary = net.by_sentinels().await;
    assert_eq!(primary.address(), address(ONE));
    net.says(SENTINELS[2], |says| says.told = Some((TWO, 6)));
    settle(5_000).await;
    assert_eq!(primary.address(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn promoted_replica_is_found_before_sentinels_name_it_unless_emptied() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(ONE, |says| says.is_silent = true);
    primary.suspicion.raise();
    // The server was restarted without its data.
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["empty", "none"]));
    let asked = tokio::spawn({
        let primary = Arc::clone(&primary);
        async move { primary.run(&call).await.map(drop) }
    });
    settle(2_000).await;
    assert_eq!(primary.address(), address(ONE));
    net.promote(THREE);
    settle(250).await;
    assert_eq!(primary.address(), address(THREE));
    // A command in flight at the silent server fails at once, in doubt.
    let fault = asked.await.unwrap().unwrap_err();
    assert!(fault.in_doubt(), "{fault:?}");
    // Sentinels that have not learned of the promotion do not revert it, even when the first server runs again.
    net.says(ONE, |says| says.is_silent = false);
    settle(20_000).await;
    assert_eq!(primary.address(), address(THREE));
    // The sentinels still consider the first server the primary, and do not list it as a replica. It still counts as a
    // replica.
    assert_eq!(*primary.replicas.read(), [ONE, TWO].map(address).into());
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((THREE, 6)));
    }
    settle(5_000).await;
    assert_eq!(primary.address(), address(THREE));
    assert_eq!(net.0[ONE].open.load(Ordering::SeqCst), 0, "nothing leads there any more");
}

#[tokio::test(start_paused = true)]
async fn sentinels_without_newer_epoch_need_majority_and_denial_by_primary() {
    let net = net();
    let primary = net.by_sentinels().await;
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((TWO, 0)));
    }
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    settle(5_000).await;
    assert_eq!(primary.address(), address(ONE), "it says that it is the primary");
    net.says(SENTINELS[0], |says| says.told = Some((ONE, 5)));
    net.says(SENTINELS[1], |says| says.told = Some((ONE, 5)));
    net.says(ONE, |says| says.is_primary = false);
    settle(5_000).await;
    assert_eq!(primary.address(), address(ONE), "one of three says so");
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 5)));
    net.says(SENTINELS[0], |says| says.told = Some((TWO, 5)));
    settle(5_000).await;
    assert_eq!(primary.address(), address(TWO));
}
