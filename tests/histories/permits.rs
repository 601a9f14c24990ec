//! Permits: never more than there are, while processes are killed, replies are lost, connections are cut, and a primary
//! fails. All permits come back.

mod check;
mod record;
mod run;
mod worker;

use std::time::Duration;

use distlock::Acks;
use distlock_support::proxy::{Action, Armed, Matcher, Proxy};
use distlock_support::{Cluster, ClusterOptions, Numbers, RedisServer};

use crate::cluster::Slots;
use crate::resource::now;
use crate::run::Rules;
use crate::{How, TURN, secs};
use run::{GATE, PROCESSES, Setting, run};

/// Leases end while a process is cut off.
const LEASE: Duration = secs(3);

/// Number of small faults while a process is cut off. With the pauses after them, they take longer than a lease.
const FAULTS: usize = 60;

/// Each process reaches the server through a proxy of its own.
struct Single {
    server: RedisServer,
    proxies: Vec<Proxy>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_cuts_and_lost_replies_never_leave_more_permits_than_there_are() {
    let _turn = TURN.lock().await;
    let server = RedisServer::start();
    let proxies = (0..PROCESSES).map(|_| Proxy::start(server.addr())).collect();
    let rules = Rules { acks: Acks::Off, watchdog: LEASE, is_control: false };
    run(&Single { server, proxies }, rules, "one server, permits").await;
}

/// Every acquire is acknowledged by the replica. So a promoted replica knows all permits that are held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_primaries_with_acks_never_leave_more_permits_than_there_are() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(ClusterOptions::default().require_full_coverage(false)).await;
    let rules = Rules::of(Acks::AtLeast(1)).watchdog(LEASE * 2);
    // Without acknowledgement, a failover may lose permits.
    let rules = Rules { is_control: !rules.is_strict(), ..rules };
    run(&Slots { cluster, how: How::Killed }, rules, "cluster, permits").await;
}

impl Setting for Single {
    fn direct(&self) -> String {
        self.server.url()
    }

    fn url(&self, process: usize) -> String {
        self.proxies[process].url()
    }

    /// Cuts one process off for longer than a lease. Meanwhile all processes lose replies and connections.
    async fn strike(&self, round: usize) {
        let mut dice = Numbers::lane(now(), 0);
        let mut armed = Vec::new();
        self.proxies[(round + 2) % PROCESSES].blackhole(true);
        for fault in 0..FAULTS {
            armed.extend(harm(&self.proxies[fault % PROCESSES], &mut dice));
            tokio::time::sleep(dice.between(50, 110)).await;
        }
        for proxy in &self.proxies {
            proxy.heal();
        }
        assert!(armed.iter().any(Armed::has_fired), "no command met a fault");
    }
}

/// Breaks the connections of a process, or makes one of its next commands go wrong.
fn harm(proxy: &Proxy, dice: &mut Numbers) -> Option<Armed> {
    const ACTIONS: [Action; 5] =
        [Action::SwallowReplyClose, Action::HangReply, Action::CloseBefore, Action::CloseAfter, Action::Duplicate];
    match dice.below(6) {
        0 => proxy.rst_all(),
        1 => proxy.close_all(),
        _ => {
            let nth = Matcher::command("EVALSHA").nth(1 + dice.below(3) as usize);
            return Some(proxy.on_request(nth, dice.of(&ACTIONS)));
        }
    }
    None
}

impl Setting for Slots {
    fn direct(&self) -> String {
        self.cluster.url()
    }

    fn url(&self, _process: usize) -> String {
        self.cluster.url()
    }

    /// Kills the primary of the permits. In every other round its replica is cut off before, so that it misses some writes.
    async fn strike(&self, round: usize) {
        let primary = self.cluster.primary_of(GATE).await;
        let (_, took) = self.fail_over(primary, round.is_multiple_of(2)).await;
        self.cluster.whole().await;
        println!("cluster, permits: failover {round} took {took:.1?}");
    }
}
