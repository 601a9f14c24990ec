//! The scene of a sequence: servers, clients, owners, guards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use distlock::sim::{LinkOptions, SimLink, SimReply, SimServer};
use distlock::{DistLock, Flavour, Guard, MultiLock, Owner, RedLock};
use distlock_support::Numbers;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::given::Given;
use super::plan::{Faults, Kind, Sharing, Theme};
use crate::group::fleet::moved;
use crate::rig::{self, Party, field, ms};
use crate::stage::holder;

/// How long a command may take to come in that is still to be carried out, at the most. What comes later must be refused.
pub const LAWFUL: Duration = Duration::from_secs(10);

/// A guard on the scene.
pub struct Held {
    pub guard: Guard,
    pub spot: Spot,
    /// Its owner in the server.
    pub owner: String,
    /// Who it is: fresh owners may be passed on inside a process, from one holder to the next.
    pub who: String,
    /// It has been forced open, or may have been.
    pub exempt: bool,
    /// Until when a copy of its acquire may come in that is in time: that counts it once more where it is gone.
    pub copied: Option<Instant>,
    /// It was forced open for certain, before this, and no such copy may have brought it back.
    pub forced: Option<Instant>,
    /// An extend of it was dropped, or is in doubt: it is carried out all the same, perhaps, when its turn has come.
    pub may_be_cut: bool,
    /// Until when it said that it holds.
    pub promised: Option<Instant>,
}

/// A lock, as one client takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub party: usize,
    /// Which lock.
    pub place: usize,
    pub reads: bool,
}

/// A hold whose guard was given up for its owner.
pub struct Guardless {
    pub owner: Owner,
    pub spot: Spot,
    pub text: String,
    pub until: Instant,
}

/// Something that is to go wrong with a command.
pub struct Planned {
    pub link: SimLink,
    /// Whose link that is, and to which server.
    pub at: (usize, usize),
    /// Which command of the link.
    pub number: u64,
    /// How late a copy of it comes in.
    pub late: Option<Duration>,
    /// Its answer does not come.
    pub lost: bool,
    pub since: Instant,
}

/// A hold that stays at one of a RedLock's servers: a release by owner has lost a command there, and is not repeated.
pub struct Stranded {
    pub server: usize,
    pub key: usize,
    /// Its owner, at that server.
    pub owner: String,
}

pub struct Scene {
    pub kind: Kind,
    pub theme: Theme,
    pub servers: Vec<SimServer>,
    pub clients: usize,
    /// By client, then by server.
    pub parties: Mutex<Vec<Vec<Party>>>,
    options: Settings,
    pub names: Vec<&'static str>,
    pub start: Instant,
    pub timeout: Duration,
    pub fair_wait: Duration,
    pub watchdog: Duration,
    pub state: Mutex<State>,
    /// Copies come in either in time or so late that they must be refused: the server counts no more than there is (`exact`).
    pub strict: bool,
    /// Notes what happens.
    pub traced: bool,
}

/// How many looks there were that compared something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// The counts of the server with the guards.
    pub counts: u64,
    /// The queues with nothing.
    pub queues: u64,
}

/// What `troubled`, `unsure`, `in_time` and `loose` say about the looks is told in `exact`.
#[derive(Default)]
pub struct State {
    pub given: Vec<Given>,
    pub held: BTreeMap<usize, Held>,
    pub guardless: Vec<Guardless>,
    /// Locks that are being forced open: key, and until when holds of it may end by that.
    pub forced: Vec<(usize, Option<Instant>)>,
    /// What is to go wrong, with commands that are still to be sent.
    pub planned: Vec<Planned>,
    /// Commands that were lost, or their replies: of which client, to which server, the number.
    pub lost: Vec<((usize, usize), u64)>,
    /// For as long as their owners hold anything there.
    pub stranded: Vec<Stranded>,
    /// When a command was last found to be lost, or its reply.
    pub troubled: Option<Instant>,
    /// The server's clock may not be known any more to those who sent something that comes in late.
    pub unsure: bool,
    /// Until when copies may come in that are in time; nothing when those are over and nothing is left of them.
    pub in_time: Option<Instant>,
    /// Such a copy may have taken a hold for nobody, which is there still.
    pub loose: bool,
    /// When late copies come in.
    pub copies: Vec<Instant>,
    /// Messages heard on the wire.
    pub heard: Vec<(Vec<u8>, Vec<u8>)>,
    pub wrong: Vec<String>,
    pub trace: Vec<String>,
    /// Steps under way.
    pub busy: usize,
    pub holds: usize,
    pub looks: Looks,
    /// When the last late copy, or forged message, will have come in: until then the end waits.
    pub quiet: Option<Instant>,
    /// When the next runtime begins.
    pub left: Option<Instant>,
    /// The longest lease that was asked for.
    pub longest: Duration,
}

/// What clients are made with.
#[derive(Clone, Copy)]
struct Settings {
    link: LinkOptions,
    handoff_limit: u32,
    poll_cap: Duration,
    timeout: Duration,
    watchdog: Duration,
    fair_wait: Duration,
}

impl Settings {
    fn party(&self, server: &SimServer) -> Party {
        Party::new(server, self.link, |options| {
            options.watchdog = self.watchdog;
            options.command_timeout = self.timeout;
            options.subscribe_timeout = self.timeout;
            options.subscription_linger = ms(20);
            options.poll_cap = self.poll_cap;
            options.fair_wait = self.fair_wait;
            options.handoff_limit = self.handoff_limit;
            options.retry_delay = (ms(5), ms(20));
        })
    }

    fn parties(&self, servers: &[SimServer], clients: usize) -> Vec<Vec<Party>> {
        (0..clients).map(|_| servers.iter().map(|server| self.party(server)).collect()).collect()
    }
}

impl Scene {
    pub fn new(seed: u64, kind: Kind, theme: Theme, traced: bool) -> Arc<Self> {
        let mut dice = Numbers::lane(seed, 3);
        let servers: Vec<_> =
            (0..if kind == Kind::Red { 3 } else { 1 }).map(|n: u64| SimServer::new(seed ^ (n << 32))).collect();
        let timeout = ms(60 + dice.below(140));
        let watchdog = timeout * 3 + ms(dice.below(1500));
        let fair_wait = ms(600 + dice.below(900));
        let latency_max = match theme.sharing {
            // Races need commands that are under way for a while.
            Sharing::Becoming => ms(4 + dice.below(9)),
            _ if dice.once_in(3) => Duration::ZERO,
            _ => ms(1 + dice.below(3)),
        };
        let link = LinkOptions {
            latency_min: latency_max.min(ms(1)),
            latency_max,
            timeout,
            reconnect: ms(5 + dice.below(40)),
            ordered: dice.once_in(2),
        };
        let handoff_limit = if dice.once_in(2) { 0 } else { 16 };
        let poll_cap = ms(60 + dice.below(200));
        let clients = if kind == Kind::Red || !dice.once_in(4) { 2 } else { 3 };
        let options = Settings { link, handoff_limit, poll_cap, timeout, watchdog, fair_wait };
        let parties = options.parties(&servers, clients);
        let names = match kind {
            Kind::Pair => vec!["x", "{x}"],
            Kind::Multi => vec!["x", "y"],
            Kind::Red => vec!["x"],
            _ if dice.once_in(4) => vec!["x", "y"],
            _ => vec!["x"],
        };
        let few = if theme.sharing == Sharing::Becoming { 1 } else { 2 };
        let given = (0..few + dice.below(2) as usize)
            .map(|n| {
                let home = n % clients;
                let sharing = match theme.sharing {
                    Sharing::Any => {
                        [Sharing::Alone, Sharing::Text, Sharing::Becoming, Sharing::Object][dice.below(4) as usize]
                    }
                    // One owner stays alone, for the others to meet.
                    _ if n == 1 => Sharing::Alone,
                    sharing => sharing,
                };
                let owner = parties[home][0].client.owner();
                Given::new(owner, home, clients, sharing).made_to_be_given()
            })
            .collect();
        let strict = theme.faults == Faults::Late && dice.once_in(2);
        let state = Mutex::new(State { given, ..State::default() });
        if theme.forged {
            servers.iter().for_each(|server| drop(server.overhear()));
        }
        let start = Instant::now();
        let parties = Mutex::new(parties);
        Arc::new(Self {
            kind,
            theme,
            servers,
            clients,
            parties,
            options,
            names,
            start,
            timeout,
            fair_wait,
            watchdog,
            state,
            strict,
            traced,
        })
    }

    /// A client, at each of the servers.
    pub fn party(&self, n: usize) -> Vec<Party> {
        self.parties.lock()[n].clone()
    }

    /// The runtime of the clients is gone: others take their places. Their guards stay.
    pub fn renew(&self) {
        let parties = self.options.parties(&self.servers, self.clients);
        let before = std::mem::replace(&mut *self.parties.lock(), parties);
        for link in before.iter().flatten().map(|party| &party.link) {
            // Its connections are gone with the runtime.
            link.partition(true);
            link.hang_up();
        }
        // Nobody is left who would have it go on.
        self.servers.iter().for_each(|server| server.freeze(false));
        drop(before);
        self.state.lock().given.iter_mut().for_each(Given::move_in);
    }

    /// The longest way to a server.
    pub fn latency(&self) -> Duration {
        self.options.link.latency_max
    }

    pub fn say(&self, line: impl FnOnce() -> String) {
        if self.traced {
            let line = format!("{:>12?} {}", self.start.elapsed(), line());
            crate::trace::say(|| line.clone());
            self.state.lock().trace.push(line);
        }
    }

    pub fn wrong(&self, what: String) {
        self.say(|| format!("WRONG {what}"));
        self.state.lock().wrong.push(format!("at {:?}: {what}", self.start.elapsed()));
    }

    pub fn is_wrong(&self) -> bool {
        !self.state.lock().wrong.is_empty()
    }

    /// How many locks there are to take.
    pub fn places(&self) -> usize {
        self.names.len() + usize::from(self.kind == Kind::Multi)
    }

    pub fn lock(&self, spot: Spot) -> Arc<dyn DistLock> {
        let client = |party: usize| self.parties.lock()[party % self.clients][0].client.clone();
        let name = |place: usize| self.names[place];
        match self.kind {
            Kind::Red => {
                let clients = self.party(spot.party).into_iter().map(|party| party.client);
                Arc::new(RedLock::new(clients, name(0)).node_timeout(self.timeout))
            }
            Kind::Multi if spot.place == self.names.len() => {
                // Those of one client are taken by one command, those of several by one each.
                let party = |n: usize| spot.party + n * (spot.party % 2);
                let member = |n: usize| -> Arc<dyn DistLock> { Arc::new(client(party(n)).reentrant(name(n))) };
                Arc::new(MultiLock::of(vec![member(0), member(1)]))
            }
            _ => rig::lock(&client(spot.party), self.flavour(spot.reads), name(spot.place)).into(),
        }
    }

    pub fn flavour(&self, reads: bool) -> Flavour {
        match self.kind {
            Kind::Reentrant | Kind::Multi | Kind::Red => Flavour::Reentrant,
            Kind::Fair | Kind::Pair => Flavour::Fair,
            Kind::Rw if reads => Flavour::Read,
            Kind::Rw => Flavour::Write,
            Kind::Fenced => Flavour::Fenced,
            Kind::Spin => Flavour::Spin,
        }
    }

    /// Whether every server knows that this hold lost its guard; where nothing is lost, it will in time.
    pub fn is_marked(&self, hold: &Guardless) -> bool {
        let marked = |server: &SimServer, owner: &str, key: usize| {
            let list = format!("{}:holds", field(self.flavour(hold.spot.reads), owner));
            let ids = server.command(&[b"hget", self.names[key].as_bytes(), list.as_bytes()]);
            matches!(ids, SimReply::Text(ids) if ids.contains(&b'+'))
        };
        let several = self.servers.len() > 1;
        let mut servers = self.servers.iter().enumerate();
        let owner = |n: usize| if several { moved(&hold.text, n) } else { hold.text.clone() };
        self.theme.faults == Faults::None
            || servers.all(|(n, server)| self.keys(hold.spot).all(|key| marked(server, &owner(n), key)))
    }

    /// The names that a lock is made of, by number.
    pub fn keys(&self, spot: Spot) -> std::ops::Range<usize> {
        if spot.place == self.names.len() { 0..self.names.len() } else { spot.place..spot.place + 1 }
    }

    pub fn meets(&self, a: Spot, b: Spot) -> bool {
        let (a, b) = (self.keys(a), self.keys(b));
        a.start < b.end && b.start < a.end
    }

    /// An acquire has returned this guard: it must hold it now, alone.
    pub fn enter(&self, spot: Spot, guard: Guard, given: bool, began: Instant) -> usize {
        let owner = holder(&guard);
        self.note_trouble();
        let mut state = self.state.lock();
        let id = state.holds;
        state.holds += 1;
        let who = if given { owner.clone() } else { format!("{owner}#{id}") };
        let exempt = self.forced(&state, spot);
        let copied = state.in_time.filter(|until| *until >= began + self.lawful());
        let held = Held { guard, spot, owner, who, exempt, copied, forced: None, may_be_cut: false, promised: None };
        let mut wrong = Vec::new();
        if held.guard.is_held() && !exempt {
            for (other, before) in &state.held {
                let shared = before.spot.reads && spot.reads;
                if before.who == held.who || before.exempt || shared || !self.meets(before.spot, spot) {
                    continue;
                }
                if before.guard.is_held() {
                    wrong.push(format!("M1: {id} ({}) and {other} ({}) hold both", held.who, before.who));
                } else if before.guard.lost().now_or_never().is_none() {
                    wrong.push(format!("M2: {other} ({}) is not held, and lost() does not say so", before.who));
                }
            }
        } else if !held.guard.is_held() {
            wrong.push(format!("M2: an acquire returned a guard that does not hold: {:?}", held.guard));
        }
        // It came in beside one of the holds before it, or found out that there is none.
        let before = |before: &&Held| before.owner == held.owner && before.spot == spot;
        if !matches!(self.kind, Kind::Multi | Kind::Red)
            && !self.theme.runtimes
            && let (Some(before), 1) = (state.held.values().find(before), state.held.values().filter(before).count())
            && before.forced.is_some_and(|forced| forced < began)
            && before.guard.is_held()
        {
            wrong.push(format!("own: {id} came in beside a guard of {} that was forced open before", held.owner));
        }
        state.held.insert(id, held);
        drop(state);
        self.say(|| format!("{id} enters {spot:?} {:?}", self.state.lock().held.get(&id).map(|held| held.who.clone())));
        wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        self.look("an acquire returned");
        id
    }

    fn forced(&self, state: &State, spot: Spot) -> bool {
        let now = Instant::now();
        let lasts = |(key, until): &(usize, Option<Instant>)| {
            self.keys(spot).contains(key) && until.is_none_or(|until| now < until)
        };
        state.forced.iter().any(lasts)
    }

    pub fn may_be_forced(&self, spot: Spot) -> bool {
        self.forced(&self.state.lock(), spot)
    }

    /// A lock is being forced open, or was, and the force may still come in until then.
    pub fn forcing(&self, spot: Spot, until: Option<Instant>) {
        let mut state = self.state.lock();
        for held in state.held.values_mut().filter(|held| self.meets(held.spot, spot)) {
            held.exempt = true;
        }
        let keys = self.keys(spot);
        match until {
            None => state.forced.extend(keys.map(|key| (key, None))),
            // The steps force one at a time.
            Some(_) => state.forced.iter_mut().filter(|(_, end)| end.is_none()).for_each(|(_, end)| *end = until),
        }
    }
}
