//! One task of a random run of permits.

use super::{Gate, NAME};
use crate::counters::plan::{LEASE, MOST};
use crate::counters::scene::perhaps;
use crate::prelude::*;
use distlock::Permits;

/// A task that acquires permits in every way, holds them, and releases them in every way.
pub(super) struct Actor {
    pub(super) gate: Arc<Gate>,
    /// The place of its client.
    pub(super) place: usize,
    pub(super) dice: Numbers,
    /// The span of the permits that it has.
    pub(super) span: Option<usize>,
}

impl Actor {
    pub(super) async fn run(mut self) {
        for _ in 0..self.gate.scene.plan.rounds {
            sleep(self.dice.between(0, 40)).await;
            let mut killed = self.gate.scene.killed(self.place);
            let is_killed = tokio::select! {
                biased;
                _ = killed.changed() => true,
                () = self.round() => false,
            };
            if let Some(span) = self.span.take().filter(|_| is_killed) {
                self.gate.bury(span);
            }
        }
    }

    async fn round(&mut self) {
        let Some(span) = self.acquire().await else { return };
        for _ in 0..self.dice.below(4) {
            self.hold(span).await;
        }
        self.give_back(span).await;
    }

    fn permits(&self) -> Permits {
        let permits = self.gate.scene.party(self.place).client.permits(NAME);
        if self.gate.scene.plan.fair { permits.fair() } else { permits }
    }

    fn say(&self, line: impl FnOnce() -> String) {
        crate::trace::say(|| format!("{:>12?} {}", self.gate.scene.start.elapsed(), line()));
    }

    async fn acquire(&mut self) -> Option<usize> {
        let (permits, n) = (self.permits(), 1 + self.dice.below(MOST.into()) as u32);
        let mut how = Acquire::new();
        let leased = self.dice.once_in(4);
        if leased {
            how = how.lease(self.dice.between(40, LEASE));
        }
        let wait = match self.dice.below(5) {
            0 => Some(Duration::ZERO),
            1 | 2 => Some(self.dice.between(1, 400)),
            _ => None,
        };
        if let Some(wait) = wait {
            how = how.wait(wait);
        }
        let (began, gate) = (Instant::now(), Arc::clone(&self.gate));
        let acquired = {
            let _waits = (wait != Some(Duration::ZERO)).then(|| gate.scene.waits());
            perhaps(&mut self.dice, permits.acquire_with(n, how)).await
        };
        match acquired? {
            Ok(Some(guard)) => {
                if guard.count() != n {
                    gate.scene.wrong(format!("N2: a request for {n} permits returned {guard:?}"));
                }
                self.span = Some(gate.enter(guard, !leased));
                self.span
            }
            Ok(None) => {
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    gate.scene.check_wait(wait, began.elapsed());
                }
                None
            }
            Err(error) => {
                if !gate.scene.plan.is_rough() || !error.is_retryable() {
                    gate.scene.wrong(format!("an acquire failed: {error:?}"));
                }
                None
            }
        }
    }

    /// Works with the permits for a while.
    async fn hold(&mut self, span: usize) {
        match self.dice.below(6) {
            0 | 1 => self.extend(span).await,
            2 => {
                let held = self.gate.take(span);
                let work = sleep(self.dice.between(0, 60));
                if let Err(error) = held.guard.run(work).await {
                    self.gate.check_loss(&held.guard, &error).await;
                }
                self.gate.put(span, held);
            }
            3 => drop(self.gate.scene.party(self.place).client.renew_now().await),
            _ => sleep(self.dice.between(0, 120)).await,
        }
    }

    async fn extend(&mut self, span: usize) {
        let mut held = self.gate.take(span);
        let (lease, end) = (self.dice.between(30, LEASE), held.end());
        held.watched = false;
        let extended = perhaps(&mut self.dice, held.guard.extend(lease)).await;
        self.say(|| format!("{span} extended to {lease:?}: {extended:?}"));
        if let Some(Err(error)) = extended {
            self.gate.check("an extension", &error, end);
        }
        self.gate.put(span, held);
    }

    async fn give_back(&mut self, span: usize) {
        let held = self.gate.end(span);
        self.span = None;
        if self.dice.once_in(4) {
            return drop(held);
        }
        let end = held.end();
        let released = perhaps(&mut self.dice, held.guard.release()).await;
        self.say(|| format!("{span} released: {released:?}"));
        if let Some(Err(error)) = released {
            self.gate.check("a release", &error, end);
        }
    }
}
