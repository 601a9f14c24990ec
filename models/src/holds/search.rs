//! The search through all states, breadth first.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use super::rules::Play;
use super::world::World;

/// What went wrong, and how it came to that.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) wrong: String,
    pub(super) path: Vec<String>,
}

/// How many states there are; or the shortest way to one that must not be.
pub(super) fn search(play: &Play) -> Result<usize, Found> {
    // By the number of the state before, and what happened in it.
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
