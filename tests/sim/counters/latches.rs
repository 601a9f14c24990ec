//! Random runs of latches: every count down counts once, and every waiter returns at zero, none before.

use super::history::{Event, check_latch};
use super::plan::{Harm, MOST, Plan};
use super::scene::{Run, Scene, perhaps, run_seeds};
use crate::prelude::*;
use distlock::Latch;
use std::ops::Range;

const NAME: &str = "parts";

/// Retries do not end during a run: a count down in doubt is repeated until it is answered.
const ATTEMPTS: u32 = 1_000;

struct Parts {
    scene: Scene,
    events: Mutex<Vec<Event>>,
}

impl Parts {
    fn latch(&self, place: usize) -> Latch {
        self.scene.party(place).client.latch(NAME)
    }

    fn note(&self, event: Event) {
        crate::trace::say(|| format!("{:>12?} {event:?}", self.scene.start.elapsed()));
        self.events.lock().push(event);
    }

    /// Counts down by `k`. A call that is dropped is completed in the background.
    async fn count_down(self: Arc<Self>, place: usize, k: u32, mut dice: Numbers) {
        sleep(dice.between(0, 200)).await;
        let latch = self.latch(place);
        self.note(Event::Begins(k));
        match perhaps(&mut dice, latch.count_down(k)).await {
            None => {}
            Some(Ok(left)) => self.note(Event::Counted(left)),
            Some(Err(error)) => self.scene.wrong(format!("N3: a count down failed: {error:?}")),
        }
    }

    /// Waits until a wait returns because the count is zero.
    async fn wait(self: Arc<Self>, place: usize, waiter: usize, mut dice: Numbers) {
        sleep(dice.between(0, 250)).await;
        let latch = self.latch(place);
        loop {
            let wait = dice.once_in(3).then(|| dice.between(1, 400));
            self.note(Event::Asks(waiter));
            let began = Instant::now();
            let waiting = async {
                match wait {
                    Some(wait) => latch.wait_for(wait).await,
                    None => latch.wait().await.map(|()| true),
                }
            };
            match perhaps(&mut dice, waiting).await {
                Some(Ok(true)) => return self.note(Event::Returns(waiter)),
                Some(Ok(false)) => self.scene.check_wait(wait.unwrap_or_default(), began.elapsed()),
                Some(Err(error)) if !self.scene.plan.is_rough() || !error.is_retryable() => {
                    self.scene.wrong(format!("a wait failed: {error:?}"));
                }
                None | Some(Err(_)) => {}
            }
            self.note(Event::GivesUp(waiter));
            sleep(ms(1)).await;
        }
    }

    /// Parties count down to zero, and others wait. The name is the same in every round, so a copy of a command of an
    /// earlier round must not count.
    async fn round(self: &Arc<Self>, seed: u64, round: u64) {
        let Plan { clients, tasks, .. } = self.scene.plan;
        let dice = |lane: u64| Numbers::lane(seed, 1_000 + 200 * round + lane);
        let mut sizes = dice(0);
        let parts: Vec<u32> = (0..clients * tasks).map(|_| 1 + sizes.below(MOST.into()) as u32).collect();
        let n: u32 = parts.iter().sum();
        self.note(Event::Set(n));
        self.scene.set(n);
        let count =
            |(n, k): (usize, &u32)| tokio::spawn(Arc::clone(self).count_down(n % clients, *k, dice(1 + n as u64)));
        let counts = parts.iter().enumerate().map(count).collect();
        let wait = |n: usize| tokio::spawn(Arc::clone(self).wait(n % clients, n, dice(100 + n as u64)));
        let waiters: Vec<_> = (0..2 * clients).map(wait).collect();
        let limit = Instant::now() + ms(120_000);
        while self.scene.stored().is_some() && Instant::now() < limit {
            sleep(ms(1)).await;
        }
        let zero = Instant::now();
        self.scene.ended(waiters).await;
        if zero.elapsed() > self.scene.plan.wake_bound() {
            self.scene.wrong(format!("W1: waiters returned {:?} after zero", zero.elapsed()));
        }
        self.scene.ended(counts).await;
        if let Some(count) = self.scene.stored() {
            self.scene.wrong(format!("N3: the count is {count} in the end"));
        }
    }
}

/// Number of rounds of a run.
const ROUNDS: u64 = 4;

async fn run(seed: u64, harm: Harm) -> Run {
    let tasks_before = tasks();
    let mut dice = Numbers::lane(seed, 1);
    let scene = Scene::new(seed, Plan::new(harm, ATTEMPTS, &mut dice), NAME);
    crate::trace::say(|| format!("seed {seed}: {:?}", scene.plan));
    let parts = Arc::new(Parts { scene, events: Mutex::default() });
    let harming = Arc::clone(&parts);
    let weather = tokio::spawn(async move { harming.scene.harm(&mut dice).await });
    for round in 0..ROUNDS {
        parts.round(seed, round).await;
    }
    parts.scene.calm_down();
    weather.await.unwrap();
    parts.scene.quiet().await;
    if let Some(count) = parts.scene.stored() {
        parts.scene.wrong(format!("N3: the count is {count} after the last copies"));
    }
    let events = parts.events.lock().clone();
    check_latch(&events).into_iter().for_each(|wrong| parts.scene.wrong(wrong));
    parts.scene.close().await;
    // In some run a waiter began while others counted down.
    let full = events.windows(2).any(|two| matches!(two, [Event::Begins(_), Event::Asks(_)]));
    let run = Run { wrong: parts.scene.broken(), count: events.len(), full };
    drop(parts);
    run.without_tasks(tasks_before).await
}

pub fn run_all(harm: Harm, seeds: Range<u64>) {
    run_seeds("latches", harm, seeds, |seed| virtually(async move || run(seed, harm).await));
}

macro_rules! harms {
    ($($name:ident: $harm:ident;)*) => {
        $(#[test] fn $name() { run_all(Harm::$harm, seeds(6)); })*
    };
}

harms! {
    every_waiter_returns_at_zero_and_none_before_without_faults: None;
    every_waiter_returns_at_zero_and_none_before_with_bad_messages: Messages;
    every_waiter_returns_at_zero_and_none_before_with_bad_commands_and_late_copies: Commands;
    every_waiter_returns_at_zero_and_none_before_with_breaks: Breaks;
    every_waiter_returns_at_zero_and_none_before_with_jumps_of_the_clock: Jumps;
    every_waiter_returns_at_zero_and_none_before_in_a_storm: Storm;
}
