//! Signals to `distlock run`.

use rustix::process::Signal;

use crate::rig::{Bed, DISTLOCK, until};

/// Prints the process id of its parent, which is the guard, and then the name of each signal. TERM also ends it, with
/// status 5.
const TRAPS: &str = r#"
    for signal in HUP INT QUIT USR1 USR2 WINCH CONT; do trap "echo $signal" $signal; done
    trap "echo TERM; exit 5" TERM
    echo $PPID
    while :; do sleep 0.02; done
"#;

const NAMED: [(Signal, &str); 8] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
    (Signal::WINCH, "WINCH"),
    (Signal::CONT, "CONT"),
    (Signal::TERM, "TERM"),
];

/// Waits until the guard has slept a few times after the start of CMD. A signal that arrives before the guard's first
/// sleep has ended may reach CMD twice.
async fn settles(guard: &str) {
    let sleeps = || {
        let status = std::fs::read_to_string(format!("/proc/{guard}/status")).unwrap();
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        sleeps.trim().parse::<u64>().unwrap()
    };
    let before = sleeps();
    until("the guard sleeps", async || sleeps() >= before + 3).await;
}

async fn pass_on_signals(command: &[&str]) {
    let bed = Bed::new().await;
    let mut program = bed.run_command(&["job"], command);
    settles(&program.line().await).await;
    for (signal, name) in NAMED {
        program.signal(signal);
        program.expect(name).await;
    }
    let ended = program.ends_with(5).await;
    assert_eq!(ended.lines, [""; 0], "a signal came twice");
    bed.assert_free().await;
}

#[tokio::test]
async fn signals_are_passed_on_to_the_command() {
    pass_on_signals(&["sh", "-c", TRAPS]).await;
}

#[tokio::test]
async fn signals_are_passed_on_to_a_command_in_its_own_session() {
    pass_on_signals(&["setsid", "sh", "-c", TRAPS]).await;
}

#[tokio::test]
async fn signal_that_ends_the_command_gives_128_plus_its_number() {
    let bed = Bed::new().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut program = bed.run(&["job"], "echo ready; exec sleep 1000");
        program.expect("ready").await;
        program.signal(signal);
        program.ends_with(code).await;
        bed.assert_free().await;
    }
}

/// As under `nohup`. Of two pending signals, HUP is delivered first, so a report of USR1 shows that HUP had no effect.
#[tokio::test]
async fn signal_that_was_ignored_at_the_start_is_not_passed_on() {
    let bed = Bed::new().await;
    let inner = r#"trap "echo USR1" USR1; echo ready; while :; do sleep 0.02; done"#;
    let script = r#"trap "" HUP; exec "$0" run job -- sh -c "$1""#;
    let mut program = bed.run_command(&["outer"], &["sh", "-c", script, DISTLOCK, inner]);
    program.expect("ready").await;
    program.signal(Signal::HUP);
    program.signal(Signal::USR1);
    program.expect("USR1").await;
    program.signal(Signal::TERM);
    program.ends_with(143).await;
    bed.assert_free().await;
}

#[tokio::test]
async fn signal_during_the_wait_ends_the_wait_and_leaves_nothing() {
    let bed = Bed::new().await;
    let mut holder = bed.run(&["job", "--flavour", "fair"], "echo held; read line");
    holder.expect("held").await;
    let waiter = bed.run(&["job", "--flavour", "fair"], "echo started");
    until("the waiter is in the queue", async || bed.admin.exists("redisson_lock_queue:{job}").await).await;
    waiter.signal(Signal::TERM);
    let ended = waiter.ends_with(143).await;
    assert_eq!(ended.lines, [""; 0]);
    assert!(!bed.admin.exists("redisson_lock_queue:{job}").await, "the waiter has left the queue");
    holder.tell("end").await;
    holder.ends_with(0).await;
    bed.assert_free().await;
}
