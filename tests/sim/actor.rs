//! One task of a random run: acquires locks in every way, holds them, and releases them in every way.

use crate::history::Token;
use crate::prelude::*;
use crate::stage::Stage;

pub struct Actor {
    pub stage: Arc<Stage>,
    pub party: usize,
    pub owners: Vec<Owner>,
    pub dice: Numbers,
}

impl Actor {
    /// Runs all rounds, and returns the actor without holds.
    pub async fn run(mut self) -> Self {
        for _ in 0..self.stage.weather.rounds {
            sleep(self.dice.between(0, 40)).await;
            let name = self.dice.below(self.stage.names.len() as u64) as usize;
            let named = self.dice.once_in(3) && !self.stage.weather.plain;
            let owner = named.then(|| self.owners[self.dice.below(self.owners.len() as u64) as usize].clone());
            if self.dice.once_in(8) {
                self.look(name).await;
            }
            let Some(first) = self.acquire(name, owner.as_ref()).await else { continue };
            let mut holds = vec![first];
            for _ in 0..self.dice.below(4) {
                self.hold(name, owner.as_ref(), &mut holds).await;
                if holds.is_empty() {
                    break;
                }
            }
            while let Some(hold) = holds.pop() {
                self.give_back(name, owner.is_some(), hold).await;
                if self.dice.once_in(2) {
                    sleep(self.dice.between(0, 20)).await;
                }
            }
        }
        self
    }

    /// Acquires three times, and keeps the holds.
    pub async fn keep(mut self) {
        let name = self.dice.below(self.stage.names.len() as u64) as usize;
        let owner = self.dice.once_in(2).then(|| self.owners[0].clone());
        for _ in 0..3 {
            let mut how = Acquire::new().wait(self.dice.between(0, 200));
            if let Some(owner) = &owner {
                how = how.owner(owner);
            }
            let half = self.half();
            let lock = self.stage.lock(self.party, half, name);
            let Ok(Some(guard)) = lock.acquire(how).await else { continue };
            let hold = self.stage.enter(name, half, guard, true, owner.is_none());
            if self.dice.once_in(3) {
                self.give_back(name, true, hold).await;
            }
        }
    }

    fn rough(&self) -> bool {
        !self.stage.weather.is_calm()
    }

    /// The flavour to acquire. For a read-write lock, a random one of its two halves.
    fn half(&mut self) -> Flavour {
        if self.stage.weather.is_rw() && self.dice.below(5) < 3 { Flavour::Read } else { self.stage.weather.flavour }
    }

    async fn acquire(&mut self, name: usize, owner: Option<&Owner>) -> Option<usize> {
        let half = self.half();
        let lock = self.stage.lock(self.party, half, name);
        let mut how = Acquire::new();
        if let Some(owner) = owner {
            how = how.owner(owner);
        }
        let leased = self.dice.once_in(4) && !self.stage.weather.plain;
        if leased {
            how = how.lease(self.dice.between(40, 600));
        }
        let wait = match self.dice.below(5) {
            0 => Some(Duration::ZERO),
            1 | 2 => Some(self.dice.between(1, 400)),
            _ => None,
        };
        if let Some(wait) = wait {
            how = how.wait(wait);
        }
        let cancel = self.dice.once_in(4).then(|| self.dice.between(0, 80));
        let began = Instant::now();
        let stage = Arc::clone(&self.stage);
        let acquired = {
            let _waits = (wait != Some(Duration::ZERO)).then(|| stage.waits(name, half));
            let acquiring = lock.acquire(how);
            match cancel {
                Some(after) => timeout(after, acquiring).await.unwrap_or(Ok(None)),
                None => acquiring.await,
            }
        };
        let took = began.elapsed();
        match acquired {
            Ok(Some(guard)) => {
                let token = guard.fencing_token().ok();
                let hold = stage.enter(name, half, guard, !leased, owner.is_none());
                self.note_token(hold, half, token, began, owner.is_none());
                Some(hold)
            }
            Ok(None) => {
                if let Some(wait) = wait.filter(|wait| !wait.is_zero() && cancel.is_none() && !self.rough()) {
                    self.check_wait(wait, took);
                }
                None
            }
            Err(error) => {
                self.check_failure(half, owner, &error);
                None
            }
        }
    }

    /// Records the token of a hold. M3: every hold of a fenced lock has a token.
    fn note_token(&self, hold: usize, half: Flavour, token: Option<u64>, asked: Instant, fresh: bool) {
        match token {
            Some(number) => self.stage.history.numbered(hold, Token { number, asked, fresh }),
            None if half == Flavour::Fenced => self.stage.wrong("M3: a section without a token".into()),
            None => {}
        }
    }

    /// W3: a wait lasts as long as requested and not much longer. The tolerance includes 2 ms, because timers round up
    /// twice.
    fn check_wait(&self, wait: Duration, took: Duration) {
        let most = wait + 2 * self.stage.weather.latency() + ms(20);
        if took < wait || took > most {
            self.stage.wrong(format!("W3: told busy after {took:?} of {wait:?}"));
        }
    }

    /// Checks that an acquire may fail with this error.
    fn check_failure(&self, half: Flavour, owner: Option<&Owner>, error: &Error) {
        let deadlock = matches!(error, Error::WouldDeadlock { .. });
        // RW2: another task with the same owner may hold the read half or a plain lock.
        if deadlock && owner.is_some() && matches!(half, Flavour::Write | Flavour::Plain) {
            return;
        }
        if !self.rough() || deadlock {
            self.stage.wrong(format!("an acquire failed in calm weather: {error}"));
        }
    }

    async fn hold(&mut self, name: usize, owner: Option<&Owner>, holds: &mut Vec<usize>) {
        match self.dice.below(8) {
            0 if !self.stage.weather.plain => {
                // The guard is off the stage (`stage.rs`) during the extend, so no other task checks it.
                let mut held = self.stage.take(holds[holds.len() - 1]);
                self.stage.history.cut(held.hold);
                let lease = self.dice.between(30, 700);
                let result = if self.dice.once_in(4) {
                    timeout(self.dice.between(0, 8), held.guard.extend(lease)).await.ok()
                } else {
                    Some(held.guard.extend(lease).await)
                };
                crate::trace::say(|| {
                    format!("{:>12?} extended {} by {lease:?}: {result:?}", self.stage.start.elapsed(), held.hold)
                });
                held.watched = false;
                self.stage.put(held);
            }
            1 | 2 if owner.is_some() => holds.extend(self.acquire(name, owner).await),
            3 => self.look(name).await,
            4 => {
                let held = self.stage.take(holds[0]);
                let work = sleep(self.dice.between(0, 60));
                if let Err(error) = held.guard.run(work).await {
                    self.lost(&held.guard, &error).await;
                }
                self.stage.put(held);
            }
            6 if self.stage.weather.is_rw() => self.downgrade(holds).await,
            5 => drop(self.stage.parties[self.party].client.renew_now().await),
            _ => sleep(self.dice.between(0, 120)).await,
        }
    }

    async fn downgrade(&mut self, holds: &mut Vec<usize>) {
        let Some(at) = holds.iter().position(|hold| self.stage.is_write(*hold)) else { return };
        let held = self.stage.end(holds.remove(at));
        let (name, watched, was_held) = (held.name, held.watched, held.guard.is_held());
        let began = Instant::now();
        let changed = if self.dice.once_in(4) {
            let Ok(changed) = timeout(self.dice.between(0, 12), held.guard.downgrade()).await else { return };
            changed
        } else {
            held.guard.downgrade().await
        };
        match changed {
            Ok(guard) => {
                let hold = self.stage.enter(name, Flavour::Read, guard, watched, false);
                // RW4: no writer acquired between the write hold and the read hold.
                self.stage.history.since(hold, began);
                holds.push(hold);
            }
            Err(Error::Lost { .. } | Error::NotHeld { .. }) => {}
            Err(_) if !was_held || self.rough() => {}
            Err(error) => self.stage.wrong(format!("a downgrade failed in calm weather: {error}")),
        }
    }

    /// Checks a guard that reported a loss: `is_held` must be false, and `lost()` must complete at once.
    async fn lost(&self, guard: &Guard, error: &Error) {
        if guard.is_held() {
            self.stage.wrong(format!("M2: told lost ({error}) while held: {guard:?}"));
        }
        if !matches!(error, Error::Lost { why: Lost::Expired | Lost::Gone, .. }) {
            self.stage.wrong(format!("lost is told as {error:?}"));
        }
        if timeout(ms(1), guard.lost()).await.is_err() {
            self.stage.wrong(format!("M2: lost, but lost() does not say so: {guard:?}"));
        }
    }

    async fn look(&mut self, name: usize) {
        let half = self.half();
        let lock = self.stage.lock(self.party, half, name);
        if let Err(error) = lock.state().await
            && !self.rough()
        {
            self.stage.wrong(format!("a query failed in calm weather: {error}"));
        }
    }

    async fn give_back(&mut self, name: usize, shares: bool, hold: usize) {
        match self.dice.below(if shares { 4 } else { 5 }) {
            0 | 1 => {
                let held = self.stage.end(hold);
                let was_held = held.guard.is_held();
                let end = Instant::now() + held.guard.remaining();
                let result = held.guard.unlock().await;
                crate::trace::say(|| format!("{:>12?} {hold} unlocked: {result:?}", self.stage.start.elapsed()));
                // The lease may end while the release is in flight.
                if let (true, false, Err(error)) = (was_held, self.rough(), &result)
                    && !matches!(error, Error::NotHeld { .. } | Error::Lost { .. })
                    // The loss is allowed if the lease ended before the reply arrived.
                    && (!matches!(error, Error::ReleasePending { .. }) || Instant::now() < end)
                {
                    self.stage.wrong(format!("an unlock failed in calm weather: {error}"));
                }
            }
            2 => drop(self.stage.end(hold)),
            // The timeout may drop the unlock before it is done.
            3 => drop(timeout(self.dice.between(0, 8), self.stage.end(hold).guard.unlock()).await),
            _ => {
                let held = self.stage.take(hold);
                let half = held.flavour;
                let owner = held.guard.into_owner();
                sleep(self.dice.between(0, 30)).await;
                let party = self.dice.below(self.stage.parties.len() as u64) as usize;
                self.stage.history.end(hold);
                let lock = self.stage.lock(party, half, name);
                let _ = lock.release(&owner).await;
            }
        }
    }
}

/// Drops every guard that is still on the stage at the end of the run.
pub fn drop_all(stage: &Stage) {
    for hold in stage.holds() {
        drop(stage.end(hold));
    }
}
