//! Servers and networks that are silent for a while.

use distlock::{Error, Lost, Released};
use distlock_support::proxy::{Mode, Proxy};

use crate::rig::{stubborn, warm};
use bed::fault::count;
use bed::{Bed, becomes, ends, ms, reentrant, secs};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Silent {
    Frozen,
    PausedForWrites,
    Requests,
    Replies,
    BlackHole,
}

impl Silent {
    async fn set(self, bed: &Bed, proxy: &Proxy, silent: bool) {
        let mode = if silent { Mode::Hang } else { Mode::Pass };
        match self {
            Self::Frozen if silent => bed.server.stop(),
            Self::Frozen => bed.server.cont(),
            Self::PausedForWrites if silent => bed.admin.pause(3_600_000, "WRITE").await,
            Self::PausedForWrites => bed.admin.cmd(&["CLIENT", "UNPAUSE"]).await,
            Self::Requests => proxy.set_upstream_mode(mode),
            Self::Replies => proxy.set_downstream_mode(mode),
            Self::BlackHole => proxy.blackhole(silent),
        }
    }

    /// True if the network is silent, and the server still serves other clients.
    const fn is_on_the_way(self) -> bool {
        matches!(self, Self::Requests | Self::Replies | Self::BlackHole)
    }
}

/// Locks that the watchdog renews stay held. A lease that ends during the silence is lost by the local clock. Late
/// commands do not affect other holders' locks.
async fn silence_delays_acquires_and_loses_only_leases_that_end(what: Silent) {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let client = bed.connect(stubborn(&proxy.url())).await;
        let other = bed.client().await;
        warm(bed).await;
        for round in 0..2 {
            let kept = client.reentrant("kept").lock().await.unwrap();
            let leased = client.reentrant("leased").lock_leased(secs(1)).await.unwrap();
            what.set(bed, &proxy, true).await;
            let error = client.reentrant("a").try_lock().await.expect_err("nobody answers");
            assert!(error.outcome_unknown(), "{what:?}: {error:?}");
            let lock = client.reentrant("b");
            let waiting = tokio::spawn(async move { lock.lock().await });
            assert_eq!(client.renew_now().await.renewed, 0, "{what:?}");
            let lost = ends("the signal that the lease is over", leased.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{what:?}: {lost:?}");
            assert!(kept.is_held() && !waiting.is_finished(), "{what:?}, round {round}");
            let take = async || {
                let theirs = ends("the next holder", other.reentrant("leased").lock()).await.unwrap();
                assert!(!leased.is_held(), "{what:?}: another client has the lock, and this one believes to hold it");
                theirs
            };
            let early = if what.is_on_the_way() { Some(take().await) } else { None };
            what.set(bed, &proxy, false).await;
            let theirs = match early {
                Some(theirs) => theirs,
                None => take().await,
            };
            ends("the waiting acquire", waiting).await.unwrap().unwrap().unlock().await.unwrap();
            becomes("locks that are renewed", 1, async || client.renew_now().await.renewed).await;
            assert!(kept.is_held(), "{what:?}, round {round}");
            let released = leased.unlock().await;
            assert!(matches!(released, Err(Error::Lost { .. } | Error::NotHeld { .. })), "{what:?}: {released:?}");
            becomes("commands in flight", 0, async || client.stats().under_way).await;
            assert!(theirs.is_held() && count(&bed.admin, "leased").await == 1, "{what:?}: touched by a late command");
            assert_eq!(theirs.unlock().await.unwrap(), Released::Free);
            assert_eq!(kept.unlock().await.unwrap(), Released::Free);
            assert_eq!(bed.admin.keys().await, [""; 0], "{what:?}, round {round}");
        }
    })
    .await;
}

bed::cases!(silence_delays_acquires_and_loses_only_leases_that_end:
    of_a_frozen_server = Silent::Frozen,
    of_a_server_paused_for_writes = Silent::PausedForWrites,
    of_requests = Silent::Requests,
    of_replies = Silent::Replies,
    of_both_directions = Silent::BlackHole,
);

#[tokio::test]
async fn a_waiter_without_messages_acquires_by_its_poll() {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let holder = bed.client().await;
        let waiter = bed
            .connect(stubborn(&proxy.url()).configure(|options| {
                options.poll_cap = ms(800);
                options.subscription_linger = ms(0);
            }))
            .await;
        let guard = holder.reentrant("a").lock().await.unwrap();
        let lock = waiter.reentrant("a");
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        becomes("subscribers", 1, async || bed.admin.numsub("redisson_lock__channel:{a}").await).await;
        proxy.set_downstream_mode(Mode::DropMessages);
        guard.unlock().await.unwrap();
        ends("the waiter", waiting).await.unwrap().unlock().await.unwrap();
        proxy.set_downstream_mode(Mode::Pass);
    })
    .await;
}
