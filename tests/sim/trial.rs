//! One case of the enumeration: a public async function, polled k times and dropped, with one fault.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use distlock::{Flavour, Prefer};
use distlock_sim::{Mishap, SimServer};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::cases::{
    FAIR_WAIT, HOLD_BACK, LINGER, NAME, Op, POLL_CAP, ROUND_TRIP, Scene, Subject, TIMEOUT, WATCHDOG, others, party,
};
use crate::rig::{self, Party, count, left_over, ms, settled, tasks};

/// What happens between two polls.
#[derive(Clone, Copy, Debug)]
pub enum Break {
    Restart(bool),
    HangUp,
    Partition(Duration),
    Stall(Duration),
    Freeze(Duration),
    /// Nobody runs for so long, while clocks go on.
    Jump(Duration),
}

impl Break {
    /// Until when it lasts.
    pub async fn happen(self, server: &SimServer, us: &Party) -> Instant {
        let now = Instant::now();
        let (server, link) = (server.clone(), us.link.clone());
        match self {
            Self::Restart(keep) => server.restart(keep),
            Self::HangUp => link.hang_up(),
            Self::Partition(span) => {
                link.partition(true);
                tokio::spawn(async move {
                    sleep(span).await;
                    link.partition(false);
                });
            }
            Self::Stall(span) => {
                link.stall(true);
                tokio::spawn(async move {
                    sleep(span).await;
                    link.stall(false);
                });
            }
            Self::Freeze(span) => {
                server.freeze(true);
                tokio::spawn(async move {
                    sleep(span).await;
                    server.freeze(false);
                });
            }
            Self::Jump(span) => tokio::time::advance(span).await,
        }
        match self {
            Self::Partition(span) | Self::Stall(span) | Self::Freeze(span) | Self::Jump(span) => now + span,
            Self::Restart(_) | Self::HangUp => now + ms(20),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Fault {
    None,
    /// With command `.0` of the subject's client, counted from the call.
    Command(u64, Vec<Mishap>),
    /// After poll `.0`.
    Break(usize, Break),
}

/// When the future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Right after its last poll.
    AtOnce,
    /// When it was woken to be polled again.
    Woken,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub flavour: Flavour,
    pub prefer: Prefer,
    pub op: Op,
    pub scene: Scene,
    pub fault: Fault,
    pub polls: usize,
    pub when: When,
}

/// What a case brought.
#[derive(Debug)]
pub struct Seen {
    /// False when the future was dropped before its end.
    pub complete: bool,
    /// How many commands the subject's client sent from the call on.
    pub sent: u64,
    /// How long it took from the drop until nothing was left.
    pub took: Duration,
}

#[derive(Default)]
struct Alarm {
    rung: AtomicBool,
    notify: Notify,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Relaxed);
        self.notify.notify_one();
    }
}

/// Polls a future so often, each time when it is woken; then drops it.
pub async fn polled<T>(
    future: impl Future<Output = T>,
    polls: usize,
    when: When,
    mut between: impl AsyncFnMut(usize),
) -> Result<Option<T>, String> {
    let mut future = pin!(future);
    let alarm = Arc::new(Alarm::default());
    let waker = Waker::from(Arc::clone(&alarm));
    for poll in 1..=polls {
        alarm.rung.store(false, Ordering::Relaxed);
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(Some(output));
        }
        between(poll).await;
        if poll == polls && when == When::AtOnce {
            break;
        }
        let woken = async {
            while !alarm.rung.load(Ordering::Relaxed) {
                alarm.notify.notified().await;
            }
        };
        timeout(ms(20_000), woken).await.map_err(|_| format!("not woken after poll {poll}"))?;
    }
    Ok(None)
}

/// The longest that anything may take in this case.
fn bound(case: &Case) -> Duration {
    match case.fault {
        // What was passed on to a shared owner as it gave up cannot be told from what somebody else holds as it.
        Fault::None if case.flavour == Flavour::Fair && case.op.is_shared() => 2 * ROUND_TRIP + FAIR_WAIT.min(WATCHDOG),
        // The covers of readers that were thrown out are left to run out, as Redisson does.
        Fault::None if case.op == Op::ForceUnlock && case.flavour == Flavour::Read => 2 * ROUND_TRIP + WATCHDOG,
        // Some wait for as long as writers may hold them back.
        Fault::None if case.scene == Scene::HeldBack => 2 * ROUND_TRIP + ms(50) + HOLD_BACK,
        Fault::None => 2 * ROUND_TRIP + ms(50),
        // Attempts in doubt end, are undone for as long as the lease, and looked after once more.
        // A place in a queue that nobody can give up lasts for some time more.
        _ if case.flavour == Flavour::Fair => FAIR_WAIT + WATCHDOG + 4 * TIMEOUT + POLL_CAP + LINGER,
        _ => WATCHDOG + 4 * TIMEOUT + POLL_CAP + LINGER,
    }
}

pub async fn run(case: &Case) -> Result<Seen, String> {
    let &Case { flavour, prefer, op, scene, polls, when, .. } = case;
    let tasks_before = tasks();
    let server = SimServer::new(7);
    let (us, them, next) = (party(&server, prefer), party(&server, prefer), party(&server, prefer));
    let mut subject = Subject::before(op, flavour, &us).await;
    let others = others(op, flavour, scene, &us, &them).await;
    let writers = others.writers();
    let sent = us.link.sent();
    let mut broken = None;
    match &case.fault {
        Fault::None => {}
        Fault::Command(number, mishaps) => {
            for mishap in mishaps {
                us.link.plan(sent + number, mishap.clone());
            }
        }
        Fault::Break(poll, what) => broken = Some((*poll, *what)),
    }

    let mut calm = Instant::now();
    if let Some((0, what)) = broken {
        calm = what.happen(&server, &us).await;
    }
    let between = async |poll| {
        if let Some((at, what)) = broken
            && at == poll
        {
            calm = what.happen(&server, &us).await;
        }
    };
    let outcome = polled(subject.call(op), polls, when, between).await?;
    let complete = outcome.is_some();
    let told = format!("{outcome:?}");
    if let Some(Err(error)) = &outcome {
        let expected = matches!(op, Op::RunLost | Op::Lost) || !matches!(case.fault, Fault::None);
        if !expected {
            return Err(format!("failed without a fault: {error}"));
        }
    }
    let given = outcome.and_then(Result::ok).flatten();
    if given.as_ref().is_some_and(|guard| !guard.is_held()) {
        return Err(format!("M2: not held when it is given: {told}"));
    }
    let kept = !matches!(case.fault, Fault::Break(_, Break::Restart(false)));
    if op.is_downgrade() && kept && given.is_some() && others.writers() > writers {
        return Err("RW4: a writer was in before the hold for reading was given".into());
    }
    subject.held.extend(given);
    let dropped = calm.max(Instant::now());
    tokio::time::sleep_until(dropped).await;

    // What the subject has still must be what the server has for it (M4), after a while.
    let bound = bound(case);
    if !subject.held.is_empty() && op != Op::Shutdown {
        sleep(bound).await;
        check_counts(case, &server, &subject)?;
    }
    // Half the guards are unlocked, half dropped.
    for guard in subject.held.drain(..).rev() {
        if polls % 2 == 0 {
            let held = guard.is_held();
            let released = timeout(ms(10_000), guard.unlock()).await.map_err(|_| "unlock hangs".to_owned())?;
            if held && matches!(case.fault, Fault::None) && released.is_err() && op != Op::ForceUnlock {
                return Err(format!("unlock: {released:?}"));
            }
        }
    }
    drop(subject.other.take());
    let begun = polls > 0;
    if matches!(op, Op::Release | Op::ReleaseInner) && !begun {
        let _ = subject.lock.release(&subject.owner).await;
    }

    // All the others come in, too (W1).
    let patience = dropped.max(Instant::now()) + 3 * bound;
    for other in others.tasks {
        match tokio::time::timeout_at(patience, other).await {
            Ok(Ok(Ok(()))) => {}
            Ok(odd) => return Err(format!("another task: {odd:?}; the call: {told}")),
            Err(_) => {
                let left = left_over(&server, &[&us, &them]);
                return Err(format!("another task still waits after {:?}; the call: {told}; {left}", 3 * bound));
            }
        }
    }
    let took = settled(&server, &[&us, &them], bound).await.map_err(|left| format!("{left}; the call: {told}"))?;

    if !matches!(case.fault, Fault::None) {
        // A late copy of the command may come in yet, and is to be found by the second look. The lease ends what nobody
        // can know of: a copy of a command that was answered, and what one more of a shared owner has done.
        let unseen = op.is_shared() || format!("{:?}", case.fault).contains("Duplicate");
        sleep(2 * TIMEOUT + 2 * ROUND_TRIP + if unseen { WATCHDOG } else { ms(0) }).await;
        // Whoever looks after a fair lock that was passed on may do so just now, and with the command that the fault hits.
        let mut left = left_over(&server, &[&us, &them]);
        if flavour == Flavour::Fair && !left.contains("key") {
            left = settled(&server, &[&us, &them], 2 * TIMEOUT).await.err().unwrap_or_default();
        }
        if !left.is_empty() {
            return Err(format!("left after the second look: {left}; the call: {told}"));
        }
    }

    let taken = rig::lock(&next.client, flavour, NAME).lock_for(ms(50)).await;
    match taken {
        Ok(Some(guard)) => drop(guard.unlock().await),
        odd => return Err(format!("the next acquire: {odd:?}; the call: {told}")),
    }
    let sent = us.link.sent() - sent;
    drop(subject);
    for party in [us, them, next] {
        match party.client.shutdown(ms(1000)).await {
            Ok(()) => {}
            Err(distlock::Error::Closed) if op == Op::Shutdown => {}
            Err(error) => return Err(format!("shutdown: {error}")),
        }
        let busy = party.busy();
        if !busy.is_empty() {
            return Err(format!("after the shutdown: {busy}"));
        }
    }
    for _ in 0..500 {
        if tasks() <= tasks_before {
            return Ok(Seen { complete, sent, took });
        }
        sleep(ms(1)).await;
    }
    Err(format!("{} tasks are left, {tasks_before} were there before", tasks()))
}

/// M4: the server counts what the subject has.
fn check_counts(case: &Case, server: &SimServer, subject: &Subject) -> Result<(), String> {
    for guard in subject.held.iter().filter(|guard| guard.is_held() && !case.op.is_shared()) {
        let owner = format!("{:?}", guard.owner());
        let half = if case.op.is_downgrade() { Flavour::Read } else { case.flavour };
        let has = count(server, half, NAME, owner.trim_start_matches("Owner(").trim_end_matches(')'));
        let same = || subject.held.iter().filter(|other| other.owner() == guard.owner());
        // A lease that is over may be over for the key too, or not.
        let (least, most) = (same().filter(|other| other.is_held()).count() as u64, same().count() as u64);
        // More is there when a copy of an acquire came in after the count was put right, or when the server refused to
        // put it right. The last release frees it all the same.
        let fault = format!("{:?}", case.fault);
        let over = ["Duplicate", "DelayBy(230ms)", "OOM"].iter().any(|late| fault.contains(late));
        if has < least || (has > most && !over) {
            return Err(format!("M4: the server has a count of {has} for {most} guards, {least} of them held"));
        }
    }
    Ok(())
}
