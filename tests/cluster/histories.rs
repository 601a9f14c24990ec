//! Failovers one after the other, under the eyes of a resource that eight processes come into: who was inside with somebody else, and
//! why, and how soon they were told.

mod check;
mod resource;
mod worker;

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_support::{Cluster, ClusterOptions, Node, RedisServer};
use futures::future::join_all;

use crate::{TURN, ms, secs};
use check::{Failover, Overlap, Section, Stranger};
use resource::{Resource, now};

const PROCESSES: usize = 8;

/// How long after the new primary's first answer to anybody a process is told, at the latest, that a lock of its own is not known there.
const TOLD: Duration = ms(250);

/// A primary that was asked to be none any more waits for 5 s, and then goes on: what it grants from then on may be lost.
const GIVEN_UP: Duration = secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Asked,
    Killed,
    Stopped,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_by_request_let_nobody_in_beside_another() {
    failovers(How::Asked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_a_primary_is_killed_is_told_of_what_its_replica_did_not_know() {
    failovers(How::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_a_primary_stops_and_goes_on_is_told_of_what_its_replica_did_not_know() {
    failovers(How::Stopped).await;
}

/// So many failovers: 3, or what `FAILOVERS` says.
async fn failovers(how: How) {
    let _turn = TURN.lock().await;
    let rounds = std::env::var("FAILOVERS").map_or(3, |text| text.parse().expect("a number"));
    let cluster = Cluster::start(ClusterOptions::default().require_full_coverage(false)).await;
    let server = RedisServer::start();
    let resource = Resource::connect(&server.url()).await;
    let (url, at) = (cluster.url(), server.url());
    let processes = join_all((0..PROCESSES).map(|number| worker::start(number, &url, &at))).await;
    let (mut failovers, mut slowest) = (Vec::new(), Duration::ZERO);
    for round in 0..rounds {
        // For work in between.
        tokio::time::sleep(secs(1)).await;
        let primary = cluster.owner([0, 6_000, 12_000][round % 3]).await;
        let (failover, took) = failover(&cluster, primary, how, round % 2 == 0).await;
        slowest = slowest.max(took);
        failovers.push(failover);
        cluster.whole().await;
    }
    tokio::time::sleep(secs(1)).await;
    join_all(processes.into_iter().map(worker::stop)).await;

    let history = resource.history().await;
    let sections = check::sections(&history);
    let overlaps = check::overlaps(&sections, &failovers);
    let lost = sections.iter().filter(|section| section.lost).count();
    let mut failed = BTreeMap::new();
    for line in resource.notes("failed").await {
        *failed.entry(line).or_insert(0) += 1;
    }
    println!(
        "{how:?}, {rounds} failovers: {} sections, {lost} lost; {} overlaps; {} numbers given out anew; calls that failed: {failed:#?}",
        sections.len(),
        overlaps.len(),
        check::repeated(&history),
    );
    let late = Late::of(&resource.notes("late").await);
    for stranger in check::told(&sections, &failovers) {
        let [own, anybody] = [stranger.answered, stranger.answered_anybody].map(|answered| {
            answered.map_or("unanswered".to_owned(), |at| format!("{:.1?}", late.until(&stranger.section, at)))
        });
        println!("  told {own} after its process was answered, {anybody} after anybody was: {}", stranger.section.id);
    }
    let mut wrong = Vec::new();
    for overlap in &overlaps {
        let Overlap { first, second, strangers, is_explained } = overlap;
        println!("  {}: {} with {}, then {} with {}", first.name, first.id, first.token, second.id, second.token);
        let mut in_time = false;
        for stranger in strangers {
            let Stranger { section, answered, answered_anybody } = stranger;
            let since = |answered: Option<u64>| late.until(section, answered.unwrap_or(section.ended));
            let (own, anybody) = (since(*answered), since(*answered_anybody));
            in_time |= anybody < TOLD;
            println!(
                "    {} ended {own:.1?} after its process was answered, {anybody:.1?} after anybody was{}",
                section.id,
                if section.lost { ", told that it is lost" } else { "" }
            );
        }
        if !is_explained {
            wrong.push(format!("nothing explains {overlap:?}"));
        }
        if !in_time {
            wrong.push(format!("told too late: {overlap:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(sections.len() > 100 * rounds, "hardly any work says nothing: {}", sections.len());
    let last = failovers.last().map_or(0, |failover| failover.at);
    for process in 0..PROCESSES {
        let is_at_work = sections.iter().any(|one| one.entered > last && one.process() == process.to_string());
        assert!(is_at_work, "process {process} does nothing any more");
    }
    println!("  the slowest took {slowest:.1?}");
    if how == How::Asked && slowest < GIVEN_UP {
        assert_eq!((overlaps.len(), lost, check::repeated(&history)), (0, 0, 0));
        assert!(!failed.keys().any(|line| line.contains(worker::EARLY)), "{failed:#?}");
    }
}

/// One failover, and how long it took. `behind`: its replica is cut off for 0.4 s before a crash, so that there is something that it does not
/// know.
async fn failover(cluster: &Cluster, primary: &Node, how: How, behind: bool) -> (Failover, Duration) {
    let slots = primary.view().await.myself().slots.clone();
    let replica = cluster.replicas_of(primary).await[0];
    if how == How::Asked {
        let at = now();
        let took = cluster.failover(replica).await.took;
        return (Failover { at, resumed: None, slots }, took);
    }
    if behind {
        cluster.stop(replica).await;
        primary.admin().cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
        tokio::time::sleep(ms(400)).await;
    }
    match how {
        How::Killed => cluster.kill(primary).await,
        _ => cluster.stop(primary).await,
    }
    let at = now();
    if behind {
        cluster.cont(replica);
    }
    let took = cluster.promotion(primary).await.took;
    tokio::time::sleep(secs(1)).await;
    let resumed = (how == How::Stopped).then(now);
    match how {
        How::Killed => cluster.restart(primary),
        _ => cluster.cont(primary),
    }
    (Failover { at, resumed, slots }, took)
}

/// When the processes were late, by no doing of theirs.
struct Late(Vec<(String, u64, u64)>);

impl Late {
    fn of(lines: &[String]) -> Self {
        let parse = |line: &String| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        };
        Self(lines.iter().map(|line| parse(line).expect("a line of ours")).collect())
    }

    /// How long a section went on from then, while its process had time to notice.
    fn until(&self, section: &Section, from: u64) -> Duration {
        let own = self.0.iter().filter(|(late, ..)| late == section.process());
        let excused: u64 =
            own.map(|(_, begin, end)| (*end).min(section.ended).saturating_sub((*begin).max(from))).sum();
        Duration::from_micros(section.ended.saturating_sub(from).saturating_sub(excused))
    }
}
