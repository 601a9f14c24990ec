//! Random runs of RedLocks and multi locks in every weather. `SEED=n` replays one, `SIM_SEEDS=n` tries so many, `TRACE=1`
//! prints what happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Flavour, Owner};
use distlock_support::Numbers;
use tokio::time::{Instant, sleep, timeout_at};

use super::actor::Actor;
use super::nemesis;
use super::play::{Play, Shape};
use crate::random::list_of;
use crate::rig::{ms, tasks, virtually};
use crate::weather::{Kind, Weather};

/// What is taken in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Red,
    Multi,
}

/// What a run brought.
struct Run {
    wrong: Vec<String>,
    holds: usize,
    idle: Duration,
    virtual_time: Duration,
    commands: u64,
}

fn play(seed: u64, what: What, kind: Kind, dice: &mut Numbers) -> Play {
    let of = |dice: &mut Numbers, all: &[Flavour]| all[dice.below(all.len() as u64) as usize];
    let (shape, servers, names) = match what {
        What::Red => {
            let flavour = of(dice, &[Flavour::Reentrant, Flavour::Reentrant, Flavour::Spin, Flavour::Fair]);
            (Shape::Red(flavour), if dice.once_in(4) { 3 } else { 5 }, 1 + dice.below(2))
        }
        What::Multi => {
            let (servers, names) = (1 + dice.below(2), 3 + dice.below(3));
            let all = [Flavour::Reentrant, Flavour::Reentrant, Flavour::Spin, Flavour::Fenced, Flavour::Fair];
            let kinds = (0..names).map(|_| (of(dice, &all), dice.below(servers) as usize)).collect();
            (Shape::Multi(kinds), servers as usize, names)
        }
    };
    let flavour = match shape {
        Shape::Red(flavour) => flavour,
        Shape::Multi(_) => Flavour::Fair,
    };
    let mut weather = Weather::new(flavour, kind, dice);
    (weather.rounds, weather.tasks) = (8, weather.tasks.min(2));
    Play::new(seed, servers, shape, names as usize, weather)
}

async fn run(seed: u64, what: What, kind: Kind) -> Run {
    let tasks_before = tasks();
    let mut dice = Numbers::lane(seed, 1);
    let play = Arc::new(play(seed, what, kind, &mut dice));
    crate::trace::say(|| format!("seed {seed}: {:?}, {:?}", play.shape, play.weather));
    let over = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn({
        let (play, over) = (Arc::clone(&play), Arc::clone(&over));
        async move { play.watch(seed, &over).await }
    });
    let weather = tokio::spawn(nemesis::happen(Arc::clone(&play), dice));
    let mut actors = Vec::new();
    for (client, parties) in play.fleet.clients.iter().enumerate() {
        let owners: Vec<Owner> = (0..2).map(|_| parties[0].client.owner()).collect();
        for task in 0..play.weather.tasks {
            let (play, owners) = (Arc::clone(&play), owners.clone());
            let dice = Numbers::lane(seed, 100 + 10 * client as u64 + task as u64);
            actors.push(tokio::spawn(Actor { play, client, owners, dice }.run()));
        }
    }
    let limit = Instant::now() + ms(120_000);
    for mut actor in actors {
        match timeout_at(limit, &mut actor).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {
                actor.abort();
                play.wrong(format!("W1: a task waits for ever: {}", play.fleet.left_over()));
            }
        }
    }
    play.rough.store(false, Ordering::Relaxed);
    weather.await.unwrap();
    over.store(true, Ordering::Relaxed);
    watcher.await.unwrap();
    finish(&play).await;
    let commands = play.fleet.servers.iter().map(|server| server.commands_run()).sum();
    let (wrong, holds, idle) = (play.all_wrong(), play.history.len(), *play.idle.lock());
    let mut run = Run { wrong, holds, idle, virtual_time: play.start.elapsed(), commands };
    drop(play);
    for _ in 0..500 {
        if tasks() <= tasks_before {
            return run;
        }
        sleep(ms(1)).await;
    }
    run.wrong.push(format!("K2: {} tasks are left, {tasks_before} were there before", tasks()));
    run
}

/// The end of a run: clean-up, M1 and M3 over all of it.
async fn finish(play: &Play) {
    sleep(play.weather.clean_bound()).await;
    play.drop_all();
    if let Err(left) = play.fleet.settled(play.weather.clean_bound()).await {
        play.wrong(format!("K1, K2: {left}"));
    }
    for wrong in play.history.overlaps(play.start, None) {
        play.wrong(wrong);
    }
    if play.weather.kind != Kind::DataLoss {
        play.history.stale(play.start).into_iter().for_each(|wrong| play.wrong(wrong));
    }
    // Progress: what nobody holds, somebody gets.
    let idle = *play.idle.lock();
    if !play.rough() && idle > IDLE {
        play.wrong(format!("W1: nobody held what somebody waited for, for {idle:?}"));
    }
    if let Err(why) = play.fleet.shutdown().await {
        play.wrong(why);
    }
}

/// How many seeds each test tries.
const SEEDS: u64 = 10;

/// For how long what is free may not be taken by those who wait for it, in calm weather.
const IDLE: Duration = ms(2500);

fn runs(what: What, kind: Kind) {
    let (mut holds, mut time, mut idle, mut commands, mut n) = (0, Duration::ZERO, Duration::ZERO, 0, 0);
    for seed in list_of(SEEDS) {
        let run = virtually(async move || run(seed, what, kind).await);
        let first: Vec<_> = run.wrong.iter().take(8).cloned().collect();
        let all = run.wrong.len();
        assert!(first.is_empty(), "SEED={seed} of {what:?} in {kind:?} weather: {all} wrong:\n{}", first.join("\n"));
        (holds, time, idle) = (holds + run.holds, time + run.virtual_time, idle.max(run.idle));
        (commands, n) = (commands + run.commands, n + 1);
    }
    println!(
        "{what:?} {kind:?}: {n} seeds, {holds} holds, {commands} commands, {time:?} of virtual time, idle up to {idle:?}"
    );
}

macro_rules! weathers {
    ($($module:ident $what:ident { $($test:ident: $kind:ident;)* })*) => {
        $(mod $module {
            use super::{Kind, What, runs};

            $(#[test] fn $test() { runs(What::$what, Kind::$kind); })*
        })*
    };
}

weathers! {
    red Red {
        m1_x2_k1_in_calm_weather: Calm;
        m1_x2_k1_with_bad_messages: Messages;
        m1_x2_k1_with_bad_commands: Commands;
        m1_x2_k1_with_breaks: Breaks;
        m1_x2_k1_with_jumps_of_the_clock: Jumps;
        m1_x2_k1_in_a_storm: Storm;
    }
    multi Multi {
        m1_x1_k1_in_calm_weather: Calm;
        m1_x1_k1_with_bad_messages: Messages;
        m1_x1_k1_with_bad_commands: Commands;
        m1_x1_k1_with_breaks: Breaks;
        m1_x1_k1_with_jumps_of_the_clock: Jumps;
        m1_x1_k1_in_a_storm: Storm;
    }
}

/// The negative control (M1-R): servers that lose what they have let a second one in, the checker sees it, and nothing else
/// breaks.
#[test]
fn servers_that_lose_their_data_are_found_as_two_holders() {
    let mut found = 0;
    for seed in list_of(SEEDS) {
        let run = virtually(async move || run(seed, What::Red, Kind::DataLoss).await);
        found += run.wrong.iter().filter(|wrong| wrong.contains("M1")).count();
        let other: Vec<_> = run.wrong.iter().filter(|wrong| !wrong.contains("M1:")).collect();
        assert!(other.is_empty(), "SEED={seed}: {other:?}");
    }
    assert!(found > 0, "{} seeds with lost data, and no two holders were seen", list_of(SEEDS).count());
    println!("{found} overlaps of holds found after lost data");
}

/// A seed says everything: the same run twice sends the same commands.
#[test]
fn a_seed_brings_the_same_run_again() {
    for what in [What::Red, What::Multi] {
        let once = || {
            let run = virtually(async move || run(3, what, Kind::Storm).await);
            (run.wrong, run.holds, run.commands, run.virtual_time)
        };
        assert_eq!(once(), once(), "{what:?}");
    }
}
