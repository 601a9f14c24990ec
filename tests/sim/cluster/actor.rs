//! A task that locks, works and unlocks repeatedly.

use super::scene::Scene;
use crate::prelude::*;

/// Wait of an acquire, longer than any trouble.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time for which a lock may be free while a client waits for it. It is shorter than the sleep of a waiter that
/// misses a message. A move of a slot takes most of this time, because the keys of a lock may be on two servers
/// meanwhile.
const WOKEN_WITHIN: Duration = Duration::from_secs(2);

const LEASE: Duration = Duration::from_secs(30);

pub struct Actor {
    pub scene: Arc<Scene>,
    pub party: usize,
    pub dice: Numbers,
    pub sections: usize,
    /// True if slots are moved key by key.
    pub slots_open: bool,
    /// True if calls may fail with retryable errors.
    pub may_fail: bool,
}

impl Actor {
    pub async fn run(mut self) {
        for _ in 0..self.sections {
            self.section().await;
            sleep(self.dice.between(0, 120)).await;
        }
    }

    async fn section(&mut self) {
        let name = self.dice.below(self.scene.names.len() as u64) as usize;
        let (mut flavour, text) = self.scene.names[name].clone();
        if flavour == Flavour::Write && self.dice.below(3) > 0 {
            flavour = Flavour::Read;
        }
        let lock = lock(&self.scene.parties[self.party].client, flavour, &text);
        // An acquire without a wait fails at a half-moved slot, and after a retryable error. If these can occur, every
        // acquire waits.
        let waits = self.may_fail || self.slots_open || !self.dice.once_in(4);
        let how = Acquire::new().wait(if waits { PATIENCE } else { Duration::ZERO });
        // An explicit lease, because its guard must learn of a loss as early as the guard of a watched hold.
        let how = if self.dice.once_in(3) { how.lease(LEASE) } else { how };
        let acquiring = lock.acquire(how);
        let (began, party) = (Instant::now(), self.party);
        let patience = if self.dice.once_in(8) { self.dice.between(0, 200) } else { PATIENCE * 2 };
        let guard = match timeout(patience, acquiring).await {
            Err(_) if patience < PATIENCE => return,
            Err(_) => return self.scene.wrong(format!("W1: {flavour} {text} of {party}: waits past its wait")),
            Ok(Ok(Some(guard))) => guard,
            Ok(Ok(None)) if !waits => return,
            Ok(Ok(None)) => {
                return self.scene.wrong(format!("W1: {flavour} {text} of {party}: not had in {:?}", began.elapsed()));
            }
            Ok(Err(error)) => {
                if !self.may_fail || !error.is_retryable() {
                    self.scene.wrong(format!("{flavour} {text} of {party}: {error}"));
                }
                return;
            }
        };
        if let Some(free) = self.scene.history.free_since(name, self.scene.start).filter(|_| !self.may_fail)
            && free.max(began).elapsed() > WOKEN_WITHIN
        {
            self.scene.wrong(format!(
                "W1: {flavour} {text} of {party}: had {:?} after it was free, and {:?} after it was asked for",
                free.elapsed(),
                began.elapsed()
            ));
        }
        let hold = self.scene.began(name, flavour == Flavour::Read);
        self.scene.say(|| format!("{flavour} {text}: had by {party} after {:?}", began.elapsed()));
        let works = if self.dice.once_in(12) { self.dice.between(500, 12_000) } else { self.dice.between(0, 150) };
        if timeout(works, guard.lost()).await.is_ok() || !guard.is_held() {
            self.scene.ended(hold, true);
            self.scene.say(|| format!("{flavour} {text}: lost by {party}"));
            return;
        }
        self.scene.ended(hold, false);
        self.scene.say(|| format!("{flavour} {text}: given back by {party}"));
        if self.dice.once_in(3) {
            return drop(guard);
        }
        if let Err(error) = guard.unlock().await
            && !self.may_fail
        {
            self.scene.wrong(format!("{flavour} {text} of {party}: unlocking: {error}"));
        }
    }
}
