//! The locks under test, single locks and group locks, and their clients.

use crate::fleet::{Fleet, span};
use crate::prelude::*;

pub const NAME: &str = "orders:42";

/// Watchdog of these clients. Their other times are in proportion to it.
pub const WATCHDOG: Duration = ms(600);
pub const TIMEOUT: Duration = ms(200);
pub const ROUND_TRIP: Duration = ms(10);
pub const LINGER: Duration = ms(20);
pub const POLL_CAP: Duration = ms(150);
/// Lifetime of a waiter's place in a fair queue without refreshes.
pub const FAIR_WAIT: Duration = ms(500);
/// Longest time for which waiting writers hold back a reader.
pub const HOLD_BACK: Duration = ms(80);

pub fn party(server: &SimServer, prefer: Prefer) -> Party {
    let options = LinkOptions { timeout: TIMEOUT, reconnect: ms(20), ..LinkOptions::default() };
    Party::new(server, options, |options| {
        options.watchdog = WATCHDOG;
        options.command_timeout = TIMEOUT;
        options.subscribe_timeout = TIMEOUT;
        options.subscription_linger = LINGER;
        options.poll_cap = POLL_CAP;
        options.fair_wait = FAIR_WAIT;
        options.retry_delay = (ms(20), ms(40));
        options.prefer = prefer;
        options.max_reader_delay = HOLD_BACK;
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    One(Flavour),
    /// A RedLock over five servers.
    Red(Flavour),
    /// Three reentrant locks on one server, acquired by one script.
    Batch,
    /// Five locks of several flavours on two servers.
    Mixed,
}

type Part = (usize, Flavour, &'static str);

impl Made {
    pub const fn servers(self) -> usize {
        match self {
            Self::Red(_) => 5,
            Self::Mixed => 2,
            Self::One(_) | Self::Batch => 1,
        }
    }

    /// Server, flavour and name of each member. A RedLock's member is on every server.
    fn parts(self) -> Vec<Part> {
        match self {
            Self::One(flavour) | Self::Red(flavour) => vec![(0, flavour, NAME)],
            Self::Batch => ["c", "a", "b"].map(|name| (0, Flavour::Reentrant, name)).into(),
            Self::Mixed => vec![
                (1, Flavour::Reentrant, "e"),
                (0, Flavour::Fair, "c"),
                (0, Flavour::Reentrant, "a"),
                (1, Flavour::Fenced, "d"),
                (0, Flavour::Reentrant, "b"),
            ],
        }
    }

    pub fn lock(self, fleet: &Fleet, client: usize) -> Box<dyn DistLock> {
        let one = |(server, flavour, name): Part| lock(&fleet.clients[client][server].client, flavour, name);
        match self {
            Self::Red(flavour) => Box::new(fleet.red(client, flavour, NAME, TIMEOUT)),
            Self::One(flavour) => one((0, flavour, NAME)),
            _ => Box::new(MultiLock::of(self.parts().into_iter().map(|part| one(part).into()).collect())),
        }
    }

    /// The lock that another client holds in the scene `Obstacle`: the whole lock, or one member.
    pub fn obstacle(self, fleet: &Fleet, client: usize) -> Box<dyn DistLock> {
        match self {
            Self::Batch => lock(&fleet.clients[client][0].client, Flavour::Reentrant, "b"),
            Self::Mixed => lock(&fleet.clients[client][1].client, Flavour::Fenced, "d"),
            _ => self.lock(fleet, client),
        }
    }

    /// M2: the servers keep the hold for at least as long as the guard counts as held.
    pub fn has(self, fleet: &Fleet, guard: &Guard) -> Result<(), String> {
        let (left, owner) = (guard.remaining(), text(guard.owner()));
        let pttl = if let Self::Red(flavour) = self {
            fleet.spans(flavour, NAME, &owner)[2]
        } else {
            let parts = self.parts().into_iter();
            parts.map(|(n, flavour, name)| span(&fleet.servers[n], flavour, name, &owner)).min().unwrap()
        };
        if guard.is_held() && Duration::from_millis(u64::try_from(pttl + 1).unwrap_or(0)) < left {
            return Err(format!("M2: {owner} counts on it for {left:?}, which the servers have for {pttl} ms"));
        }
        Ok(())
    }

    pub const fn has_queues(self) -> bool {
        matches!(self, Self::One(Flavour::Fair) | Self::Red(Flavour::Fair) | Self::Mixed)
    }

    /// The flavour of a single lock. Unused for other locks.
    pub const fn flavour(self) -> Flavour {
        match self {
            Self::One(flavour) => flavour,
            _ => Flavour::Reentrant,
        }
    }
}
