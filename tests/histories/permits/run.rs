//! Processes with permits, kills, and the check of the history.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{Acks, PermitCounts, Permits};
use distlock_support::{Child, RedisServer};
use futures::future::join_all;

use super::record::Record;
use super::{check, worker};
use crate::resource::{Why, now};
use crate::run::{Rules, rounds};
use crate::worker::stop;

pub(crate) const GATE: &str = "gate";
pub(crate) const PROCESSES: usize = 8;
const PERMITS: u32 = 5;

/// The least number of events of a run, so that every kind of section is among them.
const EVENTS: usize = 300;

/// Servers, and what happens to them.
pub(crate) trait Setting {
    /// A URL that no fault concerns.
    fn direct(&self) -> String;

    /// How a process reaches the servers.
    fn url(&self, process: usize) -> String;

    /// Causes the faults of this round. At the end everything works again.
    async fn strike(&self, round: usize);
}

/// The least duration of a run in µs: `DISTLOCK_HISTORY_SECONDS` in the environment, or 20 s.
fn duration() -> u64 {
    let seconds: u64 = std::env::var("DISTLOCK_HISTORY_SECONDS").map_or(20, |text| text.parse().expect("a number"));
    seconds * 1_000_000
}

/// A process. Each has a number of its own, also if it takes the place of another one.
struct Worker {
    life: u64,
    child: Child,
}

/// The place of work: servers, rules, and the record.
struct Site<'a, S> {
    setting: &'a S,
    rules: Rules,
    record: Record,
    record_url: String,
}

/// Runs processes through rounds of faults. In each round a process is killed while it holds permits. Then checks the
/// history, and that all permits have come back.
pub(crate) async fn run(setting: &impl Setting, rules: Rules, what: &str) {
    let server = RedisServer::start();
    let site = Site { setting, rules, record: Record::connect(&server.url()).await, record_url: server.url() };
    let client = bed::builder(&setting.direct()).acks(Acks::Off).connect().await.unwrap();
    let gate = client.permits(GATE);
    assert!(gate.try_set_permits(PERMITS).await.unwrap());
    let mut workers = join_all((0..PROCESSES as u64).map(|life| site.hire(life))).await;
    let (least, until) = (rounds(2), now() + duration());
    let (mut round, mut since) = (0, 0);
    loop {
        site.at_work(&workers, since).await;
        if round >= least && now() >= until && site.record.events().await >= EVENTS {
            break;
        }
        let dies = &mut workers[round % PROCESSES];
        site.kill(dies).await;
        setting.strike(round).await;
        let total = total(&gate).await;
        assert!(total == i64::from(PERMITS) || rules.is_control, "{what}, round {round}: {total} permits in all");
        since = now();
        *dies = site.hire(dies.life + PROCESSES as u64).await;
        round += 1;
    }
    // The permits of this process are still leased when the others have given theirs back.
    let mut last = workers.swap_remove(round % PROCESSES);
    site.kill(&mut last).await;
    join_all(workers.into_iter().map(|worker| stop(worker.child))).await;
    if !rules.is_control {
        come_back(&gate, rules.watchdog).await;
    }
    bed::end(client).await;
    judge(&site.record, rules, &format!("{what}, {round} rounds")).await;
}

impl<S: Setting> Site<'_, S> {
    async fn hire(&self, life: u64) -> Worker {
        let url = self.setting.url(life as usize % PROCESSES);
        Worker { life, child: worker::start(life, &url, &self.record_url, &self.rules).await }
    }

    /// Kills a process while it holds permits. It stands still while this is looked up.
    async fn kill(&self, worker: &mut Worker) {
        let mut at = 0;
        bed::eventually("the process holds permits", async || {
            at = now();
            worker.child.stop();
            let is_inside = self.record.is_inside(worker.life).await;
            if !is_inside {
                worker.child.cont();
            }
            is_inside
        })
        .await;
        worker.child.kill9();
        self.record.dead(worker.life, at).await;
    }

    /// Waits until every process has got permits after this time.
    async fn at_work(&self, workers: &[Worker], since: u64) {
        bed::becomes("processes without permits since the last fault", Vec::<u64>::new(), async || {
            let mut idle = Vec::new();
            for worker in workers {
                if self.record.latest(worker.life).await.is_none_or(|at| at <= since) {
                    idle.push(worker.life);
                }
            }
            idle
        })
        .await;
    }
}

/// The number of all permits. No fault may change it.
async fn total(gate: &Permits) -> i64 {
    let mut counts = None;
    bed::eventually("the server answers", async || {
        counts = gate.counts().await.ok();
        counts.is_some()
    })
    .await;
    counts.map_or(0, |counts: PermitCounts| counts.total())
}

/// Checks that all permits become free: no lease is longer than one watchdog's lease, and nobody renews. Also checks that
/// the permits are no more than at first.
async fn come_back(gate: &Permits, longest: Duration) {
    let held = gate.holders().await.unwrap();
    let ends = held.iter().all(|permit| permit.remaining.is_some_and(|left| left <= longest));
    assert!(ends, "permits that last longer than one lease: {held:?}");
    let all = Some((i64::from(PERMITS), 0));
    bed::becomes("free and held permits", all, async || {
        gate.counts().await.ok().map(|counts| (counts.available, counts.acquired))
    })
    .await;
    let all = bed::ends("a request for all permits", gate.acquire(PERMITS)).await.unwrap();
    assert!(gate.try_acquire(1).await.unwrap().is_none(), "more permits than there are");
    all.release().await.unwrap();
}

async fn judge(record: &Record, rules: Rules, what: &str) {
    let sections = check::sections(&record.history().await);
    let (most, holders) = check::largest(&sections);
    let count = |why| sections.iter().filter(|section| section.why == why).count();
    let [done, expired, gone] = [Why::Done, Why::Expired, Why::Gone].map(|why| count(Some(why)));
    let killed = count(None);
    let mut failed = BTreeMap::new();
    for line in record.failures().await {
        *failed.entry(line).or_insert(0) += 1;
    }
    println!(
        "{what}, {:?}: {done} sections, {expired} more lost as expired, {gone} as gone, {killed} killed; at most {most} of \
         {PERMITS} permits at once; calls that failed: {failed:#?}",
        rules.acks
    );
    assert!(sections.iter().all(|section| section.ended < u64::MAX), "{what}: sections without an end");
    assert!(most <= PERMITS || rules.is_control, "{what}: {most} of {PERMITS} permits were held at once: {holders:#?}");
    assert!(gone == 0 || rules.is_control, "{what}: {gone} times a server had lost permits before their lease ended");
    // Otherwise this run has shown little.
    assert!(most >= PERMITS, "{what}: never more than {most} of {PERMITS} permits were held at once");
    assert!(expired > 0 && killed > 0, "{what}: {expired} leases ended inside, {killed} sections were killed");
}
