//! Batches for several slots of a cluster server, which declare no keys. Tests of calls whose keys are at another
//! server, and of servers that refuse such batches.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;

use super::fake::{Fake, Fate};
use super::{done, secs};
use crate::engine::Engine;
use crate::owner::client_id;
use crate::runtime::reaper::Reaper;
use crate::topology::{AckRule, Topology};
use crate::transport::coalesce::Coalesced;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Reply, Transport};
use crate::{Client, Guard, Options, Result};

const ELSEWHERE: &str = "ERR Script attempted to access a non local key in a cluster node";

/// A batch's reply for this many calls whose keys are at another server.
fn elsewhere(calls: usize) -> Reply {
    let error = [&b"!"[..], ELSEWHERE.as_bytes()].map(|text| Reply::Text(Bytes::from_static(text)));
    Reply::List(vec![Reply::List(error.to_vec()); calls])
}

/// A client of one server that it treats like a primary of a cluster.
fn client() -> (Client, Arc<Fake>) {
    let fake = Fake::new();
    let (options, reaper) = (Options { preflight: false, ..Options::default() }, Reaper::start());
    let node: Arc<dyn Transport> = Arc::new(Arc::clone(&fake));
    let (world, undeclared) = (node.world(), Arc::new(Undeclared::new(|error| error == ELSEWHERE)));
    let member = Coalesced::over_member(node, undeclared, &options, reaper.clone());
    (
        Client::of(Engine::start_over(
            client_id(&*world),
            Topology::single(member, Arc::clone(&world), AckRule::off()),
            options,
            reaper,
        )),
        fake,
    )
}

/// Acquires this many locks at once: four by single commands, up to four others by one batch.
async fn ask(client: &Client, locks: usize) -> Vec<Guard> {
    let locks: Vec<_> = (0..locks).map(|n| client.reentrant(&n.to_string())).collect();
    let got: Result<Vec<Option<Guard>>> =
        join_all(locks.iter().map(|lock| lock.try_lock())).await.into_iter().collect();
    got.unwrap().into_iter().map(|guard| guard.expect("a free lock")).collect()
}

#[tokio::test(start_paused = true)]
async fn shared_command_over_slots_works_without_declared_keys() {
    let (client, fake) = client();
    let guards = ask(&client, 8).await;
    assert_eq!(fake.sent("many").iter().map(|sent| sent.keys).collect::<Vec<_>>(), [0]);
    assert_eq!(fake.sent("reentrant/acquire").len(), 4);
    assert_eq!(fake.held().len(), 8);
    join_all(guards.into_iter().map(Guard::unlock)).await;
    assert_eq!(fake.held().len(), 0);
    done(client, &fake).await;
}

/// A call that is sent alone declares its keys, and its reply names the server that has them.
#[tokio::test(start_paused = true)]
async fn call_with_keys_elsewhere_is_sent_alone() {
    let (client, fake) = client();
    fake.next("many", Fate::Answer(elsewhere(2)));
    let guards = ask(&client, 6).await;
    assert_eq!((fake.sent("many").len(), fake.sent("reentrant/acquire").len()), (1, 6));
    drop(guards);
    done(client, &fake).await;
}

/// The callers have timed out, and their undos have run. A copy of an acquire would take its lock again.
#[tokio::test(start_paused = true)]
async fn call_without_a_caller_is_not_sent_again() {
    let (client, fake) = client();
    fake.next("many", Fate::Later(elsewhere(2), secs(60)));
    let locks: Vec<_> = (0..6).map(|n| client.reentrant(&n.to_string())).collect();
    let got = join_all(locks.iter().map(|lock| lock.try_lock())).await;
    assert!(got[4..].iter().all(Result::is_err), "{got:?}");
    tokio::time::sleep(secs(90)).await;
    assert_eq!(fake.sent("reentrant/acquire").len(), 4);
    drop(got);
    done(client, &fake).await;
}

/// The first batch takes a third of the calls. The next one waits for its reply, and takes all others.
#[tokio::test(start_paused = true)]
async fn loaded_server_gets_the_whole_queue_in_one_batch() {
    let (client, fake) = client();
    let guards = ask(&client, 4 + 64).await;
    assert_eq!((fake.sent("many").len(), fake.sent("reentrant/acquire").len()), (2, 4));
    drop(guards);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn server_that_refuses_undeclared_scripts_gets_few_of_them() {
    let (client, fake) = client();
    fake.times(20, "many", || Fate::Refused("ERR wrong number of arguments"));
    for _ in 0..20 {
        for guard in ask(&client, 6).await {
            guard.unlock().await.unwrap();
        }
    }
    assert_eq!(fake.sent("many").len(), 8);
    fake.calm();
    done(client, &fake).await;
}

/// These calls have keys besides the lock's main key. While a slot is moved, these keys may be at another server.
#[tokio::test(start_paused = true)]
async fn calls_with_several_keys_are_sent_alone() {
    let (client, fake) = client();
    let locks: Vec<_> = (0..8).map(|n| client.fenced(&n.to_string())).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    assert_eq!(fake.sent("many").len(), 0);
    for guard in guards {
        guard.unwrap().unlock().await.unwrap();
    }
    done(client, &fake).await;
}
