//! How a term begins and ends.

use std::time::Duration;

use bed::cost::sent;
use bed::harm::cut_at;
use bed::{Bed, becomes, ends, idle, secs};
use distlock::{Client, Error};

use crate::{NAME, elections, leads, stands};

async fn waiting(client: &Client, count: usize) {
    becomes("waiting candidates", count, async || client.stats().waiting).await;
}

async fn nothing_is_left(bed: &Bed, client: &Client, when: &str) {
    idle(client).await;
    becomes(&format!("keys, {when}"), Vec::<String>::new(), async || bed.keys().await).await;
}

#[tokio::test]
async fn ended_term_is_followed_by_waiting_candidate_with_larger_epoch() {
    elections(async |bed| {
        let (one, two) = (bed.client().await, bed.client().await);
        for resigns in [true, false] {
            let first = leads(&one, "one").await;
            let next = stands(&two, "two");
            waiting(&two, 1).await;
            let epoch = first.epoch();
            if resigns {
                first.resign().await.unwrap();
            } else {
                drop(first);
            }
            let second = ends("the next leader", next).await.unwrap();
            assert!(second.epoch() > epoch && second.is_leader(), "{second:?} after {epoch}");
            second.resign().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn shutdown_resigns_and_ends_waiting_candidates() {
    elections(async |bed| {
        let (one, two) = (bed.client().await, bed.client().await);
        let first = leads(&one, "one").await;
        let (candidate, next) = (one.lead(NAME), stands(&two, "two"));
        let behind = tokio::spawn(async move { candidate.next().await });
        waiting(&one, 1).await;
        waiting(&two, 1).await;
        let lost = first.lost();
        one.shutdown(Duration::ZERO).await.unwrap();
        let second = ends("the next leader", next).await.unwrap();
        assert!(matches!(ends("the loss", lost).await, Error::Closed));
        assert!(matches!(ends("the waiting candidate", behind).await.unwrap(), Err(Error::Closed)));
        assert!(!first.is_leader() && second.epoch() > first.epoch(), "{first:?}, and then {second:?}");
        assert!(matches!(first.run(async {}).await, Err(Error::Closed)));
        second.resign().await.unwrap();
    })
    .await;
}

/// The first leader does not know yet that it is deposed.
#[tokio::test]
async fn payload_of_deposed_leader_is_refused() {
    elections(async |bed| {
        let (one, two) = (bed.still_client().await, bed.client().await);
        let first = leads(&one, "one").await;
        assert!(two.fenced(NAME).force_unlock().await.unwrap());
        let nobody = first.set_payload("late").await;
        assert!(matches!(nobody, Err(Error::Lost { .. })) && bed.keys().await.is_empty(), "{nobody:?}");
        let second = leads(&two, "two").await;
        let late = first.set_payload("late").await;
        assert!(matches!(late, Err(Error::Lost { .. })) && first.is_leader(), "{late:?}");
        let leader = two.observe(NAME).current().await.unwrap().expect("a leader");
        assert_eq!((leader.epoch, leader.text()), (second.epoch(), Some("two")));
        one.renew_now().await;
        assert!(!first.is_leader(), "{first:?}");
        let resigned = first.resign().await;
        assert!(matches!(resigned, Err(Error::Lost { .. })), "{resigned:?}");
        second.resign().await.unwrap();
    })
    .await;
}

/// The server still has the hold, as after renewals whose replies were lost.
#[tokio::test]
async fn payload_of_leader_whose_lease_has_ended_is_refused() {
    elections(async |bed| {
        let client = bed.still_client().await;
        let term = leads(&client, "one").await;
        let owner = term.guard().owner().to_string();
        term.guard().extend(secs(1)).await.unwrap();
        ends("the lease", term.lost()).await;
        bed.admin.cmd::<()>(&["DEL", NAME]).await;
        bed.admin.cmd::<()>(&["HSET", NAME, &owner, "1"]).await;
        let late = term.set_payload("late").await;
        assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
        assert!(!bed.admin.cmd::<bool>(&["HEXISTS", NAME, "leader:holds"]).await);
        bed.admin.cmd::<()>(&["DEL", NAME]).await;
        drop(term);
        nothing_is_left(bed, &client, "after the term").await;
    })
    .await;
}

/// Requires a single-threaded runtime. With more threads, a reply may arrive before it is awaited.
#[tokio::test]
async fn candidate_dropped_at_any_await_leaves_nothing() {
    elections(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for awaits in 0.. {
            match cut_at(client.lead(NAME).payload("one").next(), awaits).await {
                None => nothing_is_left(bed, &client, &format!("dropped at await {awaits}")).await,
                Some(term) => {
                    assert!(awaits > 1, "acquire and announcement have waited {awaits} times");
                    term.unwrap().resign().await.unwrap();
                    break;
                }
            }
        }
        let term = leads(&other, "other").await;
        let behind = stands(&client, "one");
        waiting(&client, 1).await;
        behind.abort();
        waiting(&client, 0).await;
        term.resign().await.unwrap();
        nothing_is_left(bed, &client, "dropped while it waited").await;
    })
    .await;
}

/// An owner in scope holds the lock for its other acquires. Terms have owners of their own.
#[tokio::test]
async fn candidates_of_one_owner_scope_lead_one_after_the_other() {
    elections(async |bed| {
        let client = bed.client().await;
        let (me, candidate) = (client.owner(), client.lead(NAME));
        let first = me.scope(candidate.next()).await.unwrap();
        let next = tokio::spawn(async move { me.scope(candidate.next()).await });
        waiting(&client, 1).await;
        first.resign().await.unwrap();
        ends("the next term", next).await.unwrap().unwrap().resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn impossible_names_and_long_payloads_are_refused_before_the_election() {
    elections(async |bed| {
        let client = bed.client().await;
        let long = vec![b'x'; 4097];
        assert!(matches!(client.lead(NAME).payload(long.clone()).next().await, Err(Error::Config { .. })));
        assert!(matches!(client.lead("").next().await, Err(Error::Config { .. })));
        assert!(matches!(client.observe("").current().await, Err(Error::Config { .. })));
        assert!(bed.keys().await.is_empty());
        let term = client.lead(NAME).payload(&long[1..]).next().await.unwrap();
        assert!(matches!(term.set_payload(long).await, Err(Error::Config { .. })));
        let leader = client.observe(NAME).current().await.unwrap().expect("a leader");
        assert_eq!(leader.payload.map(|payload| payload.len()), Some(4096));
        term.resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn term_costs_an_acquire_an_announcement_and_a_release() {
    elections(async |bed| {
        let client = bed.still_client().await;
        let observer = client.observe(NAME);
        leads(&client, "warm").await.resign().await.unwrap();
        observer.current().await.unwrap();
        let scripts = async || sent(bed).await.get("evalsha").copied();
        sent(bed).await;
        let term = leads(&client, "one").await;
        assert_eq!(scripts().await, Some(2));
        term.set_payload("two").await.unwrap();
        assert_eq!(scripts().await, Some(1));
        observer.current().await.unwrap();
        assert_eq!(scripts().await, Some(1));
        assert_eq!(ends("the work", term.run(async { 7 })).await.unwrap(), 7);
        assert_eq!(scripts().await, None);
        term.resign().await.unwrap();
        assert_eq!(scripts().await, Some(1));
    })
    .await;
}
