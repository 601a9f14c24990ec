//! Random runs of several clients and tasks in every weather. `SEED=n` replays one run, `SEEDS=n` sets their number,
//! `TRACE=1` prints the events.

use crate::actor::{Actor, drop_all};
use crate::prelude::*;
use crate::stage::Stage;
use crate::weather::{Kind, Weather};
use std::ops::Range;

struct Run {
    wrong: Vec<String>,
    holds: usize,
}

async fn run(seed: u64, flavour: Flavour, kind: Kind) -> Run {
    let tasks_before = tasks();
    let mut dice = Numbers::lane(seed, 1);
    let stage = Arc::new(Stage::new(seed, Weather::new(flavour, kind, &mut dice)));
    crate::trace::say(|| format!("seed {seed}: {:?}", stage.weather));
    let over = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn({
        let (stage, over) = (Arc::clone(&stage), Arc::clone(&over));
        async move { stage.watch(seed, &over).await }
    });
    let weather = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.weather.happen(&stage, &mut dice).await }
    });
    let mut actors = Vec::new();
    for (party, with) in stage.parties.iter().enumerate() {
        let owners: Vec<Owner> = (0..2).map(|_| with.client.owner()).collect();
        owners.iter().for_each(|owner| stage.shares(owner));
        for task in 0..stage.weather.tasks {
            let (stage, owners) = (Arc::clone(&stage), owners.clone());
            let dice = Numbers::lane(seed, 100 + 10 * party as u64 + task as u64);
            actors.push(tokio::spawn(Actor { stage, party, owners, dice }.run()));
        }
    }
    let keepers = ended(&stage, actors).await.into_iter().map(|actor| tokio::spawn(actor.keep())).collect();
    ended(&stage, keepers).await;
    stage.rough.store(false, Ordering::Relaxed);
    weather.await.unwrap();
    over.store(true, Ordering::Relaxed);
    watcher.await.unwrap();
    finish(&stage).await;
    for party in &stage.parties {
        shut(&party.client).await.unwrap_or_else(|odd| stage.wrong(odd));
    }
    let mut run = Run { wrong: stage.wrong.lock().clone(), holds: stage.history.len() };
    drop(stage);
    run.wrong.extend(no_task_is_left(tasks_before, ms(500)).await.err().map(|left| format!("K2: {left}")));
    run
}

/// Waits for the tasks, and returns their outputs. A task that does not end breaks W1.
async fn ended<T>(stage: &Stage, tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let limit = Instant::now() + ms(120_000);
    let mut outputs = Vec::new();
    for mut task in tasks {
        match timeout_at(limit, &mut task).await {
            Ok(Ok(output)) => outputs.push(output),
            Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {
                task.abort();
                let parties: Vec<&Party> = stage.parties.iter().collect();
                stage.wrong(format!("W1: a task waits for ever: {}", left_over(&stage.server, &parties)));
            }
        }
    }
    outputs
}

/// Ends a run: checks counts, cleans up, and checks M1 over the whole history.
async fn finish(stage: &Stage) {
    let parties: Vec<&Party> = stage.parties.iter().collect();
    // After this pause no command is in flight, and lost holds have expired.
    sleep(stage.weather.clean_bound()).await;
    stage.check_counts();
    drop_all(stage);
    if let Err(left) = settled(&stage.server, &parties, stage.weather.clean_bound()).await {
        stage.wrong(format!("K1, K2: {left}"));
    }
    for wrong in stage.history.overlaps(stage.start, stage.weather.forced, ms(0)) {
        stage.wrong(wrong);
    }
    // A lock that was forced open also gets a new token.
    if stage.weather.kind != Kind::DataLoss {
        stage.history.stale(stage.start).into_iter().for_each(|wrong| stage.wrong(wrong));
    }
}

pub fn run_all(flavour: Flavour, kind: Kind, seeds: Range<u64>) {
    let (mut holds, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let run = virtually(async move || run(seed, flavour, kind).await);
        let (n, first) = (run.wrong.len(), run.wrong[..run.wrong.len().min(8)].join("\n"));
        assert!(n == 0, "SEED={seed} of {flavour} in {kind:?} weather: {n} wrong:\n{first}");
        holds += run.holds;
    }
    println!("{flavour} {kind:?}: {count} seeds, {holds} holds");
}

macro_rules! weathers {
    ($($module:ident: $flavour:ident;)*) => {
        $(mod $module {
            use super::{Flavour, Kind, run_all, seeds};

            #[test] fn m1_to_k2_in_calm_weather() { run_all(Flavour::$flavour, Kind::Calm, seeds(6)); }
            #[test] fn m1_to_k2_with_bad_messages() { run_all(Flavour::$flavour, Kind::Messages, seeds(6)); }
            #[test] fn m1_to_k2_with_bad_commands() { run_all(Flavour::$flavour, Kind::Commands, seeds(6)); }
            #[test] fn m1_to_k2_with_breaks() { run_all(Flavour::$flavour, Kind::Breaks, seeds(6)); }
            #[test] fn m1_to_k2_with_jumps_of_the_clock() { run_all(Flavour::$flavour, Kind::Jumps, seeds(6)); }
            #[test] fn m1_to_k2_in_a_storm() { run_all(Flavour::$flavour, Kind::Storm, seeds(6)); }
        })*
    };
}

weathers! {
    reentrant: Reentrant;
    fair: Fair;
    fenced: Fenced;
    spin: Spin;
    plain: Plain;
    // `Write` stands for both halves here.
    rw: Write;
}

/// Negative control. When the server loses its data, the checker must find two holders, and no broken rule but those
/// below.
#[test]
fn data_loss_is_reported_as_two_holders() {
    let mut found = 0;
    for seed in seeds(6) {
        let mut wrong = virtually(async move || run(seed, Flavour::Reentrant, Kind::DataLoss).await).wrong;
        found += wrong.iter().filter(|wrong| wrong.contains("M1")).count();
        // M2 and W1 may be broken too: no client detects the loss at once, and no message wakes the waiters.
        wrong.retain(|wrong| !["M1:", "M2:", "W1: lock"].iter().any(|id| wrong.contains(id)));
        assert!(wrong.is_empty(), "SEED={seed}: {wrong:?}");
    }
    assert!(found > 0, "{} seeds with lost data, and no two holders were seen", seeds(6).count());
    println!("{found} overlaps of holds found after lost data");
}
