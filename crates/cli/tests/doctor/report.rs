//! Runs `distlock`, and reads the report of `doctor --json`.

use std::collections::BTreeSet;
use std::process::{Output, Stdio};

use distlock_support::server::Builder;
pub use distlock_support::wait::{ends, until};
use distlock_support::{Admin, RedisServer};
use serde_json::Value;
use tokio::process::Command;

/// The report of `doctor --json`, and its exit status.
#[derive(Debug)]
pub struct Report {
    pub status: Option<i32>,
    pub json: Value,
}

/// A server that is sound except that it has no replica.
pub fn alone() -> Builder {
    RedisServer::builder().aof(true)
}

/// Starts a server, and connects an administrator.
pub async fn start(server: Builder) -> (RedisServer, Admin) {
    let server = server.start();
    let admin = Admin::connect(&server).await;
    (server, admin)
}

/// `distlock` with this URL, without a login.
pub fn distlock(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
    command.args(args).env("DISTLOCK_URL", url).env_remove("DISTLOCK_USERNAME").env_remove("DISTLOCK_PASSWORD");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub async fn output(mut command: Command) -> Output {
    ends("the end of distlock", command.output()).await.unwrap()
}

/// Runs `doctor --json` at this URL.
pub async fn doctor(url: &str) -> Report {
    doctor_with(url, &[]).await
}

/// Runs `doctor --json` with more arguments. Without a limit among them, a busy machine is not reported as latency.
pub async fn doctor_with(url: &str, args: &[&str]) -> Report {
    let mut command = distlock(url, &["doctor", "--json"]);
    if !args.contains(&"--latency-limit") {
        command.args(["--latency-limit", "600000"]);
    }
    command.args(args);
    Report::of(&output(command).await)
}

impl Report {
    pub fn of(output: &Output) -> Self {
        let json = serde_json::from_slice(&output.stdout);
        Self { status: output.status.code(), json: json.unwrap_or_else(|error| panic!("{error}: {output:?}")) }
    }

    fn list(&self, name: &str) -> &[Value] {
        self.json[name].as_array().unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The findings with this id.
    pub fn findings(&self, id: &str) -> Vec<&Value> {
        self.list("findings").iter().filter(|finding| finding["id"] == id).collect()
    }

    /// Checks the ids of the findings, and that each finding is complete.
    pub fn assert_finds(&self, expected: &[&str]) {
        for finding in self.list("findings") {
            for field in ["severity", "server", "found", "why", "fix", "page"] {
                let is_given = finding[field].as_str().is_some_and(|text| !text.is_empty());
                assert!(is_given, "{field} of {finding}");
            }
        }
        let found: BTreeSet<_> = self.list("findings").iter().filter_map(|finding| finding["id"].as_str()).collect();
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        assert_eq!(found, expected, "{:#}", self.json);
    }

    /// Checks that the finding with this id has this severity, and that the exit status matches `--fail-on risk`.
    pub fn assert_severity(&self, id: &str, severity: &str) {
        let found: BTreeSet<_> = self.findings(id).iter().filter_map(|finding| finding["severity"].as_str()).collect();
        assert_eq!(found, BTreeSet::from([severity]), "{:#}", self.json);
        let worse = self.list("findings").iter().any(|finding| finding["severity"] != "note");
        assert_eq!(self.status, Some(i32::from(worse)), "{:#}", self.json);
    }

    /// The names of what was not checked.
    pub fn not_checked(&self) -> BTreeSet<&str> {
        self.list("not_checked").iter().filter_map(|not| not["what"].as_str()).collect()
    }
}

/// A number in a section of `INFO`.
pub async fn info(admin: &Admin, section: &str, name: &str) -> Option<u64> {
    let text: String = admin.cmd(&["INFO", section]).await;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
}
