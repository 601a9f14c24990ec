//! Observers: which leaders and payloads they see, and when.

use std::collections::BTreeMap;

use bed::wire::{Wire, arrives};
use bed::{Bed, becomes, ends, idle, ms};
use distlock::{Leader, Observer};
use tokio::task::JoinHandle;

use crate::{NAME, elections, leads};

/// Waits in a task of its own until the observer sees this payload; `None`: until nobody leads.
fn sees(mut observer: Observer, payload: Option<&'static str>) -> JoinHandle<Observer> {
    tokio::spawn(async move {
        loop {
            let leader = observer.changed().await.unwrap();
            if leader.as_ref().and_then(|leader| leader.text()) == payload && leader.is_some() == payload.is_some() {
                return observer;
            }
        }
    })
}

async fn listens(bed: &Bed) {
    becomes("subscribers", 1, async || bed.admin.numsub(&format!("distlock_leader:{{{NAME}}}")).await).await;
}

/// Three candidates lead in turn, and some change their payload. An observer may miss a leader, but never mixes two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observer_sees_epochs_in_order_each_with_its_own_payload() {
    elections(async |bed| {
        let clients = [bed.client().await, bed.client().await, bed.client().await];
        let mut observer = bed.client().await.observe(NAME);
        assert_eq!(observer.changed().await.unwrap(), None);
        let watching = tokio::spawn(async move {
            let mut seen: Vec<Leader> = Vec::new();
            while seen.last().and_then(|leader| leader.text()) != Some("last") {
                seen.extend(observer.changed().await.unwrap());
            }
            seen
        });
        let mut payloads: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for n in 0..60 {
            let term = leads(&clients[n % 3], &format!("{n}")).await;
            let mut own = vec![format!("{n}")];
            if n % 2 == 0 {
                own.push(format!("{n}, ready"));
                term.set_payload(own[1].as_str()).await.unwrap();
            }
            payloads.insert(term.epoch(), own);
            term.resign().await.unwrap();
        }
        let last = leads(&clients[0], "last").await;
        payloads.insert(last.epoch(), vec!["last".to_owned()]);
        let seen = ends("the observer", watching).await.unwrap();
        last.resign().await.unwrap();
        assert!(seen.is_sorted_by_key(|leader| leader.epoch), "{seen:?}");
        for leader in &seen {
            let own = payloads.get(&leader.epoch).unwrap_or_else(|| panic!("nobody led with {leader:?}"));
            assert!(leader.text().is_none_or(|text| own.iter().any(|own| own == text)), "{leader:?}, {own:?}");
        }
        let before_and_after = |two: &[Leader]| two[0].epoch == two[1].epoch && two[1].payload.is_none();
        assert!(!seen.windows(2).any(before_and_after), "a payload has disappeared: {seen:?}");
    })
    .await;
}

/// These clients do not poll for an hour.
#[tokio::test]
async fn message_wakes_observer_for_each_leader_and_payload() {
    elections(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let mut observer = other.observe(NAME);
        assert_eq!(observer.changed().await.unwrap(), None);
        let waits = sees(observer, Some("one"));
        listens(bed).await;
        let term = leads(&client, "one").await;
        let waits = sees(ends("the first leader", waits).await.unwrap(), Some("two"));
        becomes("waiting observers", 1, async || other.stats().waiting).await;
        term.set_payload("two").await.unwrap();
        let waits = sees(ends("the second payload", waits).await.unwrap(), Some("three"));
        term.resign().await.unwrap();
        let term = leads(&client, "three").await;
        ends("the second leader", waits).await.unwrap();
        term.resign().await.unwrap();
    })
    .await;
}

/// No message reports a deleted key. Only a query finds the change.
#[tokio::test]
async fn change_without_a_message_is_found_at_the_next_poll() {
    elections(async |bed| {
        let client = bed.still_client().await;
        let other = bed.connect(bed.still_builder().configure(|options| options.poll_cap = ms(300))).await;
        let term = leads(&client, "one").await;
        let observer = ends("the leader", sees(other.observe(NAME), Some("one"))).await.unwrap();
        let waits = sees(observer, None);
        listens(bed).await;
        bed.admin.cmd::<()>(&["DEL", NAME]).await;
        ends("the end of the term", waits).await.unwrap();
        drop(term);
        idle(&client).await;
    })
    .await;
}

/// Each message wakes every observer, not only the first in the local queue.
#[tokio::test]
async fn observers_of_one_client_each_see_the_change() {
    elections(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let waits = [(); 3].map(|()| sees(other.observe(NAME), Some("one")));
        becomes("waiting observers", 3, async || other.stats().waiting).await;
        listens(bed).await;
        let term = leads(&client, "one").await;
        for waits in waits {
            ends("an observer", waits).await.unwrap();
        }
        term.resign().await.unwrap();
    })
    .await;
}

/// Java holds the fenced lock like this.
#[tokio::test]
async fn holder_of_the_fenced_lock_is_a_leader_without_payload() {
    elections(async |bed| {
        let client = bed.client().await;
        let guard = client.fenced(NAME).lock().await.unwrap();
        let leader = client.observe(NAME).current().await.unwrap().expect("a leader");
        assert_eq!((Some(leader.epoch), leader.payload.as_deref()), (guard.fencing_token().ok(), None));
        guard.unlock().await.unwrap();
        assert_eq!(client.observe(NAME).current().await.unwrap(), None);
        let term = client.lead(NAME).next().await.unwrap();
        let leader = client.lead(NAME).observe().current().await.unwrap().expect("a leader");
        assert_eq!((leader.epoch, leader.payload.as_deref()), (term.epoch(), None));
        let odd = [0, b' ', 255, b'\n', b'1'];
        term.set_payload(odd).await.unwrap();
        let leader = client.observe(NAME).current().await.unwrap().expect("a leader");
        assert_eq!((leader.payload.as_deref(), leader.text()), (Some(&odd[..]), None));
        term.resign().await.unwrap();
    })
    .await;
}

/// Only a program that does not follow the wire format writes such a field.
#[tokio::test]
async fn malformed_announcement_is_no_payload() {
    elections(async |bed| {
        let client = bed.client().await;
        let guard = client.fenced(NAME).lock().await.unwrap();
        for record in ["", "odd", "7", "7:here"] {
            bed.admin.cmd::<()>(&["HSET", NAME, "leader:holds", record]).await;
            let leader = client.observe(NAME).current().await.unwrap().expect("a leader");
            assert_eq!((Some(leader.epoch), leader.payload), (guard.fencing_token().ok(), None), "{record:?}");
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A copy arrives after a later payload, after the end of the term, and in the next term.
#[tokio::test]
async fn late_copy_of_an_announcement_changes_nothing() {
    elections(async |bed| {
        let client = bed.client().await;
        let observer = client.observe(NAME);
        let text = async || {
            let leader = observer.current().await.unwrap();
            leader.and_then(|leader| leader.text().map(str::to_owned)).unwrap_or_default()
        };
        let term = leads(&client, "begins").await;
        let wire = Wire::tap(&bed.server).await;
        term.set_payload("one").await.unwrap();
        let late = wire.last(bed).await;
        assert!(late.iter().any(|word| word == "one"), "{late:?}");
        term.set_payload("two").await.unwrap();
        arrives(bed, &late).await;
        assert_eq!(text().await, "two");
        term.resign().await.unwrap();
        arrives(bed, &late).await;
        assert!(bed.keys().await.is_empty());
        let term = leads(&client, "next").await;
        arrives(bed, &late).await;
        assert_eq!(text().await, "next");
        term.resign().await.unwrap();
    })
    .await;
}
