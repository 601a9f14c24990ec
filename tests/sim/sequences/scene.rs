//! The scene of a sequence: servers, clients, owners, locks.

use super::given::Given;
use super::plan::{Faults, Kind, Sharing, Theme};
use super::state::{Spot, State};
use crate::prelude::*;

/// Longest time after sending in which a force, or a release that takes any vote of a RedLock, may still run.
pub const FORCE_MAY_LAST: Duration = Duration::from_secs(10);

pub struct Scene {
    pub kind: Kind,
    pub theme: Theme,
    pub servers: Vec<SimServer>,
    pub clients: usize,
    /// Indexed by client, then by server.
    pub parties: Mutex<Vec<Vec<Party>>>,
    pub options: Settings,
    pub names: Vec<&'static str>,
    pub start: Instant,
    pub timeout: Duration,
    pub state: Mutex<State>,
    /// True if copies arrive either in time or so late that the server refuses them. Then the counts can be checked
    /// (`late.rs`).
    pub strict: bool,
    pub traced: bool,
}

pub struct Settings {
    link: LinkOptions,
    local_handoff_limit: u32,
    poll_cap: Duration,
    timeout: Duration,
    pub watchdog: Duration,
    pub fair_wait: Duration,
}

impl Settings {
    /// Draws the settings of all clients.
    fn draw(dice: &mut Numbers, theme: Theme) -> Self {
        let timeout = ms(60 + dice.below(140));
        let watchdog = timeout * 3 + ms(dice.below(1500));
        let fair_wait = ms(600 + dice.below(900));
        let latency_max = match theme.sharing {
            // The latency is high, because races need commands in flight.
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
        let local_handoff_limit = if dice.once_in(2) { 0 } else { 16 };
        let poll_cap = ms(60 + dice.below(200));
        Self { link, local_handoff_limit, poll_cap, timeout, watchdog, fair_wait }
    }

    fn party(&self, server: &SimServer) -> Party {
        Party::new(server, self.link, |options| {
            options.watchdog = self.watchdog;
            options.command_timeout = self.timeout;
            options.subscribe_timeout = self.timeout;
            options.subscription_linger = ms(20);
            options.poll_cap = self.poll_cap;
            options.fair_wait = self.fair_wait;
            options.local_handoff_limit = self.local_handoff_limit;
            options.retry_delay = (ms(5), ms(20));
        })
    }

    fn parties(&self, servers: &[SimServer], clients: usize) -> Vec<Vec<Party>> {
        (0..clients).map(|_| servers.iter().map(|server| self.party(server)).collect()).collect()
    }
}

fn draw_names(dice: &mut Numbers, kind: Kind) -> Vec<&'static str> {
    match kind {
        Kind::Pair => vec!["x", "{x}"],
        Kind::Multi => vec!["x", "y"],
        Kind::Red | Kind::RedPlain => vec!["x"],
        _ if dice.once_in(4) => vec!["x", "y"],
        _ => vec!["x"],
    }
}

fn draw_owners(dice: &mut Numbers, theme: Theme, parties: &[Vec<Party>]) -> Vec<Given> {
    let clients = parties.len();
    let few = if theme.sharing == Sharing::Becoming { 1 } else { 2 };
    (0..few + dice.below(2) as usize)
        .map(|n| {
            let home = n % clients;
            let sharing = match theme.sharing {
                Sharing::Any => {
                    [Sharing::Alone, Sharing::Text, Sharing::Becoming, Sharing::Object][dice.below(4) as usize]
                }
                // One owner belongs to one client, as a rival of the shared owners.
                _ if n == 1 => Sharing::Alone,
                sharing => sharing,
            };
            Given::new(parties[home][0].client.owner(), home, clients, sharing, true)
        })
        .collect()
}

impl Scene {
    pub fn new(seed: u64, kind: Kind, theme: Theme, traced: bool) -> Arc<Self> {
        let mut dice = Numbers::lane(seed, 3);
        let servers = if kind.is_red() { 0..3 } else { 0..1 };
        let servers: Vec<_> = servers.map(|n: u64| SimServer::new(seed ^ (n << 32))).collect();
        let options = Settings::draw(&mut dice, theme);
        let clients = if kind.is_red() || !dice.once_in(4) { 2 } else { 3 };
        let parties = options.parties(&servers, clients);
        let names = draw_names(&mut dice, kind);
        let given = draw_owners(&mut dice, theme, &parties);
        let strict = theme.faults == Faults::Late && dice.once_in(2);
        let state = Mutex::new(State { given, ..State::default() });
        if theme.forged {
            servers.iter().for_each(|server| drop(server.overhear()));
        }
        let (start, timeout, parties) = (Instant::now(), options.timeout, Mutex::new(parties));
        Arc::new(Self { kind, theme, servers, clients, parties, options, names, start, timeout, state, strict, traced })
    }

    /// A client's links, one for each server.
    pub fn party(&self, n: usize) -> Vec<Party> {
        self.parties.lock()[n].clone()
    }

    /// Replaces the clients whose runtime has ended. Their guards stay.
    pub fn renew(&self) {
        let parties = self.options.parties(&self.servers, self.clients);
        let before = std::mem::replace(&mut *self.parties.lock(), parties);
        for link in before.iter().flatten().map(|party| &party.link) {
            // The connections ended with the runtime.
            link.partition(true);
            link.hang_up();
        }
        // The task that would have resumed the server ended with the runtime.
        self.servers.iter().for_each(|server| server.freeze(false));
        drop(before);
        self.state.lock().given.iter_mut().for_each(Given::move_in);
    }

    /// The longest latency, one way.
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

    pub fn locks(&self) -> usize {
        self.names.len() + usize::from(self.kind == Kind::Multi)
    }

    pub fn lock(&self, spot: Spot) -> Arc<dyn DistLock> {
        let client = |party: usize| self.parties.lock()[party % self.clients][0].client.clone();
        let name = |lock: usize| self.names[lock];
        match self.kind {
            Kind::Red | Kind::RedPlain => {
                let clients = self.party(spot.party).into_iter().map(|party| party.client);
                Arc::new(RedLock::over(clients, self.flavour(false), name(0)).node_timeout(self.timeout))
            }
            Kind::Multi if spot.lock == self.names.len() => {
                // The members belong to one client, which acquires both with one command, or to two clients, which send
                // one command each.
                let party = |n: usize| spot.party + n * (spot.party % 2);
                let member = |n: usize| -> Arc<dyn DistLock> { Arc::new(client(party(n)).reentrant(name(n))) };
                Arc::new(MultiLock::of(vec![member(0), member(1)]))
            }
            _ => rig::lock(&client(spot.party), self.flavour(spot.reads), name(spot.lock)).into(),
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
            Kind::Plain | Kind::RedPlain => Flavour::Plain,
        }
    }

    /// The numbers of the names that a lock consists of.
    pub fn keys(&self, spot: Spot) -> std::ops::Range<usize> {
        if spot.lock == self.names.len() { 0..self.names.len() } else { spot.lock..spot.lock + 1 }
    }

    pub fn meets(&self, a: Spot, b: Spot) -> bool {
        let (a, b) = (self.keys(a), self.keys(b));
        a.start < b.end && b.start < a.end
    }
}
