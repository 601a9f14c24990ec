//! The router, with simulated servers that give prescribed replies.

mod channels;
mod gate;
mod names;
mod net;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Cluster, GUEST_STAYS, Settings};
use crate::error::{Error, Step};
use crate::names::LockName;
use crate::topology::address::Address;
use crate::topology::clock::ServerClock;
use crate::topology::{MemberClock, Topology};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, FaultKind, Listener, Reply};
use crate::world::{Machine, World};
use net::{Net, Server};

static ACQUIRE: Script = Script::new("test/acquire", "");
static RELEASE: Script = Script::new("test/release", "").announcing();

/// A cluster of two servers. The first has all slots.
struct Rig {
    cluster: Arc<Cluster>,
    topology: Topology,
    servers: [Arc<Server>; 2],
}

const HOSTS: [&str; 2] = ["10.0.0.1:1", "10.0.0.2:2"];

impl Rig {
    async fn start() -> Self {
        let servers = [(); 2].map(|()| Arc::<Server>::default());
        for (server, [one, two]) in servers.iter().zip([["myself,", ""], ["", "myself,"]]) {
            *server.nodes.lock() = format!(
                "a 10.0.0.1:1@11,one.example {one}master - 0 0 1 connected 0-16383\n\
                 b 10.0.0.2:2@12,two.example {two}master - 0 0 2 connected\n"
            );
        }
        let net = Net(Arc::new(HOSTS.map(str::to_owned).into_iter().zip(servers.clone()).collect()));
        let cluster = net.cluster("10.0.0.1").await;
        let topology = Topology::cluster(Arc::clone(&cluster), Arc::new(Machine));
        Self { cluster, topology, servers }
    }

    fn says(&self, server: usize, text: String) {
        *self.servers[server].says.lock() = Some(Err(text));
    }

    /// Has the first server redirect commands about the name to the second. `how`: `ASK` or `MOVED`.
    fn redirects(&self, how: &str, name: &LockName) {
        self.says(0, format!("{how} {} {}", name.slot(), HOSTS[1]));
    }

    /// The listener of the connections to this server.
    fn listener(&self, server: usize) -> Arc<dyn Listener> {
        self.servers[server].listener.lock().clone().and_then(|listener| listener.upgrade()).unwrap()
    }

    /// Moves the slot of the name to this server, as a redirect that has just arrived does.
    async fn move_to(&self, server: usize, name: &LockName) {
        let seen = u32::try_from(self.cluster.placement(name).generation).unwrap();
        self.cluster.apply_redirect(name.slot(), seen, &address(server)).await;
    }

    fn log(&self, server: usize) -> Vec<(String, Option<Arg>)> {
        std::mem::take(&mut *self.servers[server].log.lock())
    }

    fn names(&self, server: usize) -> Vec<String> {
        self.log(server).into_iter().map(|(name, _)| name).collect()
    }

    /// Runs a script with the name, and a last moment by the clock of the server that gets it. Returns the clock of
    /// the server that answered.
    async fn run(&self, name: &LockName, script: &'static Script) -> MemberClock {
        let call = |clock: &ServerClock| {
            let last = clock.last(Machine.now(), Duration::ZERO);
            Call { script, keys: 1, words: vec![Arg::Text(name.key.clone()), Arg::Int(last)] }
        };
        self.topology.run_timed(name, call).await.unwrap().clock
    }
}

fn name() -> Arc<LockName> {
    LockName::new("", "orders:42")
}

fn address(server: usize) -> Address {
    Address::split(HOSTS[server]).and_then(|(host, port)| Address::new(host, port)).unwrap()
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test]
async fn redirected_command_carries_last_moment_of_target_clock() {
    for redirect in ["ASK", "MOVED"] {
        let (rig, name) = (Rig::start().await, name());
        rig.redirects(redirect, &name);
        rig.topology.clock(&name).learn(1_000_000, Machine.now());
        let answered = rig.run(&name, &ACQUIRE).await;
        let [at_source, at_target] = [0, 1].map(|server| rig.log(server).pop().unwrap().1);
        assert!(matches!(at_source, Some(Arg::Int(1_000_000..1_010_000))), "{redirect}: {at_source:?}");
        assert_eq!(at_target, Some(Arg::Int(1)), "{redirect}: of that one's clock nothing is known");
        // The clock that this server reports is noted for this server only.
        answered.learn(7_000_000, Machine.now());
        let again = rig.run(&name, &ACQUIRE).await;
        let at_target = rig.log(1).pop().unwrap().1;
        assert!(matches!(at_target, Some(Arg::Int(7_000_000..7_010_000))), "{redirect}: {at_target:?}");
        drop(again);
        if redirect == "ASK" {
            let at_source = rig.log(0).pop().unwrap().1;
            assert!(matches!(at_source, Some(Arg::Int(1_000_000..1_010_000))), "{at_source:?}");
        }
    }
}

#[tokio::test]
async fn asking_is_followed_directly_by_its_command() {
    let (rig, name) = (Rig::start().await, name());
    rig.redirects("ASK", &name);
    let all = (0..100).map(|_| rig.run(&name, &ACQUIRE));
    futures::future::join_all(all).await;
    let log = rig.names(1);
    assert_eq!(log.len(), 200);
    assert!(log.chunks(2).all(|pair| pair == ["ASKING", "test/acquire"]), "{log:?}");
    // One more connection is used. A connection that waited for each answer would have sent the commands one by one.
    assert_eq!(rig.cluster.all().len(), 2);
}

#[tokio::test]
async fn release_at_ask_target_is_announced_at_slot_owner() {
    let (rig, name) = (Rig::start().await, name());
    rig.redirects("ASK", &name);
    rig.run(&name, &ACQUIRE).await;
    rig.run(&name, &RELEASE).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.names(1), ["ASKING", "test/acquire", "ASKING", "test/release"]);
    assert_eq!(rig.names(0), ["test/acquire", "test/release", "SPUBLISH"]);
}

#[tokio::test]
async fn unused_guest_is_forgotten_after_its_stay() {
    let (rig, name) = (Rig::start().await, name());
    rig.says(0, format!("ASK {} {}", name.slot(), "two.example:2"));
    rig.run(&name, &ACQUIRE).await;
    assert_eq!(rig.cluster.all().len(), 2, "by the address under which it is known");
    rig.cluster.drop_unused_members(Machine.now());
    assert_eq!(rig.cluster.all().len(), 2, "another key may follow");
    rig.cluster.drop_unused_members(Machine.now() + GUEST_STAYS + Duration::from_secs(1));
    assert_eq!(rig.cluster.all().len(), 1);
    while *rig.servers[1].closed.lock() < 2 {
        tokio::task::yield_now().await;
    }
    // The member is created again when it is needed.
    rig.run(&name, &ACQUIRE).await;
    assert_eq!(rig.cluster.all().len(), 2);
}

#[tokio::test]
async fn server_is_away_until_all_its_connections_are_back() {
    let rig = Rig::start().await;
    let _listener = rig.listen();
    let member = rig.topology.placement(&name()).member;
    let listener = rig.listener(0);
    let is_away = || rig.cluster.state.read().away.contains(&member);
    listener.broken();
    listener.broken();
    assert!(is_away());
    // The connection for messages is up again, the connections for commands are not.
    listener.restored();
    listener.missed();
    assert!(is_away(), "a connection to it is broken still");
    listener.restored();
    listener.reconnected();
    assert!(!is_away());
    listener.broken();
    assert!(is_away());
}

/// The member counts the connection for messages too, although commands do not need it.
#[tokio::test]
async fn missing_reply_is_command_timeout_when_only_messages_are_down() {
    let (rig, name) = (Rig::start().await, name());
    let _listener = rig.listen();
    let listener = rig.listener(0);
    listener.broken();
    let missing = rig.topology.missing(&name);
    assert!(matches!(missing, Error::Timeout { step: Step::Command, .. }), "{missing:?}");
}

/// As a home of names, the server would get renewal rounds and queue beats of its own, and thousands of names would
/// be searched for one that lives there.
#[tokio::test]
async fn names_are_not_placed_on_guest_until_it_owns_slot() {
    let (rig, name) = (Rig::start().await, name());
    let home = rig.topology.placement(&name).member;
    rig.redirects("ASK", &name);
    rig.run(&name, &ACQUIRE).await;
    assert_eq!(rig.cluster.all().len(), 2, "it was asked");
    assert_eq!(rig.topology.members(), [home]);
    assert_eq!(rig.topology.placement(&name).member, home, "what is held is renewed by way of the source");
    rig.redirects("MOVED", &name);
    rig.run(&name, &ACQUIRE).await;
    let now = rig.topology.placement(&name).member;
    assert_ne!(now, home);
    assert_eq!(rig.topology.members(), [home, now]);
}

/// Without this, the target of the redirect would permanently replace the server that has the slot.
#[tokio::test]
async fn late_redirect_does_not_replace_slot_owner() {
    let (rig, name) = (Rig::start().await, name());
    let cluster = &rig.cluster;
    let late = u32::try_from(cluster.placement(&name).generation).unwrap() + 7;
    cluster.forget_closed(cluster.placement(&name).member);
    cluster.apply_redirect(name.slot(), late, &address(1)).await;
    sleep(1_000).await;
    rig.log(0);
    rig.log(1);
    rig.run(&name, &ACQUIRE).await;
    assert_eq!([0, 1].map(|server| rig.names(server).len()), [1, 0], "slots of the first are asked of the second");
}
