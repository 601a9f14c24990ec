//! Checks the order in which waiters of a fair lock are served, by looks at its queue. A waiter must not acquire before
//! a waiter ahead of it that still waits.

use crate::prelude::*;
use std::collections::BTreeSet;

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

    /// Exempts an owner that may leave the queue and return between two looks.
    pub fn except(&mut self, owner: String) {
        self.except.insert(owner);
    }

    /// Reads holder and queue. Returns an error text if a new holder overtook a waiter that still waits.
    pub fn look(&mut self, server: &SimServer) -> Option<String> {
        let holder = words(&does(server, &format!("hkeys {}", self.hash))).into_iter().next();
        let queue = words(&does(server, &format!("lrange {} 0 -1", self.list)));
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

#[test]
fn overtaking_in_queue_is_reported() {
    let server = SimServer::new(1);
    let mut order = Order::new("n");
    does(&server, "hset n h 1");
    does(&server, "rpush redisson_lock_queue:{n} a b c");
    assert_eq!(order.look(&server), None);
    let next = |holder: &str| {
        does(&server, &format!("lrem redisson_lock_queue:{{n}} 0 {holder}"));
        does(&server, "del n");
        does(&server, &format!("hset n {holder} 1"));
    };
    next("a");
    assert_eq!(order.look(&server), None);
    next("c");
    assert!(order.look(&server).is_some());
}
