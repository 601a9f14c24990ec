//! Several servers. Trouble at one server does not affect names at the others.

mod moved;

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::fake::{Fake, Fate};
use super::{begin, ms, secs, settle, waiter};
use crate::client::Client;
use crate::engine::Engine;
use crate::owner::client_id;
use crate::runtime::reaper::Reaper;
use crate::topology::Topology;
use crate::transport::{Arg, Transport};
use crate::{Acquire, Guard, Options};

/// A client of two servers. Names that end in 0 live on the first server, names that end in 1 on the second.
fn client_of_two() -> (Client, [Arc<Fake>; 2]) {
    let fakes = [Fake::new(), Fake::new()];
    let transports: Vec<Arc<dyn Transport>> =
        fakes.iter().map(|fake| -> Arc<dyn Transport> { Arc::new(Arc::clone(fake)) }).collect();
    let world = transports[0].world();
    let options = Options { preflight: false, batching: false, ..Options::default() };
    let engine = Engine::start_over(
        client_id(&*world),
        Topology::by_last_digit(transports, Arc::clone(&world)),
        options,
        Reaper::start(),
    );
    (Client::of(engine), fakes)
}

fn sent(fakes: &[Arc<Fake>; 2], script: &str) -> [usize; 2] {
    fakes.each_ref().map(|fake| fake.sent(script).len())
}

fn held(fakes: &[Arc<Fake>; 2]) -> [usize; 2] {
    fakes.each_ref().map(|fake| fake.held().len())
}

async fn done(client: Client, fakes: &[Arc<Fake>; 2]) {
    client.shutdown(secs(60)).await.unwrap();
    settle().await;
    assert_eq!(held(fakes), [0, 0]);
}

/// Another client holds a lock at each server. Returns the names of these locks.
fn steal_both(fakes: &[Arc<Fake>; 2]) -> [&'static str; 2] {
    let names = ["busy:0", "busy:1"];
    fakes.iter().zip(names).for_each(|(fake, name)| fake.steal(name, secs(3600)));
    names
}

#[tokio::test(start_paused = true)]
async fn server_reconnect_confirms_its_own_holds_and_wakes_its_waiters() {
    let (client, fakes) = client_of_two();
    let mut guards = Vec::new();
    for name in ["held:0", "also:0", "held:1", "also:1"] {
        guards.push(client.reentrant(name).lock().await.unwrap());
    }
    let waiters = steal_both(&fakes).map(|name| waiter(&client.reentrant(name)));
    settle().await;
    let asked = sent(&fakes, "acquire");
    assert_eq!(sent(&fakes, "renew"), [0, 0]);

    fakes[1].listener().reconnected();
    settle().await;
    assert_eq!(sent(&fakes, "renew"), [0, 1], "two holds, one command, at the server that is back");
    assert_eq!(sent(&fakes, "acquire"), [asked[0], asked[1] + 1], "whoever waits there asks once");

    // The regular round comes on time, and sends one command to each server.
    tokio::time::sleep(secs(10)).await;
    assert_eq!(sent(&fakes, "renew"), [1, 2]);
    for (fake, name) in fakes.iter().zip(["busy:0", "busy:1"]) {
        fake.free(name);
    }
    for waiter in waiters {
        drop(waiter.await.unwrap());
    }
    assert!(guards.iter().all(Guard::is_held));
    drop(guards);
    done(client, &fakes).await;
}

/// Commands to one server hang. Each server has its own rounds of renewal.
#[tokio::test(start_paused = true)]
async fn silent_server_does_not_affect_names_of_another_server() {
    let (client, fakes) = client_of_two();
    let guards = [client.reentrant("held:0").lock().await.unwrap(), client.reentrant("held:1").lock().await.unwrap()];
    ["renew", "acquire"].into_iter().for_each(|script| fakes[0].times(1_000, script, || Fate::Late(secs(3))));
    // This is longer than the lease, and the first server's rounds hang meanwhile.
    tokio::time::sleep(secs(31)).await;
    assert!(guards.iter().all(Guard::is_held));
    let [hanging, healthy] = sent(&fakes, "renew");
    assert!(hanging >= 2, "{hanging}");
    assert_eq!(healthy, 3, "every third of the watchdog, as without the other");
    let wait = async |name: &str| client.reentrant(name).acquire(Acquire::new().wait(ms(300))).await;
    assert!(!matches!(wait("asked:0").await, Ok(Some(_))));
    assert!(wait("asked:1").await.unwrap().is_some());
    fakes[0].calm();
    drop(guards);
    done(client, &fakes).await;
}

#[tokio::test(start_paused = true)]
async fn last_moment_uses_the_clock_of_its_own_server() {
    let (client, fakes) = client_of_two();
    // The second server's clock is an hour behind.
    fakes[1].step_clock(-3_600_000);
    let me = client.owner();
    let how = || Acquire::new().owner(&me);
    let mut guards = Vec::new();
    for name in ["first:0", "first:1"] {
        let lock = client.reentrant(name);
        for _ in 0..3 {
            guards.push(lock.acquire(how()).await.unwrap().unwrap());
        }
    }
    // Now both clocks are known. No command is refused as too late, and no last moment is an hour too late.
    let before = sent(&fakes, "acquire");
    for name in ["first:0", "first:1", "first:0", "first:1"] {
        guards.push(client.reentrant(name).acquire(how()).await.unwrap().unwrap());
    }
    assert_eq!(sent(&fakes, "acquire"), before.map(|before| before + 2));
    for fake in &fakes {
        let (words, now) = (fake.sent("acquire").pop().unwrap().words, fake.clock_ms());
        let is_last_moment = |word: &Arg| matches!(word, Arg::Int(last) if (last - now).abs() < 60_000);
        assert!(words.iter().any(is_last_moment), "{words:?} at {now}");
    }
    drop(guards);
    done(client, &fakes).await;
}

type Waiting = JoinHandle<crate::Result<Option<(usize, Guard)>>>;

/// A task waits for either segment of a striped lock. Other clients hold both segments, each at its own server. The
/// task waits in the striped lock's local queue, or `by_itself`.
async fn waiter_for_segment(by_itself: bool) -> (Client, [Arc<Fake>; 2], Waiting) {
    let (client, fakes) = client_of_two();
    for (fake, name) in fakes.iter().zip(["s:0", "s:1"]) {
        fake.steal(name, secs(3600));
    }
    let striped = client.striped("s", 2);
    let how = if by_itself { Acquire::new().owner(&client.owner()).wait(secs(3000)) } else { Acquire::new() };
    let got = tokio::spawn(async move { striped.acquire_any(how).await });
    settle().await;
    (client, fakes, got)
}

/// A segment becomes free at a server that was unreachable for longer than the retries of an acquire last. The task
/// that waits for any segment acquires it when the server is back.
#[tokio::test(start_paused = true)]
async fn segment_is_acquired_once_its_server_is_back() {
    for by_itself in [false, true] {
        let (client, fakes, got) = waiter_for_segment(by_itself).await;
        fakes[1].times(100_000, "acquire", || Fate::NotSent);
        tokio::time::sleep(client.engine().patience() * 3).await;
        assert!(!got.is_finished(), "the other one may come free");
        fakes[1].calm();
        fakes[1].delete("s:1");
        let got = tokio::time::timeout(secs(10), got).await.expect("is not asked again").unwrap();
        let (at, guard) = got.unwrap().expect("free");
        assert_eq!(at, 1);
        guard.unlock().await.unwrap();
        fakes[0].delete("s:0");
        done(client, &fakes).await;
    }
}

/// No segment can be reached. The acquire fails after the same retry time as for one lock.
#[tokio::test(start_paused = true)]
async fn segment_waiter_fails_when_all_servers_are_away() {
    for by_itself in [false, true] {
        let (client, fakes, got) = waiter_for_segment(by_itself).await;
        for fake in &fakes {
            fake.times(100_000, "acquire", || Fate::NotSent);
        }
        let limit = client.engine().patience() * 3;
        let got = tokio::time::timeout(limit, got).await.expect("waits for ever").unwrap();
        assert!(got.is_err_and(|error| error.is_retryable()));
        for (fake, name) in fakes.iter().zip(["s:0", "s:1"]) {
            fake.calm();
            fake.delete(name);
        }
        done(client, &fakes).await;
    }
}

/// Each server gets one script for its own names, and all scripts are sent at the same time.
#[tokio::test(start_paused = true)]
async fn multi_lock_over_two_servers_sends_one_script_to_each() {
    let (client, fakes) = client_of_two();
    let multi = || client.multi(["a:0", "b:1", "c:0", "d:1", "e:0"]);
    let guard = multi().try_lock().await.unwrap().expect("all are free");
    assert_eq!(sent(&fakes, "multi/acquire"), [1, 1]);
    assert_eq!(held(&fakes), [3, 2]);
    guard.unlock().await.unwrap();
    assert_eq!(held(&fakes), [0, 0]);
    // One lock is busy, so the acquire releases the locks at the other server.
    fakes[1].steal("d:1", secs(3600));
    assert!(multi().try_lock().await.unwrap().is_none());
    settle().await;
    assert_eq!(held(&fakes), [0, 1]);
    fakes[1].delete("d:1");
    done(client, &fakes).await;
}

#[tokio::test(start_paused = true)]
async fn preflight_queries_each_server_once() {
    let (client, fakes) = client_of_two();
    crate::engine::preflight::probe(client.engine()).await;
    assert_eq!(sent(&fakes, "preflight"), [1, 1]);
    done(client, &fakes).await;
}

/// The queue entries at the healthy server last 5.5 s, so they are refreshed every 1 to 2.7 s.
#[tokio::test(start_paused = true)]
async fn silent_server_does_not_delay_queue_refreshes_at_another() {
    let (client, fakes) = client_of_two();
    let waiters = steal_both(&fakes).map(|name| begin(&client.fair(name), Acquire::new()));
    settle().await;
    fakes[0].times(1_000, "refresh", || Fate::Late(secs(3)));
    let before = sent(&fakes, "refresh")[1];
    tokio::time::sleep(secs(22)).await;
    let refreshed = sent(&fakes, "refresh")[1] - before;
    assert!(refreshed >= 18, "{refreshed} times in 22 s");
    fakes[0].calm();
    waiters.iter().for_each(JoinHandle::abort);
    settle().await;
    client.shutdown(secs(60)).await.unwrap();
    settle().await;
}
