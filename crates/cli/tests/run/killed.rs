//! `distlock run`, or its guard, is killed by KILL.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Bed, DISTLOCK, Program, WRAPPERS, until};

/// CMD and a child, both deaf to TERM. Prints the process id of its parent, which is the guard.
const DEAF: &str = r#"trap "" TERM HUP INT; sleep 1000 & echo $PPID; exec sleep 1000"#;

#[tokio::test]
async fn killed_distlock_leaves_no_process_and_a_lock_that_ends_with_its_lease() {
    let bed = Bed::new().await;
    for (name, wrapper) in ["group", "session"].into_iter().zip(WRAPPERS) {
        let mut program = bed.run_command(&[name], &[wrapper, &["sh", "-c", DEAF]].concat());
        program.line().await;
        program.signal(Signal::KILL);
        let ended = program.ended().await;
        assert_eq!(ended.code, None, "{ended:?}");
        assert!(bed.admin.pttl(name).await > 0, "the lock must have an end");
    }
}

/// `distlock run` notices the end of its guard, kills CMD and the rest of its group, and releases the lock.
#[tokio::test]
async fn killed_guard_leaves_no_process_and_no_lock() {
    let bed = Bed::new().await;
    for wrapper in WRAPPERS {
        let mut program = bed.run_command(&["job"], &[wrapper, &["sh", "-c", DEAF]].concat());
        let guard = program.line().await.parse().ok().and_then(Pid::from_raw).unwrap();
        kill_process(guard, Signal::KILL).unwrap();
        program.ends_with(137).await;
        bed.assert_free().await;
    }
}

/// `exec distlock run` takes over the children of the shell. They are not part of CMD.
#[tokio::test]
async fn killed_guard_does_not_end_a_background_job_of_the_shell() {
    let bed = Bed::new().await;
    let inner = "echo $PPID; exec sleep 1000";
    let script = r#"exec 3<&0; { read line <&3; echo "job:$line"; } & exec "$0" run job -- sh -c "$1""#;
    let command = ["sh", "-c", script, DISTLOCK, inner];
    let mut program = Program::spawn(&bed.server.url(), &command, Stdio::piped());
    let guard = program.line().await.parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    until("the release", async || !bed.admin.exists("job").await).await;
    program.tell("alive").await;
    program.expect("job:alive").await;
    program.ends_with(137).await;
}
