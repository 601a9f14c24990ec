//! One case of the enumeration: a public async function, polled k times and dropped, with one fault. Nothing may be
//! left on any server, and other clients must get the lock.

mod after;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::Notify;

use crate::cases::{Op, Scene, Subject, others};
use crate::fleet::Fleet;
use crate::made::{FAIR_WAIT, HOLD_BACK, LINGER, Made, POLL_CAP, ROUND_TRIP, TIMEOUT, WATCHDOG, party};
use crate::prelude::*;

#[derive(Clone, Copy, Debug)]
pub enum Break {
    Restart(bool),
    HangUp,
    Partition(Duration),
    Stall(Duration),
    Freeze(Duration),
    /// No task runs for this time, while clocks advance.
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

    /// Breaks something, and returns when the break will end.
    async fn begin(self, server: &SimServer, us: &Party) -> Instant {
        let (began, server, link) = (Instant::now(), server.clone(), us.link.clone());
        let mut happens = Box::pin(async move { self.happen(&server, &link).await });
        if let Self::Partition(span) | Self::Stall(span) | Self::Freeze(span) = self {
            let _ = futures::poll!(&mut happens);
            tokio::spawn(happens);
            return began + span;
        }
        happens.await;
        began + if let Self::Jump(span) = self { span } else { ms(20) }
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

impl Fault {
    /// True if a server loses its data.
    const fn forgets(&self) -> bool {
        matches!(self, Self::Break(_, _, Break::Restart(false)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Right after the last poll.
    AtOnce,
    /// When the future was woken for another poll.
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
    matches!(mishap, Mishap::DuplicateRequest) || matches!(mishap, Mishap::Refuse(text) if text.starts_with("OOM"))
}

fn bound(case: &Case) -> Duration {
    let queued = case.made.has_queues();
    // Attempts in doubt end, are undone within the lease, and have a second look.
    let undone = WATCHDOG + 4 * TIMEOUT + POLL_CAP + LINGER;
    match &case.fault {
        // The undo cannot distinguish its own late grant to a shared owner from another client's hold under that owner.
        Fault::None if queued && case.op.is_shared() => 2 * ROUND_TRIP + FAIR_WAIT.min(WATCHDOG),
        // Covers of readers that were removed by force stay until they expire, as in Redisson.
        Fault::None if case.op == Op::ForceUnlock && case.made == Made::One(Flavour::Read) => 2 * ROUND_TRIP + WATCHDOG,
        // Some readers wait for the whole `max_reader_delay`.
        Fault::None if case.scene == Scene::HeldBack => 2 * ROUND_TRIP + ms(50) + HOLD_BACK,
        Fault::None if case.scene == Scene::Away => undone,
        Fault::None => 2 * ROUND_TRIP + ms(50),
        // The servers are reachable, so attempts in doubt are undone and do not wait for their leases. Exceptions: a
        // duplicate that ran unseen, and a release that the server refused.
        Fault::Command(_, _, mishaps) if case.scene.is_watched() && !mishaps.iter().any(leaves) => TIMEOUT + ms(150),
        // A queue place whose removal failed lasts until it expires.
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
    let given = after::returned_guard(case, outcome, &told)?;
    if op.is_downgrade() && !case.fault.forgets() && given.is_some() && others.writers() > writers {
        return Err("RW4: a writer was in before the hold for reading was given".into());
    }
    subject.held.extend(given);
    let dropped = calm.max(Instant::now());
    sleep_until(dropped).await;

    after::check_holds(case, &fleet, &subject).await?;
    away(false);
    after::give_back(case, &mut subject).await?;
    after::wait_for_others(case, &fleet, others, dropped, &told).await?;
    after::check_free(case, &fleet).await.map_err(|wrong| format!("{wrong}; the call: {told}"))?;
    let sent = ours.iter().zip(sent).map(|(party, sent)| party.link.sent() - sent).collect();
    drop(subject);
    after::shut_down(op, &fleet).await?;
    drop(fleet);
    no_task_is_left(tasks_before, ms(500)).await?;
    Ok(Seen { complete, sent })
}
