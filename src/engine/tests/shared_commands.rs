//! Calls in one batch: the server refuses one call or the whole batch, or does not answer.

use bytes::Bytes;
use futures::future::join_all;

use super::fake::Fate;
use super::{begin, client, done, got, ms, secs, settle, takes, waiter};
use crate::transport::Reply;
use crate::{Acquire, Client, Error, Guard, Result};

/// Tries to acquire this many locks at once: four by single commands, up to four others by one batch.
async fn ask(client: &Client, locks: usize) -> Vec<Result<Option<Guard>>> {
    let locks: Vec<_> = (0..locks).map(|n| client.reentrant(&n.to_string())).collect();
    join_all(locks.iter().map(|lock| lock.try_lock())).await
}

fn held(outcome: &Result<Option<Guard>>) -> bool {
    matches!(outcome, Ok(Some(_)))
}

#[tokio::test(start_paused = true)]
async fn refused_call_of_a_shared_command_fails_alone() {
    let (client, fake) = client(|options| options.batching = true);
    let refused = [&b"!"[..], b"OOM command not allowed"].map(|text| Reply::Text(Bytes::from_static(text)));
    fake.next("many", Fate::Answer(Reply::List(vec![Reply::List(refused.to_vec()), Reply::Nil])));
    let got = ask(&client, 6).await;
    let is_refused =
        |outcome: &Result<_>| matches!(outcome, Err(Error::Server { message, .. }) if message.starts_with("OOM"));
    assert!(is_refused(&got[4]), "{:?}", got[4]);
    assert!([0, 1, 2, 3, 5].iter().all(|n| held(&got[*n])), "{got:?}");
    settle().await;
    // The refused call did nothing, so there is no undo.
    assert_eq!(fake.sent("release").len(), 0);
    drop(got);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn shared_command_in_doubt_is_undone_for_each_call() {
    // The batch is lost after it ran, or its reply has too few entries.
    for fate in [Fate::Lost(true), Fate::Answer(Reply::List(vec![Reply::Nil]))] {
        let (client, fake) = client(|options| options.batching = true);
        fake.next("many", fate);
        let got = ask(&client, 6).await;
        for outcome in &got[4..] {
            assert!(outcome.as_ref().is_err_and(Error::outcome_unknown), "{outcome:?}");
        }
        settle().await;
        assert_eq!(fake.held().len(), 4, "{:?}", fake.held());
        drop(got);
        done(client, &fake).await;
    }
}

/// Calls that waited for a batch get no extra time. The batch is undone.
#[tokio::test(start_paused = true)]
async fn unanswered_shared_command_ends_after_one_command_timeout() {
    let (client, fake) = client(|options| options.batching = true);
    fake.next("many", Fate::Late(secs(10)));
    let got = takes(secs(3)..secs(3) + ms(5), ask(&client, 6)).await;
    for outcome in &got[4..] {
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    }
    settle().await;
    assert_eq!(fake.held().len(), 4, "{:?}", fake.held());
    drop(got);
    tokio::time::sleep(secs(8)).await;
    done(client, &fake).await;
}

/// The batch did not run, so each call is refused. No call is sent alone, now or later.
#[tokio::test(start_paused = true)]
async fn refused_shared_command_fails_each_of_its_calls() {
    let (client, fake) = client(|options| options.batching = true);
    fake.next("many", Fate::Refused("OOM command not allowed"));
    let got = ask(&client, 6).await;
    for outcome in &got[4..] {
        assert!(matches!(outcome, Err(Error::Server { message, .. }) if message.starts_with("OOM")), "{outcome:?}");
    }
    assert_eq!(fake.sent("acquire").len(), 4);
    drop(got);
    settle().await;
    let got = ask(&client, 6).await;
    assert_eq!((fake.sent("acquire").len(), got.iter().all(held)), (8, true));
    drop(got);
    done(client, &fake).await;
}

/// If the login lacks the right to one name, the server refuses the whole batch before any call runs.
#[tokio::test(start_paused = true)]
async fn calls_succeed_alone_after_shared_command_gets_noperm() {
    let (client, fake) = client(|options| options.batching = true);
    for _ in 0..2 {
        fake.next("many", Fate::Refused("NOPERM No permissions to access a key"));
        let got = ask(&client, 8).await;
        assert!(got.iter().all(held), "{got:?}");
        drop(got);
        settle().await;
    }
    let before = fake.sent("many").len();
    drop(ask(&client, 8).await);
    assert_eq!(fake.sent("many").len(), before + 1);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn server_that_answers_crossslot_gets_one_shared_command() {
    let (client, fake) = client(|options| options.batching = true);
    fake.next("many", Fate::Refused("CROSSSLOT Keys in request don't hash to the same slot"));
    for _ in 0..2 {
        let got = ask(&client, 8).await;
        assert!(got.iter().all(held), "{got:?}");
        drop(got);
        settle().await;
    }
    assert_eq!(fake.sent("many").len(), 1);
    // Behind a proxy, slow servers do not delay calls to other servers.
    let before = fake.sent("acquire").len();
    fake.times(20, "acquire", || Fate::Slow(secs(1)));
    let late = async {
        tokio::time::sleep(ms(10)).await;
        drop(got(ms(10), begin(&client.reentrant("late"), Acquire::new())).await);
    };
    let (slow, ()) = tokio::join!(ask(&client, 20), late);
    assert_eq!((fake.sent("acquire").len(), slow.iter().all(held)), (before + 21, true));
    drop(slow);
    done(client, &fake).await;
}

/// While the single calls and three batches per connection are in flight, the other calls are queued.
#[tokio::test(start_paused = true)]
async fn batches_in_flight_are_limited_per_connection() {
    for connections in [1, 2] {
        let (client, fake) = client(|options| (options.batching, options.pool_size) = (true, connections));
        let (singles, batches) = (4 * connections, 3 * connections);
        (0..batches).for_each(|_| fake.next("many", Fate::Slow(ms(9))));
        let look = async {
            tokio::time::sleep(ms(4)).await;
            assert_eq!((fake.sent("acquire").len(), fake.sent("many").len()), (singles, batches), "{connections}");
        };
        let (got, ()) = tokio::join!(ask(&client, singles + 64 * (batches + 1)), look);
        assert!(got.iter().all(held));
        drop(got);
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_with_shared_commands_is_woken_by_message_at_once() {
    let (client, fake) = client(|options| options.batching = true);
    fake.steal("x", secs(3600));
    let waits = waiter(&client.reentrant("x"));
    tokio::time::sleep(secs(1)).await;
    fake.free("x");
    drop(tokio::time::timeout(ms(10), waits).await.expect("no message came").unwrap());
    // Batching does not change the server's identity.
    let topology = &client.engine().topology;
    assert_eq!(topology.identity(), "fake");
    assert!(format!("{topology:?}").contains("transport: Fake,"), "{topology:?}");
    done(client, &fake).await;
}
