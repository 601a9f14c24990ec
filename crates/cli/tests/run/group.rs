//! The end of CMD's process group.

use crate::rig::{Bed, WRAPPERS, until};

/// A child that reports TERM, and then ends when it reads a line.
const CHILD: &str = r#"trap "echo TERM; read line; exit" TERM; echo ready; while :; do sleep 0.02; done"#;

#[tokio::test]
async fn lock_is_held_until_the_children_of_the_command_have_ended() {
    let bed = Bed::new().await;
    let script = r#"exec 3<&0; sh -c "$0" <&3 & read line; exit 3"#;
    for wrapper in WRAPPERS {
        let command = [wrapper, &["sh", "-c", script, CHILD]].concat();
        let mut program = bed.run_command(&["job", "--grace", "10m"], &command);
        program.expect("ready").await;
        program.tell("end of CMD").await;
        program.expect("TERM").await;
        assert!(bed.admin.exists("job").await, "released before the child has ended");
        program.tell("end of the child").await;
        program.ends_with(3).await;
        bed.assert_free().await;
    }
}

#[tokio::test]
async fn child_that_ignores_term_gets_kill_after_the_grace_period() {
    let bed = Bed::new().await;
    let script = r#"sh -c 'trap "" TERM; echo ready; exec sleep 1000' & read line; exit 3"#;
    for wrapper in WRAPPERS {
        let command = [wrapper, &["sh", "-c", script]].concat();
        let mut program = bed.run_command(&["job", "--grace", "100ms"], &command);
        program.expect("ready").await;
        program.tell("end").await;
        program.ends_with(3).await;
        bed.assert_free().await;
    }
}

/// TERM alone has no effect on a stopped process.
#[tokio::test]
async fn stopped_child_is_continued_and_ends() {
    let bed = Bed::new().await;
    let script = r#"sh -c 'echo $$; kill -STOP $$; exec sleep 1000' & read line; exit 3"#;
    let mut program = bed.run_command(&["job", "--grace", "10m"], &["sh", "-c", script]);
    let child = program.line().await;
    until("the child is stopped", async || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        // The state follows the name of the program, which is in parentheses.
        stat.contains(") T ")
    })
    .await;
    program.tell("end").await;
    program.ends_with(3).await;
    bed.assert_free().await;
}
