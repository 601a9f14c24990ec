//! The scene of a random run over several servers: who holds what, and what must be true at every moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{DistLock, Flavour, Guard, MultiLock};
use distlock_support::Numbers;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::fleet::Fleet;
use crate::history::{History, Token};
use crate::rig::{self, count, lasts};
use crate::stage::text;
use crate::weather::{Kind, Weather};

/// What the locks of a run are made of.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Each name on all servers, of this flavour.
    Red(Flavour),
    /// Each name on one server, of one flavour; taken together in any order.
    Multi(Vec<(Flavour, usize)>),
}

/// One lock to take, and the names that it stands for.
pub struct Lot {
    pub lock: Arc<dyn DistLock>,
    pub names: Vec<usize>,
}

/// A guard on the scene. Its task takes it away before it releases it.
pub struct Held {
    pub guard: Guard,
    /// The holds in the history, and their names.
    pub holds: Vec<(usize, usize)>,
}

pub struct Play {
    pub fleet: Fleet,
    pub shape: Shape,
    pub weather: Weather,
    pub names: Vec<String>,
    pub history: History,
    pub start: Instant,
    held: Mutex<BTreeMap<usize, Held>>,
    wrong: Mutex<Vec<String>>,
    /// Per name: how many wait, and since when somebody does while nobody holds it.
    waiting: Mutex<Vec<(usize, Option<Instant>)>>,
    /// The longest such time.
    pub idle: Mutex<Duration>,
    /// True while the weather may still do harm.
    pub rough: AtomicBool,
}

impl Play {
    pub fn new(seed: u64, servers: usize, shape: Shape, names: usize, weather: Weather) -> Self {
        let fleet = Fleet::new(seed, servers, weather.clients, |server, n| weather.party(server, n));
        Self {
            fleet,
            shape,
            weather,
            names: (0..names).map(|n| format!("lock:{n}")).collect(),
            history: History::default(),
            start: Instant::now(),
            held: Mutex::default(),
            wrong: Mutex::default(),
            waiting: Mutex::new(vec![(0, None); names]),
            idle: Mutex::default(),
            rough: AtomicBool::new(true),
        }
    }

    /// Something to take, by chance.
    pub fn lot(&self, client: usize, dice: &mut Numbers) -> Lot {
        match &self.shape {
            Shape::Red(flavour) => {
                let name = dice.below(self.names.len() as u64) as usize;
                let lock = self.fleet.red(client, *flavour, &self.names[name], self.weather.timeout);
                Lot { lock: Arc::new(lock), names: vec![name] }
            }
            Shape::Multi(kinds) => {
                let mut names: Vec<usize> = (0..self.names.len()).collect();
                for n in (1..names.len()).rev() {
                    names.swap(n, dice.below(n as u64 + 1) as usize);
                }
                names.truncate(1 + dice.below(names.len() as u64) as usize);
                let lock = |name: &usize| -> Arc<dyn DistLock> {
                    let (flavour, server) = kinds[*name];
                    rig::lock(&self.fleet.clients[client][server].client, flavour, &self.names[*name]).into()
                };
                let all = names.iter().map(lock).collect();
                Lot { lock: Arc::new(MultiLock::of(all)), names }
            }
        }
    }

    pub fn rough(&self) -> bool {
        !self.weather.is_calm()
    }

    /// Notes a broken invariant.
    pub fn wrong(&self, what: String) {
        crate::trace::say(|| format!("{:>12?} WRONG {what}", self.start.elapsed()));
        self.wrong.lock().push(format!("at {:?}: {what}", self.start.elapsed()));
    }

    pub fn all_wrong(&self) -> Vec<String> {
        self.wrong.lock().clone()
    }

    /// Somebody waits for these names, until the mark is dropped.
    pub fn waits<'a>(&'a self, names: &'a [usize]) -> impl Drop + 'a {
        struct Mark<'a>(&'a Play, &'a [usize]);
        impl Drop for Mark<'_> {
            fn drop(&mut self) {
                self.1.iter().for_each(|name| self.0.waiting.lock()[*name].0 -= 1);
            }
        }
        names.iter().for_each(|name| self.waiting.lock()[*name].0 += 1);
        Mark(self, names)
    }

    /// A guard has just been returned: it must hold now, all or most of it (M2, X1, X2). Its number.
    pub fn enter(&self, lot: &Lot, guard: Guard, asked: Instant, fresh: bool) -> usize {
        if !guard.is_held() {
            self.wrong(format!("M2: an acquire returned a guard that does not hold: {guard:?}"));
        }
        let until = Instant::now() + guard.remaining();
        let members = guard.members();
        let begin = |name: &usize| {
            let hold = self.history.begin(*name, text(guard.owner()), false, until);
            if let Shape::Multi(kinds) = &self.shape {
                let member = members.iter().find(|member| *member.name == *self.names[*name]);
                match member.map(|member| member.token) {
                    None => self.wrong(format!("X1: {name} is not among the members: {members:?}")),
                    Some(Some(number)) => self.history.numbered(hold, Token { number, asked, fresh }),
                    Some(None) if kinds[*name].0 == Flavour::Fenced => self.wrong(format!("M3: no token: {members:?}")),
                    Some(None) => {}
                }
            }
            (hold, *name)
        };
        let holds: Vec<_> = lot.names.iter().map(begin).collect();
        let number = holds[0].0;
        crate::trace::say(|| format!("{:>12?} {number} enters {guard:?}", self.start.elapsed()));
        let held = Held { guard, holds };
        self.look_at(&held);
        self.held.lock().insert(number, held);
        number
    }

    /// Takes a guard off the scene, as it is now.
    pub fn take(&self, number: usize) -> Held {
        let held = self.held.lock().remove(&number).unwrap();
        self.look_at(&held);
        held
    }

    /// Puts it back, and looks at it: its lease may be another one.
    pub fn put(&self, number: usize, held: Held) {
        self.look_at(&held);
        self.held.lock().insert(number, held);
    }

    /// It may count on less than before.
    pub fn cut(&self, held: &Held) {
        held.holds.iter().for_each(|(hold, _)| self.history.cut(*hold));
    }

    /// Takes a guard whose release is called now.
    pub fn end(&self, number: usize) -> Held {
        let held = self.take(number);
        self.over(&held);
        crate::trace::say(|| format!("{:>12?} {number} leaves {:?}", self.start.elapsed(), held.guard));
        held
    }

    /// Its release is called now.
    pub fn over(&self, held: &Held) {
        held.holds.iter().for_each(|(hold, _)| self.history.end(*hold));
    }

    /// Gives back what is still held when all is counted.
    pub fn drop_all(&self) {
        let all: Vec<_> = self.held.lock().keys().copied().collect();
        all.into_iter().for_each(|number| drop(self.end(number)));
    }

    /// What a guard says of itself must be so (M2): most of the servers, or all that are concerned, have it for as long.
    fn look_at(&self, held: &Held) {
        if !held.guard.is_held() {
            return;
        }
        let left = held.guard.remaining();
        held.holds.iter().for_each(|(hold, _)| self.history.until(*hold, Instant::now() + left));
        if self.weather.kind == Kind::DataLoss {
            return;
        }
        let owner = text(held.guard.owner());
        for (_, name) in &held.holds {
            let text = &self.names[*name];
            let pttl = match &self.shape {
                Shape::Red(flavour) => {
                    let spans = self.fleet.spans(*flavour, text, &owner);
                    spans[spans.len() / 2]
                }
                Shape::Multi(kinds) => {
                    let (flavour, server) = kinds[*name];
                    let server = &self.fleet.servers[server];
                    if count(server, flavour, text, &owner) == 0 { -2 } else { lasts(server, flavour, text, &owner) }
                }
            };
            // Whole ms on the servers' side.
            if Duration::from_millis(u64::try_from(pttl + 1).unwrap_or(0)) < left {
                self.wrong(format!(
                    "X1, X2: {owner} counts on {text} for {left:?}, which the servers have for {pttl} ms"
                ));
            }
        }
    }

    /// Looks at everything every few ms, until told to stop.
    pub async fn watch(&self, seed: u64, over: &AtomicBool) {
        let mut dice = Numbers::lane(seed, 77);
        while !over.load(Ordering::Relaxed) {
            sleep(dice.between(2, 18)).await;
            let held = self.held.lock();
            held.values().for_each(|held| self.look_at(held));
            let taken: Vec<usize> = held.values().flat_map(|held| held.holds.iter().map(|(_, name)| *name)).collect();
            drop(held);
            let all = matches!(self.shape, Shape::Multi(_));
            for (name, (waiting, since)) in self.waiting.lock().iter_mut().enumerate() {
                // Of several that are taken together, one may have to wait for another.
                let is_taken = if all { !taken.is_empty() } else { taken.contains(&name) };
                if *waiting == 0 || is_taken {
                    *since = None;
                } else {
                    let idle = since.get_or_insert_with(Instant::now).elapsed();
                    let mut longest = self.idle.lock();
                    *longest = idle.max(*longest);
                }
            }
        }
    }
}
