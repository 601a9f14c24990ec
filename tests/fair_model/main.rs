//! Random sequences on a fair lock with our clients and Java clients. Each step runs the scripts on the simulator and
//! on a real server, and compares both with a model of the queue in plain Rust. Time is a parameter, so nothing sleeps.
//!
//! A failure prints its seed. `SEED=n` replays that seed alone; `SEQUENCES=n` and `STEPS=n` set the length.

mod model;
mod rig;
mod story;

use rig::{Rig, Scripts};
use story::Story;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn scripts_on_server_and_simulator_match_model() {
    let steps = from_env("STEPS").unwrap_or(150);
    let (first, last) = from_env("SEED").map_or((1, from_env("SEQUENCES").unwrap_or(150)), |seed| (seed, seed));
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                let (scripts, mut rig) = (Scripts::new(), Rig::new());
                for seed in (first..=last).filter(|seed| seed % 2 == half) {
                    Story::new(seed, &scripts, &mut rig).play(steps);
                }
            });
        }
    });
}
