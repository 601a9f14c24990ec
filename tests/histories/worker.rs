//! A process whose tasks enter the resource under fenced locks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Acks, Acquire, Client, Error, Guard, Lost, PermitGuard};
use distlock_support::{Child, Numbers, child};
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::resource::{Resource, Why, now};
use crate::run::Rules;
use crate::{ms, secs};

const TASKS: u64 = 24;
const NAMES: u64 = 100;
const WAIT: Duration = secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) url: String,
    /// For each announced address, the address that the process connects to.
    pub(crate) map: HashMap<String, String>,
    /// Prefix of lock names: a hash tag if all locks must be in one slot.
    pub(crate) names: &'static str,
}

/// Starts a process, and waits until it works.
pub(crate) async fn start(number: usize, way: &Way, resource: &str, rules: &Rules) -> Child {
    let map: Vec<String> = way.map.iter().map(|(from, to)| format!("{from}={to}")).collect();
    let env = [
        ("NUMBER", &*number.to_string()),
        ("SERVERS", &way.url),
        ("MAP", &map.join(",")),
        ("NAMES", way.names),
        ("RESOURCE", resource),
        ("ACKS", &text_of(rules.acks)),
        ("WATCHDOG", &rules.watchdog.as_millis().to_string()),
    ];
    let mut child = Child::spawn("worker::process_at_work", &env);
    child.expect("at work").await;
    child
}

/// `off`, `redisson`, `all`, or the least number of replicas.
pub(crate) fn text_of(acks: Acks) -> String {
    match acks {
        Acks::Off => "off".to_owned(),
        Acks::Redisson => "redisson".to_owned(),
        Acks::All => "all".to_owned(),
        Acks::AtLeast(replicas) => replicas.to_string(),
        other => panic!("{other:?} is not known here"),
    }
}

pub(crate) fn acks_of(text: &str) -> Acks {
    match text {
        "off" => Acks::Off,
        "redisson" => Acks::Redisson,
        "all" => Acks::All,
        replicas => Acks::AtLeast(replicas.parse().expect("off, redisson, all, or a number")),
    }
}

pub(crate) async fn stop(mut child: Child) {
    child.tell("stop");
    child.expect("ended").await;
    assert!(child.wait().await.success(), "{}", child.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_at_work() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let number: u64 = set("NUMBER").parse().unwrap();
    let watchdog = ms(set("WATCHDOG").parse().unwrap());
    let map = set("MAP");
    let pairs = map.split(',').filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(from, to)| (from.to_owned(), to.to_owned())).collect();
    let builder = bed::builder(&set("SERVERS")).address_map(map).acks(acks_of(&set("ACKS")));
    let client = builder.watchdog(watchdog).command_timeout(watchdog / 3).connect().await.unwrap();
    let resource = Arc::new(Resource::connect(&set("RESOURCE")).await);
    let names: Arc<str> = set("NAMES").into();
    let (stopped, sections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, resource, dice) = (client.clone(), Arc::clone(&resource), Numbers::lane(number, task));
        let names = Arc::clone(&names);
        let (stopped, sections) = (Arc::clone(&stopped), Arc::clone(&sections));
        tasks.spawn(async move { work(number, &client, &names, &resource, dice, &stopped, &sections).await });
    }
    child::say("at work");
    assert_eq!(child::hear().await, "stop");
    stopped.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    bed::idle(&client).await;
    client.shutdown(bed::PATIENCE).await.expect("shutdown of an idle client");
    child::say("ended");
}

/// One task. Most sections are short, and some outlast a failover.
async fn work(
    number: u64,
    client: &Client,
    names: &str,
    resource: &Resource,
    mut dice: Numbers,
    stopped: &AtomicBool,
    sections: &AtomicU64,
) {
    while !stopped.load(Ordering::Relaxed) {
        let name = format!("{names}history:{}", dice.below(NAMES));
        let lock = client.fenced(&name);
        let guard = match distlock::DistLock::acquire(&lock, Acquire::new().wait(WAIT)).await {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            Err(error) => {
                resource.note("failed", &[format!("acquire: {error}").replace(&name, "..")]).await;
                continue;
            }
        };
        let section = format!("{number}:{}", sections.fetch_add(1, Ordering::Relaxed));
        let stay = if dice.once_in(8) { dice.between(2_500, 5_000) } else { dice.between(1, 40) };
        resource.enter(&name, &section, guard.fencing_token().unwrap()).await;
        let (why, ended) = inside(&guard, stay).await;
        resource.leave(&section, why, ended).await;
        if let Err(error) = guard.unlock().await
            && why == Why::Done
        {
            resource.note("failed", &[format!("release: {error}").replace(&name, "..")]).await;
        }
        tokio::time::sleep(dice.between(1, 20)).await;
    }
}

/// The part of a guard that a section needs.
pub(crate) trait Held: Sync {
    fn left(&self) -> Duration;
    fn loss(&self) -> BoxFuture<'static, Error>;
}

impl Held for Guard {
    fn left(&self) -> Duration {
        self.remaining()
    }

    fn loss(&self) -> BoxFuture<'static, Error> {
        Box::pin(self.lost())
    }
}

impl Held for PermitGuard {
    fn left(&self) -> Duration {
        self.remaining()
    }

    fn loss(&self) -> BoxFuture<'static, Error> {
        Box::pin(self.lost())
    }
}

/// Holds the lock for a while, or until it is lost. Returns why and when the section ended.
///
/// A section whose lease expired ends at the last known deadline, even if the process noticed later. Then it does not
/// matter that the server had lost the lock by that time.
pub(crate) async fn inside(guard: &impl Held, stay: Duration) -> (Why, u64) {
    let over = tokio::time::sleep(stay);
    tokio::pin!(over);
    let mut held_until = 0;
    loop {
        let (at, left) = (now(), guard.left());
        if !left.is_zero() {
            held_until = end_of(at, left);
            if over.is_elapsed() {
                return (Why::Done, at);
            }
        }
        tokio::select! {
            error = guard.loss() => {
                let (why, noticed) = (why(&error), now());
                let is_over = why == Why::Expired || (1..=noticed).contains(&held_until);
                return if is_over { (Why::Expired, held_until) } else { (why, noticed) };
            }
            () = &mut over, if !over.is_elapsed() => {}
            () = tokio::time::sleep(ms(20)) => {}
        }
    }
}

/// The end of a lease with this remaining time at this moment.
pub(crate) fn end_of(at: u64, left: Duration) -> u64 {
    at + u64::try_from(left.as_micros()).expect("a lease of seconds")
}

fn why(error: &Error) -> Why {
    match error {
        Error::Lost { why: Lost::Gone, .. } => Why::Gone,
        Error::Lost { why: Lost::Expired, .. } => Why::Expired,
        other => panic!("no way to lose a lock here: {other}"),
    }
}
