//! The exit status, the environment and the wait of `distlock run`.

use std::process::Stdio;

use distlock_support::ports::Port;

use crate::rig::{Bed, DISTLOCK, Program, until};

#[tokio::test]
async fn exit_status_is_that_of_the_command() {
    let bed = Bed::new().await;
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -10 $$", 138), ("kill -9 $$", 137)] {
        bed.run(&["job"], script).ends_with(code).await;
        bed.assert_free().await;
    }
}

#[tokio::test]
async fn command_that_cannot_start_gives_127_or_126() {
    let bed = Bed::new().await;
    for (command, code) in [("/no/such/command", 127), ("/", 126)] {
        let ended = bed.run_command(&["job"], &[command]).ends_with(code).await;
        assert!(ended.errors.starts_with(&format!("distlock: {command}: ")), "{ended:?}");
        bed.assert_free().await;
    }
}

#[tokio::test]
async fn arguments_reach_the_command_unchanged() {
    let bed = Bed::new().await;
    let ended = bed.run_command(&["job"], &["printf", "%s\n", "a b", "$HOME", "--wait", ""]).ends_with(0).await;
    assert_eq!(ended.lines, ["a b", "$HOME", "--wait", ""]);
}

#[tokio::test]
async fn environment_has_the_name_the_owner_and_the_fencing_token() {
    let bed = Bed::new().await;
    let script = r#"echo "$HELD_LOCK_NAME|$HELD_LOCK_OWNER|${HELD_LOCK_TOKEN-none}"; read line"#;
    for (flavour, token) in [("reentrant", "none"), ("fenced", "1")] {
        let mut program = bed.run(&["--flavour", flavour, "--prefix", "shop:", "job"], script);
        let line = program.line().await;
        let owners: Vec<_> = bed.admin.hgetall("shop:job").await.into_keys().collect();
        assert_eq!(line, format!("job|{}|{token}", owners.join(" ")), "{flavour}");
        program.tell("end").await;
        program.ends_with(0).await;
    }
}

/// A CMD that reads its own settings with this prefix refuses unknown variables.
#[tokio::test]
async fn environment_has_no_new_variable_with_the_prefix_of_settings() {
    let bed = Bed::new().await;
    let of_distlock = |name: &String| name.starts_with("DISTLOCK_");
    let mut expected: Vec<String> = std::env::vars().map(|(name, _)| name).filter(of_distlock).collect();
    expected.push("DISTLOCK_URL".to_owned());
    expected.sort();
    expected.dedup();
    for flavour in ["reentrant", "fenced"] {
        let ended = bed.run_command(&["--flavour", flavour, "job"], &["env"]).ends_with(0).await;
        let names = ended.lines.iter().filter_map(|line| Some(line.split_once('=')?.0.to_owned()));
        let mut names: Vec<String> = names.filter(of_distlock).collect();
        names.sort();
        assert_eq!(names, expected, "{flavour}");
    }
}

#[tokio::test]
async fn busy_lock_gives_75_after_the_wait_and_the_command_does_not_start() {
    let bed = Bed::new().await;
    let mut holder = bed.run(&["job"], "echo held; read line");
    holder.expect("held").await;
    for wait in ["0", "50ms"] {
        let ended = bed.run(&["job", "--wait", wait], "echo started").ends_with(75).await;
        assert_eq!(ended.lines, [""; 0], "wait {wait}");
        assert!(ended.errors.contains("\"job\" is busy"), "{ended:?}");
    }
    holder.tell("end").await;
    holder.ends_with(0).await;
    bed.assert_free().await;
}

#[tokio::test]
async fn waiter_starts_its_command_after_the_holder_has_ended() {
    let bed = Bed::new().await;
    let mut holder = bed.run(&["job"], "echo held; read line");
    holder.expect("held").await;
    let mut waiter = bed.run(&["job"], "echo started");
    until("the waiter subscribes", async || !bed.admin.channels().await.is_empty()).await;
    holder.tell("end").await;
    holder.ends_with(0).await;
    waiter.expect("started").await;
    waiter.ends_with(0).await;
    bed.assert_free().await;
}

#[tokio::test]
async fn unreachable_server_gives_69() {
    let port = Port::reserve();
    let url = format!("redis://127.0.0.1:{}", port.number());
    let ended = Program::start(&url, &["run", "job", "--", "echo", "started"]).ends_with(69).await;
    assert!(ended.errors.contains("DISTLOCK_URL") && ended.lines.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn wrong_arguments_give_64() {
    let bed = Bed::new().await;
    for args in ["run job", "run job true", "run job --wait soon -- true", "walk"] {
        let args: Vec<_> = args.split(' ').collect();
        Program::start(&bed.server.url(), &args).ends_with(64).await;
    }
    let ended = bed.run(&["job", "--lease", "1ms"], "echo started").ends_with(64).await;
    assert!(ended.lines.is_empty(), "{ended:?}");
    let ended = Program::start(&bed.server.url(), &[]).ends_with(64).await;
    assert!(ended.errors.contains("Usage: distlock"), "{ended:?}");
    assert!(!ended.errors.contains("guard-group"), "a hidden subcommand: {ended:?}");
}

#[tokio::test]
async fn completions_leave_out_hidden_subcommands() {
    for shell in ["bash", "fish", "zsh"] {
        let ended = Program::start("redis://unused", &["completions", shell]).ends_with(0).await;
        let text = ended.lines.join("\n");
        assert!(text.contains("inspect") && text.contains("permits") && !text.contains("guard-group"), "{text}");
    }
}

/// `Settings::from_env("DISTLOCK")` reads the same variables.
#[tokio::test]
async fn label_and_name_prefix_are_read_from_the_environment() {
    let bed = Bed::new().await;
    let (url, env) = (bed.server.url(), ["env", "DISTLOCK_LABEL=pod-7", "DISTLOCK_NAME_PREFIX=shop:", DISTLOCK]);
    let run = ["run", "job", "--", "sh", "-c", "echo ready; read line"];
    let mut program = Program::spawn(&url, &[&env[..], &run].concat(), Stdio::piped());
    program.expect("ready").await;
    let is_label = |key: &String| key.starts_with("distlock_label:");
    until("the label", async || bed.admin.keys().await.iter().any(is_label)).await;
    let ended = Program::spawn(&url, &[&env[..], &["inspect", "job"]].concat(), Stdio::piped()).ends_with(0).await;
    assert!(ended.lines.iter().any(|line| line.ends_with(", label pod-7")), "{ended:?}");
    assert!(bed.admin.exists("shop:job").await);
    program.tell("end").await;
    program.ends_with(0).await;
}
