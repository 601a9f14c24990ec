//! One case of the enumeration over several servers: an acquire, or a release, polled k times and dropped, with one fault.
//! Nothing may be left on any server, nobody else may be stopped.

use std::sync::Arc;
use std::time::Duration;

use distlock::{DistLock, Error, Flavour, Guard, MultiLock, Prefer, Result};
use distlock_sim::Mishap;
use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::fleet::Fleet;
use crate::cases::{FAIR_WAIT, LINGER, POLL_CAP, ROUND_TRIP, TIMEOUT, WATCHDOG, party};
use crate::rig::{self, count, lasts, ms, tasks};
use crate::stage::text;
use crate::trial::{Break, When, polled};

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Lock,
    TryLock,
    LockFor,
    LockLeased,
    Unlock,
    Extend,
}

/// Of what, and who else is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A RedLock over five servers, free.
    Red,
    /// Another client holds it for a while.
    RedBehind,
    /// Two of its servers stand still, until the call is over.
    RedAway,
    /// As `RedBehind`, of the fair flavour.
    RedFair,
    /// Three plain locks on one server: one script.
    Batch,
    /// Five locks of all kinds on two servers.
    Mixed,
    /// Another client holds the second of three for a while.
    BatchBehind,
    /// Another client holds one of the second server.
    MixedBehind,
    /// One fenced lock.
    Fenced,
    FencedBehind,
}

#[derive(Clone, Debug)]
pub enum Fault {
    None,
    /// With command `.1` to server `.0`, counted from the call.
    Command(usize, u64, Vec<Mishap>),
    /// After poll `.1`, with server `.0`.
    Break(usize, usize, Break),
}

#[derive(Clone, Debug)]
pub struct Case {
    pub op: Op,
    pub scene: Scene,
    pub fault: Fault,
    pub polls: usize,
    pub when: When,
}

impl Scene {
    pub const fn servers(self) -> usize {
        match self {
            Self::Red | Self::RedBehind | Self::RedAway | Self::RedFair => 5,
            Self::Mixed | Self::MixedBehind => 2,
            _ => 1,
        }
    }

    /// The lock, as this client sees it.
    fn lock(self, fleet: &Fleet, client: usize) -> Arc<dyn DistLock> {
        let one = |server: usize, flavour, name: &str| -> Arc<dyn DistLock> {
            rig::lock(&fleet.clients[client][server].client, flavour, name).into()
        };
        let plain = |server, name| one(server, Flavour::Reentrant, name);
        match self {
            Self::Red | Self::RedBehind | Self::RedAway => {
                Arc::new(fleet.red(client, Flavour::Reentrant, "a", TIMEOUT))
            }
            Self::RedFair => Arc::new(fleet.red(client, Flavour::Fair, "a", TIMEOUT)),
            Self::Batch | Self::BatchBehind => {
                Arc::new(MultiLock::of(["c", "a", "b"].map(|name| plain(0, name)).into()))
            }
            Self::Mixed | Self::MixedBehind => Arc::new(MultiLock::of(vec![
                plain(1, "e"),
                one(0, Flavour::Fair, "c"),
                plain(0, "a"),
                one(1, Flavour::Fenced, "d"),
                plain(0, "b"),
            ])),
            Self::Fenced | Self::FencedBehind => one(0, Flavour::Fenced, "a"),
        }
    }

    /// What somebody else holds at first.
    fn obstacle(self, fleet: &Fleet) -> Option<Arc<dyn DistLock>> {
        let one = |server: usize, flavour, name| rig::lock(&fleet.clients[1][server].client, flavour, name).into();
        match self {
            Self::RedBehind | Self::RedFair | Self::FencedBehind => Some(self.lock(fleet, 1)),
            Self::BatchBehind => Some(one(0, Flavour::Reentrant, "b")),
            Self::MixedBehind => Some(one(1, Flavour::Fenced, "d")),
            _ => None,
        }
    }

    /// M2: the servers have what a guard counts on, for as long.
    fn has(self, fleet: &Fleet, guard: &Guard) -> std::result::Result<(), String> {
        let (left, owner) = (guard.remaining(), text(guard.owner()));
        let on = |server: usize, flavour, name: &str| {
            let server = &fleet.servers[server];
            if count(server, flavour, name, &owner) == 0 { -2 } else { lasts(server, flavour, name, &owner) }
        };
        let plain = |server, name| on(server, Flavour::Reentrant, name);
        let pttl = match self {
            Self::Red | Self::RedBehind | Self::RedAway | Self::RedFair => {
                fleet.spans(Flavour::Reentrant, "a", &owner)[2]
            }
            Self::Batch | Self::BatchBehind => {
                ["a", "b", "c"].map(|name| plain(0, name)).into_iter().min().unwrap_or(-2)
            }
            Self::Mixed | Self::MixedBehind => {
                let all = [
                    plain(0, "a"),
                    plain(0, "b"),
                    on(0, Flavour::Fair, "c"),
                    on(1, Flavour::Fenced, "d"),
                    plain(1, "e"),
                ];
                all.into_iter().min().unwrap_or(-2)
            }
            Self::Fenced | Self::FencedBehind => plain(0, "a"),
        };
        if guard.is_held() && Duration::from_millis(u64::try_from(pttl + 1).unwrap_or(0)) < left {
            return Err(format!("M2: {owner} counts on it for {left:?}, which the servers have for {pttl} ms"));
        }
        Ok(())
    }

    const fn is_away(self) -> bool {
        matches!(self, Self::RedAway)
    }
}

fn lost_data(fault: &Fault) -> bool {
    matches!(fault, Fault::Break(_, _, Break::Restart(false)))
}

/// What a case brought: whether it came to its end, how many commands went to each server, and how long it took to clean up.
pub struct Seen {
    pub complete: bool,
    pub sent: Vec<u64>,
    pub took: Duration,
}

fn call<'a>(op: Op, lock: &'a Arc<dyn DistLock>, held: &'a mut Vec<Guard>) -> BoxFuture<'a, Result<Option<Guard>>> {
    match op {
        Op::Lock => Box::pin(async { lock.lock().await.map(Some) }),
        Op::TryLock => lock.try_lock(),
        Op::LockFor => lock.lock_for(ms(40)),
        Op::LockLeased => Box::pin(async { lock.lock_leased(ms(300)).await.map(Some) }),
        Op::Unlock => {
            let guard = held.pop().unwrap();
            Box::pin(async move { guard.unlock().await.map(|_| None) })
        }
        Op::Extend => {
            let guard = &held[0];
            Box::pin(async move { guard.extend(ms(900)).await.map(|()| None) })
        }
    }
}

fn leaves(mishap: &Mishap) -> bool {
    match mishap {
        Mishap::DuplicateRequest => true,
        Mishap::Refuse(text) => text.starts_with("OOM"),
        _ => false,
    }
}

/// The longest that the clean-up may take.
fn bound(case: &Case) -> Duration {
    match (&case.fault, case.scene) {
        (Fault::None, Scene::RedAway) => WATCHDOG + 4 * TIMEOUT + POLL_CAP + LINGER,
        (Fault::None, _) => 2 * ROUND_TRIP + ms(50),
        // The servers can be reached: what is in doubt is undone, and not left to its lease. But for what came in once more
        // unseen, and for what a server refused to give back.
        (Fault::Command(_, _, mishaps), _) if !mishaps.iter().any(leaves) => TIMEOUT + ms(150),
        (_, Scene::RedFair | Scene::Mixed | Scene::MixedBehind) => {
            FAIR_WAIT + WATCHDOG + 4 * TIMEOUT + POLL_CAP + LINGER
        }
        _ => WATCHDOG + 4 * TIMEOUT + POLL_CAP + LINGER,
    }
}

/// Holds the lock for a moment, however often that fails.
async fn through(lock: Arc<dyn DistLock>) -> Result<()> {
    loop {
        match lock.lock().await {
            Ok(guard) => {
                sleep(ms(5)).await;
                let _ = guard.unlock().await;
                return Ok(());
            }
            Err(error) if error.is_retryable() || matches!(error, Error::Server { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

pub async fn run(case: &Case) -> std::result::Result<Seen, String> {
    let &Case { op, scene, polls, when, .. } = case;
    let tasks_before = tasks();
    let fleet = Fleet::new(7, scene.servers(), 3, |server, _| party(server, Prefer::default()));
    let (ours, lock) = (&fleet.clients[0], scene.lock(&fleet, 0));
    let mut held = Vec::new();
    if matches!(op, Op::Unlock | Op::Extend) {
        held.push(lock.lock().await.unwrap());
    }
    // One holds it, or another one waits for it.
    let mut others: Vec<JoinHandle<Result<()>>> = Vec::new();
    if let Some(obstacle) = scene.obstacle(&fleet) {
        if held.is_empty() {
            let guard = obstacle.lock().await.unwrap();
            others.push(tokio::spawn(async move {
                sleep(ms(30)).await;
                guard.unlock().await.map(drop)
            }));
        }
        others.push(tokio::spawn(through(scene.lock(&fleet, 1))));
        sleep(ms(12)).await;
    }
    if scene.is_away() {
        fleet.servers[1].freeze(true);
        fleet.servers[3].freeze(true);
    }
    let sent: Vec<u64> = ours.iter().map(|party| party.link.sent()).collect();
    if let Fault::Command(server, number, mishaps) = &case.fault {
        for mishap in mishaps {
            ours[*server].link.plan(sent[*server] + number, mishap.clone());
        }
    }
    let mut calm = Instant::now();
    let between = async |poll| {
        if let Fault::Break(server, at, what) = case.fault
            && at == poll
        {
            calm = what.happen(&fleet.servers[server], &ours[server]).await;
        }
    };
    let outcome = polled(call(op, &lock, &mut held), polls, when, between).await?;
    let complete = outcome.is_some();
    let told = format!("{outcome:?}");
    if let (Some(Err(error)), Fault::None) = (&outcome, &case.fault) {
        return Err(format!("failed without a fault: {error}"));
    }
    let given = outcome.and_then(Result::ok).flatten();
    if given.as_ref().is_some_and(|guard| !guard.is_held()) {
        return Err(format!("M2: not held when it is given: {told}"));
    }
    held.extend(given);
    let dropped = calm.max(Instant::now());
    tokio::time::sleep_until(dropped).await;
    // Whatever is under way may do no harm to what is held, now or when it is there.
    for _ in 0..if held.is_empty() || lost_data(&case.fault) { 0 } else { 12 } {
        held.iter().try_for_each(|guard| scene.has(&fleet, guard))?;
        sleep(ms(2)).await;
    }
    if scene.is_away() {
        fleet.servers[1].freeze(false);
        fleet.servers[3].freeze(false);
    }

    let bound = bound(case);
    // Half the guards are unlocked, half dropped.
    for guard in held.drain(..) {
        if polls % 2 == 0 {
            let was_held = guard.is_held();
            let released = timeout(ms(10_000), guard.unlock()).await.map_err(|_| "unlock hangs".to_owned())?;
            if was_held && matches!(case.fault, Fault::None) && released.is_err() {
                return Err(format!("unlock: {released:?}"));
            }
        }
    }
    // All the others come in, too (W1).
    let patience = dropped.max(Instant::now()) + 3 * bound + ms(1500);
    for other in others {
        match timeout_at(patience, other).await {
            Ok(Ok(Ok(()))) => {}
            // The obstacle's lease may have ended meanwhile.
            Ok(Ok(Err(Error::Lost { .. } | Error::NotHeld { .. }))) if !matches!(case.fault, Fault::None) => {}
            Ok(odd) => return Err(format!("another task: {odd:?}; the call: {told}")),
            Err(_) => return Err(format!("another task still waits; the call: {told}; {}", fleet.left_over())),
        }
    }
    let took = fleet.settled(bound).await.map_err(|left| format!("{left}; the call: {told}"))?;
    if !matches!(case.fault, Fault::None) {
        // A late copy of the command may come in yet, and is to be found by the second look.
        let unseen = format!("{:?}", case.fault).contains("Duplicate");
        sleep(2 * TIMEOUT + 2 * ROUND_TRIP + if unseen { WATCHDOG } else { ms(0) }).await;
        // Whoever looks after a fair lock that was passed on may do so just now.
        let left = fleet.settled(2 * TIMEOUT).await.err().filter(|left| left.contains("key"));
        if let Some(left) = left {
            return Err(format!("after the second look: {left}; the call: {told}"));
        }
    }
    match scene.lock(&fleet, 2).lock_for(ms(50)).await {
        Ok(Some(guard)) => drop(guard.unlock().await),
        odd => return Err(format!("the next acquire: {odd:?}; the call: {told}")),
    }
    let sent = ours.iter().zip(sent).map(|(party, sent)| party.link.sent() - sent).collect();
    fleet.shutdown().await?;
    drop((lock, fleet));
    for _ in 0..500 {
        if tasks() <= tasks_before {
            return Ok(Seen { complete, sent, took });
        }
        sleep(ms(1)).await;
    }
    Err(format!("{} tasks are left, {tasks_before} were there before", tasks()))
}
