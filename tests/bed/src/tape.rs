//! Counts the commands that clients themselves send. `INFO commandstats` would include commands inside scripts, so
//! this listens to `MONITOR`, which marks such commands by `lua`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_support::RedisServer;
use distlock_support::admin::{Admin, NAME, RESET};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::wire::monitor;
use crate::{Place, eventually};

/// The commands at all servers of a place since [`Admin::reset_stats`].
pub(crate) struct Tape(Vec<Ear>);

/// A command: the address of the connection that sent it, and its words.
type Call = (String, Vec<String>);

/// The channel on which sentinels announce themselves to each other every 2 s.
const GREETINGS: &str = "__sentinel__:hello";

struct Ear {
    admin: Admin,
    calls: Arc<Mutex<Vec<Call>>>,
    task: JoinHandle<()>,
}

impl Tape {
    pub(crate) async fn start(place: &Place) -> Self {
        Self(join_all(place.servers().into_iter().map(Ear::open)).await)
    }

    /// Counts the commands that clients sent, without administrators and sentinels. Names are in lower case. Sharded
    /// commands count under their plain names.
    pub(crate) async fn sent(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for name in join_all(self.0.iter().map(Ear::sent)).await.concat() {
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

impl Ear {
    async fn open(server: &RedisServer) -> Self {
        let admin = Admin::connect(server).await;
        let mut lines = monitor(server).await;
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let heard = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(call) = call(&line) {
                    heard.lock().push(call);
                }
            }
        });
        Self { admin, calls, task }
    }

    async fn sent(&self) -> Vec<String> {
        static MARKS: AtomicU64 = AtomicU64::new(0);
        let mark = format!("mark {}", MARKS.fetch_add(1, Ordering::Relaxed));
        let _: String = self.admin.cmd(&["ECHO", &mark]).await;
        let is_heard = async || self.calls.lock().iter().any(|(_, words)| words.last() == Some(&mark));
        eventually("MONITOR has shown all commands", is_heard).await;
        let list = self.admin.client_list().await;
        let admins: Vec<_> = list.iter().filter(|c| c.name == NAME).map(|c| &c.addr).collect();
        let mut calls = self.calls.lock();
        let is_reset = |(_, words): &Call| words.last().is_some_and(|word| word == RESET);
        if let Some(at) = calls.iter().rposition(is_reset) {
            calls.drain(..=at);
        }
        let is_greeting = |words: &[String]| words.get(1).is_some_and(|channel| channel == GREETINGS);
        let own = calls.iter().filter(|(from, words)| !admins.contains(&from) && !is_greeting(words));
        own.filter_map(|(_, words)| words.first().map(|name| plain(&name.to_lowercase()).to_owned())).collect()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Parses a line such as `+1700000000.123 [0 127.0.0.1:5000] "get" "key"`. `None` for a command inside a script.
fn call(line: &str) -> Option<Call> {
    let (from, words) = line.split_once('[')?.1.split_once(']')?;
    let from = from.split_once(' ')?.1;
    let words = words.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    (from != "lua").then(|| (from.to_owned(), words))
}

fn plain(name: &str) -> &str {
    match name {
        "ssubscribe" | "sunsubscribe" | "spublish" => &name[1..],
        _ => name,
    }
}
