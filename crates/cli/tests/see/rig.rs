//! A server, the command, and keys as Redisson writes them.

use std::process::Command;

use distlock::Client;
use distlock_support::terminal::Terminal;
pub use distlock_support::wait::{ends, until};
use distlock_support::{Admin, RedisServer, reaper};
use serde_json::{Value as Json, json};

/// The command under test.
pub const DISTLOCK: &str = env!("CARGO_BIN_EXE_distlock");

/// An owner of Java. The uuid sorts before almost all others.
pub const JAVA: &str = "00000000-0000-4000-8000-000000000001:5";

/// A server, an administrator's connection, and a client of locks.
pub struct Bed {
    pub server: RedisServer,
    pub admin: Admin,
    pub client: Client,
}

impl Bed {
    pub async fn new() -> Self {
        let server = RedisServer::start();
        let admin = Admin::connect(&server).await;
        let client = Client::connect(&server.url()).await.unwrap();
        Self { server, admin, client }
    }

    /// Runs the command against the server.
    pub async fn run(&self, words: &[&str]) -> Ran {
        run(&self.server.url(), words).await
    }

    /// Starts the command against the server, at a terminal.
    pub fn at_terminal(&self, words: &[&str]) -> Terminal {
        let url = self.server.url();
        Terminal::start(&[&[DISTLOCK][..], words].concat(), &[("DISTLOCK_URL", &url), ("TERM", "xterm-256color")])
    }

    /// `inspect --json`, with this exit status. The server's address is checked, and left out.
    pub async fn inspect(&self, name: &str, code: i32) -> Json {
        let ran = self.run(&["inspect", name, "--json"]).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let mut report: Json = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        let server = report.as_object_mut().unwrap().remove("server").unwrap();
        assert_eq!(server, self.server.addr().to_string());
        without_times(&mut report);
        report
    }

    /// The server's time in ms.
    pub async fn now(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.admin.cmd(&["TIME"]).await;
        seconds * 1000 + micros / 1000
    }

    /// Acquires a lock as Redisson does, for ten minutes.
    pub async fn java_locks(&self, name: &str, owner: &str) {
        let _: i64 = self.admin.cmd(&["HSET", name, owner, "1"]).await;
        let _: i64 = self.admin.cmd(&["PEXPIRE", name, "600000"]).await;
    }

    /// Puts a waiter into the queue of a fair lock as Redisson does, with this deadline.
    pub async fn java_waits(&self, name: &str, owner: &str, deadline: i64) {
        let (queue, deadlines) = keys_of_queue(name);
        let _: i64 = self.admin.cmd(&["ZADD", &deadlines, &deadline.to_string(), owner]).await;
        let _: i64 = self.admin.cmd(&["RPUSH", &queue, owner]).await;
    }

    /// The waiters of a fair lock with their deadlines.
    pub async fn queue(&self, name: &str) -> Vec<(String, Option<f64>)> {
        let (queue, deadlines) = keys_of_queue(name);
        let owners: Vec<String> = self.admin.cmd(&["LRANGE", &queue, "0", "-1"]).await;
        let mut waiters = Vec::new();
        for owner in owners {
            let deadline = self.admin.cmd(&["ZSCORE", &deadlines, &owner]).await;
            waiters.push((owner, deadline));
        }
        waiters
    }
}

/// The list and the sorted set of a fair lock's queue.
pub fn keys_of_queue(name: &str) -> (String, String) {
    (format!("redisson_lock_queue:{{{name}}}"), format!("redisson_lock_timeout:{{{name}}}"))
}

/// The outcome of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs the command to its end.
pub async fn run(url: &str, words: &[&str]) -> Ran {
    let mut command = Command::new(DISTLOCK);
    command.args(words).env("DISTLOCK_URL", url).env_remove("DISTLOCK_USERNAME").env_remove("DISTLOCK_PASSWORD");
    let output = tokio::task::spawn_blocking(move || reaper::output(&mut command)).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Replaces times above 0 by `later`: how long they are depends on the machine.
fn without_times(json: &mut Json) {
    match json {
        Json::Array(list) => list.iter_mut().for_each(without_times),
        Json::Object(members) => {
            for (name, value) in members {
                if name.ends_with("_ms") && value.as_i64().is_some_and(|ms| ms > 0) {
                    *value = json!("later");
                } else {
                    without_times(value);
                }
            }
        }
        _ => {}
    }
}
