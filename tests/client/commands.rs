//! Clients send exactly the commands that `SECURITY.md` lists, for each topology and over both transports. `MONITOR`
//! records them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bed::{FLAVOURS, PATIENCE, eventually, ms, secs};
use distlock::{Client, Flavour};
use distlock_support::{Admin, Cluster, ClusterOptions, RedisServer, ReplicasOptions, Sentinels, SentinelsOptions};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const PAGE: &str = include_str!("../../SECURITY.md");

/// Listed commands that this test may not see. Each needs one of:
/// - a login, which `MONITOR` leaves out
/// - a server that does not know `HELLO`
/// - a slot that is being moved
/// - a server that announces a name
/// - a release that leaves other holds, a minute after the client last learned the server's time
/// - a lock whose key has the wrong type
const RARE: [&str; 8] =
    ["TIME", "TYPE", "AUTH", "CLIENT SETNAME", "ASKING", "CLUSTER INFO", "CLUSTER SLOTS", "SPUBLISH"];

const FAMILIES: [&str; 4] = ["CLIENT", "CLUSTER", "PUBSUB", "SENTINEL"];

/// Returns the commands in the page's lines that begin with `lines`.
fn listed(lines: &[&str]) -> BTreeSet<String> {
    let list = |begin: &&str| {
        let line = PAGE.lines().find_map(|line| line.trim().strip_prefix(*begin));
        line.unwrap_or_else(|| panic!("SECURITY.md has a line {begin:?}")).split('`').skip(1).step_by(2)
    };
    lines.iter().flat_map(list).map(str::to_owned).collect()
}

/// Records the commands that new connections send to a server.
struct Tap {
    seen: Arc<Mutex<BTreeSet<String>>>,
    marks: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tap {
    async fn start(server: &RedisServer, admin: &Admin) -> Self {
        let known: BTreeSet<String> = admin.client_list().await.into_iter().map(|client| client.addr).collect();
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        stream.write_all(b"MONITOR\r\n").await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("+OK"));
        let (seen, marks) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (told, marked) = (Arc::clone(&seen), Arc::clone(&marks));
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((place, words)) = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
                    continue;
                };
                let from = place.split(' ').nth(1).unwrap_or_default();
                let words: Vec<_> = words.split('"').skip(1).step_by(2).map(str::to_uppercase).collect();
                if words[0] == "ECHO" {
                    marked.lock().push(words[1].clone());
                } else if from != "lua" && !known.contains(from) {
                    let is_family = FAMILIES.contains(&words[0].as_str());
                    told.lock().insert(words[..1 + usize::from(is_family)].join(" "));
                }
            }
        });
        Self { seen, marks, task }
    }

    async fn commands(&self, admin: &Admin) -> BTreeSet<String> {
        let _: String = admin.cmd(&["ECHO", "MARK"]).await;
        eventually("the monitor has shown all commands", async || self.marks.lock().contains(&"MARK".to_owned())).await;
        self.seen.lock().clone()
    }
}

/// Runs every client operation from connect to shutdown, over both transports.
async fn lives(url: &str) {
    for direct in [false, true] {
        let connect =
            || async { bed::builder(url).configure(|options| options.use_fred = !direct).connect().await.unwrap() };
        let (one, other) = (connect().await, connect().await);
        for flavour in FLAVOURS {
            turns(&one, &other, flavour).await;
        }
        one.capabilities().await.unwrap();
        one.ping().await.unwrap();
        one.renew_now().await;
        for client in [one, other] {
            bed::idle(&client).await;
            client.shutdown(PATIENCE).await.unwrap();
        }
    }
}

async fn turns(one: &Client, other: &Client, flavour: Flavour) {
    let name = format!("sent:{flavour}");
    let (lock, waiting) = (one.lock(flavour, &name), other.lock(flavour, &name));
    let guard = lock.lock().await.unwrap();
    guard.extend(secs(600)).await.unwrap();
    if flavour != Flavour::Read {
        let before = other.stats().waiting;
        let waiter = tokio::spawn(async move { waiting.lock().await.unwrap().unlock().await.unwrap() });
        eventually("the second client waits", async || other.stats().waiting > before).await;
        eventually("the waiter's attempts are answered", async || other.stats().under_way == 0).await;
        guard.unlock().await.unwrap();
        bed::ends("the waiter", waiter).await.unwrap();
    } else {
        guard.unlock().await.unwrap();
    }
    drop(lock.lock().await.unwrap());
    lock.force_unlock().await.unwrap();
}

fn compare(seen: &BTreeSet<String>, listed: &BTreeSet<String>) {
    let unlisted: Vec<_> = seen.difference(listed).collect();
    let unsent: Vec<_> = listed.difference(seen).filter(|command| !RARE.contains(&command.as_str())).collect();
    let is_right = unlisted.is_empty() && unsent.is_empty();
    assert!(is_right, "SECURITY.md: sent but not listed: {unlisted:?}; listed but not sent: {unsent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listed_commands_are_sent_to_a_single_server_and_no_others() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    let tap = Tap::start(&server, &admin).await;
    lives(&format!("{}/1", server.url())).await;
    compare(&tap.commands(&admin).await, &listed(&["- to every server:"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listed_commands_are_sent_to_a_cluster_and_no_others() {
    let cluster = Cluster::start(ClusterOptions::default().primaries(2).replicas(0).node_timeout(60_000)).await;
    let mut taps = Vec::new();
    for node in cluster.nodes() {
        taps.push((node, Tap::start(node.server(), node.admin()).await));
    }
    lives(&cluster.url()).await;
    let mut seen = BTreeSet::new();
    for (node, tap) in &taps {
        seen.extend(tap.commands(node.admin()).await);
    }
    let mut listed = listed(&["- to every server:", "- to the servers of a cluster:"]);
    // A cluster has only database 0, and this cluster uses sharded channels.
    listed.retain(|command| !["SELECT", "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH"].contains(&command.as_str()));
    compare(&seen, &listed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listed_commands_are_sent_to_servers_behind_sentinels_and_no_others() {
    let options = SentinelsOptions::default().servers(ReplicasOptions::default().replicas(1)).sentinels(1, 1);
    let set = Sentinels::start(options).await;
    let primary = set.server(set.primary().await);
    let tap = Tap::start(primary.server(), primary.admin()).await;
    // Sentinels have no `MONITOR`. Instead, the test polls `CLIENT LIST`, which shows the last command of each
    // connection.
    let (url, sentinel, mut asked) = (format!("{}/1", set.url()), set.sentinel(0), BTreeSet::new());
    let mut living = std::pin::pin!(lives(&url));
    loop {
        tokio::select! {
            biased;
            () = &mut living => break,
            () = tokio::time::sleep(ms(5)) => {
                let clients = sentinel.admin().client_list().await.into_iter();
                let ours = clients.filter(|client| {
                    client.name.starts_with("distlock-") && !["NULL", "client|list"].contains(&client.cmd.as_str())
                });
                asked.extend(ours.map(|client| client.cmd.replace('|', " ").to_uppercase()));
            }
        }
    }
    let of_sentinels = listed(&["- to sentinels:"]);
    assert!(!asked.is_empty() && asked.is_subset(&of_sentinels), "{asked:?}");
    compare(&tap.commands(primary.admin()).await, &listed(&["- to every server:", "- to primaries with replicas:"]));
}
