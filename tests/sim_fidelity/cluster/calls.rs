//! The same client calls over a simulated and a real cluster, while slots move and primaries hand over and die. Each
//! call must have the same outcome, each guard the same state, and both clusters the same keys.

use std::time::Duration;

use distlock::{Client, Error, Flavour, Guard};
use distlock_support::Numbers;
use tokio::task::JoinHandle;

use super::net::Net;
use crate::from_env;

const FLAVOURS: [Flavour; 7] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Fenced, Flavour::Spin, Flavour::Plain, Flavour::Read];

/// Wait of an acquire while the keys of its lock may be on two servers.
const WAIT: Duration = Duration::from_secs(20);

type Waiting = JoinHandle<distlock::Result<Option<Guard>>>;

#[derive(Default)]
struct Place {
    held: Option<Guard>,
    waits: Option<Waiting>,
    is_open: bool,
}

/// Checks the error of a call without a wait: it is allowed only while the keys of a lock are on two servers.
fn refused(error: &Error, is_open: bool, told: &[String]) -> String {
    assert!(is_open && error.is_retryable(), "{error:?} after {told:#?}");
    format!("not now: {error}")
}

/// Runs one of the calls on a lock. Returns the outcome, or `None` if the call does not fit.
async fn run_call(
    client: &Client,
    (flavour, name): (Flavour, &str),
    what: u64,
    place: &mut Place,
    told: &[String],
) -> Option<String> {
    Some(match what {
        0..4 if place.held.is_none() => match client.lock(flavour, name).lock_for(WAIT).await {
            Ok(had) => {
                place.held = had;
                format!("held: {}", place.held.is_some())
            }
            Err(error) => refused(&error, place.is_open, told),
        },
        0..4 if flavour != Flavour::Read => match client.lock(flavour, name).try_lock().await {
            Ok(had) => format!("busy: {}", had.is_none()),
            Err(error) => refused(&error, place.is_open, told),
        },
        4..6 if place.held.is_some() && place.waits.is_none() && flavour != Flavour::Read => {
            let lock = client.lock(flavour, name);
            place.waits = Some(tokio::spawn(async move { lock.lock_for(bed::PATIENCE * 10).await }));
            "waits".into()
        }
        6..10 => {
            let released = place.held.take()?.unlock().await;
            if let Some(waiting) = place.waits.take() {
                let had = bed::ends("a waiter for a free lock", waiting).await;
                place.held = had.expect("it does not panic").expect("no error");
            }
            format!("given back: {:?}, held by who waited: {}", released.is_ok(), place.held.is_some())
        }
        _ => return None,
    })
}

/// Lets one of the events happen to the cluster. Returns what happened; `None` if the event does not fit.
async fn run_event(
    net: &Net,
    what: u64,
    (n, other): (usize, usize),
    names: &[String],
    places: &mut [Place],
    dice: &mut Numbers,
) -> Option<String> {
    let open = places.iter().position(|place| place.is_open);
    Some(match (what, open) {
        (10..12, None) => {
            places[n].is_open = net.open(&names[n], &names[other]).await;
            format!("open: {}", places[n].is_open)
        }
        (12, Some(open)) => {
            net.move_keys(&names[open], 1).await;
            "a key is moved".into()
        }
        (13, Some(open)) => {
            net.close(&names[open]).await;
            places[open].is_open = false;
            "the move is over".into()
        }
        (14, None) => {
            net.hand_over(&names[n]).await;
            "handed over".into()
        }
        (15, None) if dice.once_in(2) => {
            net.die(&names[n]).await;
            "died".into()
        }
        _ => return None,
    })
}

/// Ends an open move, releases every lock, and shuts the clients down.
async fn end_all(net: &Net, names: &[String], places: &mut [Place], clients: [Client; 2], told: &mut Vec<String>) {
    if let Some(open) = places.iter().position(|place| place.is_open) {
        net.close(&names[open]).await;
    }
    for place in places {
        if let Some(guard) = place.held.take() {
            told.push(format!("given back at the end: {}", guard.unlock().await.is_ok()));
        }
        if let Some(waiting) = place.waits.take() {
            let had = bed::ends("a waiter for a free lock", waiting).await.unwrap().expect("no error");
            told.push(format!("who waited has it: {}", had.is_some()));
            had.expect("as told").unlock().await.expect("a lock held");
        }
    }
    for client in clients {
        client.shutdown(bed::PATIENCE).await.expect("shutdown of an idle client");
    }
}

/// Plays random calls and events. Returns the outcome of each.
async fn play(net: &Net, seed: u64, steps: u64) -> Vec<String> {
    let mut dice = Numbers::lane(seed, 1);
    let clients = [net.client().await, net.client().await];
    let names: Vec<String> = (0..FLAVOURS.len()).map(|n| format!("{seed}:{n}")).collect();
    let mut places: Vec<Place> = names.iter().map(|_| Place::default()).collect();
    let mut told = Vec::new();
    for step in 0..steps {
        let n = dice.below(names.len() as u64) as usize;
        let (name, flavour) = (names[n].as_str(), FLAVOURS[n]);
        let client = &clients[dice.below(2) as usize];
        let what = dice.below(16);
        let other = dice.below(names.len() as u64) as usize;
        let became = match what {
            0..10 => run_call(client, (flavour, name), what, &mut places[n], &told).await,
            _ => run_event(net, what, (n, other), &names, &mut places, &mut dice).await,
        };
        let Some(became) = became else { continue };
        let held: Vec<bool> = places.iter().map(|place| place.held.as_ref().is_some_and(Guard::is_held)).collect();
        told.push(format!("{step}: {flavour} {name}: {became}; held: {held:?}"));
    }
    end_all(net, &names, &mut places, clients, &mut told).await;
    let of_seed = format!("{seed}:");
    let mut keys = net.keys().await;
    // An acquire that was too late is undone, but the token that it was given stays.
    keys.retain(|key| key.contains(&of_seed) && !key.starts_with("redisson_lock_token:"));
    told.push(format!("keys at the end: {keys:?}"));
    told
}

fn simulated(seed: u64, steps: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { play(&Net::sim(seed), seed, steps).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_end_alike_on_simulated_and_real_cluster() {
    let net = Net::real().await;
    let steps = from_env("OPS", 40);
    let one = from_env("SEED", u64::MAX);
    let seeds = if one == u64::MAX { 0..from_env("SEEDS", 2) } else { one..one + 1 };
    for seed in seeds {
        let real = play(&net, seed, steps).await;
        let sim = std::thread::spawn(move || simulated(seed, steps)).join().unwrap();
        for (sim, real) in sim.iter().zip(&real) {
            assert_eq!(sim, real, "SEED={seed}: simulated, and real");
        }
        assert_eq!(sim.len(), real.len(), "SEED={seed}");
        // A shorter list would compare almost nothing.
        assert!(real.len() > 15, "{real:?}");
    }
}
