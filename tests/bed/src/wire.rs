//! Records commands on the wire (`MONITOR`), so that a test can send them again as late copies.

use std::sync::Arc;

use distlock_support::RedisServer;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
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
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        stream.write_all(b"MONITOR\r\n").await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("+OK"));
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
