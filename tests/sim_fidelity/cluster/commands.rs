//! Commands and scripts at each node, with and without declared keys, after `ASKING` or not, while slots are moved key
//! by key.

use std::collections::BTreeSet;

use distlock_sim::{SimCluster, SimReply};
use distlock_support::{Cluster, ClusterOptions, Numbers, slot_of};

use crate::{converted, from_env};

const TAGS: [&str; 3] = ["a", "b", "c"];

const DECLARED: &str = "local sum = 0 for _, key in ipairs(KEYS) do sum = sum + redis.call('incr', key) end return sum";

/// Increments undeclared keys. The first key of another node ends the script.
const UNDECLARED: &str =
    "local sum = 0 for _, key in ipairs(ARGV) do sum = sum + redis.call('incr', key) end return sum";

/// Checks undeclared keys, and returns the reply or error of each.
const CAUGHT: &str = "
local told = {}
for n, key in ipairs(ARGV) do
  local there = redis.pcall('exists', key)
  told[n] = type(there) == 'table' and there.err or there
end
return told";

const PUBLISHED: &str = "return redis.pcall('spublish', ARGV[1], 'x')";

struct Both {
    sim: SimCluster,
    real: Cluster,
    /// The real nodes, in the order of the simulated ones.
    nodes: Vec<usize>,
}

impl Both {
    async fn start() -> Self {
        let real = Cluster::start(ClusterOptions::default().primaries(3).replicas(0).node_timeout(60_000)).await;
        let mut nodes = Vec::new();
        for slot in [0, 8_000, 16_383] {
            let id = real.owner(slot).await.id();
            nodes.push(real.nodes().iter().position(|node| node.id() == id).unwrap());
        }
        Self { sim: SimCluster::new(1, 3, false), real, nodes }
    }

    fn node(&self, node: usize) -> &distlock_support::Node {
        &self.real.nodes()[self.nodes[node]]
    }

    /// Makes replies comparable: nodes by number, errors without their position in the script.
    fn plain(&self, reply: SimReply) -> SimReply {
        match reply {
            SimReply::Error(text) => {
                let mut text = text.split(" script: ").next().unwrap_or_default().to_owned();
                for n in 0..self.nodes.len() {
                    text = text.replace(&self.node(n).addr().to_string(), &format!("node {n}"));
                    text = text.replace(self.sim_address(n).as_str(), &format!("node {n}"));
                }
                SimReply::Error(text)
            }
            SimReply::Text(text) => SimReply::Text(
                String::from_utf8_lossy(&text).split(" script: ").next().unwrap_or_default().to_owned().into(),
            ),
            SimReply::List(items) => SimReply::List(items.into_iter().map(|item| self.plain(item)).collect()),
            other => other,
        }
    }

    fn sim_address(&self, node: usize) -> String {
        format!("node-{node}.sim:{}", 7000 + node)
    }

    async fn run(&self, node: usize, asking: bool, words: &[String]) -> (SimReply, SimReply) {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let sim = self.sim.command(node, asking, &bytes);
        let admin = self.node(node).admin();
        if asking {
            admin.cmd::<()>(&["ASKING"]).await;
        }
        let real = match admin.raw(words).await {
            Ok(value) => converted(value),
            Err(error) => {
                let text = [error.code().unwrap_or("?"), error.detail().unwrap_or("")].join(" ");
                SimReply::Error(text)
            }
        };
        (self.plain(sim), self.plain(real))
    }

    /// Deletes keys that were written at the target after `ASKING`. Otherwise no server accepts a moved key of that
    /// name.
    async fn make_room(&self, to: usize, keys: &[Vec<u8>]) {
        for key in keys {
            let words = ["del".to_owned(), String::from_utf8(key.clone()).unwrap()];
            let (sim, real) = self.run(to, true, &words).await;
            assert_eq!(sim, real, "{words:?}");
        }
    }

    async fn close(&self, slot: u16, to: usize) {
        let keys = self.real.keys_in_slot(slot).await;
        self.make_room(to, &keys).await;
        self.real.move_keys(slot, &keys).await;
        self.sim.close_slot(slot);
        self.real.close_slot(slot).await;
        // All nodes have learned of it.
        self.sim.settle();
    }

    async fn keys(&self) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
        let (mut sim, mut real) = (Vec::new(), Vec::new());
        for node in 0..self.nodes.len() {
            let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
            sim.push(self.sim.node(node).keys().into_iter().map(text).collect());
            let mut keys = self.node(node).admin().keys().await;
            keys.sort();
            real.push(keys);
        }
        (sim, real)
    }
}

fn key(dice: &mut Numbers, tag: &str) -> String {
    format!("{{{tag}}}:{}", dice.below(3))
}

fn draw(dice: &mut Numbers) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let tag = dice.of(&TAGS);
    let other = if dice.once_in(4) { dice.of(&TAGS) } else { tag };
    let (one, two) = (key(dice, tag), key(dice, other));
    match dice.below(8) {
        0 => words(&["incr", &one]),
        1 => words(&["del", &one, &two]),
        2 => words(&["exists", &one, &two]),
        3 => words(&["EVAL", DECLARED, "2", &one, &two]),
        4 => words(&["EVAL", DECLARED, "1", &one]),
        5 => words(&["EVAL", UNDECLARED, "0", &one, &two]),
        6 => words(&["EVAL", CAUGHT, "0", &one, &two]),
        _ => words(&["EVAL", PUBLISHED, "0", tag]),
    }
}

async fn play(both: &Both, seed: u64, ops: u64, codes: &mut BTreeSet<String>) {
    let mut dice = Numbers::lane(seed, 1);
    let mut open: Option<(u16, usize)> = None;
    for op in 0..ops {
        let at = format!("SEED={seed}, op {op}");
        match (dice.below(24), open) {
            (0 | 1, None) => {
                let slot = slot_of(dice.of(&TAGS));
                let from = both.sim.owner(slot);
                let to = (from + 1 + dice.below(2) as usize) % 3;
                both.sim.open_slot(slot, to);
                both.real.open_slot(slot, both.node(to)).await;
                open = Some((slot, to));
            }
            (0..6, Some((slot, to))) => {
                let mut keys = both.real.keys_in_slot(slot).await;
                keys.sort();
                keys.truncate(1);
                both.make_room(to, &keys).await;
                assert_eq!(both.sim.move_keys(slot, 1), keys.len(), "{at}");
                both.real.move_keys(slot, &keys).await;
            }
            (6, Some((slot, to))) => {
                both.close(slot, to).await;
                open = None;
            }
            _ => {
                let words = draw(&mut dice);
                let (node, asking) = (dice.below(3) as usize, dice.once_in(3));
                let (sim, real) = both.run(node, asking, &words).await;
                codes.extend(real.error().and_then(|text| text.split(' ').next()).map(str::to_owned));
                assert_eq!(sim, real, "{at}: {words:?} at node {node}, asking: {asking}, open: {open:?}");
            }
        }
        if op % 8 == 0 {
            let (sim, real) = both.keys().await;
            assert_eq!(sim, real, "{at}");
        }
    }
    if let Some((slot, to)) = open {
        both.close(slot, to).await;
    }
}

#[tokio::test]
async fn commands_get_same_replies_while_slots_move() {
    let both = Both::start().await;
    for tag in TAGS {
        let owner = both.real.owner(slot_of(tag)).await.id();
        assert_eq!(both.node(both.sim.owner(slot_of(tag))).id(), owner, "slots are dealt out alike");
    }
    let one = from_env("SEED", u64::MAX);
    let seeds = if one == u64::MAX { 0..from_env("SEEDS", 4) } else { one..one + 1 };
    let mut codes = BTreeSet::new();
    for seed in seeds {
        play(&both, seed, from_env("OPS", 500), &mut codes).await;
    }
    println!("{codes:?}");
    for code in ["ASK", "CROSSSLOT", "ERR", "MOVED", "TRYAGAIN"] {
        assert!(one != u64::MAX || codes.contains(code), "no {code} was compared: {codes:?}");
    }
}
