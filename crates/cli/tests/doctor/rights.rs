//! Logins that lack rights, and a server that lacks a command.

use distlock_support::Admin;

use crate::report::{Report, alone, doctor, doctor_with, start};

const PAGE: &str = include_str!("../../../../docs/acl.md");

/// The access list of `docs/acl.md`, for the user `locks` with names that begin with `app:`.
pub fn page_rules() -> Vec<&'static str> {
    let (_, list) = PAGE.split_once("```acl\n").unwrap();
    list.split("```").next().unwrap().split_whitespace().skip(1).collect()
}

/// Checks a sound server with the login of the docs, without the rules that match.
async fn without(is_missing: impl Fn(&str) -> bool, args: &[&str]) -> Report {
    let (server, admin) = start(alone()).await;
    log_in(&admin, is_missing).await;
    let url = server.url().replace("://", "://locks:SECRET@");
    let report = doctor_with(&url, &[&["--prefix", "app:"], args].concat()).await;
    assert_eq!(admin.keys().await, [""; 0]);
    report
}

async fn log_in(admin: &Admin, is_missing: impl Fn(&str) -> bool) {
    let mut setuser = vec!["ACL", "SETUSER"];
    setuser.extend(page_rules().into_iter().filter(|rule| !is_missing(rule)));
    admin.cmd::<()>(&setuser).await;
}

#[tokio::test]
async fn missing_command_of_every_lock_is_found() {
    let report = without(|rule| rule == "+hdel", &[]).await;
    report.assert_finds(&["no-replica", "right-missing"]);
    report.assert_severity("right-missing", "breaks");
    let [finding] = report.findings("right-missing")[..] else { panic!("{report:?}") };
    assert_eq!(finding["fix"], "ACL SETUSER <user> +hdel");
}

#[tokio::test]
async fn missing_right_of_one_flavour_breaks_only_if_that_flavour_is_wanted() {
    for (flavour, missing) in [("fair", "+zincrby"), ("fenced", "~redisson_lock_*:{app:*}*")] {
        let wanted = ["--flavour", flavour];
        for (args, severity) in [(&wanted[..0], "note"), (&wanted[..], "breaks")] {
            let report = without(|rule| rule == missing, args).await;
            report.assert_finds(&["no-replica", "right-missing"]);
            report.assert_severity("right-missing", severity);
            let [finding] = report.findings("right-missing")[..] else { panic!("{report:?}") };
            assert_eq!(finding["fix"], format!("ACL SETUSER <user> {missing}"));
        }
    }
}

#[tokio::test]
async fn names_outside_of_the_prefix_are_found() {
    let (server, admin) = start(alone()).await;
    log_in(&admin, |_| false).await;
    let report = doctor(&server.url().replace("://", "://locks:SECRET@")).await;
    let finding = report.findings("right-missing")[0];
    assert_eq!(finding["severity"], "breaks", "{report:?}");
    let fix = finding["fix"].as_str().unwrap_or_default();
    assert!(fix.contains(" ~*") && fix.contains("--prefix"), "{fix}");
}

#[tokio::test]
async fn refused_scripts_are_found() {
    let report = without(|rule| rule == "+eval", &[]).await;
    report.assert_finds(&["no-replica", "scripts-refused"]);
    report.assert_severity("scripts-refused", "breaks");
    assert!(report.not_checked().contains("rights"), "{report:?}");
}

#[tokio::test]
async fn refused_script_cache_is_found() {
    let report = without(|rule| rule == "+evalsha", &[]).await;
    report.assert_finds(&["no-replica", "script-cache-refused"]);
    report.assert_severity("script-cache-refused", "breaks");
}

#[tokio::test]
async fn refused_channels_are_found() {
    let report = without(|rule| rule.starts_with('&'), &[]).await;
    report.assert_finds(&["no-replica", "messages-refused"]);
    report.assert_severity("messages-refused", "risk");
    let [finding] = report.findings("messages-refused")[..] else { panic!("{report:?}") };
    let fix = finding["fix"].as_str().unwrap_or_default();
    assert!(page_rules().iter().filter(|rule| rule.starts_with('&')).all(|rule| fix.contains(rule)), "{fix}");
}

#[tokio::test]
async fn disabled_command_is_found() {
    let server = alone().config("rename-command HSET \"\"\n").start();
    let report = doctor(&server.url()).await;
    report.assert_finds(&["no-replica", "command-disabled"]);
    report.assert_severity("command-disabled", "breaks");
}
