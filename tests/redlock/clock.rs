//! Servers whose time of day is set: what breaks, and what does not.

use std::os::unix::fs::FileExt as _;
use std::path::{Path as File, PathBuf};

use distlock::{Acquire, DistLock as _, Error, Lost, Released};
use distlock_support::RedisServer;

use crate::rig::{Five, Path, by_all, long, patient, run};
use bed::ends;

/// Five servers, each with a time of day of its own, and the files that shift them.
fn shifted(dir: &File) -> Option<(Five, Vec<PathBuf>)> {
    let shim = dir.join("clock.so");
    let source = File::new(env!("CARGO_MANIFEST_DIR")).join("faults/clock.c");
    let made = std::process::Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).status();
    if !made.is_ok_and(|status| status.success()) || !cfg!(target_os = "linux") {
        println!("skipped: needs Linux and a C compiler (./x test gets one)");
        return None;
    }
    let files: Vec<_> = (0..5).map(|at| dir.join(format!("shift{at}"))).collect();
    let servers = files.iter().map(|file| {
        std::fs::write(file, 0_i64.to_ne_bytes()).unwrap();
        let server = RedisServer::builder().env("LD_PRELOAD", shim.as_os_str());
        server.env("DISTLOCK_CLOCK", file.as_os_str()).start()
    });
    Some((Five::of(servers.collect()), files))
}

fn shift(file: &File, ms: i64) {
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.write_all_at(&ms.to_ne_bytes(), 0).unwrap();
}

/// On two of five servers a step forward, which ends leases early, does no harm. On three it lets another one in, and the first
/// is told at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_forward_is_harmless_on_a_minority_and_told_at_the_next_renewal_on_a_majority() {
    let dir = tempfile::tempdir().unwrap();
    let Some((five, files)) = shifted(dir.path()) else { return };
    run(five, async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        shift(&files[0], 3_600_000);
        shift(&files[3], 3_600_000);
        user.renew().await;
        assert!(guard.is_held(), "{guard:?}");
        let second = other.red("x").try_lock().await;
        assert!(!matches!(second, Ok(Some(_))), "two holders: {second:?}");
        other.idle().await;
        // With the third there is a majority for another one, until the first finds out.
        shift(&files[1], 3_600_000);
        let second = ends("three of five have forgotten it", other.red("x").lock()).await.unwrap();
        assert!(second.is_held());
        user.renew().await;
        let lost = ends("the loss is signalled", guard.lost()).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(!guard.is_held());
        second.unlock().await.unwrap();
    })
    .await;
}

/// A step back makes leases longer. A holder that lives renews and releases as ever; one that died keeps others out for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_keeps_a_dead_holders_lock_for_longer() {
    let dir = tempfile::tempdir().unwrap();
    let Some((five, files)) = shifted(dir.path()) else { return };
    run(five, async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let (alive, dead) = (user.red("alive"), user.red("dead"));
        let guard = by_all(&alive, Acquire::new()).await;
        let owner = by_all(&dead, long()).await.into_owner();
        for at in [0, 2, 4] {
            shift(&files[at], -3_600_000);
        }
        // On the others the lease is over.
        for at in [1, 3] {
            assert_eq!(five.admin(at).await.cmd::<u64>(&["DEL", "dead"]).await, 1);
        }
        for at in [0, 2, 4] {
            let left = five.admin(at).await.pttl("dead").await;
            assert!(left > 3_600_000, "server {at} has it for {left} ms");
        }
        assert!(dead.try_lock().await.unwrap().is_none(), "three of five have it still");
        user.renew().await;
        assert!(guard.is_held());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        user.idle().await;
        // Whoever knows the owner releases what is left.
        assert_eq!(dead.release(&owner).await.unwrap(), Released::Free);
        ends("the dead holder's lock is free", dead.lock()).await.unwrap().unlock().await.unwrap();
    })
    .await;
}
