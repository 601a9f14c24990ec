//! A process whose tasks take permits and give them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bed::harm::cut;
use distlock::{Acquire, PermitGuard, Permits, Result};
use distlock_support::{Child, Numbers, child};
use tokio::task::JoinSet;

use super::record::Record;
use super::run::GATE;
use crate::resource::{Why, now};
use crate::run::Rules;
use crate::worker::{acks_of, end_of, inside, text_of};
use crate::{ms, secs};

const TASKS: u64 = 8;
const WAIT: Duration = secs(5);

/// Starts a process, and waits until it works.
pub(crate) async fn start(life: u64, url: &str, record: &str, rules: &Rules) -> Child {
    let env = [
        ("LIFE", &*life.to_string()),
        ("SERVERS", url),
        ("RECORD", record),
        ("ACKS", &text_of(rules.acks)),
        ("WATCHDOG", &rules.watchdog.as_millis().to_string()),
    ];
    let mut child = Child::spawn("permits::worker::process_with_permits", &env);
    child.expect("at work").await;
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_with_permits() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let life: u64 = set("LIFE").parse().unwrap();
    let watchdog = ms(set("WATCHDOG").parse().unwrap());
    let builder = bed::fault::brisk(&set("SERVERS")).acks(acks_of(&set("ACKS")));
    let client = builder.watchdog(watchdog).command_timeout(watchdog / 3).connect().await.unwrap();
    let record = Arc::new(Record::connect(&set("RECORD")).await);
    let (stopped, sections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (gate, record, dice) = (client.permits(GATE), Arc::clone(&record), Numbers::lane(life, task));
        let (stopped, sections) = (Arc::clone(&stopped), Arc::clone(&sections));
        tasks.spawn(async move { work(life, &gate, &record, dice, &stopped, &sections).await });
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

/// A request: how many permits, how to acquire them, when to drop the request, and how long to hold them.
struct Plan {
    permits: u32,
    how: Acquire,
    drop_after: Option<Duration>,
    stay: Duration,
}

impl Plan {
    /// Most sections are short. A few outlast a watchdog's lease, and some outlast their explicit lease.
    fn of(dice: &mut Numbers) -> Self {
        let permits = 1 + dice.below(3) as u32;
        let drop_after = dice.once_in(8).then(|| dice.between(1, 60));
        let stay = if dice.once_in(40) { dice.between(2_000, 4_000) } else { dice.between(1, 40) };
        let how = Acquire::new().wait(WAIT);
        if !dice.once_in(3) {
            return Self { permits, how, drop_after, stay };
        }
        let lease = dice.between(150, 800);
        let stay = if dice.once_in(3) { lease * 2 } else { stay };
        Self { permits, how: how.lease(lease), drop_after, stay }
    }

    async fn request(&self, gate: &Permits) -> Result<Option<PermitGuard>> {
        let request = gate.acquire_with(self.permits, self.how.clone());
        match self.drop_after {
            Some(pause) => cut(request, 0, pause).await.unwrap_or(Ok(None)),
            None => request.await,
        }
    }
}

/// One task.
async fn work(
    life: u64,
    gate: &Permits,
    record: &Record,
    mut dice: Numbers,
    stopped: &AtomicBool,
    sections: &AtomicU64,
) {
    while !stopped.load(Ordering::Relaxed) {
        let plan = Plan::of(&mut dice);
        let guard = match plan.request(gate).await {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            Err(error) => {
                record.failed(&format!("acquire: {error}")).await;
                continue;
            }
        };
        assert_eq!(guard.count(), plan.permits);
        let section = format!("{life}:{}", sections.fetch_add(1, Ordering::Relaxed));
        let (at, left) = (now(), guard.remaining());
        record.take(&section, plan.permits, end_of(at, left)).await;
        let (why, ended) = inside(&guard, plan.stay).await;
        // Before the release is sent. So the next holder's grant comes later in the history.
        record.end(&section, why, ended).await;
        if dice.once_in(2) {
            drop(guard);
        } else if let Err(error) = guard.release().await
            && why == Why::Done
        {
            record.failed(&format!("release: {error}")).await;
        }
        tokio::time::sleep(dice.between(1, 20)).await;
    }
}
