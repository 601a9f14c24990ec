//! A process of its own that waits for fair locks, made to be killed or frozen.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, Guard};
use distlock_support::{Admin, Child, Numbers, child};

use bed::{Bed, ms, secs};

/// The list on the server where holders say that they come (`+`) and go (`-`).
pub const HISTORY: &str = "history";

/// A peer, seen from the parent. Killed when dropped.
pub struct Peer {
    pub child: Child,
    /// Its client's id.
    pub id: String,
}

impl Peer {
    /// Starts one with these options: `WATCHDOG` and `FAIR_WAIT`, in ms.
    pub async fn start(bed: &Bed, options: &[(&str, &str)]) -> Self {
        Self::at(&bed.server.url(), options).await
    }

    pub async fn at(url: &str, options: &[(&str, &str)]) -> Self {
        let mut child = Child::spawn("peer::peer_process", &[&[("URL", url)], options].concat());
        let id = child.line().await.unwrap_or_else(|| panic!("no peer: {}", child.output()));
        Self { child, id }
    }

    /// Several, started side by side.
    pub async fn several(bed: &Bed, count: usize, options: &[(&str, &str)]) -> Vec<Self> {
        futures::future::join_all((0..count).map(|_| Self::start(bed, options))).await
    }

    /// Has tasks wait for a lock; each says `+ name` when it has it, gives it back, and says `- name`.
    pub fn wait(&mut self, name: &str, tasks: usize) {
        self.child.tell(&format!("wait {name} {tasks}"));
    }

    /// Has tasks take a lock so many times each; one of a hundred times `cancel` they give up before. Says `done`.
    pub fn contend(&mut self, name: &str, tasks: usize, rounds: usize, cancel: u64) {
        self.child.tell(&format!("contend {name} {tasks} {rounds} {cancel}"));
    }

    /// Ends it in order.
    pub async fn close(mut self) {
        self.child.tell("close");
        self.child.expect("closed").await;
        assert!(self.child.wait().await.success(), "{}", self.child.output());
    }
}

/// What was said about who came and went, checked: nobody came before the one before had gone, but for those that were
/// killed inside. Returns whose turn it was, in order.
pub async fn history(bed: &Bed, killed: &[String]) -> Vec<String> {
    let lines: Vec<String> = bed.admin.cmd(&["LRANGE", HISTORY, "0", "-1"]).await;
    let mut inside: Option<String> = None;
    let mut turns = Vec::new();
    for line in lines {
        let (sign, id) = line.split_at(1);
        if sign == "+" {
            if let Some(other) = inside.replace(id.to_owned()) {
                assert!(killed.contains(&other), "{id} came while {other} was inside");
            }
            turns.push(id.to_owned());
        } else {
            assert_eq!(inside.take().as_deref(), Some(id), "{id} went without having come");
        }
    }
    turns
}

/// Comes and goes.
async fn visit(guard: Guard, admin: &Admin, id: &str) {
    let _: u64 = admin.cmd(&["RPUSH", HISTORY, &format!("+{id}")]).await;
    let _: u64 = admin.cmd(&["RPUSH", HISTORY, &format!("-{id}")]).await;
    guard.unlock().await.unwrap_or_else(|error| panic!("{error:?}"));
}

async fn wait(client: Client, admin: Arc<Admin>, name: String) {
    let guard = client.fair(&name).lock().await.unwrap_or_else(|error| panic!("{error:?}"));
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
        let guard = lock.lock().await.unwrap_or_else(|error| panic!("{error:?}"));
        visit(guard, &admin, client.id()).await;
    }
}

/// The peer's side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let millis = |name: &str| std::env::var(name).ok().map(|text| ms(text.parse().unwrap()));
    let url = std::env::var("URL").unwrap();
    let admin = Arc::new(Admin::from_url(&url).await);
    let mut builder = Client::builder(&url);
    if let Some(watchdog) = millis("WATCHDOG") {
        builder = builder.watchdog(watchdog).command_timeout(watchdog / 3);
    }
    if let Some(wait) = millis("FAIR_WAIT") {
        builder = builder.fair_wait(wait);
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
                client.shutdown(secs(5)).await.unwrap();
                child::say("closed");
                return;
            }
            _ => panic!("told {line}"),
        }
    }
}
