//! A server whose time of day is set. Leases are measured by it (premise P2).

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use distlock::{DistLock as _, Error, Flavour, Lost, NotHeld, Released};
use distlock_support::RedisServer;

use bed::{Bed, ends, run_on, secs};

/// Runs a body on a server with a time of day of its own, which the body's second argument shifts by milliseconds.
async fn shifted(body: impl AsyncFnOnce(&Bed, &dyn Fn(i64))) {
    let dir = tempfile::tempdir().unwrap();
    let (shim, shift) = (dir.path().join("clock.so"), dir.path().join("shift"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/clock.c");
    let made = std::process::Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).status();
    if !made.is_ok_and(|status| status.success()) || !cfg!(target_os = "linux") {
        println!("skipped: needs Linux and a C compiler (./x test gets one)");
        return;
    }
    std::fs::write(&shift, 0_i64.to_ne_bytes()).unwrap();
    let server = RedisServer::builder().env("LD_PRELOAD", shim.as_os_str()).env("DISTLOCK_CLOCK", shift.as_os_str());
    let set = |ms: i64| {
        let file = std::fs::File::options().write(true).open(&shift).unwrap();
        file.write_all_at(&ms.to_ne_bytes(), 0).unwrap();
    };
    let make = |client: &distlock::Client, name: &str| client.lock(Flavour::Reentrant, name);
    run_on(server.start(), make, async |bed| body(bed, &set).await).await;
}

/// It ends leases early. A watched guard is told by its next renewal; a leased one, which nobody renews, by its release.
#[tokio::test]
async fn a_step_forward_ends_leases_and_the_next_renewal_tells() {
    shifted(async |bed, shift| {
        let client = bed.client().await;
        let guard = client.reentrant("x").lock().await.unwrap();
        let leased = client.reentrant("y").lock_leased(secs(3600)).await.unwrap();
        shift(1_800_000);
        let left = bed.admin.pttl("y").await;
        assert!((1..=1_800_000).contains(&left), "a lease of an hour has {left} ms left after half an hour");
        let lost = tokio::spawn(guard.lost());
        client.renew_now().await;
        let lost = ends("the loss is signalled", lost).await.unwrap();
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(!guard.is_held());
        shift(3_700_000);
        let other = bed.client().await.reentrant("y").try_lock().await.unwrap().expect("free for the server");
        let refused = leased.unlock().await.unwrap_err();
        let Error::NotHeld { why: NotHeld::HeldBy { owner }, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(owner, other.owner().as_str());
        other.unlock().await.unwrap();
    })
    .await;
}

/// It makes leases longer, which matters for locks whose holder is gone.
#[tokio::test]
async fn a_step_back_keeps_a_dead_holders_lock_for_longer() {
    shifted(async |bed, shift| {
        let client = bed.client().await;
        let (alive, dead) = (client.reentrant("alive"), client.reentrant("dead"));
        let guard = alive.lock().await.unwrap();
        let owner = dead.lock_leased(secs(200)).await.unwrap().into_owner();
        shift(-3_600_000);
        let left = bed.admin.pttl("dead").await;
        assert!((3_600_000..=3_800_000).contains(&left), "{left} ms");
        // A holder that lives renews and releases as ever.
        let renewed = client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.lost), (1, 0));
        assert!(guard.is_held());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        alive.lock().await.unwrap().unlock().await.unwrap();
        assert!(dead.try_lock().await.unwrap().is_none());
        assert_eq!(dead.release(&owner).await.unwrap(), Released::Free);
    })
    .await;
}
