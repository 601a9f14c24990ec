//! Every server is in one of four states, with random combinations. The lock is granted exactly if a majority can grant
//! it, and otherwise nothing is left. `tests/sim/group/special.rs` covers servers that are down or frozen.

use std::sync::Arc;

use distlock::{Client, DistLock, Error, Flavour, RedLock};
use distlock_support::{Admin, Numbers, Proxy, RedisServer};

use crate::rig::{Five, Path, five, long, patient};
use bed::{PATIENCE, becomes, ends, ms, secs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Taken,
    /// A replica: `READONLY`, a temporary error.
    ReadOnly,
    /// The login may not write: a permanent error.
    Denied,
}

use State::{Denied, ReadOnly, Taken, Up};

/// The states, in the order of each server's clients.
const STATES: [State; 4] = [Up, Taken, ReadOnly, Denied];

const COMBINATIONS: usize = 40;

/// A client for every server and state.
struct Ways {
    clients: Vec<Vec<Client>>,
    /// A separate address of the replica for every server.
    _replicas: Vec<Proxy>,
}

impl Ways {
    async fn connect(five: &Five, replica: &RedisServer) -> Self {
        let up = five.warm(Path::Direct, patient).await;
        let via = five.warm(Path::Proxied, patient).await;
        let (mut clients, mut replicas) = (Vec::new(), Vec::new());
        for at in 0..5 {
            let rules = "reset on >secret ~* &* +@all -hset -hincrby -pexpire".split(' ');
            let words: Vec<_> = ["ACL", "SETUSER", "probe"].into_iter().chain(rules).collect();
            five.admin(at).await.cmd::<String>(&words).await;
            let stands = Proxy::start(replica.addr());
            let read_only = patient(&stands.url()).command_timeout(secs(1));
            replicas.push(stands);
            let denied = patient(&five.servers[at].url())
                .username("probe")
                .password("secret")
                .configure(|options| options.preflight = false);
            let mut all = vec![up.clients[at].clone(), via.clients[at].clone()];
            for builder in [read_only, denied] {
                let client = builder.connect_lazily().await.unwrap();
                five.keep(&client);
                all.push(client);
            }
            clients.push(all);
        }
        Self { clients, _replicas: replicas }
    }

    fn lock(&self, name: &str, states: &[State]) -> RedLock {
        let locks = states.iter().zip(&self.clients).map(|(state, clients)| {
            let way = STATES.iter().position(|known| known == state).unwrap();
            clients[way].lock(Flavour::Reentrant, name)
        });
        RedLock::of(name, locks.collect::<Vec<Arc<dyn DistLock>>>()).node_timeout(PATIENCE)
    }

    /// One acquire with the servers in these states.
    async fn round(&self, five: &Five, name: &str, states: &[State]) {
        let mut theirs = Vec::new();
        for (at, state) in states.iter().enumerate().filter(|(_, state)| **state == Taken) {
            let lock = self.clients[at][0].reentrant(name);
            theirs.push(lock.acquire(long()).await.unwrap().unwrap_or_else(|| panic!("{state:?}: taken")));
        }
        let count = |wanted: &[State]| states.iter().filter(|state| wanted.contains(state)).count();
        let (up, taken) = (count(&[Up]), count(&[Taken]));
        let lock = self.lock(name, states);
        // On a slow machine one attempt may find split votes.
        let how = if up >= 3 { long() } else { long().wait(ms(0)) };
        match ends(&format!("an acquire with {states:?}"), lock.acquire(how)).await {
            Ok(Some(guard)) => {
                assert!(up >= 3 && guard.is_held(), "{states:?}: granted");
                assert!((3..=up).contains(&guard.members().len()), "{states:?}: {guard:?}");
                guard.unlock().await.unwrap();
            }
            Ok(None) => assert!(up < 3 && taken >= 3, "{states:?}: busy"),
            Err(Error::NoQuorum { granted, needed, .. }) => {
                // The lock may be free at the refusing servers.
                assert!(up < 3 && taken < 3, "{states:?}: no quorum");
                assert!(granted <= up && needed == 3, "{states:?}: {granted} of {needed}");
            }
            Err(error) => panic!("{states:?}: {error:?}"),
        }
        // No server has a vote of this acquire.
        let others: Vec<_> = (0..5).filter(|at| states[*at] == Taken).collect();
        becomes(&format!("servers that have it with {states:?}"), others, async || five.having(name).await).await;
        for guard in theirs {
            guard.unlock().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_is_granted_exactly_if_a_majority_can_grant_it() {
    five(async |five| {
        // A replica without a primary refuses every write at once.
        let replica = RedisServer::start();
        Admin::connect(&replica).await.cmd::<String>(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let ways = Ways::connect(five, &replica).await;
        let mut numbers = Numbers::new(2026);
        for round in 0..COMBINATIONS {
            // Every other round has at least two servers up, so that the majority is often close.
            let edge = if round % 2 == 0 { 2 } else { 0 };
            let mut states: Vec<_> =
                (0..5).map(|at| if at < edge { Up } else { STATES[numbers.below(4) as usize] }).collect();
            for at in (1..5).rev() {
                states.swap(at, numbers.below(at as u64 + 1) as usize);
            }
            ways.round(five, &format!("sweep:{round}"), &states).await;
        }
    })
    .await;
}
