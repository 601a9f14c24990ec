//! Random runs: several clients and tasks in every weather. `SEED=n` replays one, `SIM_SEEDS=n` tries so many,
//! `TRACE=1` prints what happens.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Flavour, Owner};
use distlock_support::Numbers;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::actor::{Actor, drop_all};
use crate::rig::{Party, left_over, ms, settled, tasks, virtually};
use crate::stage::Stage;
use crate::weather::{Kind, Weather};

/// What a run brought.
struct Run {
    wrong: Vec<String>,
    holds: usize,
    virtual_time: Duration,
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
    let mut keepers = Vec::new();
    for actor in ended(&stage, actors).await {
        keepers.push(tokio::spawn(actor.keep()));
    }
    ended(&stage, keepers).await;
    stage.rough.store(false, Ordering::Relaxed);
    weather.await.unwrap();
    over.store(true, Ordering::Relaxed);
    watcher.await.unwrap();
    finish(&stage).await;
    let Stage { parties, .. } = &*stage;
    for party in parties {
        match timeout(ms(30_000), party.client.shutdown(ms(5_000))).await {
            Ok(Ok(())) => {}
            odd => stage.wrong(format!("shutdown: {odd:?}")),
        }
    }
    let run = Run { wrong: stage.all_wrong(), holds: stage.history.len(), virtual_time: stage.start.elapsed() };
    drop(stage);
    for _ in 0..500 {
        if tasks() <= tasks_before {
            return run;
        }
        sleep(ms(1)).await;
    }
    let mut run = run;
    run.wrong.push(format!("K2: {} tasks are left, {tasks_before} were there before", tasks()));
    run
}

/// What the tasks give, if they come to an end (W1).
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

/// The end of a run: counts, clean-up, M1 over all of it.
async fn finish(stage: &Stage) {
    let parties: Vec<&Party> = stage.parties.iter().collect();
    // Nothing under way, and what was lost is over.
    sleep(stage.weather.clean_bound()).await;
    stage.check_counts();
    drop_all(stage);
    if let Err(left) = settled(&stage.server, &parties, stage.weather.clean_bound()).await {
        stage.wrong(format!("K1, K2: {left}"));
    }
    for wrong in stage.history.overlaps(stage.start, stage.weather.forced) {
        stage.wrong(wrong);
    }
    // Not even a lock that was forced open counts anew.
    if stage.weather.kind != Kind::DataLoss {
        stage.history.stale(stage.start).into_iter().for_each(|wrong| stage.wrong(wrong));
    }
}

/// The seeds to try: `SEED`, or `FROM`, `FROM + 1` and so on, `SIM_SEEDS` of them.
fn list() -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    if let Some(seed) = number("SEED") {
        return seed..seed + 1;
    }
    let from = number("FROM").unwrap_or(0);
    from..from + number("SIM_SEEDS").unwrap_or(6)
}

fn runs(flavour: Flavour, kind: Kind) {
    run_all(flavour, kind, list());
}

/// Runs these seeds.
pub fn run_all(flavour: Flavour, kind: Kind, seeds: Range<u64>) {
    let (mut holds, mut time, mut n) = (0, Duration::ZERO, 0);
    for seed in seeds {
        let run = virtually(async move || run(seed, flavour, kind).await);
        let first: Vec<_> = run.wrong.iter().take(8).cloned().collect();
        assert!(
            first.is_empty(),
            "SEED={seed} of {flavour} in {kind:?} weather: {} wrong:\n{}",
            run.wrong.len(),
            first.join("\n")
        );
        (holds, time, n) = (holds + run.holds, time + run.virtual_time, n + 1);
    }
    println!("{flavour} {kind:?}: {n} seeds, {holds} holds, {time:?} of virtual time");
}

macro_rules! weathers {
    ($($module:ident: $flavour:ident;)*) => {
        $(mod $module {
            use super::{Flavour, Kind, runs};

            #[test] fn m1_to_k2_in_calm_weather() { runs(Flavour::$flavour, Kind::Calm); }
            #[test] fn m1_to_k2_with_bad_messages() { runs(Flavour::$flavour, Kind::Messages); }
            #[test] fn m1_to_k2_with_bad_commands() { runs(Flavour::$flavour, Kind::Commands); }
            #[test] fn m1_to_k2_with_breaks() { runs(Flavour::$flavour, Kind::Breaks); }
            #[test] fn m1_to_k2_with_jumps_of_the_clock() { runs(Flavour::$flavour, Kind::Jumps); }
            #[test] fn m1_to_k2_in_a_storm() { runs(Flavour::$flavour, Kind::Storm); }
        })*
    };
}

weathers! {
    reentrant: Reentrant;
    fair: Fair;
    fenced: Fenced;
    spin: Spin;
    plain: Plain;
    // Both halves.
    rw: Write;
}

/// The negative control: the checker sees two holders where the server lost its data, and nothing else breaks.
#[test]
fn lost_data_is_found_as_two_holders() {
    let mut found = 0;
    for seed in list() {
        let run = virtually(async move || run(seed, Flavour::Reentrant, Kind::DataLoss).await);
        found += run.wrong.iter().filter(|wrong| wrong.contains("M1")).count();
        // Nor can anybody tell a waiter of it, or count what is gone.
        let other: Vec<_> =
            run.wrong.iter().filter(|wrong| !["M1:", "M2:", "W1: lock"].iter().any(|id| wrong.contains(id))).collect();
        assert!(other.is_empty(), "SEED={seed}: {other:?}");
    }
    assert!(found > 0, "{} seeds with lost data, and no two holders were seen", list().count());
    println!("{found} overlaps of holds found after lost data");
}
