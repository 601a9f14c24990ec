//! A control beside the load: what the machine and the servers take of anybody's time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it asks.
const EVERY: Duration = Duration::from_millis(2);

/// From when to when.
type Span = (Instant, Instant);

/// A thread of its own with a connection of its own to one server, so that nothing that the client does to its runtime slows it:
/// it reads a key every 2 ms.
pub(crate) struct Control {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
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
        let stopped = Arc::new(AtomicBool::new(false));
        let (until, get) = (Arc::clone(&stopped), format!("GET {key}\r\n"));
        let thread = std::thread::spawn(move || watch(server, &get, &until));
        Self { stopped, thread }
    }

    /// What it has seen.
    pub(crate) fn end(self) -> Seen {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().expect("a control ends well")
    }
}

fn watch(server: SocketAddr, get: &str, until: &AtomicBool) -> Seen {
    let mut stream = TcpStream::connect(server).expect("a healthy server");
    stream.set_nodelay(true).expect("a socket");
    let mut replies = BufReader::new(stream.try_clone().expect("a socket"));
    let (mut seen, mut reply) = (Seen::default(), String::new());
    let (mut last, mut refused_since) = (Instant::now(), None);
    while !until.load(Ordering::Relaxed) {
        std::thread::sleep(EVERY);
        stream.write_all(get.as_bytes()).expect("a healthy server");
        reply.clear();
        replies.read_line(&mut reply).expect("a healthy server");
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
        let spans = self.refused.iter().map(|(begin, end)| (*end).min(to).saturating_duration_since((*begin).max(from)));
        spans.sum()
    }
}
