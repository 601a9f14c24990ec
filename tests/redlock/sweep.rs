//! X2: every server in one of six states, every combination as likely as another: it is had exactly when a majority can
//! be had, and else nothing is left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, DistLock, Error, Flavour, RedLock};
use distlock_support::{Admin, Numbers, Proxy, RedisServer};
use futures::future::join_all;
use tokio::net::TcpSocket;

use crate::rig::{Five, Path, SOON, long, patient, run};
use bed::{eventually, ms, secs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// Somebody else holds it there.
    Taken,
    /// Nobody listens on the port.
    Refusing,
    /// Takes everything and answers nothing.
    Hanging,
    /// A replica: `READONLY`, which may pass.
    ReadOnly,
    /// This login may not write: an error that stays.
    Denied,
}

use State::{Denied, Hanging, ReadOnly, Refusing, Taken, Up};

const STATES: [State; 6] = [Up, Taken, Refusing, Hanging, ReadOnly, Denied];

/// How long a server may take here.
const NODE: Duration = ms(80);

const COMBINATIONS: usize = 80;

/// A client for every server and state.
struct Ways {
    clients: Vec<Vec<Client>>,
    /// The replica under an address of its own for every server.
    _replicas: Vec<Proxy>,
    /// The port that nobody listens on, of every server.
    _nowhere: Vec<TcpSocket>,
}

impl Ways {
    async fn connect(five: &Five, replica: &RedisServer, hanging: &[Proxy], denied: &[Proxy]) -> Self {
        let up = five.warm(Path::Direct, patient).await;
        let via = five.warm(Path::Proxied, patient).await;
        let (mut clients, mut replicas, mut nowhere) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..5 {
            // Bound, so that nobody else comes to listen there.
            let port = TcpSocket::new_v4().unwrap();
            port.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let closed = format!("redis://{}", port.local_addr().unwrap());
            nowhere.push(port);
            // A late copy of a command is looked for after a command's longest life.
            let connect = |url: String| async move {
                patient(&url).command_timeout(secs(1)).connect_timeout(secs(1)).connect_lazily().await.unwrap()
            };
            let refusing = connect(closed).await;
            // Connected for good: it knows the server's clock, so that what hangs for longer than a command may take has no
            // effect when it arrives, on a connection that has been given up, behind what undoes it on another.
            let hangs = patient(&hanging[at].url()).command_timeout(secs(1)).connect().await.unwrap();
            let stands = Proxy::start(replica.addr());
            let read_only = connect(stands.url()).await;
            replicas.push(stands);
            let login = patient(&denied[at].url()).username("probe").password("secret");
            let denied = login.connect_lazily().await.unwrap();
            for client in [&hangs, &read_only, &denied] {
                five.keep(client);
            }
            // In the order of `STATES`.
            let (up, taken) = (up.clients[at].clone(), via.clients[at].clone());
            clients.push(vec![up, taken, refusing, hangs, read_only, denied]);
        }
        Self { clients, _replicas: replicas, _nowhere: nowhere }
    }

    fn lock(&self, name: &str, states: &[State]) -> RedLock {
        let locks = states.iter().zip(&self.clients).map(|(state, clients)| {
            let way = STATES.iter().position(|known| known == state).unwrap();
            clients[way].lock(Flavour::Reentrant, name)
        });
        RedLock::of(name, locks.collect::<Vec<Arc<dyn DistLock>>>())
    }
}

/// X2 of reliability §2. 80 of the 7776 combinations, by a seed; by `try_lock` and with a wait, by turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn granted_exactly_when_a_majority_can_be_had() {
    run(Five::start(5, RedisServer::builder), async |five| {
        // A replica of nobody: it refuses every write at once.
        let replica = RedisServer::start();
        let master = Admin::connect(&replica).await;
        master.cmd::<String>(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let (mut hanging, mut denied) = (Vec::new(), Vec::new());
        for at in 0..5 {
            let admin = five.admin(at).await;
            let rules = [
                "ACL", "SETUSER", "probe", "reset", "on", ">secret", "~*", "&*", "+@all", "-hset", "-hincrby",
                "-pexpire",
            ];
            admin.cmd::<String>(&rules).await;
            hanging.push(Proxy::start(five.servers[at].addr()));
            denied.push(Proxy::start(five.servers[at].addr()));
        }
        let ways = Ways::connect(five, &replica, &hanging, &denied).await;
        // Connected first, so that commands go out and nothing comes back.
        join_all(ways.clients.iter().map(async |clients| clients[3].reentrant("warm").is_locked().await.unwrap()))
            .await;
        hanging.iter().for_each(|proxy| proxy.blackhole(true));

        let mut numbers = Numbers::new(2026);
        let (mut granted, mut busy, mut none, mut longest) = (0, 0, 0, Duration::ZERO);
        for round in 0..COMBINATIONS {
            // Every other one near the edge: with at least two that are up.
            let edge = if round % 2 == 0 { 2 } else { 0 };
            let mut states: Vec<_> =
                (0..5).map(|at| if at < edge { Up } else { STATES[numbers.below(6) as usize] }).collect();
            for at in (1..5).rev() {
                states.swap(at, numbers.below(at as u64 + 1) as usize);
            }
            let name = format!("sweep:{round}");
            let mut stranger = Vec::new();
            for (at, state) in states.iter().enumerate() {
                if *state == Taken {
                    let lock = ways.clients[at][0].reentrant(&name);
                    stranger.push(lock.acquire(long()).await.unwrap().expect("nobody has it"));
                }
            }
            let count = |wanted: &[State]| states.iter().filter(|state| wanted.contains(state)).count();
            let (up, taken, away) = (count(&[Up]), count(&[Taken]), count(&[Refusing, Hanging, ReadOnly, Denied]));
            // On a busy machine a server that is up may take longer than it may: then once more, and it may.
            for again in (0..5).rev() {
                let patience = 1 << (4 - again);
                let node = NODE * patience;
                let lock = ways.lock(&name, &states).node_timeout(node);
                let wait = if round % 4 < 2 { Duration::ZERO } else { ms(30) * patience };
                let began = Instant::now();
                let outcome = lock.acquire(long().wait(wait)).await;
                let took = began.elapsed();
                longest = longest.max(took);
                assert!(
                    took < wait + node + secs(3),
                    "{states:?}, wait {wait:?}, node {node:?}: {took:?}, {outcome:?}"
                );
                let right = match outcome {
                    Ok(Some(guard)) => {
                        assert!(up >= 3 && guard.is_held(), "{states:?}: granted");
                        assert!((3..=up).contains(&guard.members().len()), "{states:?}: {guard:?}");
                        guard.unlock().await.unwrap();
                        granted += 1;
                        true
                    }
                    Ok(None) => {
                        assert!(taken > 0, "{states:?}: busy");
                        busy += 1;
                        up < 3
                    }
                    Err(Error::NoQuorum { granted: votes, needed, .. }) => {
                        assert!(votes <= up && needed == 3, "{states:?}: {votes} of {needed}");
                        none += 1;
                        up < 3 && away >= 3
                    }
                    Err(error) => panic!("{states:?}: {error:?}"),
                };
                assert!(right || again > 0, "{states:?}: {up} up, {taken} taken, {away} away");
                // On no server anything of ours, those included whose answer was an error. What hangs has not arrived.
                let held = |at: &usize| states[*at] == Taken;
                eventually("nothing of ours is left", async || five.having(&name).await.iter().all(held)).await;
                if right {
                    break;
                }
            }
            for guard in stranger {
                guard.unlock().await.unwrap();
            }
        }
        println!("{granted} granted, {busy} busy, {none} without a quorum; the longest took {longest:?}");
        assert!(granted > 10 && busy > 10 && none > 10, "{granted}, {busy}, {none}");
        // What hung arrives, if it was ever sent: too late, or it is undone.
        hanging.iter().for_each(|proxy| proxy.blackhole(false));
        // Nobody will ever listen there: no use in waiting for clean-ups.
        for clients in &ways.clients {
            assert!(matches!(clients[2].shutdown(ms(50)).await, Ok(()) | Err(Error::Timeout { .. })));
        }
    })
    .await;
}
