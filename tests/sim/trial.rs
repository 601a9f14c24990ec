//! One case of the enumeration: a public async function, polled k times and dropped, with one fault. Nothing may be
//! left on any server, and other clients must get the lock.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::Notify;

use crate::cases::{Op, Scene, Subject, others};
use crate::fleet::Fleet;
use crate::made::{FAIR_WAIT, HOLD_BACK, LINGER, Made, NAME, POLL_CAP, ROUND_TRIP, TIMEOUT, WATCHDOG, party};
use crate::prelude::*;

#[derive(Clone, Copy, Debug)]
pub enum Break {
    Restart(bool),
    HangUp,
    Partition(Duration),
    Stall(Duration),
    Freeze(Duration),
    /// No task runs for so long, while clocks advance.
    Jump(Duration),
}

impl Break {
    /// Any kind but `Jump`.
    pub fn of(kind: u64, span: Duration) -> Self {
        match kind {
            0 => Self::HangUp,
            1 => Self::Restart(true),
            2 => Self::Partition(span),
            3 => Self::Stall(span),
            _ => Self::Freeze(span),
        }
    }

    /// Breaks something, and returns when it works again.
    pub async fn happen(self, server: &SimServer, link: &SimLink) {
        match self {
            Self::Restart(keep) => server.restart(keep),
            Self::HangUp => link.hang_up(),
            Self::Partition(span) => {
                link.partition(true);
                sleep(span).await;
                link.partition(false);
            }
            Self::Stall(span) => {
                link.stall(true);
                sleep(span).await;
                link.stall(false);
            }
            Self::Freeze(span) => {
                server.freeze(true);
                sleep(span).await;
                server.freeze(false);
            }
            Self::Jump(span) => advance(span).await,
        }
    }

    /// Breaks something, and returns until when that lasts.
    async fn begin(self, server: &SimServer, us: &Party) -> Instant {
        let now = Instant::now();
        let (server, link) = (server.clone(), us.link.clone());
        match self {
            Self::Partition(span) | Self::Stall(span) | Self::Freeze(span) => {
                let happens = async move { self.happen(&server, &link).await };
                let mut happens = Box::pin(happens);
                let _ = futures::poll!(&mut happens);
                tokio::spawn(happens);
                now + span
            }
            Self::Jump(span) => {
                advance(span).await;
                now + span
            }
            Self::Restart(_) | Self::HangUp => {
                self.happen(&server, &link).await;
                now + ms(20)
            }
        }
    }
}

#[derive(Clone, Debug)]
pub enum Fault {
    None,
    /// Faults of command `.1` of the subject's client to server `.0`, counted from the call.
    Command(usize, u64, Vec<Mishap>),
    /// A break at server `.0` after poll `.1`.
    Break(usize, usize, Break),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Right after its last poll.
    AtOnce,
    /// When it was woken to be polled again.
    Woken,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub made: Made,
    pub prefer: Prefer,
    pub op: Op,
    pub scene: Scene,
    pub fault: Fault,
    pub polls: usize,
    pub when: When,
}

#[derive(Debug)]
pub struct Seen {
    /// False if the future was dropped before it completed.
    pub complete: bool,
    /// Number of commands that the subject's client sent to each server from the call on.
    pub sent: Vec<u64>,
    /// Time from the drop until nothing was left.
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

/// Polls a future `polls` times, each time when it is woken, then drops it.
async fn polled<T>(
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

/// True if the server may keep something without an owner until its lease ends.
fn leaves(mishap: &Mishap) -> bool {
    match mishap {
        Mishap::DuplicateRequest => true,
        Mishap::Refuse(text) => text.starts_with("OOM"),
        _ => false,
    }
}

fn bound(case: &Case) -> Duration {
    let queued = case.made.has_queues();
    // Attempts in doubt end, are undone within the lease, and have a second look.
    let undone = WATCHDOG + 4 * TIMEOUT + POLL_CAP + LINGER;
    match &case.fault {
        // A grant to a shared owner that was giving up cannot be told from another client's hold under that owner.
        Fault::None if queued && case.op.is_shared() => 2 * ROUND_TRIP + FAIR_WAIT.min(WATCHDOG),
        // Covers of readers that were removed by force are left to expire, as in Redisson.
        Fault::None if case.op == Op::ForceUnlock && case.made == Made::One(Flavour::Read) => 2 * ROUND_TRIP + WATCHDOG,
        // Some readers wait as long as writers may hold them back.
        Fault::None if case.scene == Scene::HeldBack => 2 * ROUND_TRIP + ms(50) + HOLD_BACK,
        Fault::None if case.scene == Scene::Away => undone,
        Fault::None => 2 * ROUND_TRIP + ms(50),
        // The servers can be reached, so doubts are undone, not left to their leases. Exceptions: a duplicate that ran
        // unseen, and a release that the server refused.
        Fault::Command(_, _, mishaps) if case.scene.is_watched() && !mishaps.iter().any(leaves) => TIMEOUT + ms(150),
        // A place in a queue that could not be given up lasts for some more time.
        _ if queued => FAIR_WAIT + undone,
        _ => undone,
    }
}

pub async fn run(case: &Case) -> Result<Seen, String> {
    let &Case { made, prefer, op, scene, polls, when, .. } = case;
    let tasks_before = tasks();
    let fleet = Fleet::new(7, made.servers(), 3, |server, _| party(server, prefer));
    let ours = &fleet.clients[0];
    let mut subject = Subject::before(op, made, &fleet).await;
    let others = others(op, made, scene, &fleet).await;
    let writers = others.writers();
    let away = |is| [1, 3].into_iter().filter(|_| scene == Scene::Away).for_each(|n| fleet.servers[n].freeze(is));
    away(true);
    let sent: Vec<u64> = ours.iter().map(|party| party.link.sent()).collect();
    if let Fault::Command(server, number, mishaps) = &case.fault {
        mishaps.iter().for_each(|mishap| ours[*server].link.plan(sent[*server] + number, mishap.clone()));
    }
    let mut calm = Instant::now();
    let mut between = async |poll| {
        if let Fault::Break(server, at, what) = case.fault
            && at == poll
        {
            calm = what.begin(&fleet.servers[server], &ours[server]).await;
        }
    };
    between(0).await;
    let outcome = polled(subject.call(op), polls, when, between).await?;
    let complete = outcome.is_some();
    let told = format!("{outcome:?}");
    if let (Some(Err(error)), Fault::None, false) = (&outcome, &case.fault, matches!(op, Op::RunLost | Op::Lost)) {
        return Err(format!("failed without a fault: {error}"));
    }
    let given = outcome.and_then(Result::ok).flatten();
    if given.as_ref().is_some_and(|guard| !guard.is_held()) {
        return Err(format!("M2: not held when it is given: {told}"));
    }
    let kept = !matches!(case.fault, Fault::Break(_, _, Break::Restart(false)));
    if op.is_downgrade() && kept && given.is_some() && others.writers() > writers {
        return Err("RW4: a writer was in before the hold for reading was given".into());
    }
    subject.held.extend(given);
    let dropped = calm.max(Instant::now());
    sleep_until(dropped).await;

    let bound = bound(case);
    if scene.is_watched() {
        for _ in 0..if subject.held.is_empty() || !kept { 0 } else { 12 } {
            subject.held.iter().try_for_each(|guard| made.has(&fleet, guard))?;
            sleep(ms(2)).await;
        }
    } else if !subject.held.is_empty() && op != Op::Shutdown {
        // M4: after a while, the server has what the subject still holds.
        sleep(bound).await;
        check_counts(case, &fleet.servers[0], &subject)?;
    }
    away(false);
    give_back(case, &mut subject).await?;
    // W1: all other tasks get the lock too.
    let patience = dropped.max(Instant::now()) + 3 * bound + if scene.is_watched() { ms(1500) } else { ms(0) };
    for other in others.tasks {
        match timeout_at(patience, other).await {
            Ok(Ok(Ok(()))) => {}
            // The obstacle's lease may have ended meanwhile.
            Ok(Ok(Err(Error::Lost { .. } | Error::NotHeld { .. } | Error::ReleasePending { .. })))
                if !matches!(case.fault, Fault::None) => {}
            Ok(odd) => return Err(format!("another task: {odd:?}; the call: {told}")),
            Err(_) => return Err(format!("another task still waits; the call: {told}; {}", fleet.left_over())),
        }
    }
    let took = fleet.settled(bound).await.map_err(|left| format!("{left}; the call: {told}"))?;
    look_again(case, &fleet).await.map_err(|left| format!("{left}; the call: {told}"))?;
    match made.lock(&fleet, 2).lock_for(ms(50)).await {
        Ok(Some(guard)) => drop(guard.unlock().await),
        odd => return Err(format!("the next acquire: {odd:?}; the call: {told}")),
    }
    let sent = ours.iter().zip(sent).map(|(party, sent)| party.link.sent() - sent).collect();
    drop(subject);
    for party in fleet.clients.iter().flatten() {
        match party.client.shutdown(ms(1000)).await {
            Ok(()) => {}
            Err(Error::Closed) if op == Op::Shutdown => {}
            Err(error) => return Err(format!("shutdown: {error}")),
        }
        let busy = party.busy();
        if !busy.is_empty() {
            return Err(format!("after the shutdown: {busy}"));
        }
    }
    drop(fleet);
    no_task_is_left(tasks_before, ms(500)).await?;
    Ok(Seen { complete, sent, took })
}

/// Unlocks the guards if the number of polls is even, else drops them.
async fn give_back(case: &Case, subject: &mut Subject) -> Result<(), String> {
    for guard in subject.held.drain(..).rev() {
        if case.polls.is_multiple_of(2) {
            let held = guard.is_held();
            let released = timeout(ms(10_000), guard.unlock()).await.map_err(|_| "unlock hangs".to_owned())?;
            if held && matches!(case.fault, Fault::None) && released.is_err() && case.op != Op::ForceUnlock {
                return Err(format!("unlock: {released:?}"));
            }
        }
    }
    drop(subject.other.take());
    if matches!(case.op, Op::Release | Op::ReleaseInner) && case.polls == 0 {
        let _ = subject.lock.release(&subject.owner).await;
    }
    Ok(())
}

/// A late copy of the command may still arrive, and the second look must find it. The lease ends what no client can
/// know: a copy of a command that was answered, and one more hold of a shared owner.
async fn look_again(case: &Case, fleet: &Fleet) -> Result<(), String> {
    if matches!(case.fault, Fault::None) {
        return Ok(());
    }
    let unseen = case.op.is_shared() || format!("{:?}", case.fault).contains("Duplicate");
    sleep(2 * TIMEOUT + 2 * ROUND_TRIP + if unseen { WATCHDOG } else { ms(0) }).await;
    let mut left = fleet.left_over();
    // The check of a passed-on fair lock, or of a member, may be running just now, by the command that the fault hits.
    if (case.made.has_queues() || case.scene.is_watched()) && !left.contains("key") {
        left = fleet.settled(2 * TIMEOUT).await.err().unwrap_or_default();
    }
    if left.is_empty() { Ok(()) } else { Err(format!("left after the second look: {left}")) }
}

/// M4: the server counts the holds of the subject.
fn check_counts(case: &Case, server: &SimServer, subject: &Subject) -> Result<(), String> {
    for guard in subject.held.iter().filter(|guard| guard.is_held() && !case.op.is_shared()) {
        let half = if case.op.is_downgrade() { Flavour::Read } else { case.made.flavour() };
        let has = count(server, half, NAME, &text(guard.owner()));
        let same = || subject.held.iter().filter(|other| other.owner() == guard.owner());
        // If a lease is over here, its key may or may not have expired.
        let (least, most) = (same().filter(|other| other.is_held()).count() as u64, same().count() as u64);
        // The count is higher if a copy of an acquire arrived after the count was corrected, or if the server refused
        // the correction. The last release frees the lock all the same.
        let fault = format!("{:?}", case.fault);
        let over = ["Duplicate", "DelayBy(230ms)", "OOM"].iter().any(|late| fault.contains(late));
        if has < least || (has > most && !over) {
            return Err(format!("M4: the server has a count of {has} for {most} guards, {least} of them held"));
        }
    }
    Ok(())
}
