//! A TCP proxy between a client and a server that simulates network faults: delays, silence, lost requests and
//! replies, resets, and bytes that arrive one by one.
//!
//! It parses RESP2 and RESP3 far enough to tell requests and replies apart, so that a fault can hit the reply to the
//! third `EVALSHA` and nothing else:
//!
//! ```no_run
//! # async fn example() {
//! use distlock_support::{RedisServer, proxy::{Action, Matcher, Proxy}};
//!
//! let server = RedisServer::start();
//! let proxy = Proxy::start(server.addr());
//! let armed = proxy.on_request(Matcher::command("EVALSHA").nth(3), Action::SwallowReplyClose);
//! // ... use proxy.url() ...
//! armed.fired().await;
//! # }
//! ```
//!
//! It runs on its own thread, so it does not count among the tasks of the runtime under test, and does not stop when
//! that runtime blocks. `CLIENT REPLY` and `MONITOR` would break its matching of replies to requests.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

mod awaited;
mod conn;
mod resp;
mod rules;

use conn::{Conn, End};
use rules::Rules;

use crate::numbers::Numbers;

pub use rules::{Action, Armed, Matcher};

/// Limit of the log, which drops its oldest events.
const LOG_EVENTS: usize = 20_000;

/// Treatment of all traffic in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Frames pass at once.
    Pass,
    /// Each frame is delayed by this time. The order is kept.
    Delay(Duration),
    /// Each frame is delayed by a random time between the two. The order is kept.
    Jitter(Duration, Duration),
    /// Nothing is read, written or closed. Everything continues when the mode changes.
    Hang,
    /// Frames are read and discarded.
    Drop,
    /// Published messages are discarded, replies pass. For requests this is [`Mode::Pass`].
    DropMessages,
    /// Frames are written byte by byte.
    Split,
}

/// A direction, as seen by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

#[derive(Clone, Debug)]
struct Control {
    upstream: SocketAddr,
    up: Mode,
    down: Mode,
    blackhole: bool,
    refuse: bool,
}

impl Control {
    fn pass(upstream: SocketAddr) -> Self {
        Self { upstream, up: Mode::Pass, down: Mode::Pass, blackhole: false, refuse: false }
    }

    fn mode(&self, way: Direction) -> Mode {
        match way {
            Direction::Up => self.up,
            Direction::Down => self.down,
        }
    }

    fn hangs(&self, way: Direction) -> bool {
        self.blackhole || self.mode(way) == Mode::Hang
    }
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    control: watch::Sender<Control>,
    rules: Mutex<Rules>,
    seen: Mutex<BTreeMap<String, usize>>,
    connections: Mutex<BTreeMap<u64, mpsc::UnboundedSender<End>>>,
    log: Mutex<VecDeque<(Duration, String)>>,
    numbers: Mutex<Numbers>,
}

impl Shared {
    fn log(&self, event: String) {
        let mut log = self.log.lock();
        if log.len() == LOG_EVENTS {
            log.pop_front();
        }
        log.push_back((self.start.elapsed(), event));
    }

    fn count(&self, command: &str) -> usize {
        let mut seen = self.seen.lock();
        let n = seen.entry(command.to_owned()).or_default();
        *n += 1;
        *n
    }

    fn forget(&self, id: u64) {
        self.connections.lock().remove(&id);
    }

    fn end_all(&self, end: End) {
        self.log(format!("all connections: {end:?}"));
        for connection in self.connections.lock().values() {
            let _ = connection.send(end);
        }
    }

    /// When to forward a frame that arrives now. `None`: at once.
    fn due(&self, mode: Mode) -> Option<Instant> {
        match mode {
            Mode::Delay(d) => Some(Instant::now() + d),
            Mode::Jitter(least, most) => {
                let part = self.numbers.lock().fraction();
                Some(Instant::now() + least + most.saturating_sub(least).mul_f64(part))
            }
            Mode::Pass | Mode::Hang | Mode::Drop | Mode::DropMessages | Mode::Split => None,
        }
    }
}

/// A proxy on its own port. Dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of `upstream` that passes everything at first.
    pub fn start(upstream: SocketAddr) -> Self {
        let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|l| l.set_nonblocking(true).and(l.local_addr()).map(|addr| (l, addr)));
        let (listener, addr) = bound.unwrap_or_else(|e| panic!("no port for the proxy: {e}"));
        let shared = Arc::new(Shared {
            start: Instant::now(),
            control: watch::Sender::new(Control::pass(upstream)),
            rules: Mutex::default(),
            seen: Mutex::default(),
            connections: Mutex::default(),
            log: Mutex::default(),
            numbers: Mutex::new(Numbers::new(u64::from(addr.port()))),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let acceptor = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("proxy {}", addr.port()))
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap_or_else(|e| panic!("no runtime for the proxy: {e}"));
                // Dropping the runtime drops the connections.
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = accept(listener, acceptor) => {}
                    }
                });
            })
            .unwrap_or_else(|e| panic!("no thread for the proxy: {e}"));
        Self { addr, shared, stop: Some(stop), thread: Some(thread) }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Sets the mode of requests on all connections.
    pub fn set_upstream_mode(&self, mode: Mode) {
        self.set(format!("requests: {mode:?}"), |c| c.up = mode);
    }

    /// Sets the mode of replies and messages on all connections.
    pub fn set_downstream_mode(&self, mode: Mode) {
        self.set(format!("replies: {mode:?}"), |c| c.down = mode);
    }

    /// Makes both directions hang, including the ends of connections. New connections are accepted and hang too.
    /// Everything continues when this is switched off.
    pub fn blackhole(&self, on: bool) {
        self.set(format!("black hole: {on}"), |c| c.blackhole = on);
    }

    /// Resets new connections at once. Existing connections stay.
    pub fn refuse(&self, on: bool) {
        self.set(format!("refuse: {on}"), |c| c.refuse = on);
    }

    /// Sets the target of new connections, for example after a failover.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.set(format!("upstream: {upstream}"), |c| c.upstream = upstream);
    }

    /// Passes everything again, and disarms all actions.
    pub fn heal(&self) {
        self.shared.rules.lock().clear();
        self.set("healed".to_owned(), |c| *c = Control::pass(c.upstream));
    }

    pub fn close_all(&self) {
        self.shared.end_all(End::Close);
    }

    pub fn rst_all(&self) {
        self.shared.end_all(End::Rst);
    }

    /// Runs `action` once, on the request that `matcher` selects.
    pub fn on_request(&self, matcher: Matcher, action: Action) -> Armed {
        self.shared.log(format!("armed: {matcher:?} {action:?}"));
        self.shared.rules.lock().arm(matcher, action)
    }

    /// Number of open connections. A connection that its client closed during a hang still counts.
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().len()
    }

    /// Number of requests of a command that arrived, including requests that were not forwarded.
    pub fn requests_seen(&self, command: &str) -> usize {
        let command = command.to_ascii_uppercase();
        self.shared.seen.lock().get(&command).copied().unwrap_or(0)
    }

    /// The last 20,000 events, each with its time since the start.
    pub fn log(&self) -> Vec<(Duration, String)> {
        self.shared.log.lock().iter().cloned().collect()
    }

    fn set(&self, event: String, change: impl FnOnce(&mut Control)) {
        self.shared.log(event);
        self.shared.control.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the proxy has panicked");
        }
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener =
        TcpListener::from_std(listener).unwrap_or_else(|e| panic!("tokio does not take the proxy's listener: {e}"));
    for id in 1.. {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(e) => {
                // Most likely a temporary lack of file descriptors.
                shared.log(format!("accept: {e}"));
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        if shared.control.borrow().refuse {
            shared.log(format!("[{id}] refused"));
            let _ = client.set_zero_linger();
            continue;
        }
        shared.log(format!("[{id}] accepted"));
        let _ = client.set_nodelay(true);
        let (end, ended) = mpsc::unbounded_channel();
        shared.connections.lock().insert(id, end);
        tokio::spawn(Conn::new(id, shared.clone()).run(client, ended));
    }
}
