//! How soon a promotion is noticed, and how often servers are queried.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{Net, Server};
use crate::names::LockName;
use crate::topology::address::Address;
use crate::topology::cluster::Cluster;
use crate::topology::member::Subscriber as _;
use crate::world::{Machine, Moment, World};

/// Sets the views of all servers: three primaries, and a replica of the last one. The replica has the slots once it
/// is promoted.
fn tell(servers: &[Arc<Server>], promoted: bool) {
    let (third, fourth) = if promoted { ("", " 10001-16383") } else { (" 10001-16383", "") };
    let role = if promoted { "master - 0 0 9" } else { "slave n2 0 0 2" };
    for (n, server) in servers.iter().enumerate() {
        let text = format!(
            "n0 10.0.0.0:1@11 master - 0 0 1 connected 0-5000\n\
             n1 10.0.0.1:1@11 master - 0 0 1 connected 5001-10000\n\
             n2 10.0.0.2:1@11 master - 0 0 2 connected{third}\n\
             n3 10.0.0.3:1@11 {role} connected{fourth}\n"
        );
        *server.nodes.lock() = text.replace(&format!("10.0.0.{n}:1@11 "), &format!("10.0.0.{n}:1@11 myself,"));
    }
}

const MEMBERS: usize = 3;

struct Rig {
    cluster: Arc<Cluster>,
    servers: Vec<Arc<Server>>,
}

/// A world whose clock is the test's paused clock.
#[derive(Debug)]
struct OfTest(Instant);

impl World for OfTest {
    fn now(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap()) + Duration::from_secs(1000)
    }

    fn random(&self) -> u64 {
        Machine.random()
    }
}

impl Rig {
    async fn start() -> Self {
        Self::start_in(Arc::new(Machine)).await
    }

    async fn start_in(world: Arc<dyn World>) -> Self {
        let servers: Vec<_> = (0..=MEMBERS).map(|_| Arc::<Server>::default()).collect();
        let named = servers.iter().enumerate().map(|(n, server)| (format!("10.0.0.{n}:1"), Arc::clone(server)));
        let net = Net(Arc::new(named.collect()));
        tell(&servers, false);
        let cluster = net.cluster_in("10.0.0.0", world).await;
        Self { cluster, servers }
    }

    /// Stops the last primary and breaks its connection.
    fn stop(&self, name: &LockName) {
        self.servers[2].is_stopped.store(true, Ordering::Relaxed);
        self.cluster.server_is_away(self.cluster.placement(name).member);
    }

    /// Returns how often each server was queried within that time.
    async fn asked_within(&self, time: Duration) -> Vec<usize> {
        for server in &self.servers {
            *server.asked.lock() = 0;
        }
        tokio::time::sleep(time).await;
        self.servers.iter().map(|server| *server.asked.lock()).collect()
    }
}

/// Returns a name on the last primary.
fn name() -> Arc<LockName> {
    let mut names = (0..).map(|n| LockName::new("", &format!("orders:{n}")));
    names.find(|name| name.slot() > 10_000).unwrap()
}

/// A server, for example with a busy processor, has the usual command timeout to answer.
#[tokio::test(start_paused = true)]
async fn cluster_starts_from_slow_first_server() {
    let server = Arc::<Server>::default();
    "a 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-16383\n".clone_into(&mut server.nodes.lock());
    server.takes.store(2_500, Ordering::Relaxed);
    let net = Net(Arc::new([("10.0.0.1:1".to_owned(), server)].into()));
    let cluster = net.cluster("10.0.0.1").await;
    assert_eq!(cluster.members().len(), 1);
    cluster.close(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn promotion_is_noticed_within_125_ms() {
    let mut slowest = Duration::ZERO;
    for round in 0..30 {
        let (rig, name) = (Rig::start().await, name());
        rig.stop(&name);
        let before = rig.cluster.placement(&name).member;
        tokio::time::sleep(Duration::from_millis(700 + 17 * round)).await;
        // The new primary informs all others at once.
        tell(&rig.servers, true);
        let promoted = Instant::now();
        while rig.cluster.placement(&name).member == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        slowest = slowest.max(promoted.elapsed());
        rig.cluster.close(Duration::ZERO).await;
    }
    println!("heard after {slowest:?} at the latest");
    assert!(slowest <= Duration::from_millis(125), "heard after {slowest:?}");
}

/// Replaces the line of the former primary in all views.
fn report_previous_primary(servers: &[Arc<Server>], line: &str) {
    tell(servers, true);
    for server in servers {
        let mut nodes = server.nodes.lock();
        *nodes = nodes.replace("n2 10.0.0.2:1@11 myself,master - 0 0 2 connected\n", "");
        *nodes = nodes.replace("n2 10.0.0.2:1@11 master - 0 0 2 connected\n", line);
    }
}

#[tokio::test(start_paused = true)]
async fn former_primary_counts_as_replica_until_gone_for_a_while() {
    let (rig, name) = (Rig::start_in(Arc::new(OfTest(Instant::now()))).await, name());
    let known = || rig.cluster.member(&name).acknowledgement().known();
    assert_eq!(known(), 1);
    rig.stop(&name);
    // No view has the promotion yet.
    let (slot, to) = (name.slot(), Address::new("10.0.0.3", 1).unwrap());
    rig.cluster.apply_redirect(slot, 1, &to).await;
    assert_eq!((rig.cluster.member(&name).host(), known()), ("10.0.0.3", 1));
    let away = "n2 10.0.0.2:1@11 master,fail - 0 0 2 disconnected\n";
    report_previous_primary(&rig.servers, away);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(known(), 1);
    // The former primary was removed from the cluster. In between, the view of an uninformed node still lists it.
    report_previous_primary(&rig.servers, "");
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(known(), 1);
    report_previous_primary(&rig.servers, away);
    tokio::time::sleep(Duration::from_secs(7)).await;
    report_previous_primary(&rig.servers, "");
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(known(), 1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(known(), 0);
    rig.cluster.close(Duration::ZERO).await;
}

/// The rate equals three servers every 200 ms. It is limited because there may be a thousand clients.
#[tokio::test(start_paused = true)]
async fn servers_are_queried_fifteen_times_a_second_while_one_is_away() {
    let (rig, name) = (Rig::start().await, name());
    rig.stop(&name);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = rig.asked_within(Duration::from_secs(10)).await;
    assert!((130..=170).contains(&asked.iter().sum::<usize>()), "{asked:?}");
    assert!((20..=50).contains(&asked[2]), "one that has stopped is tried, and not flooded: {asked:?}");
    println!("{asked:?}");
    assert_eq!(asked[3], 0, "no connection is made to replicas while a primary answers: {asked:?}");

    // While no server answers, all known servers are queried, each at the same low rate as before.
    for server in &rig.servers[..2] {
        server.is_stopped.store(true, Ordering::Relaxed);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = rig.asked_within(Duration::from_secs(10)).await;
    // Primaries are queried over their connections, and again over temporary ones.
    assert!(asked[..MEMBERS].iter().all(|times| (10..=40).contains(times)), "{asked:?}");
    assert!((5..=20).contains(&asked[3]), "{asked:?}");
    rig.cluster.close(Duration::ZERO).await;
}
