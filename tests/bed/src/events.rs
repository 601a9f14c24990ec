//! A separate subscriber that counts messages and keyspace events.

use std::sync::Arc;

use distlock_support::RedisServer;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Collects the messages of some channels as (channel, message).
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
        let mut wire = Wire { stream, bytes: Vec::new(), at: 0 };
        for _ in channels {
            assert_eq!(wire.push().await.unwrap()[0], "subscribe");
        }
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Some(mut push) = wire.push().await {
                let message = push.pop().unwrap();
                told.lock().push((push.pop().unwrap(), message));
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

struct Wire {
    stream: TcpStream,
    bytes: Vec<u8>,
    at: usize,
}

impl Wire {
    /// The three parts of a message or confirmation; `None` when the connection has ended.
    async fn push(&mut self) -> Option<Vec<String>> {
        let head = self.line().await?;
        assert_eq!(head, "*3");
        let mut parts = Vec::new();
        for _ in 0..3 {
            let line = self.line().await?;
            match line.strip_prefix('$') {
                Some(length) => {
                    let length: usize = length.parse().unwrap();
                    self.fill(length + 2).await?;
                    parts.push(String::from_utf8_lossy(&self.bytes[self.at..self.at + length]).into_owned());
                    self.at += length + 2;
                }
                None => parts.push(line),
            }
        }
        Some(parts)
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.bytes[self.at..].windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.bytes[self.at..self.at + end]).into_owned();
                self.at += end + 2;
                return Some(line);
            }
            let have = self.bytes.len() - self.at;
            self.fill(have + 1).await?;
        }
    }

    /// Reads until at least `n` bytes are unread.
    async fn fill(&mut self, n: usize) -> Option<()> {
        while self.bytes.len() - self.at < n {
            let mut chunk = [0; 4096];
            let read = self.stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
            self.bytes.extend_from_slice(&chunk[..read]);
        }
        Some(())
    }
}
