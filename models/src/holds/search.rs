//! The breadth-first search through all states.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use super::rules::Play;
use super::world::World;

/// A violation, and the events that led to it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) wrong: String,
    pub(super) path: Vec<String>,
}

/// Returns the number of reachable states, or a shortest path to a violation.
pub(super) fn search(play: &Play) -> Result<usize, Found> {
    // Each state, the index of its predecessor, and the event between them.
    let mut states: Vec<(World, usize, String)> = vec![(World::new(), 0, String::new())];
    let mut seen: HashSet<World, BuildHasherDefault<DefaultHasher>> = HashSet::default();
    seen.insert(World::new());
    let mut at = 0;
    while at < states.len() {
        for (text, outcome) in states[at].0.next(play) {
            match outcome {
                Ok(world) if seen.contains(&world) => {}
                Ok(world) => {
                    seen.insert(world.clone());
                    states.push((world, at, text));
                }
                Err(wrong) => {
                    let mut path = vec![text];
                    let mut from = at;
                    while from != 0 {
                        path.push(states[from].2.clone());
                        from = states[from].1;
                    }
                    path.reverse();
                    return Err(Found { wrong, path });
                }
            }
        }
        at += 1;
    }
    Ok(states.len())
}
