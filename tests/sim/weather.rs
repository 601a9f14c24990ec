//! Faults of a random run, chosen by the seed.

use crate::prelude::*;
use crate::stage::Stage;
use crate::trial::Break;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Calm,
    Messages,
    /// Commands and replies are lost, duplicated or delayed.
    Commands,
    /// Connections break, the server restarts with its data or freezes for a while.
    Breaks,
    /// All processes are suspended together while clocks advance.
    Jumps,
    /// Everything, and locks are forced open.
    Storm,
    /// Calm, but the server loses its data. The checker must notice (negative control).
    DataLoss,
}

#[derive(Clone, Debug)]
pub struct Weather {
    /// `Write` stands for both halves of a read-write lock.
    pub flavour: Flavour,
    pub kind: Kind,
    pub clients: usize,
    pub tasks: usize,
    pub rounds: u32,
    pub names: usize,
    pub watchdog: Duration,
    pub timeout: Duration,
    pub poll_cap: Duration,
    pub linger: Duration,
    pub passes: u32,
    /// Lifetime of a waiter's place in a fair queue without refreshes.
    pub fair_wait: Duration,
    /// For read-write locks: the preference of each client. `max_reader_delay`: how long readers yield to preferred
    /// writers.
    prefer: Vec<Prefer>,
    pub max_reader_delay: Duration,
    link: LinkOptions,
    chaos: Chaos,
    /// The name that is forced open at random times.
    pub forced: Option<usize>,
    /// True if all holds are watched and all owners fresh. Then a message announces every end of a hold.
    pub plain: bool,
}

impl Weather {
    pub fn new(flavour: Flavour, kind: Kind, dice: &mut Numbers) -> Self {
        let timeout = ms(100 + dice.below(200));
        let rate = |dice: &mut Numbers, on: bool| if on { dice.below(12) as f64 / 100.0 } else { 0.0 };
        let (messages, commands) = match kind {
            Kind::Storm => (true, true),
            _ => (kind == Kind::Messages, kind == Kind::Commands),
        };
        let chaos = Chaos {
            lose_request: rate(dice, commands),
            lose_reply: rate(dice, commands),
            duplicate: 0.0,
            delay_max: if commands { ms(dice.below(60)) } else { Duration::ZERO },
            lose_message: rate(dice, messages) * 4.0,
            duplicate_message: rate(dice, messages),
            reorder_message: rate(dice, messages),
            ..Chaos::default()
        };
        let link = LinkOptions {
            latency_min: ms(1),
            latency_max: ms(1 + dice.below(5)),
            timeout,
            reconnect: ms(5 + dice.below(60)),
            ordered: dice.once_in(2),
        };
        let names = 1 + dice.below(3) as usize;
        let mut weather = Self {
            flavour,
            kind,
            clients: 2 + dice.below(4) as usize,
            tasks: 1 + dice.below(4) as usize,
            rounds: 6,
            names,
            watchdog: timeout * 3 + ms(dice.below(600)),
            timeout,
            poll_cap: ms(60 + dice.below(300)),
            linger: ms(1 + dice.below(80)),
            passes: [0, 1, 16][dice.below(3) as usize],
            fair_wait: ms(5000),
            prefer: Vec::new(),
            max_reader_delay: Duration::ZERO,
            link,
            chaos,
            forced: (kind == Kind::Storm && names > 1).then_some(0),
            plain: kind == Kind::Calm && dice.once_in(2),
        };
        // Drawn last, so that the seeds of other flavours keep their meaning.
        if flavour == Flavour::Fair {
            weather.fair_wait = timeout * 2 + ms(dice.below(1000));
        }
        if weather.is_rw() {
            // None, some, or all clients.
            let share = dice.below(3);
            let prefer = |_| if dice.below(2) < share { Prefer::Writers } else { Prefer::Readers };
            weather.prefer = (0..weather.clients).map(prefer).collect();
            if weather.prefer.contains(&Prefer::Writers) {
                weather.max_reader_delay = ms(dice.below(400));
            }
        }
        weather
    }

    pub fn is_calm(&self) -> bool {
        self.kind == Kind::Calm
    }

    pub fn is_rw(&self) -> bool {
        self.flavour == Flavour::Write
    }

    /// The longest latency, one way.
    pub fn latency(&self) -> Duration {
        self.link.latency_max
    }

    pub fn party(&self, server: &SimServer, n: usize) -> Party {
        let party = Party::new(server, self.link, |options| {
            options.watchdog = self.watchdog;
            options.command_timeout = self.timeout;
            options.subscribe_timeout = self.timeout;
            options.subscription_linger = self.linger;
            options.poll_cap = self.poll_cap;
            options.fair_wait = self.fair_wait;
            options.local_handoff_limit = self.passes;
            options.retry_delay = (ms(10), ms(40));
            options.prefer = self.prefer.get(n).copied().unwrap_or_default();
            options.max_reader_delay = self.max_reader_delay;
        });
        party.link.chaos(self.chaos);
        party
    }

    /// L3: the shortest remaining time of a lock that the watchdog renews.
    pub fn shortest(&self) -> Duration {
        let kept = self.watchdog / 3;
        match self.flavour {
            // A waiter accepts a passed-on lock if two beats of the lease are left. The watchdog renews from the next
            // beat on.
            Flavour::Fair => {
                let beat = (self.fair_wait / 5).min(self.watchdog / 6).min(ms(1_000));
                kept.min(beat.saturating_sub(self.link.latency_max * 2 + ms(5)))
            }
            _ => kept,
        }
    }

    /// W1: how long a free lock may wait for a waiter.
    pub fn wake_bound(&self) -> Duration {
        let mut trips = self.link.latency_max * 8 + ms(30);
        if self.flavour == Flavour::Spin {
            // No message: the longest pause between two polls.
            trips += ms(128);
        }
        if self.flavour == Flavour::Fair {
            // The waiter with the grant, the head and other waiters ahead may be dead. Their places expire one after
            // the other, or together if no client refreshes them.
            trips += self.fair_wait * if self.is_calm() { 1 } else { 2 };
        }
        match self.kind {
            Kind::Calm if self.plain => trips,
            // A shortened lease ends without a message. If messages are lost, the waiter may miss another holder's
            // acquire and release.
            Kind::Calm | Kind::DataLoss => trips + self.poll_cap,
            Kind::Messages => 2 * (trips + self.poll_cap),
            // Several attempts may fail.
            _ => trips + self.poll_cap + 6 * (self.timeout + ms(40)) + ms(500),
        }
    }

    /// Time until nothing is left after the end of all activity.
    pub fn clean_bound(&self) -> Duration {
        // Holds without guards, and holds whose release was lost, end with their leases.
        let place = if self.flavour == Flavour::Fair { 2 * self.fair_wait } else { Duration::ZERO };
        // The last acquired hold may last this long.
        place + self.max_reader_delay + ms(700).max(self.watchdog) + 6 * self.timeout + self.linger + self.poll_cap
    }

    pub async fn happen(&self, stage: &Stage, dice: &mut Numbers) {
        while stage.rough.load(Ordering::Relaxed) {
            sleep(dice.between(10, 250)).await;
            let link = &stage.parties[dice.below(stage.parties.len() as u64) as usize].link;
            let longest = if dice.once_in(3) { 1000 } else { 200 };
            let span = dice.between(5, longest);
            let choice = match self.kind {
                Kind::Calm | Kind::Messages | Kind::Commands => continue,
                Kind::Breaks => dice.below(5),
                Kind::Jumps => 5,
                Kind::Storm => dice.below(7),
                Kind::DataLoss => 7,
            };
            crate::trace::say(|| format!("{:>12?} weather {choice} for {span:?} {link:?}", stage.start.elapsed()));
            match choice {
                0..5 => Break::of(choice, span).happen(&stage.server, link).await,
                5 => advance(span).await,
                6 => {
                    if let Some(name) = self.forced {
                        let party = dice.below(stage.parties.len() as u64) as usize;
                        let half = if self.is_rw() && dice.once_in(2) { Flavour::Read } else { self.flavour };
                        let lock = stage.lock(party, half, name);
                        let _ = lock.force_unlock().await;
                    }
                }
                _ => stage.server.restart(false),
            }
        }
        for party in &stage.parties {
            party.link.chaos(Chaos::default());
        }
    }
}
