//! A separate subscriber that counts messages and keyspace events.

use std::sync::Arc;

use distlock_support::RedisServer;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub struct Events {
    heard: Arc<Mutex<Vec<(String, String)>>>,
    task: JoinHandle<()>,
}

impl Events {
    /// Subscribes, and returns once the server has confirmed.
    pub async fn subscribe(server: &RedisServer, channels: &[&str]) -> Self {
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        let mut command = format!("*{}\r\n$9\r\nSUBSCRIBE\r\n", channels.len() + 1);
        for channel in channels {
            command += &format!("${}\r\n{channel}\r\n", channel.len());
        }
        stream.write_all(command.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        for _ in channels {
            assert_eq!(push(&mut lines).await.unwrap()[0], "subscribe");
        }
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Some([_, channel, message]) = push(&mut lines).await {
                told.lock().push((channel, message));
            }
        });
        Self { heard, task }
    }

    /// Number of messages on this channel with this prefix.
    pub fn count_of(&self, channel: &str, begins: &str) -> usize {
        self.heard.lock().iter().filter(|(on, what)| on == channel && what.starts_with(begins)).count()
    }

    pub fn count(&self, channel: &str, message: &str) -> usize {
        self.heard.lock().iter().filter(|(on, what)| on == channel && what == message).count()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The three parts of a message or confirmation; `None` when the connection has ended. No part has a line break.
async fn push(lines: &mut Lines<BufReader<TcpStream>>) -> Option<[String; 3]> {
    assert_eq!(lines.next_line().await.ok()??, "*3");
    let mut parts: [String; 3] = Default::default();
    for part in &mut parts {
        *part = lines.next_line().await.ok()??;
        if part.starts_with('$') {
            *part = lines.next_line().await.ok()??;
        }
    }
    Some(parts)
}
