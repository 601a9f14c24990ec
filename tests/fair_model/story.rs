//! One sequence of acts: its state, and its comparison with the model.

mod acts;
mod endings;
mod rules;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use distlock_support::Numbers;

use crate::model::{JAVA_LEASE, LONG, Model, Own, Reply, ours};
use crate::rig::{Rig, Script, Scripts};

/// The keys of the lock, and the twin's own keys.
const KEYS: [&str; 6] = ["lock", "queue", "deadlines", "waiters", "{lock}", "{waiters}"];
/// The keys of the twin, and the lock's own keys.
const TWIN_KEYS: [&str; 6] = ["{lock}", "queue", "deadlines", "{waiters}", "lock", "waiters"];
/// Prefix of the waiters' channels of both.
const CHANNELS: &str = "channel:{lock}";

/// Two clients of ours with three waiters each, and one client of Java with four.
const OURS: [[&str; 3]; 2] = [
    [
        "11111111-1111-8111-8111-111111111111:1",
        "11111111-1111-8111-8111-111111111111:2",
        "11111111-1111-8111-8111-111111111111:3",
    ],
    [
        "22222222-2222-8222-8222-222222222222:1",
        "22222222-2222-8222-8222-222222222222:2",
        "22222222-2222-8222-8222-222222222222:3",
    ],
];
const JAVA: [&str; 4] = [
    "33333333-3333-4333-8333-333333333333:1",
    "33333333-3333-4333-8333-333333333333:2",
    "33333333-3333-4333-8333-333333333333:3",
    "33333333-3333-4333-8333-333333333333:4",
];
/// An owner of Java as which a client of ours acts. Java only re-enters as this owner, and unlocks.
const GIVEN: &str = "44444444-4444-4444-8444-444444444444:1";
/// Our owners that wait for the twin.
const STRANGERS: [[&str; 3]; 1] = [[
    "55555555-5555-8555-8555-555555555555:1",
    "55555555-5555-8555-8555-555555555555:2",
    "55555555-5555-8555-8555-555555555555:3",
]];

/// The longest lease in these tests, in ms.
const LEASE: i64 = 40_000;

/// A live waiter of ours.
#[derive(Clone, Debug)]
struct Waiter {
    last: i64,
    /// The hold that the waiter wants.
    hold: String,
    nonce: String,
    /// True if the scripts could only guess the wait of a Java waiter ahead.
    guessed: bool,
}

/// The kinds of waits that Java's waiters have.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Java {
    None,
    Default,
    Mixed,
}

pub struct Story<'a> {
    seed: u64,
    dice: Numbers,
    scripts: &'a Scripts,
    rig: &'a mut Rig,
    model: Model,
    java: Java,
    /// True if keys may be changed by foreign commands. Then only recovery is checked.
    spoils: bool,
    spoilt: bool,
    /// True if a client of ours acts as an owner of Java (`given`), or others wait for the twin (`twins`).
    given: bool,
    twins: bool,
    waiting: BTreeMap<&'static str, Waiter>,
    /// When each deadline of ours was set.
    set: BTreeMap<&'static str, i64>,
    /// Waiters of Java that have queued and not visibly left. Values: the wait with which they queued, and the wait by
    /// which they will reduce later deadlines.
    java_waiting: BTreeMap<&'static str, (i64, i64)>,
    /// Waiters of Java whose deadlines are too short to show their waits. Either a waiter ahead reduced the deadlines
    /// by more than its own wait, or they queued behind a waiter with such a deadline.
    cut: BTreeSet<&'static str>,
    refreshed: i64,
    /// The ids issued to every owner, listed or gone.
    issued: BTreeMap<String, Vec<String>>,
    /// Number of names made so far.
    names: u64,
    /// Upper bound in ms of the room left by departed Java waiters, since the queue last had no Java waiter.
    stale: i64,
    log: Vec<String>,
}

impl<'a> Story<'a> {
    pub fn new(seed: u64, scripts: &'a Scripts, rig: &'a mut Rig) -> Self {
        let mut dice = Numbers::new(seed);
        let now = 1_795_000_000_000;
        let model = Model::new(
            now,
            dice.of(&[2_000, 5_000, 5_000, 10_000]),
            dice.of(&[4_000, 15_000]),
            dice.of(&[500, 500, 5_000]),
        );
        let java = dice.of(&[Java::None, Java::Default, Java::Mixed, Java::Mixed]);
        let spoils = dice.below(4) == 0;
        let (given, twins) = [(false, false), (true, false), (false, true)][usize::try_from(dice.below(3)).unwrap()];
        rig.command(&["flushall"]);
        Self {
            seed,
            dice,
            scripts,
            rig,
            model,
            java,
            spoils,
            spoilt: false,
            given,
            twins,
            waiting: BTreeMap::new(),
            set: BTreeMap::new(),
            java_waiting: BTreeMap::new(),
            cut: BTreeSet::new(),
            refreshed: now,
            issued: BTreeMap::new(),
            names: 0,
            stale: 0,
            log: Vec::new(),
        }
    }

    fn fail(&self, what: &str) -> ! {
        let from = self.log.len().saturating_sub(40);
        let Model { wait, first_lease, grace, .. } = self.model;
        panic!(
            "SEED={}, step {}: {what}\nwait {wait}, first lease {first_lease}, grace {grace}, Java {:?}, spoilt {}, waiting {:#?}\n{}",
            self.seed,
            self.log.len(),
            self.java,
            self.spoilt,
            self.waiting,
            self.log[from..].join("\n")
        );
    }

    /// Runs a script on both servers, and compares reply and state with the model. `twin`: at the twin.
    fn run(
        &mut self,
        (name, twin): (&str, bool),
        script: &Script,
        args: Vec<String>,
        act: impl FnOnce(&mut Model) -> Reply,
    ) -> Reply {
        let before = self.model.clone();
        let mut args = args;
        self.log.push(format!("+{} {name} {}", before.now - 1_795_000_000_000, args.join(" ")));
        args.extend([listed(&before.absent), before.now.to_string()]);
        let replies = self.rig.run(script, if twin { &TWIN_KEYS } else { &KEYS }, &args);
        let expected = self.model.act(twin, act);
        self.log.push(format!("    -> {expected:?}\n    {}", short(&self.model)));
        self.model.swap(twin);
        self.compare(replies, &expected);
        self.model.swap(twin);
        self.check(&before, name);
        expected
    }

    fn compare(&self, servers: [(Reply, Reply); 2], answer: &Reply) {
        let expected = sorted(self.model.state());
        for (server, (state, reply)) in ["simulator", "real server"].iter().zip(servers) {
            let state = sorted(state);
            if reply != *answer {
                self.fail(&format!("the {server} answers\n{reply:?}, the model\n{answer:?}"));
            }
            if state != expected {
                self.fail(&format!("the {server} has\n{state:?}, the model\n{expected:?}"));
            }
        }
    }

    /// Returns true if the scripts can only guess the wait of a Java waiter ahead. Also true if the waiters ahead may
    /// reduce deadlines beyond their waits by more than the reserve.
    fn guessed(&self, owner: &str) -> bool {
        let places = self.model.queue.iter().take_while(|other| *other != owner);
        let beyond = |other: &String| self.java_waiting.get(other.as_str()).map_or(0, |(wait, most)| most - wait);
        if places.clone().map(beyond).sum::<i64>() > JAVA_LEASE - self.model.wait
            || places.clone().any(|other| self.cut.contains(other.as_str()))
        {
            return true;
        }
        places.enumerate().any(|(place, other)| {
            let known = place > 0
                && !self.model.is_told(place - 1)
                && self.model.due.contains_key(&self.model.queue[place - 1])
                && self.model.due.contains_key(other);
            !ours(other) && !known && self.java_waiting.get(other.as_str()).is_none_or(|(_, wait)| *wait != LONG)
        })
    }
}

/// The waiters without a subscription, as the rig takes them.
fn listed(absent: &BTreeSet<String>) -> String {
    absent.iter().map(|owner| format!(",{owner}")).collect::<String>() + ","
}

fn stranger(owner: &str) -> bool {
    STRANGERS.as_flattened().contains(&owner)
}

fn short(model: &Model) -> String {
    let name =
        |owner: &str| format!("{}{}", owner.get(..1).unwrap_or(""), owner.rsplit_once(':').map_or("", |(_, n)| n));
    let queue: Vec<_> =
        model.queue.iter().map(|owner| format!("{} {:?}", name(owner), model.ms_until(owner))).collect();
    let hold = |own: &Own| {
        let hold = own.hold.as_ref()?;
        Some(format!(
            "{} x{}{} {}",
            name(&hold.owner),
            hold.count,
            hold.list().unwrap_or_default(),
            hold.end - model.now
        ))
    };
    let (own, twin) = (hold(&model.own), hold(&model.twin));
    format!("held by {own:?}, twin by {twin:?}, waiting {}, {:?}", queue.join(", "), model.own.registered.values())
}

/// Sorts hashes and sorted sets by member.
fn sorted(state: Reply) -> Reply {
    let Reply::List(mut parts) = state else { return state };
    for part in [1, 3, 5, 7, 9] {
        if let Some(Reply::List(flat)) = parts.get_mut(part) {
            let mut pairs: Vec<Vec<Reply>> = flat.chunks(2).map(<[Reply]>::to_vec).collect();
            pairs.sort_by_key(|pair| format!("{:?}", pair[0]));
            *flat = pairs.concat();
        }
    }
    Reply::List(parts)
}
