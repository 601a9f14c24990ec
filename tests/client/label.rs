//! Labels of clients: found by every kind of holder, written again, deleted at the end, and never in the way of a lock.

use std::fmt::Display;

use bed::cost::{self, only, sent};
use bed::{Bed, PATIENCE, becomes, eventually, ms, reentrant};
use distlock::{Builder, Client, Error, Flavour};
use distlock_support::{Cluster, ClusterOptions, RedisServer};

const LABEL: &str = "pod-7";

fn key_of(client: &Client) -> String {
    format!("distlock_label:{{{}}}", &client.id().replace('-', "")[..16])
}

/// Connects a client with a label, and waits until the label is written.
async fn labelled(bed: &Bed, builder: Builder) -> Client {
    let client = bed.connect(builder.label(LABEL)).await;
    eventually("the label is written", async || bed.admin.exists(&key_of(&client)).await).await;
    client
}

async fn found(client: &Client, holder: &dyn Display) -> Option<String> {
    client.label_of(holder).await.unwrap()
}

/// Looks up the holders of each flavour, of a multi lock and of a permit, from another client.
async fn holders_lead_to_label(url: &str) {
    // The longest label, in characters of two bytes.
    let label = "é".repeat(64);
    let holder = bed::builder(url).label(&label).connect().await.unwrap();
    let other = bed::builder(url).name_prefix("other:").connect().await.unwrap();
    becomes("the label", Some(label.clone()), async || found(&other, &holder.id()).await).await;

    let view = bed::builder(url).connect().await.unwrap();
    for flavour in Flavour::ALL.iter().copied() {
        let name = format!("lock:{flavour}");
        let guard = holder.lock(flavour, &name).lock().await.unwrap();
        let state = view.lock(flavour, &name).state().await.unwrap();
        assert_eq!(found(&other, &state.holders[0].0).await.as_ref(), Some(&label), "{flavour}");
        guard.unlock().await.unwrap();
    }
    let guard = holder.multi(["m1", "m2"]).lock().await.unwrap();
    let state = view.reentrant("m1").state().await.unwrap();
    let owner = &state.holders[0].0;
    assert!(!owner.starts_with(holder.id()), "group locks have a uuid of their own");
    assert_eq!(found(&other, owner).await.as_ref(), Some(&label));
    assert_eq!(found(&other, guard.owner()).await.as_ref(), Some(&label));
    guard.unlock().await.unwrap();

    let gate = holder.permits("gate");
    assert!(gate.try_set_permits(1).await.unwrap());
    let permit = gate.acquire(1).await.unwrap();
    let held = view.permits("gate").holders().await.unwrap();
    assert_eq!(found(&other, &held[0].id).await.as_ref(), Some(&label));
    permit.release().await.unwrap();

    for unlabelled in [other.id(), "71b96ce8-2746-4c3a-9d0e-0123456789ab:7", "1"] {
        assert_eq!(found(&other, &unlabelled).await, None, "{unlabelled}");
    }
    for client in [holder, other, view] {
        bed::end(client).await;
    }
}

#[tokio::test]
async fn every_holder_on_one_server_leads_to_its_label() {
    let server = RedisServer::start();
    holders_lead_to_label(&server.url()).await;
}

#[tokio::test]
async fn every_holder_in_a_cluster_leads_to_its_label() {
    let cluster = Cluster::start(ClusterOptions::default().primaries(2).replicas(0).node_timeout(60_000)).await;
    holders_lead_to_label(&cluster.url()).await;
}

/// The label of a dead client outlasts the locks that its watchdog renewed, and then expires.
#[tokio::test]
async fn label_expires_later_than_watched_locks() {
    reentrant(async |bed| {
        let client = labelled(bed, bed.builder()).await;
        let lease = i64::try_from(client.options().watchdog.as_millis()).unwrap();
        let left = bed.admin.pttl(&key_of(&client)).await;
        assert!((lease + 1..=4 * lease).contains(&left), "{left} ms with a watchdog of {lease} ms");
    })
    .await;
}

#[tokio::test]
async fn label_is_written_again_after_the_server_lost_its_data() {
    reentrant(async |bed| {
        let quick = || bed.builder().watchdog(ms(900)).command_timeout(ms(300));
        let unlabelled = bed.connect(quick()).await;
        let client = labelled(bed, quick()).await;
        for _ in 0..3 {
            let () = bed.admin.cmd(&["FLUSHALL"]).await;
            eventually("the label is back", async || bed.admin.exists(&key_of(&client)).await).await;
        }
        assert_eq!(bed.admin.keys().await, [key_of(&client)], "{unlabelled:?} has no label");
    })
    .await;
}

#[tokio::test]
async fn label_costs_locks_nothing_and_lookup_one_command() {
    reentrant(async |bed| {
        let client = labelled(bed, bed.still_builder()).await;
        assert_eq!(sent(bed).await.get("set"), Some(&1));
        cost::warm(bed, &client, Flavour::Reentrant).await;
        cost::turns(bed, &client, &client.reentrant("a")).await;
        assert_eq!(client.label_of(client.id()).await.unwrap().as_deref(), Some(LABEL));
        assert_eq!(sent(bed).await, only(&[("get", 1)]));
        assert_eq!(client.label_of("no id").await.unwrap(), None);
        assert_eq!(sent(bed).await, only(&[]));
        client.shutdown(PATIENCE).await.unwrap();
        assert_eq!(sent(bed).await, only(&[("del", 1)]));
    })
    .await;
}

#[tokio::test]
async fn shutdown_and_drop_delete_the_label() {
    reentrant(async |bed| {
        let client = labelled(bed, bed.builder()).await;
        client.shutdown(PATIENCE).await.unwrap();
        assert!(!bed.admin.exists(&key_of(&client)).await);

        let client = bed.builder().label(LABEL).connect().await.unwrap();
        let key = key_of(&client);
        eventually("the label is written", async || bed.admin.exists(&key).await).await;
        drop(client);
        eventually("the label is deleted", async || !bed.admin.exists(&key).await).await;
    })
    .await;
}

#[tokio::test]
async fn login_without_right_to_labels_connects_and_locks() {
    reentrant(async |bed| {
        let rules = ["ACL", "SETUSER", "locks", "reset", "on", ">SECRET", "+@all", "&*", "~app:*"];
        let () = bed.admin.cmd(&rules).await;
        let login = bed.builder().username("locks").password("SECRET").name_prefix("app:").label(LABEL);
        let client = bed.connect(login).await;
        let refused = async || bed.admin.cmd::<Vec<redis::Value>>(&["ACL", "LOG"]).await;
        eventually("the label is refused", async || format!("{:?}", refused().await).contains(&key_of(&client))).await;
        client.reentrant("a").lock().await.unwrap().unlock().await.unwrap();
        let label = client.label_of(client.id()).await;
        assert!(matches!(label, Err(Error::Server { .. })), "{label:?}");
        client.shutdown(PATIENCE).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn label_longer_than_128_bytes_is_refused() {
    let refused = bed::builder("redis://127.0.0.1:1").label("x".repeat(129)).connect().await;
    assert!(matches!(&refused, Err(Error::Config { what }) if what.contains("label")), "{refused:?}");
}
