//! One sequence. Every step runs on a lock shared by two owners of ours and one of Java's, and on a lock that three
//! owners of Java's share. Then both locks are compared.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Client, DistLock, Guard, Owner, Prefer};
use distlock_support::Numbers;

use crate::book::Model;
use crate::expect::Outcome;
use crate::ours::Why;
use crate::rig::{Rig, ms, now};
use crate::state::{Half, JAVA, OWNERS, Span, State};

/// Time in ms before and after a step in which no lease or cover may end.
const APART: i64 = 6;

/// A lease or cover ended during a step, so the order of the two is unknown.
#[derive(Debug)]
pub struct Torn;

/// The outcome of a step, and Java's replies on its own lock.
type Done = (Outcome, Vec<bool>);

pub struct Hand {
    pub guard: Guard,
    pub who: usize,
    pub half: Half,
    pub id: u32,
}

#[derive(Clone, Default, Debug)]
pub struct Tally {
    pub sequences: u64,
    pub steps: u64,
    /// Steps after which both locks had to be equal.
    pub same: u64,
    pub why: Why,
}

impl Tally {
    pub fn add(&mut self, more: Self) {
        self.sequences += more.sequences;
        self.steps += more.steps;
        self.same += more.same;
        for (why, times) in more.why {
            *self.why.entry(why).or_default() += times;
        }
    }
}

pub struct Story<'a> {
    pub(crate) seed: u64,
    pub(crate) rig: &'a Rig,
    pub(crate) clients: &'a [Client; 2],
    pub(crate) dice: Numbers,
    /// The shortest lease. `margin`: how long before an end no step begins.
    pub(crate) short: i64,
    margin: i64,
    /// True if most leases are short.
    pub(crate) hasty: bool,
    /// The owner that acts most.
    pub(crate) star: usize,
    /// Position in the plot, if there is one.
    pub(crate) scene: Option<u8>,
    /// The shared lock, and Java's own.
    pub(crate) names: [String; 2],
    texts: [[String; OWNERS]; 2],
    pub(crate) owners: [Owner; 2],
    locks: [[Arc<dyn DistLock>; 2]; 2],
    pub(crate) hands: Vec<Hand>,
    pub(crate) next: u32,
    pub(crate) model: Model,
    /// State and messages of Java's own lock.
    pub(crate) java: State,
    pub(crate) java_said: String,
    /// The halves that Java's watchdog renews.
    pub(crate) java_watched: [bool; 2],
    /// True if Java's watchdog may have shortened this owner's holds since their last renewal.
    pub(crate) cut: [bool; 2],
    pub(crate) lost: bool,
    pub(crate) tally: Tally,
    pub(crate) log: Vec<String>,
    zero: i64,
}

impl<'a> Story<'a> {
    pub fn new(seed: u64, attempt: u32, rig: &'a Rig, clients: &'a [Client; 2]) -> Self {
        let mut dice = Numbers::new(seed);
        let names = ["ours", "java"].map(|whose| format!("rw:{seed}.{attempt}:{whose}"));
        let owners = [0, 1].map(|who: usize| clients[who].owner());
        let shared = [0, 1].map(|_| dice.below(4) == 0);
        let prefer = dice.of(&[Prefer::Readers, Prefer::Writers]);
        let (hasty, star) = (dice.below(3) == 0, dice.of(&[0, 1, JAVA]));
        let scene = (dice.below(6) == 0).then_some(0);
        let locks = [0, 1].map(|who: usize| {
            let lock = clients[who].rw(&names[0]).prefer(prefer);
            [Arc::new(lock.read()) as Arc<dyn DistLock>, Arc::new(lock.write())]
        });
        // Unlike `as_str`, the debug text does not share the owner.
        let text = |who: usize| {
            let told = format!("{:?}", owners[who]);
            if shared[who] {
                let _ = owners[who].as_str();
            }
            told.trim_start_matches("Owner(").trim_end_matches(')').to_owned()
        };
        let java = [0, 1, 2].map(|who| rig.java(who));
        Self {
            seed,
            rig,
            clients,
            dice,
            short: 160 << attempt,
            margin: 40 << attempt,
            hasty,
            star,
            scene,
            texts: [[text(0), text(1), java[JAVA].clone()], java],
            names,
            owners,
            locks,
            hands: Vec::new(),
            next: 0,
            model: Model { is_clock_stale: rig.is_clock_stale(), ..Model::default() },
            java: State::default(),
            java_said: String::new(),
            java_watched: [false; 2],
            cut: [false; 2],
            lost: false,
            tally: Tally::default(),
            log: vec![format!("owners asked for {shared:?}, {prefer:?}, short {}", 160 << attempt)],
            zero: now(),
        }
    }

    pub fn names(&self) -> [&str; 2] {
        [&self.names[0], &self.names[1]]
    }

    pub fn lock(&self, who: usize, half: Half) -> Arc<dyn DistLock> {
        Arc::clone(&self.locks[who][half as usize])
    }

    pub fn fail(&self, what: &str) -> ! {
        panic!("SEED={}, step {}: {what}\n{}", self.seed, self.tally.steps, self.log.join("\n"));
    }

    pub fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        let line = line(self);
        self.log.push(format!("{:5} {line}", now() - self.zero));
    }

    /// Waits until no lease or cover is about to end, and removes expired entries.
    pub async fn settle(&mut self) {
        loop {
            let now = now();
            let near = |end: &Span| end.lo - APART <= now + self.margin && end.hi + APART >= now;
            let Some(last) = self.model.ends().chain(self.java.ends()).filter(near).map(|end| end.hi).max() else {
                self.model.state.pass(now);
                self.java.pass(now);
                return;
            };
            tokio::time::sleep(ms(last + APART + 1 - now)).await;
        }
    }

    /// Sleeps until the next short lease has ended.
    pub async fn pass(&mut self) {
        let now = now();
        let soon = |end: &Span| end.lo > now && end.hi < now + 4 * self.short;
        if let Some(next) = self.model.ends().chain(self.java.ends()).filter(soon).map(|end| end.hi).min() {
            self.note(|_| "time passes".into());
            tokio::time::sleep(ms(next - now)).await;
        }
    }

    /// True if something ended in this interval, so that its order with the step is unknown.
    pub fn is_torn(&self, from: i64, to: i64) -> bool {
        let torn = |end: Span| end.lo - APART <= to && end.hi + APART >= from;
        self.model.ends().chain(self.java.ends()).any(torn)
    }

    /// Waits for a client's background work.
    pub async fn done(&self, who: usize) {
        let begun = now();
        while self.clients[who].stats().under_way > 0 {
            if now() > begun + 90_000 {
                self.fail("a client is not done after 90 s");
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    /// Reads both locks, and compares them with the model and with each other.
    pub async fn compare(&mut self, from: i64, got: Done, expected: Done) -> Result<(), Torn> {
        let (time, seen) = self.rig.look(self.names(), [&self.texts[0], &self.texts[1]]).await;
        if self.is_torn(from, time) {
            return Err(Torn);
        }
        if got != expected {
            self.fail(&format!("answered {got:?}, not {expected:?}"));
        }
        let [ours, java] = seen.map(|seen| seen.unwrap_or_else(|odd| self.fail(&odd)));
        let told = |state: &State| state.since(self.zero);
        self.log.push(format!("         {:?}", told(&ours)));
        for (whose, state, seen) in [("shared", &self.model.state, &ours), ("Java's own", &self.java, &java)] {
            // A busy machine may delay a step at any point, so an expiry may be off by the duration of the step.
            if let Some(how) = state.widened(time - from).unlike(seen) {
                self.fail(&format!(
                    "the {whose} lock: {how}\nmodel {:?}\nRedis {:?}\nwhere {:?}",
                    told(state),
                    told(seen),
                    self.model.why
                ));
            }
        }
        let allowed = self.model.why.keys().any(|why| why.in_state());
        if let Some(how) = java.widened(time - from).unlike(&ours).filter(|_| !allowed) {
            self.fail(&format!("Redisson leaves something else: {how}\n{:?}\n{:?}", told(&java), told(&ours)));
        }
        for (why, times) in std::mem::take(&mut self.model.why) {
            *self.tally.why.entry(why).or_default() += times;
        }
        self.tally.steps += 1;
        self.tally.same += u64::from(!allowed);
        if allowed {
            self.log.push(format!("         Redisson's own: {:?}", told(&java)));
        }
        if java != ours {
            // The next step begins with the same state again, times included.
            self.rig.put(&self.names[1], &self.texts[1], &ours).await;
        }
        self.java = ours.clone();
        self.model.state = ours;
        self.promises();
        Ok(())
    }

    /// RW1, RW3: checks that Redis backs what the guards report.
    fn promises(&self) {
        let (mut writers, mut holders) = (0_u32, [false; 2]);
        for Hand { guard, who, half, id } in &self.hands {
            let (who, half, asked) = (*who, *half, now());
            let (held, left) = (guard.is_held(), guard.remaining());
            let until = self.model.until(who, half, *id);
            let what = || format!("guard {id} of {who}, {half:?}, until {:?}", until.map(|until| until.lo - self.zero));
            match until {
                None if held => self.fail(&format!("{}: lost, and says it is held", what())),
                Some(until) if held && until.before(Span::at(asked)) => {
                    self.fail(&format!("{}: says it is held too long", what()));
                }
                Some(until) if !held && Span::at(now()).before(until) => {
                    self.fail(&format!("{}: says it is not held", what()));
                }
                _ => {}
            }
            if !held {
                continue;
            }
            holders[who] = true;
            let state = &self.model.state;
            let deadline = asked + i64::try_from(left.as_millis()).expect("a short time");
            let (mine, covered) = match half {
                Half::Read => (state.reads[who], state.covered(who).map_or(0, |end| end.lo)),
                Half::Write => (state.writes[who], i64::MAX),
            };
            writers += u32::from(half == Half::Write);
            let hash = if self.cut[who] { i64::MAX } else { state.end.lo };
            if mine == 0 || covered < deadline - 2 || hash < deadline - 2 {
                self.fail(&format!("{}: Redis does not back it until {}", what(), deadline - self.zero));
            }
        }
        if writers > 0 && holders == [true; 2] {
            self.fail("somebody holds it beside a writer");
        }
    }

    /// Cleans up, whatever happened.
    pub async fn clean(&mut self) {
        self.hands.clear();
        for who in 0..2 {
            self.done(who).await;
        }
        for name in self.names() {
            self.rig.put(name, &self.texts[0], &State::default()).await;
        }
    }
}
