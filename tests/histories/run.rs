//! Processes at work, failovers, and what has come of it.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::Acks;
use distlock_support::RedisServer;
use futures::future::join_all;

use crate::check::{self, Failover, Overlap, Section, Stranger};
use crate::late::Late;
use crate::resource::{Event, Resource, Why, now};
use crate::worker::{self, Way};
use crate::{ms, secs};

pub(crate) const PROCESSES: usize = 8;

/// How long after the new primary's first answer to anybody a process is told, at the latest, that a lock of its own is not known there.
const TOLD: Duration = ms(250);

/// And how long after the first sentinel told of the new primary.
const TOLD_BY_SENTINELS: Duration = ms(500);

/// Later than this is the machine's doing, and written down by the processes.
const JITTER: Duration = ms(3);

/// Servers, and what becomes of a primary there.
pub(crate) trait Scene {
    /// How a process gets there.
    fn way(&self, process: usize) -> Way;

    /// Has the nth failover happen, and returns when all is as it was before, with how long it took to have a new primary.
    async fn failover(&self, round: usize) -> (Failover, Duration);
}

/// By what rules the processes lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) acks: Acks,
    pub(crate) watchdog: Duration,
    /// Overlaps are meant to be there.
    pub(crate) is_control: bool,
}

impl Rules {
    /// Those of a test, or by what `ACKS` in the environment says: `off`, `redisson`, `all`, or a number.
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

/// So many failovers: what `FAILOVERS` in the environment says, or so many.
pub(crate) fn rounds(otherwise: usize) -> usize {
    std::env::var("FAILOVERS").map_or(otherwise, |text| text.parse().expect("a number"))
}

/// What has come of it.
pub(crate) struct Outcome {
    pub(crate) overlaps: Vec<Overlap>,
    pub(crate) lost: usize,
    pub(crate) repeated: usize,
    /// Calls that failed, and how often.
    pub(crate) failed: BTreeMap<String, usize>,
    /// How long the slowest failover took.
    pub(crate) slowest: Duration,
}

/// Processes at work while one failover follows the other. What holds for all kinds of them is checked: overlaps are those that an
/// asynchronous replication explains, and are told in time; behind acknowledgements there are none, and no number comes twice.
pub(crate) async fn run(scene: &impl Scene, rules: Rules, rounds: usize, what: &str) -> Outcome {
    let server = RedisServer::start();
    let resource = Resource::connect(&server.url()).await;
    let at = server.url();
    let start = async |number| worker::start(number, &scene.way(number), &at, &rules).await;
    let processes = join_all((0..PROCESSES).map(start)).await;
    let (mut failovers, mut slowest, mut last) = (Vec::new(), Duration::ZERO, 0);
    for round in 0..rounds {
        // For work in between.
        tokio::time::sleep(secs(1)).await;
        let (failover, took) = scene.failover(round).await;
        slowest = slowest.max(took);
        failovers.push(failover);
        last = now();
    }
    bed::eventually("every process is at work again", async || {
        let history = resource.history().await;
        let is_at_work = |process: usize| {
            let by = format!("{process}:");
            let has_come = |event: &Event| matches!(event, Event::Enter { section, at, .. } if *at > last && section.starts_with(&by));
            history.iter().any(has_come)
        };
        (0..PROCESSES).all(is_at_work)
    })
    .await;
    join_all(processes.into_iter().map(worker::stop)).await;

    let history = resource.history().await;
    let sections = check::sections(&history);
    let overlaps = check::overlaps(&sections, &failovers);
    let count = |why| sections.iter().filter(|section| section.why == why).count();
    let (gone, expired, repeated) = (count(Why::Gone), count(Why::Expired), check::repeated(&history));
    let mut failed = BTreeMap::new();
    for line in resource.notes("failed").await {
        *failed.entry(line).or_insert(0) += 1;
    }
    println!(
        "{what}, {:?}, {rounds} failovers, the slowest {slowest:.1?}: {} sections, {gone} lost as gone, {expired} as expired; \
         {} overlaps; {repeated} numbers given out anew; calls that failed: {failed:#?}",
        rules.acks,
        sections.len(),
        overlaps.len(),
    );
    let late = Late::of(&resource.notes("late").await);
    let wrong_ones = if rules.is_strict() { strictly } else { explained };
    let mut wrong = if rules.is_control { Vec::new() } else { wrong_ones(&overlaps, &late) };
    let too_late = told(&sections, &failovers, &late);
    if !rules.is_control {
        wrong.extend(too_late);
    }
    if rules.is_strict() && (gone, repeated) != (0, 0) {
        wrong.push(format!("{gone} acknowledged locks unknown to a primary, {repeated} numbers given out anew"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(sections.len() > 100 * rounds, "hardly any work says nothing: {}", sections.len());
    Outcome { overlaps, lost: gone + expired, repeated, failed, slowest }
}

/// What is wrong with overlaps where no acknowledged lock is ever lost: that they are there. Whose lease has run out may be late to leave
/// where the machine had no time for it.
fn strictly(overlaps: &[Overlap], late: &Late) -> Vec<String> {
    let is_wrong = |overlap: &&Overlap| {
        let Overlap { first, second, .. } = overlap;
        first.why != Why::Expired || late.until(first, second.entered) > JITTER
    };
    overlaps.iter().filter(is_wrong).map(|overlap| format!("both inside: {overlap:#?}")).collect()
}

/// What is wrong with overlaps behind an asynchronous replication: nothing explains them, or nobody was told in time.
fn explained(overlaps: &[Overlap], late: &Late) -> Vec<String> {
    let mut wrong = Vec::new();
    for overlap in overlaps {
        let Overlap { first, second, strangers, is_explained } = overlap;
        println!("  {}: {} with {}, then {} with {}", first.name, first.id, first.token, second.id, second.token);
        let mut in_time = false;
        for stranger in strangers {
            let Stranger { section, answered, answered_anybody, switched } = stranger;
            let since = |answered: Option<u64>| late.until(section, answered.unwrap_or(section.ended));
            let (own, anybody, switch) = (since(*answered), since(*answered_anybody), since(*switched));
            in_time |= if switched.is_some() { switch < TOLD_BY_SENTINELS } else { anybody < TOLD };
            println!(
                "    {} ended {own:.1?} after its process was answered, {anybody:.1?} after anybody was, {switch:.1?} after sentinels \
                 told of it{}",
                section.id,
                if section.is_lost() { ", told that it is lost" } else { "" }
            );
        }
        if !is_explained {
            wrong.push(format!("nothing explains {overlap:?}"));
        }
        if !in_time {
            wrong.push(format!("told too late: {overlap:?}"));
        }
    }
    wrong
}

/// When those were told whose locks were lost; who was told too late after sentinels had told of the new primary.
fn told(sections: &[Section], failovers: &[Failover], late: &Late) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut latest = Duration::ZERO;
    for stranger in check::told(sections, failovers) {
        let Stranger { section, answered, answered_anybody, switched } = &stranger;
        let [own, anybody] = [answered, answered_anybody]
            .map(|answered| answered.map_or("unanswered".to_owned(), |at| format!("{:.1?}", late.until(section, at))));
        println!(
            "  told {own} after its process was answered, {anybody} after anybody was: {}, {:?}",
            section.id, section.why
        );
        let Some(switched) = switched else { continue };
        let switch = late.until(section, *switched);
        latest = latest.max(switch);
        if section.why == Why::Gone && switch >= TOLD_BY_SENTINELS {
            wrong.push(format!("told {switch:.1?} after the first sentinel told of the new primary: {section:?}"));
        }
    }
    println!("  told {latest:.1?} after the first sentinel told of the new primary at the latest");
    wrong
}
