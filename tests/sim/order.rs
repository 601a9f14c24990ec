//! The order in which the waiters of a fair lock are served (F1o), from looks at its queue.

use std::collections::BTreeSet;

use distlock_sim::{SimReply, SimServer};

/// What the last look at one lock saw.
pub struct Order {
    hash: String,
    list: String,
    holder: Option<String>,
    queue: Vec<String>,
    except: BTreeSet<String>,
}

impl Order {
    pub fn new(name: &str) -> Self {
        let list = format!("redisson_lock_queue:{{{name}}}");
        Self { hash: name.to_owned(), list, holder: None, queue: Vec::new(), except: BTreeSet::new() }
    }

    /// An owner that leaves the queue and comes back unseen.
    pub fn except(&mut self, owner: String) {
        self.except.insert(owner);
    }

    /// Looks again; what is out of order since the last time.
    pub fn look(&mut self, server: &SimServer) -> Option<String> {
        let words = |command: &[&[u8]]| match server.command(command) {
            SimReply::List(items) => items.iter().map(word).collect(),
            odd => panic!("{odd:?}"),
        };
        let holder: Option<String> = Vec::into_iter(words(&[b"hkeys", self.hash.as_bytes()])).next();
        let queue: Vec<String> = words(&[b"lrange", self.list.as_bytes(), b"0", b"-1"]);
        let (before, last) = (std::mem::replace(&mut self.queue, queue), std::mem::replace(&mut self.holder, holder));
        if let Some(holder) = self.holder.as_ref().filter(|holder| Some(*holder) != last.as_ref())
            && let Some(place) = before.iter().position(|owner| owner == holder)
        {
            let still = |owner: &&String| self.queue.contains(*owner) && !self.except.contains(*owner);
            let ahead: Vec<_> = before[..place].iter().filter(still).collect();
            if !ahead.is_empty() {
                return Some(format!("F1o: {holder} is served before {ahead:?}; the queue was {before:?}"));
            }
        }
        None
    }
}

fn word(item: &SimReply) -> String {
    match item {
        SimReply::Text(text) => String::from_utf8_lossy(text).into_owned(),
        odd => panic!("{odd:?}"),
    }
}

#[test]
fn overtaking_is_seen() {
    let server = SimServer::new(1);
    let mut order = Order::new("n");
    server.command(&[b"hset", b"n", b"h", b"1"]);
    server.command(&[b"rpush", b"redisson_lock_queue:{n}", b"a", b"b", b"c"]);
    assert_eq!(order.look(&server), None);
    let next = |gone: &[u8], holder: &[u8]| {
        server.command(&[b"lrem", b"redisson_lock_queue:{n}", b"0", gone]);
        server.command(&[b"del", b"n"]);
        server.command(&[b"hset", b"n", holder, b"1"]);
    };
    next(b"a", b"a");
    assert_eq!(order.look(&server), None);
    next(b"c", b"c");
    assert!(order.look(&server).is_some());
}
