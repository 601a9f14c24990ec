//! Chooses and runs the steps.

use distlock::{Acquire, Error, NotHeld, Released};

use crate::book::Told;
use crate::expect::{Act, Grip, Outcome};
use crate::ours::Answer;
use crate::rig::ms;
use crate::state::{Half, JAVA};
use crate::story::{Hand, Story};

/// The leases other than the short one: shorter than the watchdog's, and longer.
const LEASES: [i64; 2] = [60_000, 7_200_000];

fn unlocked(result: Result<Released, Error>) -> Outcome {
    Outcome::Told(match result {
        Ok(Released::Free) => Told::Free,
        Ok(Released::StillHeld(left)) => Told::Left(left.into()),
        Err(Error::NotHeld { why: NotHeld::LeaseOver | NotHeld::HeldBy { .. }, .. }) => Told::NotHeld,
        Err(Error::Lost { .. }) => Told::Lost,
        Err(error) => return Outcome::Failed(error.to_string()),
    })
}

fn done(result: Result<(), Error>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done(true),
        Err(Error::Lost { .. }) => Outcome::Done(false),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

impl Story<'_> {
    fn lease(&mut self) -> Option<i64> {
        match self.dice.below(if self.hasty { 12 } else { 6 }) {
            0 => Some(LEASES[0]),
            1 => Some(LEASES[1]),
            2 | 3 => None,
            _ => Some(self.short),
        }
    }

    pub fn grip(&mut self, who: usize, half: Option<Half>) -> Option<Grip> {
        let fits = |hand: &Hand| hand.who == who && half.is_none_or(|half| hand.half == half);
        let all: Vec<usize> = (0..self.hands.len()).filter(|place| fits(&self.hands[*place])).collect();
        if all.is_empty() {
            return None;
        }
        let place = self.dice.of(&all);
        let Hand { half, id, .. } = self.hands[place];
        Some(Grip { place, who, half, id })
    }

    /// The plot that produces dead readers, which random steps seldom do. The most active owner writes and reads with a
    /// short lease. Its read hold is dead when its write hold ends.
    fn plotted(&mut self, scene: u8) -> Option<Act> {
        let (who, short) = (self.star, Some(self.short));
        match scene {
            0 if who == JAVA => Some(Act::JavaLock(Half::Write, None)),
            0 => Some(Act::Acquire(who, Half::Write, None)),
            1 if who == JAVA => Some(Act::JavaLock(Half::Read, short)),
            1 => Some(Act::Acquire(who, Half::Read, short)),
            2 => None,
            3 if who == JAVA => Some(Act::JavaUnlock(Half::Write)),
            3 => self.grip(who, Some(Half::Write)).map(Act::Unlock),
            _ => Some(Act::Acquire(usize::from(self.hasty), self.dice.of(&[Half::Read, Half::Write]), short)),
        }
    }

    /// `None`: time passes.
    pub fn choose(&mut self) -> Option<Act> {
        if let Some(scene @ 0..5) = self.scene {
            self.scene = Some(scene + 1);
            return self.plotted(scene);
        }
        let who = match self.dice.below(20) {
            0..=4 => 0,
            5..=8 => 1,
            9..=12 => JAVA,
            13..=17 => self.star,
            _ => return None,
        };
        let lease = self.lease();
        if who == JAVA {
            return Some(match self.dice.below(16) {
                5..=7 => Act::JavaLock(Half::Write, lease),
                8..=10 if self.model.state.reads[JAVA] > 0 => Act::JavaUnlock(Half::Read),
                8..=12 if self.model.state.writes[JAVA] > 0 => Act::JavaUnlock(Half::Write),
                13 => Act::JavaUnlock(self.dice.of(&[Half::Read, Half::Write])),
                14 if self.java_watched[1] => Act::JavaTick(Half::Write),
                14 | 15 if self.java_watched[0] => Act::JavaTick(Half::Read),
                _ => Act::JavaLock(Half::Read, lease),
            });
        }
        let (any, writer) = (self.grip(who, None), self.grip(who, Some(Half::Write)));
        Some(match (self.dice.below(18), any, writer) {
            (0..=3, Some(grip), _) => Act::Unlock(grip),
            (4, Some(grip), _) => Act::Drop(grip),
            (5, _, Some(grip)) => self.downgrade(grip),
            (6, Some(grip), _) => Act::Extend(grip, lease.unwrap_or(LEASES[0])),
            (7, Some(_), _) => Act::Renew(who),
            (8 | 9, Some(grip), None) => Act::Unlock(grip),
            (8..=12, _, _) => Act::Acquire(who, Half::Write, lease),
            _ => Act::Acquire(who, Half::Read, lease),
        })
    }

    /// Java's downgrade needs a lease: the remaining time, with the drift margin added back.
    fn downgrade(&self, grip: Grip) -> Act {
        let left = i64::try_from(self.hands[grip.place].guard.remaining().as_millis()).expect("a short time");
        let explicit = self.model.held(grip.who, grip.half, grip.id).is_some_and(|held| held.lease.is_some());
        let lease = explicit.then_some((left + 2) * 100 / 99 + 1);
        Act::Downgrade(grip, (left > 0).then_some(lease))
    }

    /// Runs a step. Returns the outcome, and Java's replies on its own lock.
    pub async fn act(&mut self, act: Act, id: u32) -> (Outcome, Vec<bool>) {
        let rig = self.rig;
        let [shared, name] = self.names.clone();
        match act {
            Act::Acquire(who, half, lease) => self.acquire(&name, (who, half, lease), id).await,
            Act::Unlock(Grip { place, who, half, .. }) => {
                let guard = self.hands.remove(place).guard;
                let (ours, java) = tokio::join!(guard.unlock(), rig.java_unlock(&name, who, half));
                (unlocked(ours), vec![java])
            }
            Act::Drop(Grip { place, who, half, .. }) => {
                drop(self.hands.remove(place));
                (Outcome::None, vec![rig.java_unlock(&name, who, half).await])
            }
            Act::Downgrade(grip, lease) => self.change_to_read(&name, grip, lease, id).await,
            Act::Extend(Grip { place, .. }, lease) => {
                (done(self.hands[place].guard.extend(ms(lease)).await), Vec::new())
            }
            Act::Renew(who) => {
                let round = self.clients[who].renew_now().await;
                (Outcome::Renewed(round.renewed, round.lost, round.failed), Vec::new())
            }
            Act::JavaLock(half, lease) => {
                let ours = rig.java_lock(&shared, JAVA, half, lease);
                let (ours, java) = tokio::join!(ours, rig.java_lock(&name, JAVA, half, lease));
                (Outcome::Done(ours), vec![java])
            }
            Act::JavaUnlock(half) => {
                let ours = rig.java_unlock(&shared, JAVA, half);
                let (ours, java) = tokio::join!(ours, rig.java_unlock(&name, JAVA, half));
                (Outcome::Done(ours), vec![java])
            }
            Act::JavaTick(half) => {
                rig.tick([&shared, &name], half).await;
                (Outcome::None, Vec::new())
            }
        }
    }

    /// Runs an acquire. `name`: Java's own lock.
    async fn acquire(
        &mut self,
        name: &str,
        (who, half, lease): (usize, Half, Option<i64>),
        id: u32,
    ) -> (Outcome, Vec<bool>) {
        let how = Acquire::new().owner(&self.owners[who]).wait(ms(0));
        let how = if let Some(lease) = lease { how.lease(ms(lease)) } else { how };
        let lock = self.lock(who, half);
        let (ours, java) = tokio::join!(lock.acquire(how), self.rig.java_lock(name, who, half, lease));
        let outcome = match ours {
            Ok(Some(guard)) => {
                self.hands.push(Hand { guard, who, half, id });
                Outcome::Answer(Answer::Held)
            }
            Ok(None) => Outcome::Answer(Answer::Busy),
            Err(Error::WouldDeadlock { .. }) => Outcome::Answer(Answer::Deadlock),
            Err(error) => Outcome::Failed(error.to_string()),
        };
        (outcome, vec![java])
    }

    /// Runs a downgrade. `name`: Java's own lock.
    async fn change_to_read(
        &mut self,
        name: &str,
        Grip { place, who, half, .. }: Grip,
        lease: Option<Option<i64>>,
        id: u32,
    ) -> (Outcome, Vec<bool>) {
        let rig = self.rig;
        let guard = self.hands.remove(place).guard;
        let java = async {
            let mut answers = Vec::new();
            if let Some(lease) = lease {
                answers.push(rig.java_lock(name, who, Half::Read, lease).await);
            }
            answers.push(rig.java_unlock(name, who, half).await);
            answers
        };
        let (ours, java) = tokio::join!(guard.downgrade(), java);
        let guard = ours.map(|guard| self.hands.push(Hand { guard, who, half: Half::Read, id }));
        (done(guard), java)
    }
}
