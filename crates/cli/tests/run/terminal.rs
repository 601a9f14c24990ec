//! `distlock run` at a pseudo-terminal.

use distlock_support::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::rig::{Bed, DISTLOCK, until};

/// Starts `distlock run job -- sh -c SCRIPT`.
fn run(bed: &Bed, script: &str) -> Terminal {
    start(bed, &[DISTLOCK, "run", "job", "--", "sh", "-c", script])
}

/// Starts a command with English messages, at a terminal without escape sequences.
fn start(bed: &Bed, command: &[&str]) -> Terminal {
    Terminal::start(command, &[("DISTLOCK_URL", &bed.server.url()), ("LC_ALL", "C"), ("TERM", "dumb")])
}

/// The process id on the screen behind this text.
fn pid(terminal: &Terminal, front: &str) -> Option<Pid> {
    let screen = terminal.screen();
    let (pid, _) = screen.split_once(front)?.1.split_once('\r')?;
    Pid::from_raw(pid.parse().ok()?)
}

#[tokio::test]
async fn command_reads_from_the_terminal() {
    let bed = Bed::new().await;
    let mut terminal = run(&bed, r#"read line; echo "got:$line""#);
    terminal.type_keys("hello\n");
    terminal.shows("got:hello").await;
    terminal.ends_with(0).await;
    bed.assert_free().await;
}

#[tokio::test]
async fn interrupt_key_ends_the_command_with_130() {
    let bed = Bed::new().await;
    let mut terminal = run(&bed, "echo ready; exec sleep 1000");
    terminal.shows("ready").await;
    terminal.type_keys("\u{3}");
    terminal.ends_with(130).await;
    bed.assert_free().await;
}

#[tokio::test]
async fn terminal_is_given_back_after_the_command() {
    let bed = Bed::new().await;
    for command in ["true", "/no/such/command", "sh -c 'kill -KILL $$'"] {
        let script = format!(r#"{DISTLOCK} run job -- {command}; read line; echo "after:$line""#);
        let mut terminal = start(&bed, &["sh", "-c", &script]);
        terminal.type_keys("hello\n");
        terminal.shows("after:hello").await;
        terminal.ends_with(0).await;
        bed.assert_free().await;
    }
}

/// Without a shell that could continue the job, ^Z must not stop it for ever.
#[tokio::test]
async fn stop_key_has_no_lasting_effect_without_a_shell() {
    let bed = Bed::new().await;
    let mut terminal = run(&bed, r#"echo ready; read line; echo "got:$line""#);
    terminal.shows("ready").await;
    terminal.type_keys("\u{1a}");
    terminal.type_keys("hello\n");
    terminal.shows("got:hello").await;
    terminal.ends_with(0).await;
    bed.assert_free().await;
}

#[tokio::test]
async fn stop_key_gives_the_shell_its_prompt_and_fg_continues_the_command() {
    let bed = Bed::new().await;
    let mut terminal = start(&bed, &["bash", "--norc", "--noprofile", "-i"]);
    // The text on the screen differs from the typed text, which the terminal shows too.
    let script = r#"echo ready:$((40 + 2)); read line; echo "got:$line""#;
    terminal.type_keys(&format!("{DISTLOCK} run job -- sh -c '{script}'\n"));
    terminal.shows("ready:42").await;
    terminal.type_keys("\u{1a}");
    terminal.shows("Stopped").await;
    assert!(bed.admin.exists("job").await, "the lock is held during the stop");
    terminal.type_keys("fg\n");
    terminal.type_keys("hello\n");
    terminal.shows("got:hello").await;
    terminal.type_keys("exit 6\n");
    terminal.ends_with(6).await;
    bed.assert_free().await;
}

/// The guard catches signals, and waits for the terminal before it starts CMD. `fg` gives it the terminal.
#[tokio::test]
async fn signal_before_the_start_of_the_command_ends_the_command() {
    let bed = Bed::new().await;
    let guard = format!("{DISTLOCK} guard-group --parent $$ --grace 10m --foreground -- sleep 1000");
    let script = format!("{guard} & echo guard:$!; read line; fg; exit $?");
    let mut terminal = start(&bed, &["bash", "--norc", "--noprofile", "-m", "-c", &script]);
    until("the guard", async || pid(&terminal, "guard:").is_some()).await;
    let guard = pid(&terminal, "guard:").unwrap();
    until("the guard's signals", async || catches(guard, Signal::TERM)).await;
    kill_process_group(guard, Signal::TERM).unwrap();
    terminal.type_keys("\n");
    terminal.ends_with(143).await;
}

fn catches(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal.as_raw() - 1) & 1 == 1
}
