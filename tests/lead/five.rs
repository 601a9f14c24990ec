//! Five processes stand for election. The leader is killed, frozen or cut off, in turn, and writes to a resource that
//! judges by the epoch. `LEAD_ROUNDS=20` repeats all three faults 20 times; the default is once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bed::{Bed, ends, eventually, ms, secs};
use distlock::{Builder, Client, Flavour, Leader};
use distlock_support::{Child, Proxy, RedisServer, child};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::NAME;

const PROCESSES: usize = 5;

/// A client whose terms end soon after a fault.
fn brief(builder: Builder) -> Builder {
    builder
        .watchdog(bed::QUICK)
        .command_timeout(bed::QUICK / 3)
        .retry_attempts(2)
        .configure(|options| (options.retry_delay, options.poll_cap) = ((ms(10), ms(100)), secs(1)))
}

/// Refuses an epoch that is smaller than the largest that has written.
#[derive(Debug, Default)]
struct Resource {
    /// The process of each epoch that has written.
    leaders: BTreeMap<u64, String>,
    refused: usize,
    wrong: Vec<String>,
}

impl Resource {
    fn newest(&self) -> Option<(u64, String)> {
        self.leaders.last_key_value().map(|(epoch, who)| (*epoch, who.clone()))
    }

    /// Returns false if the write is refused.
    fn write(&mut self, who: &str, epoch: u64) -> bool {
        if let Some(other) = self.leaders.get(&epoch).filter(|other| *other != who) {
            self.wrong.push(format!("{other} and {who} both lead with epoch {epoch}"));
        }
        if self.newest().is_some_and(|(newest, _)| newest > epoch) {
            self.refused += 1;
            return false;
        }
        self.leaders.insert(epoch, who.to_owned());
        true
    }
}

type Shared = Arc<Mutex<Resource>>;

#[derive(Clone, Copy, Debug)]
enum Order {
    Freeze,
    Thaw,
}

struct Process {
    proxy: Arc<Proxy>,
    orders: UnboundedSender<Order>,
    task: JoinHandle<()>,
}

impl Process {
    fn start(bed: &Bed, who: &str, resource: &Shared) -> Self {
        let (proxy, (orders, received)) = (bed.proxy(), unbounded_channel());
        let child = Child::spawn("five::candidate_process", &[("URL", &proxy.url()), ("WHO", who)]);
        let task = tokio::spawn(serve(child, who.to_owned(), Arc::clone(resource), received));
        Self { proxy, orders, task }
    }

    /// Kills the process.
    async fn kill(self) {
        drop(self.orders);
        ends("the task of a killed process", self.task).await.unwrap();
    }
}

/// Answers the writes of a process until its orders end.
async fn serve(mut child: Child, who: String, resource: Shared, mut orders: UnboundedReceiver<Order>) {
    loop {
        tokio::select! {
            line = child.line() => {
                let line = line.unwrap_or_else(|| panic!("{who} has ended: {}", child.output()));
                match line.strip_prefix("write ").map(|epoch| epoch.parse().unwrap()) {
                    Some(epoch) => {
                        let done = resource.lock().write(&who, epoch);
                        child.tell(if done { "done" } else { "refused" });
                    }
                    None => resource.lock().wrong.push(format!("{who}: {line}")),
                }
            }
            order = orders.recv() => match order {
                Some(Order::Freeze) => child.stop(),
                Some(Order::Thaw) => child.cont(),
                None => return child.kill9(),
            },
            // `line` panics after a long silence, and a waiting candidate is silent. So the call begins again from time
            // to time.
            () = tokio::time::sleep(secs(30)) => {}
        }
    }
}

/// Leads whenever it can, and writes. Writes once more after the end of its term, like a leader that does not check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidate_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let (url, who) = (std::env::var("URL").unwrap(), std::env::var("WHO").unwrap());
    let client = brief(bed::builder(&url)).connect().await.unwrap();
    let candidate = client.lead(NAME).payload(who);
    loop {
        let term = match candidate.next().await {
            Ok(term) => term,
            Err(error) if error.is_retryable() => continue,
            Err(error) => panic!("{error:?}"),
        };
        loop {
            let is_leader = term.is_leader();
            child::say(&format!("write {}", term.epoch()));
            let done = child::hear().await == "done";
            // Checked after the answer: a process that is still the leader then was the leader during the write.
            if !done && term.is_leader() {
                child::say(&format!("refused with epoch {}, although it leads", term.epoch()));
            }
            if !is_leader {
                break;
            }
            tokio::time::sleep(ms(10)).await;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Freeze,
    CutOff,
}

/// Disturbs the leader, waits until another process has written with a larger epoch, and repairs the process.
async fn disturb(bed: &Bed, fault: Fault, round: usize, processes: &mut BTreeMap<String, Process>, resource: &Shared) {
    let (epoch, who) = resource.lock().newest().expect("a leader");
    match fault {
        Fault::Kill => processes.remove(&who).expect("a process").kill().await,
        Fault::Freeze => processes[&who].orders.send(Order::Freeze).unwrap(),
        Fault::CutOff => processes[&who].proxy.blackhole(true),
    }
    let follows = |(later, next): (u64, String)| later > epoch && next != who;
    let followed = async || resource.lock().newest().is_some_and(follows);
    eventually(&format!("{fault:?} of {who} with epoch {epoch}: the next leader"), followed).await;
    match fault {
        Fault::Kill => {
            let name = format!("replacement {round}");
            processes.insert(name.clone(), Process::start(bed, &name, resource));
        }
        Fault::Freeze => {
            let before = resource.lock().refused;
            processes[&who].orders.send(Order::Thaw).unwrap();
            let refused = async || resource.lock().refused > before;
            eventually(&format!("the late write of {who} is refused"), refused).await;
        }
        Fault::CutOff => processes[&who].proxy.blackhole(false),
    }
}

/// Collects what an observer sees, until it is aborted.
fn watch(client: &Client, seen: &Arc<Mutex<Vec<Leader>>>) -> JoinHandle<()> {
    let (mut observer, seen) = (client.observe(NAME), Arc::clone(seen));
    tokio::spawn(async move {
        loop {
            match observer.changed().await {
                Ok(leader) => seen.lock().extend(leader),
                // On a slow machine, a query may time out.
                Err(error) => assert!(error.is_retryable(), "changed: {error:?}"),
            }
        }
    })
}

/// Each fault is followed by a new leader. No two processes lead with one epoch, and no leader is refused while it
/// leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_killed_frozen_or_cut_off_leader_is_followed_by_one_leader() {
    let rounds = std::env::var("LEAD_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let make = |client: &Client, name: &str| client.lock(Flavour::Fenced, name);
    bed::run_on(RedisServer::start(), make, async |bed| {
        let (resource, seen) = (Shared::default(), Arc::default());
        let watching = watch(&bed.connect(brief(bed.builder())).await, &seen);
        let mut processes: BTreeMap<String, Process> = (0..PROCESSES)
            .map(|n| format!("process {n}"))
            .map(|who| (who.clone(), Process::start(bed, &who, &resource)))
            .collect();
        eventually("the first leader", async || resource.lock().newest().is_some()).await;
        for round in 0..rounds {
            for fault in [Fault::Kill, Fault::Freeze, Fault::CutOff] {
                disturb(bed, fault, round, &mut processes, &resource).await;
            }
        }
        for process in std::mem::take(&mut processes).into_values() {
            process.kill().await;
        }
        // The lease of the last leader ends, and its payload with it.
        let observer = bed.client().await.observe(NAME);
        eventually("the end of the last term", async || observer.current().await.unwrap().is_none()).await;
        watching.abort();
        assert!(watching.await.is_err_and(|ended| ended.is_cancelled()), "the observer has failed");
        let (resource, seen) = (resource.lock(), seen.lock());
        assert!(resource.wrong.is_empty(), "{:#?}", resource.wrong);
        assert!(seen.is_sorted_by_key(|leader| leader.epoch), "{seen:?}");
        for leader in seen.iter().filter(|leader| leader.payload.is_some()) {
            let writer = resource.leaders.get(&leader.epoch);
            assert!(writer.is_none_or(|who| leader.text() == Some(who.as_str())), "{leader:?} is not {writer:?}");
        }
        assert!(seen.iter().any(|leader| leader.payload.is_some()), "{seen:?}");
    })
    .await;
}

#[test]
fn resource_refuses_older_epochs_and_finds_two_leaders_of_one() {
    let mut resource = Resource::default();
    assert!(resource.write("a", 1) && resource.write("b", 3) && !resource.write("a", 1) && !resource.write("c", 2));
    assert_eq!((resource.refused, resource.wrong.len()), (2, 0));
    resource.write("c", 3);
    assert_eq!(resource.wrong.len(), 1);
}
