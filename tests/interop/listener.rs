//! A connection that receives every message on the server, to compare published messages.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use distlock_support::Admin;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::rig::until;

/// A channel of no lock. A message here proves that all earlier messages have arrived.
const MARK: &str = "interop:mark";

#[derive(Clone, Debug)]
pub struct Message {
    pub channel: String,
    pub payload: Vec<u8>,
}

type Heard = Arc<Mutex<VecDeque<Message>>>;

pub struct Listener {
    heard: Heard,
    task: JoinHandle<()>,
}

impl Listener {
    /// Subscribes to all channels of this server.
    pub async fn open(addr: SocketAddr) -> Self {
        let mut wire = BufReader::new(TcpStream::connect(addr).await.expect("a connection"));
        wire.write_all(b"PSUBSCRIBE *\r\n").await.expect("to subscribe");
        let heard = Heard::default();
        let shared = Arc::clone(&heard);
        assert_eq!(reply(&mut wire).await.expect("reply")[0], b"psubscribe");
        let task = tokio::spawn(async move {
            while let Some(mut words) = reply(&mut wire).await {
                let payload = words.pop().expect("a message");
                let channel = String::from_utf8_lossy(&words.pop().expect("a channel")).into_owned();
                shared.lock().push_back(Message { channel, payload });
            }
        });
        Self { heard, task }
    }

    /// Returns the messages since the last call, in order.
    pub async fn take(&self, admin: &Admin) -> Vec<Message> {
        admin.publish(MARK, b"0").await;
        until("the mark", async || self.heard.lock().iter().any(|message| message.channel == MARK)).await;
        let mut heard = self.heard.lock();
        heard.drain(..).filter(|message| message.channel != MARK).collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one flat reply: a list of texts and numbers. None at the end of the connection.
async fn reply(wire: &mut BufReader<TcpStream>) -> Option<Vec<Vec<u8>>> {
    let count: usize = line(wire).await?.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let head = line(wire).await?;
        let word = match head.strip_prefix('$') {
            Some(length) => {
                let mut word = vec![0; length.parse::<usize>().ok()? + 2];
                wire.read_exact(&mut word).await.ok()?;
                word.truncate(word.len() - 2);
                word
            }
            None => head.into_bytes(),
        };
        words.push(word);
    }
    Some(words)
}

async fn line(wire: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = wire.read_line(&mut line).await.ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}
