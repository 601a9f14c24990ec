//! The expected outcome of each step, on the shared lock and on Java's own, and the steps of a whole sequence.

use crate::book::{Told, WATCHDOG};
use crate::ours::{Answer, Unlike, note};
use crate::rig::now;
use crate::state::{Half, JAVA, Span};
use crate::story::{Story, Torn};

/// A guard of ours: its position in `hands`, and its identity.
#[derive(Clone, Copy, Debug)]
pub struct Grip {
    pub place: usize,
    pub who: usize,
    pub half: Half,
    pub id: u32,
}

/// One step. Leases are in ms; `None` is the watchdog's.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Acquire(usize, Half, Option<i64>),
    Unlock(Grip),
    Drop(Grip),
    /// With the lease of Java's read hold. An outer `None` means that the guard has ended, and Java only unlocks.
    Downgrade(Grip, Option<Option<i64>>),
    Extend(Grip, i64),
    Renew(usize),
    JavaLock(Half, Option<i64>),
    JavaUnlock(Half),
    JavaTick(Half),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Answer(Answer),
    Told(Told),
    Done(bool),
    /// Numbers of renewed, lost and failed holds.
    Renewed(usize, usize, usize),
    /// An error that says nothing about the lock.
    Failed(String),
    None,
}

impl Story<'_> {
    /// Runs the step in the model at time `t`.
    fn expect(&mut self, act: Act, id: u32, t: Span) -> (Outcome, Vec<bool>) {
        let span = |lease: Option<i64>| lease.map_or(WATCHDOG, Span::at);
        match act {
            Act::Acquire(who, half, lease) => {
                let answer = self.model.acquire(who, half, lease.map(Span::at), id, t);
                (Outcome::Answer(answer), vec![self.java_lock(who, half, span(lease), t)])
            }
            Act::Unlock(grip) => (Outcome::Told(self.release(grip, t)), vec![self.java_unlock(grip.who, grip.half, t)]),
            Act::Drop(grip) => {
                self.release(grip, t);
                (Outcome::None, vec![self.java_unlock(grip.who, grip.half, t)])
            }
            Act::Downgrade(grip, lease) => {
                if self.model.until(grip.who, grip.half, grip.id).is_none() {
                    self.lose();
                }
                let done = self.model.downgrade(grip.who, grip.id, id, t);
                let mut java: Vec<bool> =
                    lease.iter().map(|lease| self.java_lock(grip.who, Half::Read, span(*lease), t)).collect();
                java.push(self.java_unlock(grip.who, grip.half, t));
                (Outcome::Done(done), java)
            }
            Act::Extend(grip, lease) => {
                let done = self.model.extend(grip.who, grip.half, grip.id, Span::at(lease), t);
                (Outcome::Done(done), Vec::new())
            }
            Act::Renew(who) => {
                self.cut[who] = false;
                let (renewed, lost) = self.model.renew(who, t);
                (Outcome::Renewed(renewed, lost, 0), Vec::new())
            }
            Act::JavaLock(half, lease) => {
                let state = &mut self.model.state;
                let ours = match half {
                    Half::Read => state.java_read(JAVA, span(lease), t),
                    Half::Write => state.java_write(JAVA, span(lease), t),
                };
                self.java_watched[half as usize] |= ours && lease.is_none();
                (Outcome::Done(ours), vec![self.java_lock(JAVA, half, span(lease), t)])
            }
            Act::JavaUnlock(half) => {
                let (state, said) = (&mut self.model.state, &mut self.model.said);
                let ours = match half {
                    Half::Read => state.java_unread(JAVA, t, said),
                    Half::Write => state.java_unwrite(JAVA, WATCHDOG, t, said),
                };
                (Outcome::Done(ours), vec![self.java_unlock(JAVA, half, t)])
            }
            Act::JavaTick(half) => {
                self.model.state.java_tick(JAVA, half, WATCHDOG, t);
                self.java.java_tick(JAVA, half, WATCHDOG, t);
                self.cut = [true; 2];
                (Outcome::None, Vec::new())
            }
        }
    }

    fn release(&mut self, grip: Grip, t: Span) -> Told {
        match self.model.release(grip.who, grip.half, grip.id, t) {
            Told::Lost => {
                self.lose();
                Told::Lost
            }
            // The user gets `Error::Lost` in both cases.
            Told::Late => Told::Lost,
            told => told,
        }
    }

    fn lose(&mut self) {
        self.lost = true;
        note(&mut self.model.why, Unlike::Lost);
    }

    fn java_lock(&mut self, who: usize, half: Half, lease: Span, t: Span) -> bool {
        match half {
            Half::Read => self.java.java_read(who, lease, t),
            Half::Write => self.java.java_write(who, lease, t),
        }
    }

    fn java_unlock(&mut self, who: usize, half: Half, t: Span) -> bool {
        match half {
            Half::Read => self.java.java_unread(who, t, &mut self.java_said),
            Half::Write => self.java.java_unwrite(who, WATCHDOG, t, &mut self.java_said),
        }
    }

    async fn step(&mut self, act: impl FnOnce(&mut Self) -> Option<Act>) -> Result<(), Torn> {
        self.settle().await;
        let counts = [self.model.state.reads[JAVA], self.model.state.writes[JAVA]];
        for (watched, count) in self.java_watched.iter_mut().zip(counts) {
            *watched &= count > 0;
        }
        // Before the choice, because a downgrade reads the remaining lease there.
        let from = now();
        let Some(act) = act(self) else {
            self.pass().await;
            return Ok(());
        };
        let id = self.next;
        self.next += 1;
        self.note(|_| format!("{act:?}"));
        let got = self.act(act, id).await;
        for who in 0..2 {
            self.done(who).await;
        }
        let t = Span { lo: from, hi: now() };
        if self.is_torn(t.lo, t.hi) {
            return Err(Torn);
        }
        self.model.is_clock_stale |= self.rig.is_clock_stale();
        let expected = self.expect(act, id, t);
        self.note(|_| format!("{got:?}"));
        self.compare(from, got, expected).await
    }

    /// Plays random steps, then releases everything.
    pub async fn play(&mut self, steps: u64) -> Result<(), Torn> {
        for _ in 0..steps {
            self.step(Self::choose).await?;
        }
        while !self.hands.is_empty() {
            self.step(|story| {
                let who = story.hands[0].who;
                story.grip(who, None).map(Act::Unlock)
            })
            .await?;
        }
        loop {
            self.settle().await;
            let state = &self.model.state;
            let half = match (state.reads[JAVA], state.writes[JAVA]) {
                (0, 0) => break,
                (0, _) => Half::Write,
                _ => Half::Read,
            };
            self.step(|_| Some(Act::JavaUnlock(half))).await?;
        }
        let state = &self.model.state;
        if !self.lost && (state.mode.is_some() || !state.covers.is_empty()) {
            self.fail("all was given back, and something is left");
        }
        for (name, said) in self.names().into_iter().zip([&self.model.said, &self.java_said]) {
            let heard = self.rig.said(name).await;
            if !is_said(heard.as_bytes(), said.as_bytes()) {
                self.fail(&format!("of {name} was said {heard:?}, not {said:?}"));
            }
        }
        self.tally.sequences += 1;
        Ok(())
    }
}

/// True if `heard` matches `said`. A `?` stands for an optional `0`.
fn is_said(heard: &[u8], said: &[u8]) -> bool {
    match (heard, said) {
        (_, [b'?', rest @ ..]) => is_said(heard, rest) || matches!(heard, [b'0', heard @ ..] if is_said(heard, rest)),
        ([one, heard @ ..], [other, said @ ..]) => one == other && is_said(heard, said),
        (heard, said) => heard.is_empty() && said.is_empty(),
    }
}
