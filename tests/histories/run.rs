//! Processes at work, failovers, and the check of the history.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::Acks;
use distlock_support::RedisServer;
use futures::future::join_all;

use crate::check::{self, Failover, Overlap};
use crate::resource::{Event, Resource, Why, now};
use crate::secs;
use crate::worker::{self, Way};

pub(crate) const PROCESSES: usize = 8;

pub(crate) trait Scene {
    /// How a process reaches the servers.
    fn way(&self, process: usize) -> Way;

    /// Runs failover `round`, until all servers are back. Also returns the time until there was a new primary.
    async fn failover(&self, round: usize) -> (Failover, Duration);
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) acks: Acks,
    pub(crate) watchdog: Duration,
    /// True for a control, where overlaps are expected.
    pub(crate) is_control: bool,
}

impl Rules {
    /// The acknowledgement of a test, unless the environment sets one: `ACKS=off`, `redisson`, `all`, or a number.
    pub(crate) fn of(acks: Acks) -> Self {
        let acks = std::env::var("ACKS").map_or(acks, |text| worker::acks_of(&text));
        Self { acks, watchdog: secs(12), is_control: false }
    }

    pub(crate) fn watchdog(self, watchdog: Duration) -> Self {
        Self { watchdog, ..self }
    }

    pub(crate) fn is_strict(self) -> bool {
        matches!(self.acks, Acks::AtLeast(_) | Acks::All)
    }
}

/// Number of failovers: `FAILOVERS` in the environment, or `otherwise`.
pub(crate) fn rounds(otherwise: usize) -> usize {
    std::env::var("FAILOVERS").map_or(otherwise, |text| text.parse().expect("a number"))
}

pub(crate) struct Outcome {
    pub(crate) overlaps: Vec<Overlap>,
    pub(crate) lost: usize,
    pub(crate) repeated: usize,
    pub(crate) slowest: Duration,
}

/// Runs worker processes through a number of failovers, and checks the history. Asynchronous replication must explain
/// every overlap. With strict acknowledgement there is no overlap, and no token is issued twice.
pub(crate) async fn run(scene: &impl Scene, rules: Rules, rounds: usize, what: &str) -> Outcome {
    let server = RedisServer::start();
    let resource = Resource::connect(&server.url()).await;
    let at = server.url();
    let start = async |number| worker::start(number, &scene.way(number), &at, &rules).await;
    let processes = join_all((0..PROCESSES).map(start)).await;
    let (mut failovers, mut slowest, mut last) = (Vec::new(), Duration::ZERO, 0);
    for round in 0..rounds {
        at_work(&resource, last).await;
        let (failover, took) = scene.failover(round).await;
        slowest = slowest.max(took);
        failovers.push(failover);
        last = now();
    }
    at_work(&resource, last).await;
    join_all(processes.into_iter().map(worker::stop)).await;

    let history = resource.history().await;
    let sections = check::sections(&history);
    let overlaps = check::overlaps(&sections, &failovers);
    let count = |why| sections.iter().filter(|section| section.why == why).count();
    let (gone, expired, repeated) = (count(Why::Gone), count(Why::Expired), check::repeated(&sections));
    let mut failed = BTreeMap::new();
    for line in resource.notes("failed").await {
        *failed.entry(line).or_insert(0) += 1;
    }
    println!(
        "{what}, {:?}, {rounds} failovers, the slowest {slowest:.1?}: {} sections, {gone} lost as gone, {expired} as expired; \
         {} overlaps, the longest {:.1?}; {repeated} tokens issued twice; calls that failed: {failed:#?}",
        rules.acks,
        sections.len(),
        overlaps.len(),
        overlaps.iter().map(Overlap::lasted).max().unwrap_or_default(),
    );
    let is_wrong = |overlap: &&Overlap| !rules.is_control && (rules.is_strict() || !overlap.is_explained);
    let wrong: Vec<&Overlap> = overlaps.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{what}: exclusion broken: {wrong:#?}");
    if rules.is_strict() {
        assert_eq!(repeated, 0, "{what}: tokens issued twice");
        assert!(gone == 0 || rules.is_control, "{what}: {gone} acknowledged locks that a primary lost");
    }
    assert!(sections.len() > 4 * PROCESSES, "{what}: only {} sections", sections.len());
    Outcome { overlaps, lost: gone + expired, repeated, slowest }
}

/// Waits until every process has entered a section after this time.
async fn at_work(resource: &Resource, since: u64) {
    bed::becomes("processes without a section since the failover", Vec::<usize>::new(), async || {
        let history = resource.history().await;
        let is_idle = |process: &usize| {
            let by = format!("{process}:");
            !history.iter().any(
                |event| matches!(event, Event::Enter { section, at, .. } if *at > since && section.starts_with(&by)),
            )
        };
        (0..PROCESSES).filter(is_idle).collect()
    })
    .await;
}
