//! Records commands on the wire (`MONITOR`), so that a test can send them again as late copies.

use std::sync::Arc;

use distlock_support::RedisServer;
use distlock_support::admin::NAME;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{Bed, eventually};

/// Marker command: once it is seen, all earlier commands were recorded.
const MARK: &str = "ECHO";

/// Records commands, including commands inside scripts. Stops when dropped.
pub struct Wire {
    calls: Arc<Mutex<Vec<Vec<String>>>>,
    task: JoinHandle<()>,
}

impl Wire {
    /// Records every script call of clients.
    pub async fn tap(server: &RedisServer) -> Self {
        Self::hear(server, &["EVALSHA"]).await
    }

    /// Records every command of these names.
    pub async fn hear(server: &RedisServer, wanted: &'static [&'static str]) -> Self {
        let mut lines = monitor(server).await;
        let calls = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let words: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
                let is_wanted = |word: &String| [MARK].iter().chain(wanted).any(|one| word.eq_ignore_ascii_case(one));
                if words.first().is_some_and(is_wanted) {
                    told.lock().push(words);
                }
            }
        });
        Self { calls, task }
    }

    /// The commands up to now.
    pub async fn calls(&self, bed: &Bed) -> Vec<Vec<String>> {
        let mark = format!("all told {}", self.calls.lock().len());
        let _: String = bed.admin.cmd(&[MARK, &mark]).await;
        let all = async || self.calls.lock().iter().any(|words| words.last() == Some(&mark));
        eventually("the monitor has told all", all).await;
        let mut calls = self.calls.lock().clone();
        calls.retain(|words| !words[0].eq_ignore_ascii_case(MARK));
        calls
    }

    /// The last recorded command, to be sent again.
    pub async fn last(&self, bed: &Bed) -> Vec<String> {
        self.calls(bed).await.pop().expect("a script was called")
    }
}

/// The lines of `MONITOR`, over a connection with an administrator's name.
pub(crate) async fn monitor(server: &RedisServer) -> Lines<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(server.addr()).await.expect("a server of the test is up");
    stream.write_all(format!("CLIENT SETNAME {NAME}\r\nMONITOR\r\n").as_bytes()).await.expect("MONITOR is sent");
    let mut lines = BufReader::new(stream).lines();
    for _ in ["SETNAME", "MONITOR"] {
        assert_eq!(lines.next_line().await.expect("a reply of the server").as_deref(), Some("+OK"));
    }
    lines
}

pub async fn arrives(bed: &Bed, call: &[String]) {
    let words: Vec<&str> = call.iter().map(String::as_str).collect();
    // Nobody reads the reply to a late copy.
    drop(bed.admin.raw(&words).await);
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}
