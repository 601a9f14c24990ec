//! One task of a random run over several servers.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Error, Owner};
use distlock_support::Numbers;
use tokio::time::{Instant, sleep, timeout};

use super::play::{Held, Lot, Play};
use crate::rig::ms;

pub struct Actor {
    pub play: Arc<Play>,
    pub client: usize,
    /// Owners that the tasks of this client share.
    pub owners: Vec<Owner>,
    pub dice: Numbers,
}

impl Actor {
    pub async fn run(mut self) {
        for _ in 0..self.play.weather.rounds {
            sleep(self.dice.between(0, 40)).await;
            let plain = self.play.weather.plain;
            let owner = (self.dice.once_in(4) && !plain).then(|| {
                let n = self.dice.below(self.owners.len() as u64) as usize;
                self.owners[n].clone()
            });
            let lot = self.play.lot(self.client, &mut self.dice);
            if self.dice.once_in(8) {
                match lot.lock.state().await {
                    Err(error) if !self.play.rough() => {
                        self.play.wrong(format!("a query failed in calm weather: {error}"))
                    }
                    _ => {}
                }
            }
            let Some(first) = self.acquire(&lot, owner.as_ref()).await else { continue };
            let mut numbers = vec![first];
            for _ in 0..self.dice.below(3) {
                self.hold(&lot, owner.as_ref(), &mut numbers).await;
            }
            while let Some(number) = numbers.pop() {
                self.give_back(&lot, owner.is_some(), number).await;
            }
        }
    }

    async fn acquire(&mut self, lot: &Lot, owner: Option<&Owner>) -> Option<usize> {
        let (dice, play) = (&mut self.dice, &self.play);
        let mut how = Acquire::new();
        if let Some(owner) = owner {
            how = how.owner(owner);
        }
        if dice.once_in(4) && !play.weather.plain {
            how = how.lease(dice.between(60, 700));
        }
        let wait = match dice.below(6) {
            0 => Some(Duration::ZERO),
            1 | 2 => Some(dice.between(1, 900)),
            _ => None,
        };
        if let Some(wait) = wait {
            how = how.wait(wait);
        }
        let cancel = dice.once_in(4).then(|| dice.between(0, 100));
        let began = Instant::now();
        let acquired = {
            let _waits = wait.is_none().then(|| play.waits(&lot.names));
            let acquiring = lot.lock.acquire(how);
            match cancel {
                Some(after) => timeout(after, acquiring).await.unwrap_or(Ok(None)),
                None => acquiring.await,
            }
        };
        let took = began.elapsed();
        crate::trace::say(|| {
            format!("{:>12?} client {} {:?}: {acquired:?} after {took:?}", play.start.elapsed(), self.client, lot.names)
        });
        match acquired {
            Ok(Some(guard)) => Some(play.enter(lot, guard, began, owner.is_none())),
            outcome => {
                if let Some(wait) = wait.filter(|_| cancel.is_none()) {
                    // W3: to the end, and not much longer; with a server away, for as long as that may take to show.
                    let spare = 2 * play.weather.latency() + ms(20);
                    let most =
                        wait + spare + if play.rough() || wait.is_zero() { 2 * play.weather.timeout } else { ms(0) };
                    let early = outcome.is_ok() && took < wait;
                    if (early && !wait.is_zero()) || (took > most && !play.weather.leaps()) {
                        play.wrong(format!("W3: told {outcome:?} after {took:?} of {wait:?}"));
                    }
                }
                if let Err(error) = outcome
                    && !play.rough()
                {
                    play.wrong(format!("an acquire failed in calm weather: {error}"));
                }
                None
            }
        }
    }

    /// Something to do while it is held.
    async fn hold(&mut self, lot: &Lot, owner: Option<&Owner>, numbers: &mut Vec<usize>) {
        let last = numbers[numbers.len() - 1];
        match self.dice.below(7) {
            0 if !self.play.weather.plain => {
                // The guard is away while it is extended; nobody looks at it meanwhile.
                let held = self.play.take(last);
                self.play.cut(&held);
                let lease = self.dice.between(30, 700);
                let extending = held.guard.extend(lease);
                let result = if self.dice.once_in(3) {
                    timeout(self.dice.between(0, 8), extending).await.ok()
                } else {
                    Some(extending.await)
                };
                crate::trace::say(|| {
                    format!("{:>12?} extended {last} by {lease:?}: {result:?}", self.play.start.elapsed())
                });
                self.play.put(last, held);
            }
            1 | 2 if owner.is_some() => numbers.extend(self.acquire(lot, owner).await),
            3 => {
                let held = self.play.take(last);
                match held.guard.run(sleep(self.dice.between(0, 60))).await {
                    Ok(()) => {}
                    Err(error) => self.lost(&held, &error).await,
                }
                self.play.put(last, held);
            }
            4 => {
                for party in &self.play.fleet.clients[self.client] {
                    party.client.renew_now().await;
                }
            }
            _ => sleep(self.dice.between(0, 120)).await,
        }
    }

    /// A guard was told to be lost. It must be, and say so again at once.
    async fn lost(&self, held: &Held, error: &Error) {
        if held.guard.is_held() {
            self.play.wrong(format!("M2: told lost ({error}) while held: {:?}", held.guard));
        }
        if !matches!(error, Error::Lost { .. }) {
            self.play.wrong(format!("lost is told as {error:?}"));
        }
        if timeout(ms(1), held.guard.lost()).await.is_err() {
            self.play.wrong(format!("M2: lost, but lost() does not say so: {:?}", held.guard));
        }
    }

    async fn give_back(&mut self, lot: &Lot, shares: bool, number: usize) {
        match self.dice.below(if shares { 4 } else { 5 }) {
            0 | 1 => {
                let held = self.play.end(number);
                let (was_held, lost) = (held.guard.is_held(), held.guard.lost());
                let unlocking = held.guard.unlock();
                let told = async {
                    let mut unlocking = std::pin::pin!(unlocking);
                    tokio::select! {
                        biased;
                        result = &mut unlocking => result,
                        why = lost, if was_held && !self.play.rough() => {
                            self.play.wrong(format!("a deliberate release is told as a loss: {why}"));
                            unlocking.await
                        }
                    }
                };
                let result = told.await;
                crate::trace::say(|| format!("{:>12?} {number} unlocked: {result:?}", self.play.start.elapsed()));
                // It may end by itself while its release is under way.
                if let (true, false, Err(error)) = (was_held, self.play.rough(), &result)
                    && !matches!(error, Error::NotHeld { .. } | Error::Lost { .. })
                {
                    self.play.wrong(format!("an unlock failed in calm weather: {error}"));
                }
            }
            2 => drop(self.play.end(number)),
            3 => {
                let held = self.play.end(number);
                let _ = timeout(self.dice.between(0, 8), held.guard.unlock()).await;
            }
            _ => {
                let Held { guard, holds } = self.play.take(number);
                let owner = guard.into_owner();
                sleep(self.dice.between(0, 30)).await;
                holds.iter().for_each(|(hold, _)| self.play.history.end(*hold));
                let _ = lot.lock.release(&owner).await;
            }
        }
    }
}
