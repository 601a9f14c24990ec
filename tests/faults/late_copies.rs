//! Late copies of commands that were answered long ago. The current holder's lock must not change. `tests/sim` has late
//! copies of every command (`states.rs`, `copies.rs`, `sequences.rs`).

use std::time::Duration;

use distlock::{Acquire, Flavour, Guard, Released};
use distlock_support::{Action, Matcher};

use bed::wire::{Wire, arrives};
use bed::{Bed, builder, end, ends, enter, eventually, idle, reentrant, secs};

/// Flavours whose owners may have several holds.
const REENTRANT: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

async fn each(body: impl AsyncFn(&Bed, Flavour)) {
    reentrant(async |bed| {
        for flavour in REENTRANT {
            body(bed, flavour).await;
        }
    })
    .await;
}

/// Asserts that the lease on the server is longer than `least` seconds, and at least as long as the guard's remaining
/// time.
async fn lasts(bed: &Bed, guard: &Guard, least: u64, what: &str) {
    let (promised, left) = (guard.remaining(), bed.admin.pttl("x").await);
    assert!(guard.is_held() && left > least as i64 * 1000, "{what}: {left} ms left, {promised:?} promised");
}

/// Extends the lease. The extend is repeated if its reply was too late on a slow machine.
async fn extends(guard: &Guard, lease: Duration) {
    eventually("the lease is extended", async || match guard.extend(lease).await {
        Err(error) if error.outcome_unknown() => false,
        outcome => {
            outcome.unwrap();
            true
        }
    })
    .await;
}

#[tokio::test]
async fn copy_of_release_or_acquire_changes_no_later_hold() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.lock(flavour, "x");
        let wire = Wire::tap(&bed.server).await;
        let me = client.owner();
        // This hold teaches the server the scripts.
        enter(&*lock, &me).await.unlock().await.unwrap();
        assert_eq!(enter(&*lock, &me).await.unlock().await.unwrap(), Released::Free);
        let copy = wire.last(bed).await;
        let held = enter(&*lock, &me).await;
        arrives(bed, &copy).await;
        assert!(held.is_held(), "{flavour}");
        // Readers share the lock.
        let theirs = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        let second = other.lock(theirs, "x").try_lock().await.unwrap();
        assert!(second.is_none(), "{flavour}: two holders");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        held.unlock().await.unwrap();
        // Likewise, a copy of an acquire does not count a given-up hold twice.
        let given_up = enter(&*lock, &me).await;
        let copy = wire.last(bed).await;
        let me = given_up.into_owner();
        idle(&client).await;
        arrives(bed, &copy).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}: counted twice");
        assert_eq!(lock.release(&me).await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// A copy of an extend to a shorter lease arrives after extends to longer leases, and at the owner's next hold.
/// `in_doubt`: the extend's reply was lost. `given`: the acquire named its owner.
async fn a_copy_of_an_extend_cuts_no_later_lease(in_doubt: bool) {
    each(async |bed, flavour| {
        let proxy = bed.proxy();
        // A command in doubt is settled one command timeout later.
        let client = bed.connect(builder(&proxy.url()).command_timeout(secs(5))).await;
        let lock = client.lock(flavour, "x");
        for given in [false, true] {
            let what = format!("{flavour}, given {given}");
            let me = client.owner();
            let how = Acquire::new().lease(secs(200));
            let how = if given { how.owner(&me) } else { how };
            let guard = lock.acquire(how).await.unwrap().unwrap();
            // The extend teaches the server the script.
            extends(&guard, secs(300)).await;
            let wire = Wire::tap(&bed.server).await;
            if in_doubt {
                let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
                // The result may be an error, which other tests check.
                let _ = guard.extend(secs(100)).await;
                ends("a lost reply", lost.fired()).await;
            } else {
                extends(&guard, secs(100)).await;
            }
            let copy = wire.last(bed).await;
            // The second extend of this loop shortens the lease again.
            for longer in [secs(600), secs(500)] {
                extends(&guard, longer).await;
                arrives(bed, &copy).await;
                lasts(bed, &guard, 300, &what).await;
            }
            extends(&guard, secs(100)).await;
            let left = bed.admin.pttl("x").await;
            assert!(left <= 100_000, "{what}: an extend that is no copy counts, and {left} ms are left");
            let me = guard.owner().clone();
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{what}");
            let again = lock.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
            arrives(bed, &copy).await;
            lasts(bed, &again, 300, &what).await;
            assert_eq!(again.unlock().await.unwrap(), Released::Free, "{what}");
        }
        end(client).await;
    })
    .await;
}

bed::cases!(a_copy_of_an_extend_cuts_no_later_lease:
    answered = false,
    in_doubt = true,
);
