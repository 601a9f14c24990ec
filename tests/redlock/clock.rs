//! Servers whose time of day is set (premise P2, F14): what breaks, and what does not.

use std::os::unix::fs::FileExt as _;
use std::path::{Path as File, PathBuf};
use std::time::Instant;

use distlock::{Acquire, DistLock as _, Error, Lost, Released};
use distlock_support::RedisServer;

use crate::rig::{Five, Path, by_all, patient, quick, run};
use bed::{QUICK, eventually, ms, secs};

/// Five servers, each with a time of day of its own, and the files that shift them.
fn shifted(dir: &File) -> Option<(Five, Vec<PathBuf>)> {
    let shim = dir.join("clock.so");
    let source = File::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings/clock.c");
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

/// P2: a step forward ends leases early on that server. On two of five it does no harm. On three it lets another one in,
/// and the first is told at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_forward_on_a_minority_is_harmless_and_on_a_majority_told_at_the_next_renewal() {
    let dir = tempfile::tempdir().unwrap();
    let Some((five, files)) = shifted(dir.path()) else { return };
    run(five, async |five| {
        let (user, other) = (five.warm(Path::Proxied, quick).await, five.warm(Path::Direct, patient).await);
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        shift(&files[0], 15_000);
        shift(&files[3], 15_000);
        let stepped = Instant::now();
        while stepped.elapsed() < QUICK {
            assert!(!matches!(other.red("x").try_lock().await, Ok(Some(_))), "two holders");
            assert!(guard.is_held(), "{guard:?}");
            tokio::time::sleep(ms(20)).await;
        }
        other.idle_at(&[0, 1, 2, 3, 4]).await;
        let lost = guard.lost();
        // The third: there is a majority for another one, until the first finds out.
        shift(&files[1], 15_000);
        let stepped = Instant::now();
        let second = other.red("x").try_lock().await.unwrap().expect("three of five have forgotten it");
        let both = guard.is_held() && second.is_held();
        let lost = tokio::time::timeout(QUICK, lost).await.expect("not told");
        let told = stepped.elapsed();
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(told < QUICK / 3 + ms(700), "{told:?}");
        println!("two holders: {both}; the first was told after {told:?}");
        assert!(!guard.is_held());
        second.unlock().await.unwrap();
        drop(guard);
    })
    .await;
}

/// P2: a step back makes leases longer. Who lives renews and releases as ever; who died keeps others out for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_keeps_a_dead_holders_lock_for_longer() {
    let dir = tempfile::tempdir().unwrap();
    let Some((five, files)) = shifted(dir.path()) else { return };
    run(five, async |five| {
        let user = five.warm(Path::Direct, quick).await;
        let (alive, dead) = (user.red("alive"), user.red("dead"));
        let guard = alive.lock().await.unwrap();
        let crashed = dead.lock_leased(ms(1200)).await.unwrap();
        eventually("all have granted it", async || crashed.members().len() == 5).await;
        let owner = crashed.into_owner();
        for at in [0, 2, 4] {
            shift(&files[at], -3_600_000);
        }
        let stepped = Instant::now();
        while stepped.elapsed() < QUICK {
            assert!(dead.try_lock().await.unwrap().is_none(), "three of five have it still");
            assert!(guard.is_held());
            tokio::time::sleep(ms(50)).await;
        }
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        alive.lock_for(secs(5)).await.unwrap().expect("it was given back").unlock().await.unwrap();
        // The two others' leases have ended, and what is there is released by whoever knows the owner.
        user.idle_at(&[0, 1, 2, 3, 4]).await;
        assert_eq!(dead.release(&owner).await.unwrap(), Released::Free);
        dead.try_lock().await.unwrap().expect("free").unlock().await.unwrap();
    })
    .await;
}
