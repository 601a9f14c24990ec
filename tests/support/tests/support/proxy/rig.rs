//! A server behind the proxy, and clients that write and read raw bytes.

use std::time::Duration;

use distlock_support::{Admin, Proxy, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(90);

pub(super) struct Rig {
    pub(super) server: RedisServer,
    pub(super) admin: Admin,
    pub(super) proxy: Proxy,
}

impl Rig {
    pub(super) async fn new() -> Self {
        let server = RedisServer::start();
        let admin = Admin::connect(&server).await;
        let proxy = Proxy::start(server.addr());
        Self { server, admin, proxy }
    }

    pub(super) async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.proxy.addr()).await;
        let stream = stream.expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Client(stream)
    }

    /// Waits until the server has executed the client's commands.
    pub(super) async fn until_x(&self, value: i64) {
        crate::until("an execution", async || self.x().await == Some(value)).await;
    }

    pub(super) async fn until_seen(&self, command: &str, n: usize) {
        crate::until(&format!("{n} of {command}"), async || self.proxy.requests_seen(command) >= n).await;
    }

    pub(super) async fn x(&self) -> Option<i64> {
        self.admin.cmd(&["GET", "x"]).await
    }
}

pub(super) struct Client(pub(super) TcpStream);

impl Client {
    pub(super) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.expect("write");
    }

    pub(super) async fn cmd(&mut self, line: &str) {
        self.send(&format!("{line}\r\n")).await;
    }

    pub(super) async fn ping(&mut self) {
        self.cmd("PING").await;
        self.expect("+PONG\r\n").await;
    }

    pub(super) async fn expect(&mut self, expected: &str) {
        let mut got = vec![0; expected.len()];
        let read = self.0.read_exact(&mut got);
        let read = timeout(PATIENCE, read).await;
        let n = read.unwrap_or_else(|_| panic!("no {expected:?} within {PATIENCE:?}"));
        n.expect("read");
        assert_eq!(String::from_utf8_lossy(&got), expected);
    }

    pub(super) async fn silent_for(&mut self, time: Duration) {
        let read = timeout(time, self.0.read(&mut [0; 64])).await;
        assert!(read.is_err(), "not silent: {read:?}");
    }

    /// The result of a read at the end of the connection.
    pub(super) async fn end(&mut self) -> std::io::Result<usize> {
        let read = timeout(PATIENCE, self.0.read(&mut [0; 64])).await;
        read.expect("still open after 90 s")
    }
}
