//! One connection through the proxy. Two readers split the streams into frames and decide what to do with each. Two
//! writers write the frames in order and on time.

mod frames;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::awaited::Awaited;
use super::resp;
use super::rules::Flag;
use super::{Direction, Mode, Shared};

/// How a connection ends, as seen by the client.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Close,
    Rst,
}

/// How a connection ends, and the action that ended it.
type Ending = (End, Option<Flag>);

#[derive(Debug)]
struct Step {
    at: Option<Instant>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Write(Bytes),
    End(End, Option<Flag>),
}

type Steps = mpsc::UnboundedSender<Step>;

pub(super) struct Conn {
    id: u64,
    shared: Arc<Shared>,
    awaited: Mutex<Awaited>,
    resp3: AtomicBool,
    subscriber: AtomicBool,
    client_gone: watch::Sender<bool>,
}

impl Conn {
    pub(super) fn new(id: u64, shared: Arc<Shared>) -> Self {
        Self {
            id,
            shared,
            awaited: Mutex::default(),
            resp3: AtomicBool::new(false),
            subscriber: AtomicBool::new(false),
            client_gone: watch::Sender::new(false),
        }
    }

    /// Serves the connection until it ends, or until `ended` ends it.
    pub(super) async fn run(self, mut client: TcpStream, mut ended: mpsc::UnboundedReceiver<End>) {
        let mut server = None;
        let (end, flag) = tokio::select! {
            end = ended.recv() => (end.unwrap_or(End::Close), None),
            end = async {
                match self.reach().await {
                    Ok(stream) => self.serve(&mut client, server.insert(stream)).await,
                    Err(e) => {
                        self.log(format!("no upstream: {e}"));
                        (End::Rst, None)
                    }
                }
            } => end,
        };
        self.log(format!("ends: {end:?}"));
        if matches!(end, End::Rst) {
            let _ = client.set_zero_linger();
        }
        drop(client);
        self.shared.forget(self.id);
        flag.iter().for_each(Flag::raise);
        if let Some(server) = server {
            farewell(server).await;
        }
    }

    /// Connects to the upstream. Waits while the proxy is a black hole.
    async fn reach(&self) -> io::Result<TcpStream> {
        let mut control = self.shared.control.subscribe();
        let upstream = match control.wait_for(|c| !c.blackhole).await {
            Ok(control) => control.upstream,
            Err(_) => return Err(io::ErrorKind::NotConnected.into()),
        };
        let server = TcpStream::connect(upstream).await?;
        server.set_nodelay(true)?;
        Ok(server)
    }

    async fn serve(&self, client: &mut TcpStream, server: &mut TcpStream) -> Ending {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (up, up_steps) = mpsc::unbounded_channel();
        let (down, down_steps) = mpsc::unbounded_channel();
        // A reader ends by dropping its channel. The writer then writes everything in the channel, and ends the
        // connection.
        let readers = async {
            tokio::join!(self.requests(from_client, up), self.replies(from_server, down));
            std::future::pending::<Ending>().await
        };
        tokio::select! {
            end = readers => end,
            end = self.write(Direction::Up, to_server, up_steps) => end,
            end = self.write(Direction::Down, to_client, down_steps) => end,
        }
    }

    async fn requests(&self, mut from: ReadHalf<'_>, steps: Steps) {
        let mut buf = BytesMut::new();
        let mut raw = false;
        while self.read(Direction::Up, &mut from, &mut buf).await {
            while !raw && !buf.is_empty() {
                match resp::request_len(&buf) {
                    Ok(Some(len)) => {
                        if !self.request(buf.split_to(len).freeze(), &steps) {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(resp::NotResp) => raw = true,
                }
            }
            if raw {
                self.raw(Direction::Up, buf.split().freeze(), &steps);
            }
        }
        self.client_gone.send_replace(true);
    }

    async fn replies(&self, mut from: ReadHalf<'_>, steps: Steps) {
        let mut buf = BytesMut::new();
        let mut raw = false;
        while self.read(Direction::Down, &mut from, &mut buf).await {
            while !raw && !buf.is_empty() {
                match resp::reply_len(&buf) {
                    Ok(Some(len)) => match self.reply(buf.split_to(len).freeze(), &steps) {
                        Next::GoOn => {}
                        Next::Finish => return,
                        Next::Hang => return self.until_client_gone().await,
                    },
                    Ok(None) => break,
                    Err(resp::NotResp) => raw = true,
                }
            }
            if raw {
                self.raw(Direction::Down, buf.split().freeze(), &steps);
            }
        }
    }

    /// Reads more. Returns false at the end of the stream.
    async fn read(&self, way: Direction, from: &mut ReadHalf<'_>, buf: &mut BytesMut) -> bool {
        self.gate(way).await;
        let more = matches!(from.read_buf(buf).await, Ok(n) if n > 0);
        // A hang that began during the read also holds the data of this read.
        self.gate(way).await;
        more
    }

    /// Bytes that are not RESP (TLS): modes apply, actions do not.
    fn raw(&self, way: Direction, bytes: Bytes, steps: &Steps) {
        let mode = self.shared.control.borrow().mode(way);
        if mode != Mode::Drop && !bytes.is_empty() {
            send(steps, self.shared.due(mode), Work::Write(bytes));
        }
    }

    async fn write(&self, way: Direction, mut to: WriteHalf<'_>, mut steps: mpsc::UnboundedReceiver<Step>) -> Ending {
        while let Some(step) = steps.recv().await {
            if let Some(at) = step.at {
                sleep_until(at).await;
            }
            self.gate(way).await;
            match step.work {
                Work::End(end, flag) => return (end, flag),
                // A write fails if the other side has closed. The reader of that side notices.
                Work::Write(bytes) if self.shared.control.borrow().mode(way) != Mode::Split => {
                    let _ = to.write_all(&bytes).await;
                }
                Work::Write(bytes) => {
                    for byte in bytes {
                        let _ = to.write_all(&[byte]).await;
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        let _ = to.shutdown().await;
        match way {
            // The client has sent everything. The server closes when it has answered everything.
            Direction::Up => std::future::pending().await,
            Direction::Down => (End::Close, None),
        }
    }

    /// Waits while the direction hangs. For replies, the wait also ends when the client disconnects.
    async fn gate(&self, way: Direction) {
        if !self.shared.control.borrow().hangs(way) {
            return;
        }
        let mut control = self.shared.control.subscribe();
        let flows = control.wait_for(|c| !c.hangs(way));
        match way {
            Direction::Up => drop(flows.await),
            Direction::Down => tokio::select! {
                _ = flows => {}
                () = self.until_client_gone() => {}
            },
        }
    }

    async fn until_client_gone(&self) {
        let _ = self.client_gone.subscribe().wait_for(|gone| *gone).await;
    }

    fn log(&self, event: String) {
        self.shared.log(format!("[{}] {event}", self.id));
    }
}

enum Next {
    GoOn,
    Finish,
    Hang,
}

fn send(steps: &Steps, at: Option<Instant>, work: Work) {
    // If the writer has ended, the connection has ended too, and nothing needs to be sent.
    let _ = steps.send(Step { at, work });
}

/// Lets the server read everything before the connection ends. Closing with unread replies would reset the connection.
async fn farewell(mut server: TcpStream) {
    let drain = async {
        let _ = server.shutdown().await;
        let mut buf = [0; 4096];
        while matches!(server.read(&mut buf).await, Ok(n) if n > 0) {}
    };
    let _ = timeout(Duration::from_secs(5), drain).await;
}
