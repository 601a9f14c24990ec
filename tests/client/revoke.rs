//! Requests to a holder to finish, on a real server: who hears them, and what they cost. `sim/timing/revoke.rs` has the
//! times.

use bed::cost::{only, sent, warm};
use bed::{REVOCABLE, ends, reentrant};
use distlock::Released;
use futures::FutureExt as _;

#[tokio::test]
async fn holder_is_asked_by_one_command_and_hears_it_with_its_renewal() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
        for flavour in REVOCABLE {
            warm(bed, &ours, flavour).await;
            warm(bed, &theirs, flavour).await;
            let (mine, other) = (ours.lock(flavour, "x"), theirs.lock(flavour, "x"));
            // The server knows the script, and the client knows the server's clock.
            assert!(!other.revoke().await.unwrap(), "{flavour}: nobody holds it");
            let guard = mine.lock().await.unwrap();
            let before = other.state().await.unwrap().holders;
            sent(bed).await;
            assert!(other.revoke().await.unwrap(), "{flavour}");
            assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "{flavour}");
            assert!(guard.revoked().now_or_never().is_none(), "{flavour}: heard before a renewal");
            let round = ours.renew_now().await;
            assert_eq!((round.renewed, round.failed, round.lost), (1, 0, 0), "{flavour}");
            assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "{flavour}");
            ends("the request", guard.revoked()).await;
            assert!(guard.is_held(), "{flavour}");
            assert_eq!(other.state().await.unwrap().holders, before, "{flavour}: the mark is no holder");
            assert!(other.try_lock().await.unwrap().is_none(), "{flavour}");
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}");
            let next = other.lock().await.unwrap();
            theirs.renew_now().await;
            assert!(next.revoked().now_or_never().is_none(), "{flavour}: an old request");
            next.unlock().await.unwrap();
        }
    })
    .await;
}

/// The leader's announcement and the request are fields of one hash.
#[tokio::test]
async fn leader_hears_a_request_to_resign() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
        let term = ours.lead("reports").payload("one").next().await.unwrap();
        let observer = theirs.observe("reports");
        assert!(theirs.fenced("reports").revoke().await.unwrap());
        ours.renew_now().await;
        ends("the request", term.guard().revoked()).await;
        let leader = observer.current().await.unwrap().expect("a leader");
        assert_eq!((leader.epoch, leader.text()), (term.epoch(), Some("one")));
        term.resign().await.unwrap();
        assert_eq!(observer.current().await.unwrap(), None);
    })
    .await;
}
