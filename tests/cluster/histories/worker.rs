//! One of the processes: tasks that come into the resource under fenced locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Acquire, Client};
use distlock_support::{Child, Numbers, child};
use tokio::task::JoinSet;

use super::resource::{Resource, now};
use crate::{end, ms, secs};

const TASKS: u64 = 24;
const NAMES: u64 = 100;
const WAIT: Duration = secs(5);

/// In the line of an acquire that failed though it might have waited longer.
pub(crate) const EARLY: &str = " before its wait was over";

/// How often a process looks whether the machine has time for it, in ms.
const TICK: u64 = 5;

/// Later than this, in µs, is the machine's doing, and written down.
const LATE: u64 = 3_000;

/// Starts one, at work.
pub(crate) async fn start(number: usize, cluster: &str, resource: &str) -> Child {
    let env = [("NUMBER", &*number.to_string()), ("CLUSTER", cluster), ("RESOURCE", resource)];
    let mut child = Child::spawn("histories::worker::process_at_work", &env);
    child.expect("at work").await;
    child
}

/// Has one end.
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
    let builder = bed::builder(&set("CLUSTER")).watchdog(secs(12)).command_timeout(secs(1));
    let client = builder.connect().await.unwrap();
    let resource = Arc::new(Resource::connect(&set("RESOURCE")).await);
    let (stopped, sections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, resource, dice) = (client.clone(), Arc::clone(&resource), Numbers::lane(number, task));
        let (stopped, sections) = (Arc::clone(&stopped), Arc::clone(&sections));
        tasks.spawn(async move { work(number, &client, &resource, dice, &stopped, &sections).await });
    }
    let (watched, at) = (Arc::clone(&stopped), Arc::clone(&resource));
    tasks.spawn(async move { watch(number, &at, &watched).await });
    child::say("at work");
    assert_eq!(child::hear().await, "stop");
    stopped.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    end(client).await;
    child::say("ended");
}

/// One task: most sections are short, and some last beyond a failover.
async fn work(
    number: u64,
    client: &Client,
    resource: &Resource,
    mut dice: Numbers,
    stopped: &AtomicBool,
    sections: &AtomicU64,
) {
    while !stopped.load(Ordering::Relaxed) {
        let name = format!("history:{}", dice.below(NAMES));
        let lock = client.fenced(&name);
        let began = Instant::now();
        let guard = match distlock::DistLock::acquire(&lock, Acquire::new().wait(WAIT)).await {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            Err(error) => {
                let early = if began.elapsed() < WAIT { EARLY } else { "" };
                resource.note("failed", &[format!("acquire{early}: {error}")]).await;
                continue;
            }
        };
        let section = format!("{number}:{}", sections.fetch_add(1, Ordering::Relaxed));
        let stay = if dice.once_in(8) { dice.between(2_500, 5_000) } else { dice.between(1, 40) };
        resource.enter(&name, &section, guard.fencing_token().unwrap()).await;
        let lost = tokio::select! {
            _ = guard.lost() => true,
            () = tokio::time::sleep(stay) => !guard.is_held(),
        };
        resource.leave(&section, lost, now()).await;
        if let Err(error) = guard.unlock().await
            && !lost
        {
            resource.note("failed", &[format!("release: {error}").replace(&name, "..")]).await;
        }
        tokio::time::sleep(dice.between(1, 20)).await;
    }
}

/// Writes down when this process was late: asleep for longer than it wanted to be, or without the resource's answer.
async fn watch(number: u64, resource: &Resource, stopped: &AtomicBool) {
    let mut late = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        let began = now();
        tokio::time::sleep(ms(TICK)).await;
        resource.ping().await;
        let (due, ended) = (began + 1_000 * TICK, now());
        if ended > due + LATE {
            late.push(format!("{number} {due} {ended}"));
        }
    }
    for some in late.chunks(500) {
        resource.note("late", some).await;
    }
}
