//! A fake server with configurable replies to scripts. Other commands are supported only as needed to connect.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Maps the words of a script call, from `EVALSHA` on, to the bytes of the reply. `None`: no reply.
pub type Answer = Box<dyn FnMut(&[Vec<u8>]) -> Option<Vec<u8>> + Send>;

/// A server on one task, until dropped.
pub struct Fake {
    addr: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    task: JoinHandle<()>,
}

impl Fake {
    /// Starts the server. It replies nil to every script.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let addr = listener.local_addr().expect("bound");
        let nil: Answer = Box::new(|_| Some(b"_\r\n".to_vec()));
        let answer = Arc::new(Mutex::new(nil));
        let answers = Arc::clone(&answer);
        let task = tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = Arc::clone(&answers);
                served.spawn(async move { drop(serve(stream, answers).await) });
            }
        });
        Self { addr, answer, task }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    pub fn set(&self, answer: impl FnMut(&[Vec<u8>]) -> Option<Vec<u8>> + Send + 'static) {
        *self.answer.lock() = Box::new(answer);
    }

    pub fn always(&self, reply: &[u8]) {
        let reply = reply.to_vec();
        self.set(move |_| Some(reply.clone()));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, answers: Arc<Mutex<Answer>>) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let words = request(&mut read).await?;
        let reply = match words[0].to_ascii_uppercase().as_slice() {
            b"HELLO" => Some(b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_vec()),
            b"PING" => Some(b"+PONG\r\n".to_vec()),
            b"INFO" => Some(b"$20\r\nredis_version:7.0.15\r\n".to_vec()),
            b"CLIENT" => Some(b":1\r\n".to_vec()),
            b"SUBSCRIBE" | b"UNSUBSCRIBE" => {
                let verb = String::from_utf8_lossy(&words[0]).to_lowercase();
                let mut pushes = Vec::new();
                for channel in &words[1..] {
                    pushes.extend(format!(">3\r\n${}\r\n{verb}\r\n${}\r\n", verb.len(), channel.len()).bytes());
                    pushes.extend(channel);
                    pushes.extend(b"\r\n:1\r\n");
                }
                Some(pushes)
            }
            b"EVALSHA" | b"EVAL" => answers.lock()(&words),
            _ => Some(b"+OK\r\n".to_vec()),
        };
        if let Some(reply) = reply {
            write.write_all(&reply).await?;
        }
    }
}

/// Reads one command: an array of bulk strings, or a line of words (fred sends `HELLO` in this form).
async fn request(read: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Vec<Vec<u8>>> {
    let line = line(read).await?;
    let Some(count) = line.strip_prefix('*') else {
        return Ok(line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect());
    };
    let mut words = Vec::new();
    for _ in 0..number(count)? {
        let length = number(line_after(read, '$').await?.trim_end())?;
        let mut word = vec![0; length + 2];
        read.read_exact(&mut word).await?;
        word.truncate(length);
        words.push(word);
    }
    Ok(words)
}

async fn line(read: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<String> {
    let mut line = String::new();
    match read.read_line(&mut line).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

async fn line_after(read: &mut (impl AsyncBufRead + Unpin), sign: char) -> std::io::Result<String> {
    let line = line(read).await?;
    line.strip_prefix(sign).map(str::to_owned).ok_or_else(|| std::io::Error::other(format!("not understood: {line:?}")))
}

fn number(text: &str) -> std::io::Result<usize> {
    text.parse().map_err(|_| std::io::Error::other(format!("no number: {text:?}")))
}
