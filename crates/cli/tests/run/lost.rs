//! A lock that is lost while CMD runs. A loss is noticed at the next renewal, so these tests take a third of the
//! watchdog's lease.

use std::io::Write as _;

use distlock::Client;
use rustix::fs::{OFlags, fcntl_setfl};

use crate::rig::{Bed, Program, WRAPPERS};

/// Starts two programs under different locks: CMD in the group of `distlock run`, and in a session of its own. Deletes
/// the locks when CMD is ready.
async fn lose(bed: &Bed, grace: &str, script: &str) -> Vec<Program> {
    let mut programs = Vec::new();
    for (name, wrapper) in ["group", "session"].into_iter().zip(WRAPPERS) {
        let command = [wrapper, &["sh", "-c", script]].concat();
        let mut program = bed.run_command(&[name, "--grace", grace], &command);
        program.expect("ready").await;
        programs.push(program);
    }
    let gone: u64 = bed.admin.cmd(&["DEL", "group", "session"]).await;
    assert_eq!(gone, 2);
    programs
}

#[tokio::test]
async fn deleted_lock_ends_the_whole_group_with_76() {
    let bed = Bed::new().await;
    for program in lose(&bed, "10m", "sleep 1000 & echo ready; sleep 1000").await {
        let ended = program.ends_with(76).await;
        assert!(ended.errors.contains("was lost"), "{ended:?}");
    }
    bed.assert_free().await;
}

#[tokio::test]
async fn lock_freed_by_force_ends_the_command_with_76() {
    let bed = Bed::new().await;
    let mut program = bed.run(&["job"], "echo ready; exec sleep 1000");
    program.expect("ready").await;
    let client = Client::connect(&bed.server.url()).await.unwrap();
    assert!(client.reentrant("job").force_unlock().await.unwrap());
    program.ends_with(76).await;
    bed.assert_free().await;
}

#[tokio::test]
async fn end_of_the_lease_ends_the_command_with_76() {
    let bed = Bed::new().await;
    for kind in ["--flavour=spin", "--permits=2"] {
        bed.run(&[kind, "--lease", "3s", "job"], "exec sleep 1000").ends_with(76).await;
        let _: u64 = bed.admin.cmd(&["DEL", "job"]).await;
    }
}

#[tokio::test]
async fn command_may_clean_up_during_the_grace_period() {
    let bed = Bed::new().await;
    let script = r#"trap "echo cleaning; read line; echo clean; exit" TERM; echo ready; while :; do sleep 0.02; done"#;
    for mut program in lose(&bed, "10m", script).await {
        program.expect("cleaning").await;
        program.tell("go on").await;
        program.expect("clean").await;
        program.ends_with(76).await;
    }
}

#[tokio::test]
async fn command_that_ignores_term_gets_kill_after_the_grace_period() {
    let bed = Bed::new().await;
    for program in lose(&bed, "100ms", r#"trap "" TERM; sleep 1000 & echo ready; sleep 1000"#).await {
        program.ends_with(76).await;
    }
}

/// CMD ends before the next renewal, so the release is the first command that finds the lock gone.
#[tokio::test]
async fn loss_that_only_the_release_finds_gives_76() {
    let bed = Bed::new().await;
    for mut program in lose(&bed, "10m", "echo ready; read line").await {
        program.tell("end").await;
        program.ends_with(76).await;
    }
    bed.assert_free().await;
}

/// CMD has run under the lock, although the release fails.
#[tokio::test]
async fn failed_release_is_reported_and_keeps_the_status_of_the_command() {
    let bed = Bed::new().await;
    let mut program = bed.run(&["job"], "echo ready; read line; exit 4");
    program.expect("ready").await;
    bed.server.kill9();
    program.tell("end").await;
    let ended = program.ends_with(4).await;
    assert!(ended.errors.contains("the lock \"job\""), "{ended:?}");
}

/// The pipe of stderr is full, or its other end is closed.
#[tokio::test]
async fn lost_lock_ends_the_command_although_nobody_reads_stderr() {
    let bed = Bed::new().await;
    for is_full in [true, false] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        if is_full {
            fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
            while writer.write_all(&[0; 4096]).is_ok() {}
            fcntl_setfl(&writer, OFlags::empty()).unwrap();
        }
        let reader = is_full.then_some(reader);
        let args = ["run", "--lease", "3s", "job", "--", "sh", "-c", "exec sleep 1000"];
        Program::start_with(&bed.server.url(), &args, writer.into()).ends_with(76).await;
        drop(reader);
        let _: u64 = bed.admin.cmd(&["DEL", "job"]).await;
    }
}
