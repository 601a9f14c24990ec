//! Tells which commands of a test run took the servers longest, from the file that they wrote (`distlock_support::slowest`), and
//! fails where a script of ours is too slow for that to be an accident.
//!
//! The times are those on the clock, of servers that shared the processors with a test run: once or twice a long one only says that
//! the machine was busy. How long scripts take, and what they do, is tested at their limits (`tests/client/scripts.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use bed::scripts;
use distlock_support::slowest::{Slow, read};

/// A script of ours is too slow that takes longer than so many µs
const BOUND: u64 = 250_000;
/// at so many servers, in as many different seconds.
const TIMES: usize = 3;
/// So many scripts are told.
const TOLD: usize = 5;

/// What we call a command: a script of ours by its name.
fn name(slow: &Slow) -> Option<&'static str> {
    (slow.command == "evalsha").then(|| scripts::name_of(&slow.about)).flatten()
}

/// One script's servers and seconds beyond the bound.
#[derive(Default)]
struct Over {
    servers: BTreeSet<u32>,
    seconds: BTreeSet<u64>,
}

/// The scripts that are too slow.
fn too_slow(all: &[Slow]) -> Vec<&'static str> {
    let mut over: BTreeMap<&str, Over> = BTreeMap::new();
    for slow in all.iter().filter(|slow| slow.micros > BOUND) {
        let Some(name) = name(slow) else { continue };
        let of = over.entry(name).or_default();
        of.servers.insert(slow.server);
        of.seconds.insert(slow.at);
    }
    over.retain(|_, of| of.servers.len().min(of.seconds.len()) >= TIMES);
    over.into_keys().collect()
}

fn ms(micros: u64) -> String {
    format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10)
}

fn main() -> ExitCode {
    let path = std::env::args().nth(1).unwrap_or_default();
    let all = match std::fs::read_to_string(&path) {
        Ok(text) => read(&text),
        Err(error) => {
            println!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    };
    if all.is_empty() {
        println!("{path}: no server has written what took it long");
        return ExitCode::FAILURE;
    }
    let (mut ours, mut other): (BTreeMap<&str, Vec<u64>>, Option<&Slow>) = (BTreeMap::new(), None);
    for slow in &all {
        match name(slow) {
            Some(name) => ours.entry(name).or_default().push(slow.micros),
            None if other.is_none_or(|other| other.micros < slow.micros) => other = Some(slow),
            None => {}
        }
    }
    let mut longest: Vec<(u64, usize, &str)> =
        ours.iter().map(|(name, all)| (all.iter().copied().max().unwrap_or(0), all.len(), *name)).collect();
    longest.sort_unstable_by_key(|(micros, ..)| std::cmp::Reverse(*micros));
    println!("the longest of our scripts, on the servers' clocks beside all else that ran:");
    if longest.is_empty() {
        println!("  none took 0.5 ms");
    }
    for (micros, times, name) in longest.into_iter().take(TOLD) {
        println!("  {name}: {} (of {times} that servers kept)", ms(micros));
    }
    if let Some(Slow { micros, command, about, .. }) = other {
        println!("  of all else: {command} {about}: {}", ms(*micros));
    }
    let too_slow = too_slow(&all);
    for name in &too_slow {
        println!("{name} took more than {} at {TIMES} servers or more, in as many seconds", ms(BOUND));
    }
    if too_slow.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_too_slow_where_it_was_so_at_three_servers_in_three_seconds() {
        let slow = |server: u32, at: u64, micros, name: &str| Slow {
            server,
            at,
            micros,
            command: "evalsha".into(),
            about: scripts::sha(name),
        };
        let of = |all: &[(u32, u64)]| {
            let all: Vec<Slow> = all.iter().map(|(server, at)| slow(*server, *at, BOUND + 1, "fair/refresh")).collect();
            too_slow(&all)
        };
        assert_eq!(of(&[(1, 1), (2, 2), (3, 3)]), ["fair/refresh"]);
        assert_eq!(of(&[(1, 1), (2, 1), (3, 1)]), [""; 0], "the machine stood still");
        assert_eq!(of(&[(1, 1), (1, 2), (1, 3)]), [""; 0], "one test's server");
        assert_eq!(too_slow(&[1, 2, 3].map(|n| slow(n, n.into(), BOUND, "fair/refresh"))), [""; 0]);
        let strange = Slow { about: "0".repeat(40), ..slow(1, 1, 2 * BOUND, "fair/refresh") };
        assert_eq!(too_slow(&[strange.clone(), strange.clone(), strange]), [""; 0]);
    }
}
