//! The connections against fake servers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::task::noop_waker_ref;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::{Arg, Call, Connections, Fault, FaultKind, Place, Reply, Script, Settings, Target};

mod commands;
mod demotions;
mod dial;
mod messages;

static SCRIPT: Script = Script::new("x", "return 1");

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn call(word: impl Into<Bytes>) -> Call {
    Call { script: &SCRIPT, keys: 0, words: vec![Arg::Text(word.into())] }
}

/// Larger than the socket buffers between two processes.
fn huge() -> Call {
    call(vec![b'x'; 32 << 20])
}

struct Server(TcpListener);

impl Server {
    async fn start() -> Self {
        Self(TcpListener::bind(("127.0.0.1", 0)).await.unwrap())
    }

    fn target(&self) -> Target {
        let place = Place::Tcp("127.0.0.1".to_owned(), self.0.local_addr().unwrap().port());
        Target { place, tls: None, username: None, password: None, credentials: None, database: 0 }
    }

    /// A client with a connection for commands and one for messages, and the server's ends of both.
    async fn connect(&self, timeout: Duration) -> (Connections, Peer, Peer) {
        self.connect_with(&Settings { command_timeout: timeout, ..Settings::default() }).await
    }

    async fn connect_with(&self, settings: &Settings) -> (Connections, Peer, Peer) {
        let connecting = Connections::connect(self.target(), settings, false, false);
        let (connections, first, second) = tokio::join!(connecting, self.accept(), self.accept());
        let connections = connections.unwrap();
        let (commands, messages) = commands(&connections, first, second).await;
        (connections, commands, messages)
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = self.0.accept().await.unwrap();
        let mut peer = Peer(BufReader::new(stream));
        assert_eq!(peer.words().await[0], b"HELLO");
        peer.say("%0\r\n").await;
        peer
    }
}

struct Peer(BufReader<TcpStream>);

impl Peer {
    /// Reads the next command.
    async fn words(&mut self) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        for _ in 0..self.number().await {
            let mut word = vec![0; self.number().await + 2];
            self.0.read_exact(&mut word).await.unwrap();
            word.truncate(word.len() - 2);
            words.push(word);
        }
        words
    }

    async fn number(&mut self) -> usize {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line[1..].trim().parse().unwrap()
    }

    /// Reads the next command, and returns its last word.
    async fn word(&mut self) -> Vec<u8> {
        self.words().await.pop().unwrap()
    }

    async fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }
}

fn sent(mut exchange: Pin<&mut (impl Future<Output = Result<Reply, Fault>> + ?Sized)>) {
    assert!(exchange.as_mut().poll(&mut Context::from_waker(noop_waker_ref())).is_pending());
}

/// Sorts the two connections of a client, which arrive in any order. The connection that receives a command is returned
/// first.
async fn commands(connections: &Connections, first: Peer, second: Peer) -> (Peer, Peer) {
    let (mut first, mut second) = (first, second);
    let mut asked = connections.run(call("which"));
    sent(asked.as_mut());
    let is_first = tokio::select! {
        _ = first.words() => true,
        _ = second.words() => false,
    };
    if !is_first {
        std::mem::swap(&mut first, &mut second);
    }
    first.say(":0\r\n").await;
    assert_eq!(asked.await.unwrap(), Reply::Int(0));
    (first, second)
}
