//! A child process that waits for fair locks, to be killed or frozen.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Guard};
use distlock_support::{Admin, Child, Numbers, child};

use bed::{Bed, ms};

/// The list on the server where holders record each acquire (`+`) and release (`-`).
pub const HISTORY: &str = "history";

/// A peer process, as the parent sees it. It is killed on drop.
pub struct Peer {
    pub child: Child,
    pub id: String,
}

impl Peer {
    /// Starts a peer with options: `FAIR_WAIT`, in ms.
    pub async fn start(bed: &Bed, options: &[(&str, &str)]) -> Self {
        let url = bed.server.url();
        let mut child = Child::spawn("peer::peer_process", &[&[("URL", url.as_str())], options].concat());
        let id = child.line().await.unwrap_or_else(|| panic!("no peer: {}", child.output()));
        Self { child, id }
    }

    pub async fn several(bed: &Bed, count: usize, options: &[(&str, &str)]) -> Vec<Self> {
        futures::future::join_all((0..count).map(|_| Self::start(bed, options))).await
    }

    /// Makes tasks wait for a lock. Each prints `+` and the name when it holds the lock, releases, and prints `-` and
    /// the name.
    pub fn wait(&mut self, name: &str, tasks: usize) {
        self.child.tell(&format!("wait {name} {tasks}"));
    }

    /// Makes tasks take a lock `rounds` times each. They give up `cancel` percent of the waits.
    pub fn contend(&mut self, name: &str, tasks: usize, rounds: usize, cancel: u64) {
        self.child.tell(&format!("contend {name} {tasks} {rounds} {cancel}"));
    }

    /// Waits until all work of [`contend`](Self::contend) is done. The peer reports each round, so even a slow peer is
    /// never silent for long.
    pub async fn contended(&mut self, tasks: usize, rounds: usize) {
        for _ in 0..tasks * rounds {
            self.child.expect("a round").await;
        }
        self.child.expect("done").await;
    }

    pub async fn close(mut self) {
        self.child.tell("close");
        self.child.expect("closed").await;
        assert!(self.child.wait().await.success(), "{}", self.child.output());
    }
}

/// Returns the ids of all entries, in order.
///
/// # Panics
/// If two holders overlap.
pub async fn history(bed: &Bed) -> Vec<String> {
    let lines: Vec<String> = bed.admin.cmd(&["LRANGE", HISTORY, "0", "-1"]).await;
    let came_and_went = |pair: &[String]| {
        let id = pair[0].strip_prefix('+').unwrap_or_else(|| panic!("{} has not come in: {lines:?}", pair[0]));
        assert_eq!(pair.get(1), Some(&format!("-{id}")), "somebody came while {id} was inside");
        id.to_owned()
    };
    lines.chunks(2).map(came_and_went).collect()
}

/// Records an entry and an exit, and releases the lock.
async fn visit(guard: Guard, admin: &Admin, id: &str) {
    let _: u64 = admin.cmd(&["RPUSH", HISTORY, &format!("+{id}")]).await;
    let _: u64 = admin.cmd(&["RPUSH", HISTORY, &format!("-{id}")]).await;
    guard.unlock().await.unwrap_or_else(|error| panic!("a release failed: {error:?}"));
}

async fn wait(client: Client, admin: Arc<Admin>, name: String) {
    let guard = client.fair(&name).lock().await.unwrap_or_else(|error| panic!("a waiter failed: {error:?}"));
    child::say(&format!("+ {name}"));
    visit(guard, &admin, client.id()).await;
    child::say(&format!("- {name}"));
}

async fn contend(client: Client, admin: Arc<Admin>, name: String, rounds: u64, cancel: u64, seed: u64) {
    let (lock, mut numbers) = (client.fair(&name), Numbers::new(seed));
    for _ in 0..rounds {
        if numbers.below(100) < cancel {
            let patience = Duration::from_micros(numbers.below(40_000));
            let early = if numbers.below(2) == 0 {
                tokio::time::timeout(patience, lock.lock()).await.ok().map(|guard| guard.unwrap())
            } else {
                lock.lock_for(patience).await.unwrap_or_else(|error| {
                    assert!(error.is_retryable(), "{error:?}");
                    None
                })
            };
            if let Some(guard) = early {
                visit(guard, &admin, client.id()).await;
            }
        }
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("a waiter failed: {error:?}"));
        visit(guard, &admin, client.id()).await;
        child::say("a round");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let url = std::env::var("URL").unwrap();
    let admin = Arc::new(Admin::from_url(&url).await);
    let mut builder = bed::builder(&url);
    if let Ok(wait) = std::env::var("FAIR_WAIT") {
        builder = builder.fair_wait(ms(wait.parse().unwrap()));
    }
    let client = builder.connect().await.unwrap();
    child::say(client.id());
    loop {
        let line = child::hear().await;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["wait", name, tasks] => {
                for _ in 0..tasks.parse().unwrap() {
                    tokio::spawn(wait(client.clone(), Arc::clone(&admin), name.to_owned()));
                }
            }
            ["contend", name, tasks, rounds, cancel] => {
                let (rounds, cancel) = (rounds.parse().unwrap(), cancel.parse().unwrap());
                let tasks = (0..tasks.parse().unwrap()).map(|n: u64| {
                    let seed = u64::from(std::process::id()) * 1000 + n;
                    let (client, admin) = (client.clone(), Arc::clone(&admin));
                    tokio::spawn(contend(client, admin, name.to_owned(), rounds, cancel, seed))
                });
                let tasks: Vec<_> = tasks.collect();
                tokio::spawn(async move {
                    for task in tasks {
                        if let Err(error) = task.await {
                            child::say(&format!("failed: {error}"));
                        }
                    }
                    child::say("done");
                });
            }
            ["close"] => {
                client.shutdown(bed::PATIENCE).await.unwrap();
                child::say("closed");
                return;
            }
            _ => panic!("told {line}"),
        }
    }
}
