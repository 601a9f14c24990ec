//! `distlock run --permits`.

use distlock_support::reaper::Folder;

use crate::rig::{Bed, Program};

#[tokio::test]
async fn at_most_n_commands_run_at_a_time() {
    let bed = Bed::new().await;
    let folder = Folder::new();
    // Each command counts the commands that run, itself included.
    let script = r#"mkdir "$0/$$" && ls "$0" | wc -l && sleep 0.2 && rmdir "$0/$$""#;
    let command = ["sh", "-c", script, folder.path().to_str().unwrap()];
    let programs: Vec<_> = (0..8).map(|_| bed.run_command(&["gate", "--permits", "2"], &command)).collect();
    for program in programs {
        let ended = program.ends_with(0).await;
        let running: Vec<u32> = ended.lines.iter().map(|line| line.trim().parse().unwrap()).collect();
        assert!(matches!(running[..], [1 | 2]), "{ended:?}");
    }
    assert_eq!(bed.admin.keys().await, ["gate"], "only the number of permits stays");
    let free: u32 = bed.admin.cmd(&["GET", "gate"]).await;
    assert_eq!(free, 2);
}

#[tokio::test]
async fn two_permits_let_two_commands_run_and_refuse_a_third() {
    let bed = Bed::new().await;
    let args = ["gate", "--permits", "2"];
    let mut holders = [(); 2].map(|()| bed.run(&args, "echo held; read line"));
    for holder in &mut holders {
        holder.expect("held").await;
    }
    bed.run(&[&args[..], &["--wait", "0"]].concat(), "echo started").ends_with(75).await;
    for mut holder in holders {
        holder.tell("end").await;
        holder.ends_with(0).await;
    }
}

#[tokio::test]
async fn busy_permits_give_75_and_another_number_is_refused() {
    let bed = Bed::new().await;
    let mut holder = bed.run(&["gate", "--permits", "1"], r#"echo "$HELD_LOCK_NAME $HELD_LOCK_OWNER"; read line"#);
    let line = holder.line().await;
    let id = line.strip_prefix("gate ").unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
    bed.run(&["gate", "--permits", "1", "--wait", "0"], "echo started").ends_with(75).await;
    let ended = bed.run(&["gate", "--permits", "2"], "echo started").ends_with(64).await;
    assert!(ended.errors.contains("\"gate\" has 1 permits") && ended.lines.is_empty(), "{ended:?}");
    assert!(ended.errors.contains("`distlock unlock --force --flavour permits \"gate\"`"), "{ended:?}");
    holder.tell("end").await;
    holder.ends_with(0).await;
}

#[tokio::test]
async fn deleted_permits_end_the_command_with_76() {
    let bed = Bed::new().await;
    let mut holder = bed.run(&["gate", "--permits", "1"], "echo ready; exec sleep 1000");
    holder.expect("ready").await;
    let unlock = ["unlock", "gate", "--force", "--flavour", "permits"];
    Program::start(&bed.server.url(), &unlock).ends_with(0).await;
    holder.ends_with(76).await;
    bed.assert_free().await;
}
