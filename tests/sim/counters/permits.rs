//! Random runs of permits: never more than n are held, and all come back.

use super::history::{Spans, unbacked};
use super::plan::{Harm, LEASE, MOST, Plan};
use super::scene::{Run, Scene, run_seeds};
use crate::prelude::*;
use actor::Actor;
use distlock::PermitGuard;
use std::ops::Range;

mod actor;

const NAME: &str = "gate";
const LEASES: &str = "{gate}:timeout";

/// A guard, while its task makes no call of it.
struct Held {
    guard: PermitGuard,
    /// True if the watchdog has renewed the permits all the time.
    watched: bool,
}

impl Held {
    /// The earliest end of the lease by the local clock. A call that was dropped may yet change an explicit lease.
    fn end(&self) -> Instant {
        Instant::now() + if self.watched { self.guard.remaining() } else { Duration::ZERO }
    }
}

struct Gate {
    scene: Scene,
    spans: Spans,
    /// By span.
    held: Mutex<BTreeMap<usize, Held>>,
}

impl Gate {
    fn new(seed: u64, plan: Plan) -> Self {
        let n = plan.n;
        let (scene, spans, held) = (Scene::new(seed, plan, NAME), Spans::default(), Mutex::default());
        scene.set(n);
        Self { scene, spans, held }
    }

    /// Adds a guard that an acquire has just returned. The guard must be held now (M2).
    fn enter(&self, guard: PermitGuard, watched: bool) -> usize {
        if !guard.is_held() {
            self.scene.wrong(format!("M2: an acquire returned a guard that does not hold: {guard:?}"));
        }
        let span = self.spans.begin(guard.count(), Some(Instant::now() + guard.remaining()));
        crate::trace::say(|| format!("{:>12?} {span} enters {guard:?}", self.scene.start.elapsed()));
        self.scene.served();
        self.put(span, Held { guard, watched });
        span
    }

    fn put(&self, span: usize, held: Held) {
        self.held.lock().insert(span, held);
        self.look();
    }

    /// Takes a guard for a call. What the call does to its lease is not known before it is put back.
    fn take(&self, span: usize) -> Held {
        self.look();
        let held = self.held.lock().remove(&span).expect("a task has one guard");
        self.spans.cut(span);
        held
    }

    /// Takes a guard for its release.
    fn end(&self, span: usize) -> Held {
        let held = self.take(span);
        self.spans.end(span);
        crate::trace::say(|| format!("{:>12?} {span} leaves {:?}", self.scene.start.elapsed(), held.guard));
        held
    }

    /// Drops the guard of a killed task, if the task had it here.
    fn bury(&self, span: usize) {
        self.look();
        self.spans.end(span);
        let held = self.held.lock().remove(&span);
        drop(held);
    }

    /// For each permit in the set on the server: the rest of its lease in ms. 0 or less: expired.
    fn leases(&self) -> Vec<i64> {
        let server = &self.scene.server;
        let (began, flat) = (now(server), words(&does(server, &format!("zrange {LEASES} 0 -1 withscores"))));
        flat.chunks(2).map(|pair| pair[1].parse::<i64>().expect("a lease ends at a whole ms") - began).collect()
    }

    /// Checks the rules of every moment.
    fn look(&self) {
        let Plan { n, watchdog, .. } = self.scene.plan;
        let mut guards = Vec::new();
        for (span, held) in &*self.held.lock() {
            let left = held.guard.is_held().then(|| held.guard.remaining());
            self.spans.look(*span, left);
            let Some(left) = left else { continue };
            if held.watched && !self.scene.plan.is_rough() && left < watchdog / 3 {
                self.scene.wrong(format!("L3: {:?} has {left:?} left of {watchdog:?}", held.guard));
            }
            guards.push((left, held.guard.count()));
        }
        let held: u32 = guards.iter().map(|(_, permits)| permits).sum();
        if held > n {
            self.scene.wrong(format!("N1: {held} of {n} permits are held: {guards:?}"));
        }
        let leases = self.leases();
        // A renewal that leaves a lease as it is adds 1 ms.
        let longest = watchdog.as_millis().max(LEASE.into()) as i64 + 20;
        if leases.iter().any(|left| *left > longest) {
            self.scene.wrong(format!("L2: a permit lasts longer than every lease: {leases:?}"));
        }
        // The server counts whole ms.
        let live: Vec<_> = leases.iter().filter(|left| **left > 0).map(|left| ms(left.unsigned_abs() + 1)).collect();
        let expired = (leases.len() - live.len()) as i64;
        unbacked(&guards, live).into_iter().for_each(|wrong| self.scene.wrong(wrong));
        let free = self.scene.stored().unwrap_or(0);
        if free + leases.len() as i64 != i64::from(n) {
            self.scene.wrong(format!("N2: {free} permits are free, and {} are in the set, of {n}", leases.len()));
        }
        self.scene.check_waiters(free + expired >= i64::from(MOST));
    }

    /// The numbers of free and of held permits, as the server counts them. Expired permits are free.
    fn counts(&self) -> (i64, usize) {
        let leases = self.leases();
        let live = leases.iter().filter(|left| **left > 0).count();
        (self.scene.stored().unwrap_or(0) + (leases.len() - live) as i64, live)
    }

    /// Checks that a call may fail with this error. `end`: see [`Held::end`].
    fn check(&self, call: &str, error: &Error, end: Instant) {
        let of_lease = matches!(error, Error::Lost { .. } | Error::NotHeld { .. } | Error::ReleasePending { .. });
        let is_rough = self.scene.plan.is_rough();
        let may_fail = of_lease && (is_rough || Instant::now() >= end) || is_rough && error.is_retryable();
        if !may_fail {
            self.scene.wrong(format!("{call} failed: {error:?}"));
        }
    }

    /// Checks a guard that reported a loss: `is_held` must be false, and `lost()` must complete at once.
    async fn check_loss(&self, guard: &PermitGuard, error: &Error) {
        if guard.is_held() || timeout(ms(1), guard.lost()).await.is_err() {
            self.scene.wrong(format!("M2: told lost ({error}), but the guard does not say so: {guard:?}"));
        }
        if !matches!(error, Error::Lost { why: Lost::Expired | Lost::Gone, .. }) {
            self.scene.wrong(format!("lost is told as {error:?}"));
        }
    }

    fn actors(self: &Arc<Self>, seed: u64) -> Vec<JoinHandle<()>> {
        let (clients, tasks) = (self.scene.plan.clients, self.scene.plan.tasks);
        let actor = |n: usize| {
            let dice = Numbers::lane(seed, 100 + n as u64);
            tokio::spawn(Actor { gate: Arc::clone(self), place: n % clients, dice, span: None }.run())
        };
        (0..clients * tasks).map(actor).collect()
    }

    /// After the faults, all permits are available when the longest lease has ended, and a waiter gets them.
    async fn finish(&self) {
        let Plan { n, watchdog, timeout, .. } = self.scene.plan;
        // A late copy may take permits for a whole lease, and so may a client that dies.
        let bound = watchdog + timeout.max(self.scene.plan.way()) + ms(60);
        let (began, gate) = (Instant::now(), self.scene.party(0).client.permits(NAME));
        match gate.acquire_for(n, 2 * bound).await {
            Ok(Some(guard)) if began.elapsed() <= bound => {
                if let Err(error) = guard.release().await {
                    self.scene.wrong(format!("a release without faults failed: {error:?}"));
                }
            }
            odd => self.scene.wrong(format!("W1: all permits, {:?} after the faults: {odd:?}", began.elapsed())),
        }
        self.scene.quiet().await;
        let left = || {
            let counts = self.counts();
            if counts == (i64::from(n), 0) { String::new() } else { format!("{counts:?} free and held of {n}") }
        };
        if let Err(left) = gone(left, bound).await {
            self.scene.wrong(format!("N2: permits are not free again: {left}"));
        }
        self.spans.too_many(n, self.scene.start).into_iter().for_each(|wrong| self.scene.wrong(wrong));
    }
}

async fn run(seed: u64, harm: Harm, fair: bool) -> Run {
    let tasks_before = tasks();
    let mut dice = Numbers::lane(seed, 1);
    let mut plan = Plan::new(harm, 4, &mut dice);
    plan.fair = fair;
    let gate = Arc::new(Gate::new(seed, plan));
    crate::trace::say(|| format!("seed {seed}: {:?}", gate.scene.plan));
    let [watching, harming] = [(); 2].map(|()| Arc::clone(&gate));
    let watcher = tokio::spawn(async move { watching.scene.watch(seed, || watching.look()).await });
    let weather = tokio::spawn(async move { harming.scene.harm(&mut dice).await });
    gate.scene.ended(gate.actors(seed)).await;
    gate.scene.calm_down();
    weather.await.unwrap();
    gate.finish().await;
    gate.scene.stop_watching();
    watcher.await.unwrap();
    gate.scene.close().await;
    let full = gate.spans.most() == gate.scene.plan.n;
    let run = Run { wrong: gate.scene.broken(), count: gate.spans.len(), full };
    drop(gate);
    run.without_tasks(tasks_before).await
}

pub fn run_all(harm: Harm, fair: bool, seeds: Range<u64>) {
    let what = if fair { "fair permits" } else { "permits" };
    run_seeds(what, harm, seeds, |seed| virtually(async move || run(seed, harm, fair).await));
}

macro_rules! harms {
    ($fair:literal $($name:ident: $harm:ident;)*) => {
        $(#[test] fn $name() { run_all(Harm::$harm, $fair, seeds(6)); })*
    };
}

harms! { false
    never_more_than_n_are_held_and_all_come_back_without_faults: None;
    never_more_than_n_are_held_and_all_come_back_with_bad_messages: Messages;
    never_more_than_n_are_held_and_all_come_back_with_bad_commands_and_late_copies: Commands;
    never_more_than_n_are_held_and_all_come_back_with_breaks: Breaks;
    never_more_than_n_are_held_and_all_come_back_with_jumps_of_the_clock: Jumps;
    never_more_than_n_are_held_and_all_come_back_in_a_storm: Storm;
    never_more_than_n_are_held_and_all_come_back_when_clients_are_killed: Kills;
}

mod fair {
    use super::*;

    harms! { true
        never_more_than_n_are_held_and_all_come_back_without_faults: None;
        never_more_than_n_are_held_and_all_come_back_with_bad_messages: Messages;
        never_more_than_n_are_held_and_all_come_back_with_bad_commands_and_late_copies: Commands;
        never_more_than_n_are_held_and_all_come_back_with_breaks: Breaks;
        never_more_than_n_are_held_and_all_come_back_in_a_storm: Storm;
        never_more_than_n_are_held_and_all_come_back_when_clients_are_killed: Kills;
    }
}

/// Negative control. When the server loses its data, the checker must find more than n permits, and no broken rule but
/// those below.
#[test]
fn data_loss_is_reported_as_too_many_permits() {
    let mut found = 0;
    for seed in seeds(6) {
        let mut wrong = virtually(async move || run(seed, Harm::DataLoss, false).await).wrong;
        found += wrong.iter().filter(|wrong| wrong.contains("N1: at")).count();
        // No client detects the loss at once, and no message wakes the waiters.
        wrong.retain(|wrong| !["N1: ", "M2: a guard relies", ": W1: "].iter().any(|rule| wrong.contains(rule)));
        assert!(wrong.is_empty(), "SEED={seed}: {wrong:?}");
    }
    assert!(found > 0, "{} seeds with lost data, and never more than n permits were held", seeds(6).count());
    println!("more than n permits were held {found} times after lost data");
}
