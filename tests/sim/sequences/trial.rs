//! Runs one sequence of a seed, or many of them.

use super::plan::{Act, Faults, Kind, Step, Theme, steps};
use super::play::{self, Beside};
use super::scene::Scene;
use super::state::{Looks, Spot};
use crate::prelude::*;
use std::ops::Range;

#[derive(Default)]
pub struct Outcome {
    pub wrong: Vec<String>,
    pub trace: Vec<String>,
    pub holds: usize,
    pub looks: Looks,
}

/// With fewer sequences, it is possible that no look compares anything.
const MANY: u64 = 30;

fn run_steps(kind: Kind, theme: Theme, seed: u64, steps: &[Step], traced: bool) -> Outcome {
    let mut scene: Option<Arc<Scene>> = None;
    let mut parts = steps.split_inclusive(|step| step.act == Act::Runtime).peekable();
    while let Some(part) = parts.next() {
        let runtime = runtime();
        let last = parts.peek().is_none();
        let beside = runtime.block_on(async {
            let _printer = crate::trace::start();
            let mut beside = Beside::new();
            let scene = match &scene {
                None => {
                    let scene = scene.insert(Scene::new(seed, kind, theme, traced));
                    scene.begin().await;
                    scene
                }
                Some(scene) => {
                    let then = scene.state.lock().next_runtime.unwrap_or_else(Instant::now);
                    advance(then.saturating_duration_since(Instant::now())).await;
                    scene.renew();
                    scene
                }
            };
            for step in part {
                play::step(scene, &mut beside, *step).await;
                if scene.is_wrong() {
                    break;
                }
            }
            if last && !scene.is_wrong() {
                finish(scene, &mut beside).await;
            }
            // The next runtime's virtual clock starts at this time, which the old runtime has not reached. So the clock
            // never runs backwards.
            scene.state.lock().next_runtime = Some(Instant::now() + ms(30 + seed % 200));
            beside
        });
        drop(runtime);
        drop(beside);
        if scene.as_ref().is_some_and(|scene| scene.is_wrong()) {
            break;
        }
    }
    let Some(scene) = scene else { return Outcome::default() };
    let mut state = scene.state.lock();
    let (wrong, trace) = (std::mem::take(&mut state.wrong), std::mem::take(&mut state.trace));
    Outcome { wrong, trace, holds: state.holds, looks: state.looks }
}

/// Releases everything. When the last late copy has arrived and its lease has ended, nothing is left.
async fn finish(scene: &Arc<Scene>, beside: &mut Beside) {
    let all = async { while beside.join_next().await.is_some_and(|end| end.is_ok()) {} };
    if timeout(ms(200_000), all).await.is_err() {
        return scene.wrong("W1: a step does not end".into());
    }
    scene.look("before the end");
    loop {
        let Some(id) = scene.state.lock().held.keys().next().copied() else { break };
        scene.say(|| format!("{id} given back at the end"));
        drop(scene.take(id));
        scene.look("while all is given back");
    }
    let quiet = scene.state.lock().quiet.unwrap_or_else(Instant::now).max(Instant::now());
    let longest = scene.state.lock().longest;
    // Time for clean-ups, and for the places that late copies took for former waiters.
    let rest = longest + scene.options.watchdog + 3 * scene.options.fair_wait + 10 * scene.timeout + ms(500);
    sleep_until(quiet + rest).await;
    let left = || {
        scene.servers.iter().enumerate().fold(String::new(), |left, (n, server)| {
            let parties: Vec<_> = (0..scene.clients).map(|party| scene.party(party).swap_remove(n)).collect();
            left + &left_over(server, &parties.iter().collect::<Vec<_>>())
        })
    };
    if left().is_empty() {
        return;
    }
    // A late copy may have left a dead waiter's place without a deadline. This must not block the lock for long.
    for lock in 0..scene.names.len() {
        let spot = Spot { party: 0, lock, reads: false };
        match scene.lock(spot).lock_for(rest).await {
            Ok(Some(guard)) => drop(guard.unlock().await),
            odd => scene.wrong(format!("once: held at the end: {odd:?}; {}", left())),
        }
    }
    // One clean-up may wait for another one. The data that fair locks keep about waiters expires by itself.
    sleep_until(quiet + 3 * rest + ms(120_000)).await;
    let left = left();
    if !left.is_empty() {
        scene.wrong(format!("once: left at the end: {left}"));
    }
}

fn shrink(kind: Kind, theme: Theme, seed: u64, mut steps: Vec<Step>) -> Vec<Step> {
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        if !run_steps(kind, theme, seed, &fewer, false).wrong.is_empty() {
            steps = fewer;
        }
    }
    steps
}

fn report(kind: Kind, theme: Theme, seed: u64) -> String {
    let all = steps(seed, kind, &theme);
    let few = shrink(kind, theme, seed, all.clone());
    let end = run_steps(kind, theme, seed, &few, true);
    let (wrong, trace) = (end.wrong.join("\n  "), end.trace.join("\n  "));
    format!("{} of {} steps:\n  {trace}\nwrong:\n  {wrong}", few.len(), all.len())
}

pub fn run_seeds(kind: Kind, theme: Theme, seeds: Range<u64>) {
    let (from, n) = (seeds.start, seeds.end - seeds.start);
    let work = move |at: Arc<AtomicU64>| {
        let (mut holds, mut looks, name) = (0, Looks::default(), theme.name);
        for seed in seeds {
            at.store(seed + 1, Ordering::Relaxed);
            let end = run_steps(kind, theme, seed, &steps(seed, kind, &theme), false);
            holds += end.holds;
            looks.counts += end.looks.counts;
            looks.queues += end.looks.queues;
            if let Some(first) = end.wrong.first() {
                panic!("SEED={seed} of {kind:?}, {name}: {first}\n{}", report(kind, theme, seed));
            }
        }
        println!("{kind:?}, {name}: {n} sequences, {holds} holds, {looks:?}");
        if n >= MANY {
            let (late, exact) = (theme.faults == Faults::Late, theme.is_exact() && !kind.is_red());
            assert!(looks.counts > 0 || !late && !exact, "{kind:?}, {name}: no look compared counts");
            assert!(looks.queues > 0 || !late || !kind.has_queues(), "{kind:?}, {name}: no look compared queues");
        }
    };
    watched(work, |next, minutes| {
        // While the sequence of a replayed seed runs, it may be traced and shrunk.
        let most = if next == from + 1 { 20 } else { 5 };
        (minutes >= most).then(|| format!("SEED={} of {kind:?}, {}: virtual time stands still", next - 1, theme.name))
    });
}
