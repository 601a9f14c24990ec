mod believed;
mod moved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::*;
use crate::config::Sharded;
use crate::names::LockName;
use crate::topology::AckRule;
use crate::transport::script::Script;
use crate::transport::{Arg, Listener, Reply, Transport};
use crate::world::Machine;

/// A server or a sentinel with prescribed replies.
#[derive(Debug, Default)]
struct Server {
    says: Mutex<Says>,
    /// The listeners of all its connections.
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
    channels: Mutex<BTreeSet<Bytes>>,
    scripts: AtomicUsize,
    open: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
struct Says {
    is_primary: bool,
    replicas: usize,
    history: [&'static str; 2],
    /// Time in ms until a connection is up.
    connects_within: u64,
    /// Time in ms until each answer.
    answers_within: u64,
    /// True if it accepts commands and answers none.
    is_silent: bool,
    /// For a sentinel: the address of the primary, and the epoch.
    told: Option<(&'static str, u64)>,
    /// True for a sentinel that has promoted a replica, and still names the old primary.
    is_replacing: bool,
    /// Error for each script, if any.
    error: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
struct Net(Arc<BTreeMap<&'static str, Arc<Server>>>);

#[derive(Debug)]
struct Line(Arc<Server>, Instant);

fn word(text: &str) -> Reply {
    Reply::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn words(words: &[&str]) -> Reply {
    Reply::List(words.iter().map(|text| word(text)).collect())
}

impl Connector for Net {
    fn connect(&self, address: &str, _purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>> {
        let server = Arc::clone(self.0.get(address).unwrap_or_else(|| panic!("nobody is at {address}")));
        server.open.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(Arc::new(Line(server, Instant::now())) as Arc<dyn Transport>)))
    }
}

impl Server {
    fn answer(&self, call: &Call) -> Result<Reply, Fault> {
        let says = self.says.lock().clone();
        match (call.script.command, says.told) {
            (Some("ROLE"), None) if says.is_primary => {
                let replica = |n: usize| words(&["10.0.0.9", &(n + 1).to_string(), "1"]);
                let replicas = (0..says.replicas).map(replica).collect();
                Ok(Reply::List(vec![word("master"), Reply::Int(1), Reply::List(replicas)]))
            }
            (Some("ROLE"), None) => Ok(words(&["slave", "10.0.0.1", "1", "connected", "1"])),
            (Some("INFO"), None) => {
                let (role, [id, before]) = (if says.is_primary { "master" } else { "slave" }, says.history);
                Ok(word(&format!("role:{role}\r\nmaster_replid:{id}\r\nmaster_replid2:{before}\r\n")))
            }
            (Some("SENTINEL"), Some((address, epoch))) => match &call.words[0] {
                Arg::Text(what) if *what == "MASTER" => {
                    let (ip, port) = address.split_once(':').unwrap();
                    let flags = if says.is_replacing { "master,o_down,failover_in_progress" } else { "master" };
                    let epoch = epoch.to_string();
                    let of_server = ["ip", ip, "port", port, "flags", flags];
                    Ok(words(&[&of_server[..], &["config-epoch", &epoch, "num-other-sentinels", "2"]].concat()))
                }
                Arg::Text(what) if *what == "REPLICAS" => {
                    let others = [ONE, TWO, THREE].into_iter().filter(|one| *one != address);
                    let replica = |at: &str| words(&["ip", "10.0.0.1", "port", at.split_once(':').unwrap().1]);
                    Ok(Reply::List(others.map(replica).collect()))
                }
                _ => Ok(Reply::List(Vec::new())),
            },
            (Some(_), _) => Err(Fault::new(FaultKind::Refused, "ERR unknown command")),
            (None, _) => {
                self.scripts.fetch_add(1, Ordering::SeqCst);
                says.error.map_or(Ok(Reply::Int(1)), |error| Err(Fault::new(FaultKind::Refused, error)))
            }
        }
    }

    fn each(&self, what: impl Fn(&dyn Listener)) {
        let listeners: Vec<_> = self.listeners.lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| what(&**listener));
    }
}

impl Transport for Line {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let (server, since) = (Arc::clone(&self.0), self.1);
        Box::pin(async move {
            let stands = since + Duration::from_millis(server.says.lock().connects_within);
            let answers = Duration::from_millis(server.says.lock().answers_within.max(1));
            tokio::time::sleep_until(stands.max(Instant::now() + answers)).await;
            if server.says.lock().is_silent {
                std::future::pending::<()>().await;
            }
            server.answer(&call)
        })
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            server.channels.lock().insert(channel);
            Ok(())
        })
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.0.channels.lock().remove(&channel);
        Box::pin(std::future::ready(()))
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.0.listeners.lock().push(listener);
    }

    fn address(&self) -> &str {
        "somewhere"
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine)
    }

    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

const ONE: &str = "10.0.0.1:1";
const TWO: &str = "10.0.0.1:2";
const THREE: &str = "10.0.0.1:3";
const SENTINELS: [&str; 3] = ["10.0.1.1:1", "10.0.1.2:1", "10.0.1.3:1"];

fn address(text: &str) -> Address {
    Address::split(text).and_then(|(host, port)| Address::new(host, port)).unwrap()
}

fn settings(seeds: &[&str]) -> Settings {
    let limit = Duration::from_secs(3);
    Settings {
        seeds: seeds.iter().map(|seed| address(seed)).collect(),
        command_timeout: limit,
        connect_timeout: limit,
        scan_interval: Duration::from_secs(1),
        confirm_primary: false,
        sharded: Sharded::Off,
        acks: AckRule::off(),
        coalesce: None,
    }
}

/// Three servers and three sentinels. The first server is the primary, and the sentinels name it at epoch 5.
fn net() -> Net {
    let all = [ONE, TWO, THREE].into_iter().chain(SENTINELS);
    let net = Net(Arc::new(all.map(|at| (at, Arc::<Server>::default())).collect()));
    net.says(ONE, |says| (says.is_primary, says.replicas, says.history) = (true, 2, ["first", "none"]));
    for replica in [TWO, THREE] {
        net.says(replica, |says| says.history = ["first", "none"]);
    }
    net.sentinels_say(ONE, 5);
    net
}

/// The servers, and a client that knows the sentinels.
async fn by_sentinels() -> (Net, Arc<Primary>) {
    let net = net();
    let primary = net.by_sentinels().await;
    (net, primary)
}

impl Net {
    fn says(&self, at: &str, how: impl FnOnce(&mut Says)) {
        how(&mut self.0[at].says.lock());
    }

    /// Makes a replica of the first server a primary that continues its history.
    fn promote(&self, at: &str) {
        self.says(at, |says| (says.is_primary, says.history) = (true, ["second", "first"]));
    }

    /// Makes a server a primary with a history of its own.
    fn starts_as_primary(&self, at: &str) {
        self.says(at, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    }

    /// Has all sentinels name this primary.
    fn sentinels_say(&self, primary: &'static str, epoch: u64) {
        SENTINELS.iter().for_each(|sentinel| self.says(sentinel, |says| says.told = Some((primary, epoch))));
    }

    /// The sentinel begins to replace the first server, at epoch 6.
    fn replaces(&self, sentinel: &str) {
        self.says(sentinel, |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    }

    /// The sentinel has replaced the first server by the second.
    fn has_replaced(&self, sentinel: &str) {
        self.says(sentinel, |says| (says.told, says.is_replacing) = (Some((TWO, 6)), false));
    }

    /// The sentinel announces a new primary.
    fn announce(&self, sentinel: &str, change: &str) {
        self.0[sentinel].each(|listener| listener.message(b"+switch-master", change.as_bytes()));
    }

    /// Number of open connections to this server.
    fn open(&self, at: &str) -> usize {
        self.0[at].open.load(Ordering::SeqCst)
    }

    async fn by_sentinels(&self) -> Arc<Primary> {
        self.by_sentinels_with(settings(&SENTINELS)).await
    }

    async fn by_sentinels_with(&self, settings: Settings) -> Arc<Primary> {
        let (connector, name) = (Arc::new(self.clone()), "locks".to_owned());
        let primary = Primary::by_sentinels(settings, connector, Arc::new(Machine), name).await.unwrap();
        settle(3_000).await;
        primary
    }

    async fn replicated(&self) -> Arc<Primary> {
        let connector = Arc::new(self.clone());
        Primary::of_replicated(settings(&[ONE, TWO, THREE]), connector, Arc::new(Machine)).await.unwrap()
    }
}

async fn settle(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The address of the primary after this time.
async fn after(ms: u64, primary: &Primary) -> Address {
    settle(ms).await;
    primary.address()
}

static SCRIPT: Script = Script::new("primary/test", "return 1");

fn call(_: &ServerClock) -> Call {
    Call { script: &SCRIPT, keys: 0, words: Vec::new() }
}
