//! Random runs of semaphores: nobody takes a permit that is not free, and every acquire and release counts once.

use super::history::Spans;
use super::plan::{Harm, MOST, Plan};
use super::scene::{Run, Scene, perhaps, run_seeds};
use crate::prelude::*;
use distlock::Semaphore;
use std::ops::Range;

const NAME: &str = "seats";

/// Retries do not end during a run: a command in doubt is repeated until it is answered.
const ATTEMPTS: u32 = 1_000;

struct Seats {
    scene: Scene,
    /// From the return of an acquire to the call of the release.
    spans: Spans,
}

impl Seats {
    fn new(seed: u64, plan: Plan) -> Self {
        let n = plan.n;
        let (scene, spans) = (Scene::new(seed, plan, NAME), Spans::default());
        scene.set(n);
        Self { scene, spans }
    }

    fn semaphore(&self, place: usize) -> Semaphore {
        self.scene.party(place).client.semaphore(NAME)
    }

    /// The clients learn the server's clock, so that no call needs a second command in calm weather.
    async fn warm_up(&self) {
        for place in 0..self.scene.plan.clients {
            let semaphore = self.semaphore(place);
            if let Ok(true) = semaphore.try_acquire(1).await
                && let Err(error) = semaphore.release(1).await
            {
                self.scene.wrong(format!("N3: a release failed: {error:?}"));
            }
        }
    }

    /// Checks the rules of every moment.
    fn look(&self) {
        let (n, free, taken) = (self.scene.plan.n, self.scene.stored().unwrap_or(0), self.spans.taken());
        if taken > n {
            self.scene.wrong(format!("N1: {taken} of {n} permits are taken"));
        }
        if free < 0 || free + i64::from(taken) > i64::from(n) {
            self.scene.wrong(format!("N3: {free} permits are free, and {taken} are taken, of {n}"));
        }
        self.scene.check_waiters(free >= i64::from(MOST));
    }

    fn actors(self: &Arc<Self>, seed: u64) -> Vec<JoinHandle<Actor>> {
        let (clients, tasks) = (self.scene.plan.clients, self.scene.plan.tasks);
        let actor = |n: usize| {
            let dice = Numbers::lane(seed, 100 + n as u64);
            tokio::spawn(Actor { seats: Arc::clone(self), place: n % clients, dice }.run())
        };
        (0..clients * tasks).map(actor).collect()
    }

    /// After the faults: every command has counted once, and a waiter gets all permits that nobody keeps.
    async fn finish(&self) {
        if let Some(wrong) = self.spans.miscounted(self.scene.plan.n, self.scene.stored().unwrap_or(0)) {
            self.scene.wrong(wrong);
        }
        let kept = self.spans.taken();
        let rest = self.scene.plan.n.saturating_sub(kept);
        let semaphore = self.semaphore(0);
        match semaphore.acquire_for(rest, ms(1_000)).await {
            Ok(true) => {}
            odd => self.scene.wrong(format!("W1: a request for {rest} free permits: {odd:?}")),
        }
        // Any client may return what another client took.
        if let Err(error) = semaphore.release(rest + kept).await {
            self.scene.wrong(format!("N3: a release without faults failed: {error:?}"));
        }
        let (n, free) = (i64::from(self.scene.plan.n), self.scene.stored());
        if free != Some(n) {
            self.scene.wrong(format!("N3: {free:?} permits are free in the end, of {n}"));
        }
        self.spans.too_many(self.scene.plan.n, self.scene.start).into_iter().for_each(|wrong| self.scene.wrong(wrong));
    }
}

/// A task that takes permits in every way, and returns them in every way.
struct Actor {
    seats: Arc<Seats>,
    /// The place of its client.
    place: usize,
    dice: Numbers,
}

impl Actor {
    /// Runs all rounds, and returns the actor without permits.
    async fn run(mut self) -> Self {
        for _ in 0..self.seats.scene.plan.rounds {
            sleep(self.dice.between(0, 40)).await;
            let permits = 1 + self.dice.below(MOST.into()) as u32;
            let wait = match self.dice.below(5) {
                0 => Some(Duration::ZERO),
                1 | 2 => Some(self.dice.between(1, 400)),
                _ => None,
            };
            let Some(span) = self.acquire(permits, wait).await else { continue };
            sleep(self.dice.between(0, 120)).await;
            self.give_back(span, permits).await;
        }
        self
    }

    /// Takes a permit if there is one, and keeps it.
    async fn keep(mut self) {
        let wait = self.dice.between(0, 200);
        self.acquire(1, Some(wait)).await;
    }

    async fn acquire(&mut self, permits: u32, wait: Option<Duration>) -> Option<usize> {
        let (seats, semaphore) = (Arc::clone(&self.seats), self.seats.semaphore(self.place));
        let began = Instant::now();
        let taken = {
            let _waits = (wait != Some(Duration::ZERO)).then(|| seats.scene.waits());
            let taking = async {
                match wait {
                    Some(wait) => semaphore.acquire_for(permits, wait).await,
                    None => semaphore.acquire(permits).await.map(|()| true),
                }
            };
            perhaps(&mut self.dice, taking).await
        };
        match taken? {
            Ok(true) => {
                let span = seats.spans.begin(permits, None);
                crate::trace::say(|| format!("{:>12?} {span} takes {permits}", seats.scene.start.elapsed()));
                seats.scene.served();
                seats.look();
                return Some(span);
            }
            Ok(false) => {
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    seats.scene.check_wait(wait, began.elapsed());
                }
            }
            Err(error) if seats.scene.plan.is_rough() && error.is_retryable() => {}
            Err(error) => seats.scene.wrong(format!("an acquire failed: {error:?}")),
        }
        None
    }

    /// Returns permits through any client. A call that is dropped is completed in the background.
    async fn give_back(&mut self, span: usize, permits: u32) {
        let place = self.dice.below(self.seats.scene.plan.clients as u64) as usize;
        let (semaphore, if_exists) = (self.seats.semaphore(place), self.dice.once_in(3));
        self.seats.spans.end(span);
        crate::trace::say(|| format!("{:>12?} {span} returns {permits}", self.seats.scene.start.elapsed()));
        let giving = async {
            match if_exists {
                true => semaphore.release_if_exists(permits).await,
                false => semaphore.release(permits).await.map(|()| true),
            }
        };
        match perhaps(&mut self.dice, giving).await {
            None | Some(Ok(true)) => {}
            Some(odd) => self.seats.scene.wrong(format!("N3: a release of {permits} permits: {odd:?}")),
        }
    }
}

async fn run(seed: u64, harm: Harm) -> Run {
    let tasks_before = tasks();
    let mut dice = Numbers::lane(seed, 1);
    let seats = Arc::new(Seats::new(seed, Plan::new(harm, ATTEMPTS, &mut dice)));
    crate::trace::say(|| format!("seed {seed}: {:?}", seats.scene.plan));
    seats.warm_up().await;
    let [watching, harming] = [(); 2].map(|()| Arc::clone(&seats));
    let watcher = tokio::spawn(async move { watching.scene.watch(seed, || watching.look()).await });
    let weather = tokio::spawn(async move { harming.scene.harm(&mut dice).await });
    let actors = seats.scene.ended(seats.actors(seed)).await;
    seats.scene.ended(actors.into_iter().map(|actor| tokio::spawn(actor.keep())).collect()).await;
    seats.scene.calm_down();
    weather.await.unwrap();
    seats.scene.quiet().await;
    seats.scene.stop_watching();
    watcher.await.unwrap();
    seats.finish().await;
    seats.scene.close().await;
    let full = seats.spans.most() == seats.scene.plan.n;
    let run = Run { wrong: seats.scene.broken(), count: seats.spans.len(), full };
    drop(seats);
    run.without_tasks(tasks_before).await
}

pub fn run_all(harm: Harm, seeds: Range<u64>) {
    run_seeds("semaphores", harm, seeds, |seed| virtually(async move || run(seed, harm).await));
}

macro_rules! harms {
    ($($name:ident: $harm:ident;)*) => {
        $(#[test] fn $name() { run_all(Harm::$harm, seeds(6)); })*
    };
}

harms! {
    every_acquire_and_release_counts_once_without_faults: None;
    every_acquire_and_release_counts_once_with_bad_messages: Messages;
    every_acquire_and_release_counts_once_with_bad_commands_and_late_copies: Commands;
    every_acquire_and_release_counts_once_with_breaks: Breaks;
    every_acquire_and_release_counts_once_with_jumps_of_the_clock: Jumps;
    every_acquire_and_release_counts_once_in_a_storm: Storm;
}
