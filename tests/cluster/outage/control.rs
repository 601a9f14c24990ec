//! A control beside the load: what the machine and the servers take of anybody's time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How often it asks.
const EVERY: Duration = Duration::from_millis(2);

/// From when to when.
type Span = (Instant, Instant);

/// A connection of its own to one server, which reads a key there every 2 ms, in the runtime of the load: so it waits for the same
/// processors and the same server as the load does, but for no other server.
pub(crate) struct Control {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Seen>,
}

/// When nobody could have done better.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The control was late: the machine, or the server, had no time for it.
    late: Vec<Span>,
    /// The cluster refused.
    refused: Vec<Span>,
}

impl Control {
    /// Begins to ask a server for a key that it serves.
    pub(crate) fn start(server: SocketAddr, key: &str) -> Self {
        let (stop, stopped) = oneshot::channel();
        let get = format!("GET {key}\r\n");
        let task = tokio::spawn(watch(server, get, stopped));
        Self { stop, task }
    }

    /// What it has seen.
    pub(crate) async fn end(self) -> Seen {
        self.stop.send(()).expect("it runs until it is told to end");
        self.task.await.expect("a healthy server answers")
    }
}

async fn watch(server: SocketAddr, get: String, mut stopped: oneshot::Receiver<()>) -> Seen {
    let stream = TcpStream::connect(server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (replies, mut commands) = stream.into_split();
    let mut replies = BufReader::new(replies);
    let (mut seen, mut reply) = (Seen::default(), String::new());
    let (mut last, mut refused_since) = (Instant::now(), None);
    while stopped.try_recv().is_err() {
        tokio::time::sleep(EVERY).await;
        commands.write_all(get.as_bytes()).await.unwrap();
        reply.clear();
        replies.read_line(&mut reply).await.unwrap();
        let now = Instant::now();
        match (reply.trim_end(), refused_since) {
            ("$-1", None) => {}
            ("$-1", Some(since)) => {
                seen.refused.push((since, now));
                refused_since = None;
            }
            (reply, _) => {
                assert!(reply.starts_with("-CLUSTERDOWN"), "{reply}");
                refused_since.get_or_insert(last);
            }
        }
        // A timer's own step is 1 ms.
        if now - last > 2 * EVERY {
            seen.late.push((last + EVERY, now));
        }
        last = now;
    }
    seen.refused.extend(refused_since.map(|since| (since, Instant::now())));
    seen
}

impl Seen {
    /// How much of this time nobody could have used.
    pub(crate) fn excused(&self, from: Instant, to: Instant) -> Duration {
        let mut spans: Vec<Span> = self.late.iter().chain(&self.refused).copied().collect();
        spans.sort_unstable();
        let (mut at, mut sum) = (from, Duration::ZERO);
        for (begin, end) in spans {
            let (begin, end) = (begin.max(at), end.min(to));
            if begin < end {
                sum += end - begin;
                at = end;
            }
        }
        sum
    }

    /// For how long the cluster refused in this time, in all.
    pub(crate) fn refused(&self, from: Instant, to: Instant) -> Duration {
        let spans =
            self.refused.iter().map(|(begin, end)| (*end).min(to).saturating_duration_since((*begin).max(from)));
        spans.sum()
    }
}
