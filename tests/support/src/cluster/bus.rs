//! Proxies in front of the nodes' bus ports, so that a node can be cut off from the others while it runs.
//!
//! The first message of a link begins with a header that has the sender's id. So a proxy knows which node opened the
//! link.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// Number of bytes at the start of the first message, up to the sender's id or further. `SENDER`: where in them the id
/// is.
const HEAD: usize = 80;
const SENDER: std::ops::Range<usize> = 40..80;

/// The ids of the nodes that are cut off from the rest.
pub(super) type CutOff = watch::Sender<BTreeSet<String>>;

/// The proxy by which other nodes reach a node's bus.
#[derive(Debug)]
pub(super) struct Bus {
    port: u16,
    node: Arc<OnceLock<Behind>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The node behind a proxy.
#[derive(Clone, Debug)]
struct Behind {
    id: String,
    bus: SocketAddr,
}

impl Bus {
    /// Lets no link through before [`Bus::lead_to`].
    pub(super) fn start(cut_off: Arc<CutOff>) -> Self {
        let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| {
            listener.set_nonblocking(true).and(listener.local_addr()).map(|addr| (listener, addr))
        });
        let (listener, addr) = bound.unwrap_or_else(|e| panic!("no port for a bus: {e}"));
        let node = Arc::new(OnceLock::new());
        let (stop, stopped) = oneshot::channel::<()>();
        let behind = Arc::clone(&node);
        let thread = std::thread::Builder::new().name(format!("bus {}", addr.port())).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap_or_else(|e| panic!("no runtime for a bus: {e}"));
            // Dropping the runtime drops the links.
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, behind, cut_off) => {}
                }
            });
        });
        let thread = thread.unwrap_or_else(|e| panic!("no thread for a bus: {e}"));
        Self { port: addr.port(), node, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn lead_to(&self, id: &str, bus: SocketAddr) {
        let behind = Behind { id: id.to_owned(), bus };
        self.node.set(behind).unwrap_or_else(|_| panic!("a bus leads to one node"));
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, node: Arc<OnceLock<Behind>>, cut_off: Arc<CutOff>) {
    let listener =
        TcpListener::from_std(listener).unwrap_or_else(|e| panic!("tokio does not take a bus's listener: {e}"));
    loop {
        let Ok((link, _)) = listener.accept().await else {
            // Most likely a temporary lack of file descriptors.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        if let Some(behind) = node.get() {
            tokio::spawn(carry(link, behind.clone(), cut_off.subscribe()));
        }
    }
}

/// Copies a link in both directions. If either side breaks or the node is unreachable, both sides end.
async fn carry(mut from: TcpStream, to: Behind, mut cut_off: watch::Receiver<BTreeSet<String>>) {
    let mut head = [0; HEAD];
    if from.read_exact(&mut head).await.is_err() {
        return;
    }
    let sender = String::from_utf8_lossy(&head[SENDER]).into_owned();
    if passes(&mut cut_off, &sender, &to.id).await.is_none() {
        return;
    }
    let Ok(mut node) = TcpStream::connect(to.bus).await else { return };
    if node.write_all(&head).await.is_err() {
        return;
    }
    let _ = (from.set_nodelay(true), node.set_nodelay(true));
    let ((reads, writes), (node_reads, node_writes)) = (from.split(), node.split());
    tokio::select! {
        () = copy(reads, node_writes, cut_off.clone(), &sender, &to.id) => {}
        () = copy(node_reads, writes, cut_off.clone(), &sender, &to.id) => {}
    }
}

/// Copies until one side ends. While either node is cut off, the other side does not see the end.
async fn copy(
    mut reads: tokio::net::tcp::ReadHalf<'_>,
    mut writes: tokio::net::tcp::WriteHalf<'_>,
    mut cut_off: watch::Receiver<BTreeSet<String>>,
    sender: &str,
    node: &str,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = reads.read(&mut bytes).await.unwrap_or(0);
        if passes(&mut cut_off, sender, node).await.is_none() || read == 0 {
            return;
        }
        if writes.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Waits until both nodes are cut off, or neither of them is.
async fn passes(cut_off: &mut watch::Receiver<BTreeSet<String>>, one: &str, other: &str) -> Option<()> {
    cut_off.wait_for(|away| away.contains(one) == away.contains(other)).await.ok().map(|_| ())
}
