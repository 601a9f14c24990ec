//! The clients and the faults of a random run, chosen by the seed.

use crate::prelude::*;

/// The faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    None,
    /// Messages are lost, repeated or late.
    Messages,
    /// Commands and replies are lost, and copies of them arrive late.
    Commands,
    /// Connections break, the server restarts with its data or freezes for a while.
    Breaks,
    /// All processes are suspended together while clocks advance.
    Jumps,
    /// All faults above.
    Storm,
    /// All faults above, and clients die and are replaced.
    Kills,
    /// The server loses its data. The checker must notice (negative control).
    DataLoss,
}

/// No task asks for more permits than this.
pub const MOST: u32 = 3;

/// The longest explicit lease in ms. No watchdog of a plan has a shorter lease.
pub const LEASE: u64 = 300;

#[derive(Clone, Debug)]
pub struct Plan {
    pub harm: Harm,
    /// Permits are acquired in order of arrival.
    pub fair: bool,
    pub clients: usize,
    pub tasks: usize,
    pub rounds: u64,
    /// The number of permits.
    pub n: u32,
    pub watchdog: Duration,
    pub timeout: Duration,
    poll_cap: Duration,
    linger: Duration,
    passes: u32,
    attempts: u32,
    link: LinkOptions,
    chaos: Chaos,
}

impl Plan {
    /// `attempts`: the option `retry_attempts` of the clients.
    pub fn new(harm: Harm, attempts: u32, dice: &mut Numbers) -> Self {
        let all = matches!(harm, Harm::Storm | Harm::Kills);
        let (messages, commands) = (all || harm == Harm::Messages, all || harm == Harm::Commands);
        let rate = |dice: &mut Numbers, on: bool| if on { dice.below(12) as f64 / 100.0 } else { 0.0 };
        let timeout = ms(100 + dice.below(200));
        let chaos = Chaos {
            lose_request: rate(dice, commands),
            lose_reply: rate(dice, commands),
            late_copy: if commands { 0.5 } else { 0.0 },
            late_max: timeout,
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
        Self {
            harm,
            fair: false,
            clients: 2 + dice.below(3) as usize,
            tasks: 1 + dice.below(4) as usize,
            rounds: 6,
            n: MOST + dice.below(4) as u32,
            watchdog: timeout * 3 + ms(dice.below(600)),
            timeout,
            poll_cap: ms(60 + dice.below(300)),
            linger: ms(1 + dice.below(80)),
            passes: [0, 1, 16][dice.below(3) as usize],
            attempts,
            link,
            chaos,
        }
    }

    pub fn is_rough(&self) -> bool {
        self.harm != Harm::None
    }

    pub fn party(&self, server: &SimServer) -> Party {
        let party = Party::new(server, self.link, |options| {
            options.watchdog = self.watchdog;
            options.command_timeout = self.timeout;
            options.subscribe_timeout = self.timeout;
            options.subscription_linger = self.linger;
            options.poll_cap = self.poll_cap;
            options.local_handoff_limit = self.passes;
            options.retry_attempts = self.attempts;
            options.retry_delay = (ms(10), ms(40));
        });
        party.link.chaos(self.chaos);
        party
    }

    /// The longest way of a command, or of a copy, to the server.
    pub fn way(&self) -> Duration {
        self.link.latency_max + self.chaos.delay_max + self.chaos.late_max
    }

    /// W1: how long a waiter may wait for something that is there.
    pub fn wake_bound(&self) -> Duration {
        // No message announces the end of a lease that was made shorter. A lost message is made up for by a poll.
        let trips = self.link.latency_max * 8 + ms(230) + 2 * self.poll_cap;
        // Several attempts may fail, and several breaks may follow each other.
        let trips = if self.is_rough() { trips + 6 * (self.timeout + ms(40)) + ms(2_000) } else { trips };
        // The task in front may have died. Then the others wait for the end of its lease, or of its place in the queue.
        if self.fair { trips + 2 * self.watchdog + Options::default().fair_wait } else { trips }
    }

    /// W3: the longest time until a wait of this length ends without faults. Timers round up twice.
    pub fn longest_wait(&self, wait: Duration) -> Duration {
        wait + 2 * self.link.latency_max + ms(20)
    }
}
