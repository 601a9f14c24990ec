//! The scene of a random run: the server, the clients, the guards, and the rules that hold at every moment.

use crate::history::History;
use crate::order::Order;
use crate::prelude::*;
use crate::readers::Readers;
use crate::weather::Weather;

/// A guard on the stage. Its task removes it from the stage before the release.
pub struct Held {
    pub guard: Guard,
    pub hold: usize,
    pub name: usize,
    pub flavour: Flavour,
    /// True if the watchdog has renewed the hold all the time.
    pub watched: bool,
}

pub struct Stage {
    pub server: SimServer,
    pub parties: Vec<Party>,
    pub names: Vec<String>,
    pub weather: Weather,
    pub history: History,
    pub start: Instant,
    held: Mutex<BTreeMap<usize, Held>>,
    /// Number of tasks that wait for each name. For a read-write lock, only writers.
    waiting: Vec<AtomicUsize>,
    readers: Readers,
    granted: Mutex<Vec<Instant>>,
    pub wrong: Mutex<Vec<String>>,
    /// Order of the waiters of fair locks.
    order: Mutex<Vec<Order>>,
    /// True while faults may still happen.
    pub rough: AtomicBool,
}

impl Stage {
    pub fn new(seed: u64, weather: Weather) -> Self {
        let server = SimServer::new(seed);
        let parties = (0..weather.clients).map(|n| weather.party(&server, n)).collect();
        let names: Vec<String> = (0..weather.names).map(|n| format!("lock:{n}")).collect();
        let order = Mutex::new(names.iter().map(|name| Order::new(name)).collect());
        let granted = Mutex::new(vec![Instant::now(); names.len()]);
        let waiting = names.iter().map(|_| AtomicUsize::new(0)).collect();
        let (readers, start, rough) = (Readers::new(&names), Instant::now(), AtomicBool::new(true));
        let (history, held, wrong) = Default::default();
        Self { server, parties, names, weather, history, start, held, waiting, readers, granted, wrong, order, rough }
    }

    pub fn lock(&self, party: usize, flavour: Flavour, name: usize) -> Box<dyn DistLock> {
        rig::lock(&self.parties[party].client, flavour, &self.names[name])
    }

    pub fn wrong(&self, what: String) {
        crate::trace::say(|| format!("{:>12?} WRONG {what}", self.start.elapsed()));
        self.wrong.lock().push(format!("at {:?}: {what}", self.start.elapsed()));
    }

    /// Counts a waiter of this name until the result is dropped.
    pub fn waits(&self, name: usize, flavour: Flavour) -> impl Drop {
        struct Mark<'a>(&'a Stage, usize, Option<usize>);
        impl Drop for Mark<'_> {
            fn drop(&mut self) {
                match self.2 {
                    Some(waiter) => self.0.readers.gone(waiter),
                    None => drop(self.0.waiting[self.1].fetch_sub(1, Ordering::Relaxed)),
                }
            }
        }
        let reads = flavour == Flavour::Read;
        if !reads {
            self.waiting[name].fetch_add(1, Ordering::Relaxed);
        }
        Mark(self, name, reads.then(|| self.readers.waits(name)))
    }

    /// Adds a guard that an acquire has just returned. The guard must be held now (M2).
    pub fn enter(&self, name: usize, flavour: Flavour, guard: Guard, watched: bool, fresh: bool) -> usize {
        if !guard.is_held() {
            self.wrong(format!("M2: an acquire returned a guard that does not hold: {guard:?}"));
        }
        let shared = flavour == Flavour::Read;
        // A lock that was handed over inside a process has the same owner at the server, but another holder.
        let who = if fresh { format!("{}#{}", holder(&guard), self.history.len()) } else { holder(&guard) };
        let hold = self.history.begin(name, who, shared, Instant::now() + guard.remaining());
        crate::trace::say(|| format!("{:>12?} {hold} enters {guard:?}", self.start.elapsed()));
        self.granted.lock()[name] = Instant::now();
        if !shared {
            self.readers.shut(name);
        }
        self.look_at_queue(name);
        self.held.lock().insert(hold, Held { guard, hold, name, flavour, watched });
        hold
    }

    /// Takes a guard off the stage, and checks it.
    pub fn take(&self, hold: usize) -> Held {
        let held = self.held.lock().remove(&hold).unwrap();
        self.look_at(&held);
        held
    }

    /// Puts a guard back and checks it. Its lease may have changed.
    pub fn put(&self, held: Held) {
        self.history.cut(held.hold);
        self.look_at(&held);
        self.held.lock().insert(held.hold, held);
    }

    /// Takes a guard off the stage for its release.
    pub fn end(&self, hold: usize) -> Held {
        let held = self.take(hold);
        self.history.end(hold);
        crate::trace::say(|| format!("{:>12?} {hold} leaves {:?}", self.start.elapsed(), held.guard));
        held
    }

    pub fn is_write(&self, hold: usize) -> bool {
        self.held.lock().get(&hold).is_some_and(|held| held.flavour == Flavour::Write)
    }

    pub fn holds(&self) -> Vec<usize> {
        self.held.lock().keys().copied().collect()
    }

    /// M2: the server has the hold for at least as long as the guard says.
    fn look_at(&self, held: &Held) {
        if !held.guard.is_held() {
            return;
        }
        let left = held.guard.remaining();
        self.history.until(held.hold, Instant::now() + left);
        let name = &self.names[held.name];
        let owner = holder(&held.guard);
        let pttl = lasts(&self.server, held.flavour, name, &owner);
        // The server counts whole ms.
        let has = Duration::from_millis(u64::try_from(pttl + 1).unwrap_or(0));
        if self.weather.forced == Some(held.name) {
            return;
        }
        if count(&self.server, held.flavour, name, &owner) == 0 {
            self.wrong(format!("M2: {owner} counts on {name} for {left:?}, and the server does not have it"));
        } else if has < left {
            self.wrong(format!("M2: {owner} counts on {name} for {left:?}, which it has for {pttl} ms"));
        } else if held.watched && self.weather.is_calm() && has < self.weather.shortest() {
            self.wrong(format!("L3: {name} has {pttl} ms left"));
        }
    }

    /// F1o: no waiter acquires before a waiter that was ahead in the queue and still waits.
    fn look_at_queue(&self, name: usize) {
        if self.weather.flavour == Flavour::Fair && self.weather.is_calm() {
            let wrong = self.order.lock()[name].look(&self.server);
            wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        }
    }

    /// Exempts an owner that several tasks use, because its place belongs to several waiters.
    pub fn shares(&self, owner: &Owner) {
        self.order.lock().iter_mut().for_each(|order| order.except(text(owner)));
    }

    /// Checks everything every few ms until `over` is set.
    pub async fn watch(&self, seed: u64, over: &AtomicBool) {
        let mut dice = Numbers::lane(seed, 77);
        let mut free: Vec<Option<(u32, Instant)>> = self.names.iter().map(|_| None).collect();
        while !over.load(Ordering::Relaxed) {
            sleep(dice.between(2, 18)).await;
            for held in self.held.lock().values() {
                self.look_at(held);
            }
            for (n, name) in self.names.iter().enumerate() {
                self.look_at_queue(n);
                let mut pttl = self.server.pttl(name.as_bytes());
                if pttl == -1 {
                    self.wrong(format!("L2: {name} never ends"));
                }
                if self.weather.is_rw() {
                    let bound = self.weather.wake_bound() + self.weather.max_reader_delay;
                    let (wrong, is_live) = self.readers.look(&self.server, n, bound);
                    wrong.into_iter().for_each(|wrong| self.wrong(wrong));
                    // Dead readers exclude nobody.
                    pttl = if is_live { pttl } else { -2 };
                }
                // W1: the lock is free although a task waits for it.
                if pttl != -2 || self.waiting[n].load(Ordering::Relaxed) == 0 {
                    free[n] = None;
                    continue;
                }
                let (looks, since) = free[n].get_or_insert((0, Instant::now()));
                // The lock may have been held between two looks.
                *since = self.granted.lock()[n].max(*since);
                *looks += 1;
                // Several looks, because a jump of the clock is not a wait.
                if *looks > 3 && since.elapsed() > self.weather.wake_bound() {
                    let stats: Vec<_> = self.parties.iter().map(|party| party.client.stats()).collect();
                    self.wrong(format!("W1: {name} is free since {:?} ago: {stats:?}", since.elapsed()));
                    *since = Instant::now() + Duration::from_secs(1000);
                }
            }
        }
    }

    /// M4, with nothing in flight: the server counts exactly the holds of these guards.
    pub fn check_counts(&self) {
        let held = self.held.lock();
        for (n, name) in self.names.iter().enumerate().filter(|(n, _)| self.weather.forced != Some(*n)) {
            let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            for held in held.values().filter(|held| held.name == n) {
                let (least, most) = expected.entry(field(held.flavour, &holder(&held.guard))).or_default();
                *least += u64::from(held.guard.is_held());
                *most += 1;
            }
            let plain = self.weather.flavour == Flavour::Plain;
            // A copy of a `SET` may have acquired the lock for nobody. Only a missing key is an error.
            expected.retain(|owner, (least, _)| !plain || *least > count(&self.server, Flavour::Plain, name, owner));
            let fields = if plain { Vec::new() } else { words(&does(&self.server, &format!("hgetall {name}"))) };
            for pair in fields.chunks(2) {
                let field = &*pair[0];
                if field == "mode" || field.ends_with(":holds") {
                    continue;
                }
                let count: u64 = pair[1].parse().unwrap();
                let (least, most) = expected.remove(field).unwrap_or_default();
                // A dead reader's field stays until the other readers have released.
                let reads = self.weather.is_rw() && !field.ends_with(":write");
                if reads && least == 0 && lasts(&self.server, Flavour::Read, name, field) <= 0 {
                    continue;
                }
                if !(least..=most).contains(&count) {
                    self.wrong(format!("M4: {name} has {pair:?}; {least} guards are held, {most} are there"));
                }
            }
            for (owner, (least, _)) in expected.into_iter().filter(|(_, (least, _))| *least > 0) {
                self.wrong(format!("M4: {name} has nothing of {owner}, who has {least} guards"));
            }
        }
    }
}
