//! Several servers: what happens at one of them is nothing to the names of the others.

use std::sync::Arc;

use super::fake::{Fake, Fate};
use super::{ms, secs, settle, waiter};
use crate::client::Client;
use crate::engine::Engine;
use crate::runtime::reaper::Reaper;
use crate::topology::Topology;
use crate::transport::Transport;
use crate::{Acquire, Options};

/// A client of two servers: names that end in 0 live on the first, those that end in 1 on the second.
fn client_of_two() -> (Client, [Arc<Fake>; 2]) {
    let fakes = [Fake::new(), Fake::new()];
    let transports: Vec<Arc<dyn Transport>> =
        fakes.iter().map(|fake| -> Arc<dyn Transport> { Arc::new(Arc::clone(fake)) }).collect();
    let world = transports[0].world();
    let options = Options { preflight: false, coalesce: false, ..Options::default() };
    let engine = Engine::start_over(Topology::by_last_digit(transports, world), options, Reaper::start());
    (Client::of(engine), fakes)
}

/// How many commands of this script each server has had.
fn sent(fakes: &[Arc<Fake>; 2], script: &str) -> [usize; 2] {
    fakes.each_ref().map(|fake| fake.sent(script).len())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_back_has_its_own_holds_confirmed_and_its_own_waiters_woken() {
    let (client, fakes) = client_of_two();
    let mut guards = Vec::new();
    for name in ["held:0", "also:0", "held:1", "also:1"] {
        guards.push(client.reentrant(name).lock().await.unwrap());
    }
    for (fake, name) in fakes.iter().zip(["busy:0", "busy:1"]) {
        fake.steal(name, secs(3600));
    }
    let waiters = ["busy:0", "busy:1"].map(|name| waiter(&client.reentrant(name)));
    settle().await;
    let asked = sent(&fakes, "acquire");
    assert_eq!(sent(&fakes, "renew"), [0, 0]);

    fakes[1].listener().reconnected();
    settle().await;
    assert_eq!(sent(&fakes, "renew"), [0, 1], "two holds, one command, at the server that is back");
    assert_eq!(sent(&fakes, "acquire"), [asked[0], asked[1] + 1], "whoever waits there asks once");

    // The round of all comes when it would have come, a command a server.
    tokio::time::sleep(secs(10)).await;
    assert_eq!(sent(&fakes, "renew"), [1, 2]);
    for (fake, name) in fakes.iter().zip(["busy:0", "busy:1"]) {
        fake.delete(name);
        fake.publish(name);
    }
    for waiter in waiters {
        drop(waiter.await.unwrap());
    }
    assert!(guards.iter().all(crate::Guard::is_held));
    drop(guards);
    client.shutdown(secs(60)).await.unwrap();
    assert_eq!(fakes.each_ref().map(|fake| fake.held().len()), [0, 0]);
    settle().await;
}

/// Its commands hang, and rounds wait for all servers: that must not cost the others their leases.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_nothing_to_the_names_of_another() {
    let (client, fakes) = client_of_two();
    let guards = [client.reentrant("held:0").lock().await.unwrap(), client.reentrant("held:1").lock().await.unwrap()];
    for _ in 0..1_000 {
        fakes[0].next("renew", Fate::Late(secs(3)));
        fakes[0].next("acquire", Fate::Late(secs(3)));
    }
    // Past the lease, through rounds that hang at the first server.
    tokio::time::sleep(secs(31)).await;
    assert!(guards.iter().all(crate::Guard::is_held));
    assert!(sent(&fakes, "renew").iter().all(|renewals| *renewals >= 2));
    let wait = async |name: &str| client.reentrant(name).acquire(Acquire::new().wait(ms(300))).await;
    assert!(!matches!(wait("asked:0").await, Ok(Some(_))));
    assert!(wait("asked:1").await.unwrap().is_some());
    fakes[0].calm();
    drop(guards);
    client.shutdown(secs(60)).await.unwrap();
    assert_eq!(fakes.each_ref().map(|fake| fake.held().len()), [0, 0]);
}

/// A renewal is under way while its name moves. `held`: at the server that is asked, else at the one that the name moves to.
async fn moved_under_a_renewal(held: bool) -> (Client, [Arc<Fake>; 2], crate::Guard) {
    let (client, fakes) = client_of_two();
    let topology = &client.engine().topology;
    if !held {
        topology.move_on();
    }
    let guard = client.reentrant("moves:0").lock().await.unwrap();
    if !held {
        topology.move_on();
    }
    fakes[0].next("renew", Fate::Late(ms(500)));
    tokio::time::sleep(ms(10_200)).await;
    assert_eq!(sent(&fakes, "renew"), [1, 0]);
    topology.move_on();
    tokio::time::sleep(ms(400)).await;
    (client, fakes, guard)
}

/// It extended the lease where the name is not any more.
#[tokio::test(start_paused = true)]
async fn a_yes_of_a_server_that_has_lost_the_name_since_extends_nothing() {
    let (client, fakes, guard) = moved_under_a_renewal(true).await;
    assert!(guard.remaining() < secs(21), "{:?}", guard.remaining());
    let lost = tokio::time::timeout(secs(2), guard.lost()).await;
    assert!(lost.is_ok(), "the server that has the name now does not know of the hold");
    assert_eq!(sent(&fakes, "renew"), [1, 1]);
    fakes[0].delete("moves:0");
    drop(guard);
    client.shutdown(secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_no_of_a_server_that_has_lost_the_name_since_is_no_loss() {
    let (client, fakes, guard) = moved_under_a_renewal(false).await;
    assert!(guard.is_held());
    tokio::time::sleep(secs(30)).await;
    assert!(guard.is_held(), "kept by the server that has it");
    assert!(sent(&fakes, "renew")[1] >= 2);
    guard.unlock().await.unwrap();
    client.shutdown(secs(60)).await.unwrap();
    assert_eq!(fakes.each_ref().map(|fake| fake.held().len()), [0, 0]);
}

/// What a login may do is a question for each server.
#[tokio::test(start_paused = true)]
async fn each_server_is_asked_once_what_a_login_may_do() {
    let (client, fakes) = client_of_two();
    crate::engine::preflight::probe(client.engine()).await;
    assert_eq!(sent(&fakes, "preflight"), [1, 1]);
    client.shutdown(secs(60)).await.unwrap();
}
