//! `rediss-cluster://`: nodes that speak TLS with clients and with each other.

use std::collections::HashMap;

use bed::secs;
use distlock::{Builder, Client, Error, Flavour, Tls};
use distlock_support::cluster::key_in;
use distlock_support::{Cluster, ClusterOptions, Node};

use crate::pki::{Authority, When};
use crate::rig::{BOTH, brisk, end, follows_a_changed_password, heals, kill, message, refusal, told, wakes};
use crate::{certificates, have, outer, url};

const SLOTS: [u16; 3] = [0, 8_000, 16_000];

async fn three(folder: &std::path::Path) -> Cluster {
    Cluster::start(ClusterOptions::default().primaries(3).replicas(0).node_timeout(60_000).tls(folder)).await
}

/// Builders of the test's second process, one over fred and one over this crate's own connections.
fn builders() -> [Builder; 2] {
    BOTH.map(|direct| outer().configure(|options| options.use_fred = !direct))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_cluster_go_over_tls_and_follow_their_slots() {
    let authority = certificates("IP:127.0.0.1");
    let cluster = three(authority.folder()).await;
    let url = cluster.url();
    assert!(url.starts_with("rediss-cluster://"), "{url}");
    let trusted = authority.file("ca.pem");
    // One seed is enough, because this server reports the TLS ports of the others.
    let (first, _) = url.split_once(',').unwrap();
    for url in [&*url, first] {
        have(&trusted, url, "cluster::inner_locks_on_every_primary_wake_waiters");
    }
    // A redirect must contain the TLS port of the right server.
    let begun = tokio::task::spawn_blocking({
        let (trusted, url) = (trusted.clone(), url.clone());
        move || have(&trusted, &url, "cluster::inner_a_lock_is_kept_while_its_slot_moves")
    });
    let holder = &cluster.nodes()[0];
    let name = key_in(SLOTS[0], "moves:");
    let held = async || holder.admin().exists(&name).await;
    bed::eventually("it is held", held).await;
    cluster.move_slot(SLOTS[0], &cluster.nodes()[1]).await;
    // The key tells the second process that the slot has moved.
    let () = cluster.nodes()[1].admin().cmd(&["HSET", &key_in(SLOTS[0], "moved:"), "somebody", "1"]).await;
    begun.await.unwrap();
    have(&authority.file("stranger.pem"), &url, "cluster::inner_server_certificate_is_refused");
}

/// The servers announce addresses for which their certificate is not valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_map_hostnames_are_checked_against_certificate() {
    let authority = certificates("DNS:localhost");
    let cluster = three(authority.folder()).await;
    let trusted = authority.file("ca.pem");
    have(&trusted, &cluster.url(), "cluster::inner_server_certificate_is_refused");
    have(&trusted, &cluster.url(), "cluster::inner_locks_work_over_mapped_host_names");
}

async fn turns(client: &Client, other: &Client) {
    for (flavour, slot) in Flavour::ALL.iter().flat_map(|flavour| SLOTS.map(|slot| (*flavour, slot))) {
        let name = key_in(slot, &format!("{flavour}:"));
        let guard = client.lock(flavour, &name).lock().await.unwrap();
        if flavour != Flavour::Read {
            assert!(other.lock(flavour, &name).try_lock().await.unwrap().is_none(), "{name}");
        }
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_locks_on_every_primary_wake_waiters() {
    let other = outer().connect().await.unwrap();
    for builder in builders() {
        let client = builder.connect().await.unwrap();
        assert_eq!(client.capabilities().await.unwrap().servers, 3);
        turns(&client, &other).await;
        for slot in SLOTS {
            wakes(&client, &other, &key_in(slot, "wakes:")).await;
        }
        end([client]).await;
    }
    end([other]).await;
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_a_lock_is_kept_while_its_slot_moves() {
    let client = outer()
        .configure(|options| {
            options.use_fred = false;
            options.scan_interval = Some(secs(3600));
        })
        .connect()
        .await
        .unwrap();
    let name = key_in(SLOTS[0], "moves:");
    let guard = client.reentrant(&name).lock().await.unwrap();
    // The next query of the map is an hour away. Until then, only a redirect reports the move.
    let moved = client.reentrant(&key_in(SLOTS[0], "moved:"));
    bed::eventually("the slot has moved", async || {
        client.renew_now().await;
        assert!(guard.is_held());
        moved.is_locked().await.is_ok_and(|locked| locked)
    })
    .await;
    assert_eq!(client.renew_now().await.renewed, 1);
    guard.unlock().await.unwrap();
    let lock = client.reentrant(&name);
    lock.try_lock().await.unwrap().expect("free again").unlock().await.unwrap();
    end([client]).await;
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_locks_work_over_mapped_host_names() {
    let (_, hosts) = url().split_once("://").map(|(scheme, hosts)| (scheme.to_owned(), hosts.to_owned())).unwrap();
    let named = |host: &str| (host.to_owned(), host.replace("127.0.0.1", "localhost"));
    let map: HashMap<String, String> = hosts.split(',').map(named).collect();
    let [client, other] = builders().map(|builder| builder.address_map(map.clone()));
    let (client, other) = (client.connect().await.unwrap(), other.connect().await.unwrap());
    turns(&client, &other).await;
    end([client, other]).await;
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_server_certificate_is_refused() {
    for builder in builders() {
        let message = message(builder).await;
        assert!(message.to_lowercase().contains("cert"), "{message}");
    }
}

/// The servers require client certificates, have one certificate for the cluster's name, and announce addresses.
#[cfg(not(feature = "native-tls"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_server_name_are_checked_and_changed_password_used() {
    let authority = Authority::new("cluster");
    authority.server("DNS:cluster.internal", When::Now);
    let (certificate, key) = authority.sign("client-", "DNS:client", When::Now);
    let options = ClusterOptions::default().primaries(3).replicas(0).node_timeout(60_000);
    let cluster = Cluster::start(options.config("tls-auth-clients yes").tls(authority.folder())).await;
    let trusted = authority.file("trusted.pem");
    std::fs::copy(authority.file("ca.pem"), &trusted).unwrap();
    let named = || Tls::new().ca_file(&trusted).server_name("cluster.internal");
    let right = || named().client_certificate(&certificate, &key);
    let stranger = Authority::new("stranger");
    let (strange, strange_key) = stranger.sign("client-", "DNS:client", When::Now);
    for direct in BOTH {
        let builder = |tls: Tls| brisk(&cluster.url(), direct).tls(tls);
        for (tls, part) in [
            (named(), "asks for a client certificate"),
            (named().client_certificate(&strange, &strange_key), "refuses the client certificate"),
            (right().ca_file(stranger.file("ca.pem")), "an authority that is not trusted"),
            (right().server_name("other"), "not for other, but for cluster.internal"),
            (Tls::new().ca_file(&trusted), "not for 127.0.0.1, but for cluster.internal"),
        ] {
            let said = message(builder(tls)).await;
            assert!(said.contains("TLS: ") && said.contains(part), "{said}");
        }
        let error = refusal(builder(right().ca_file(authority.file("none.pem")))).await;
        assert!(matches!(&error, Error::Config { what } if what.contains("none.pem")), "{error:?}");

        let (client, other) = (builder(right()).connect().await.unwrap(), builder(right()).connect().await.unwrap());
        turns(&client, &other).await;

        // The trusted file is replaced. The error of every server says so, and the client recovers later.
        std::fs::copy(stranger.file("ca.pem"), &trusted).unwrap();
        for node in cluster.nodes() {
            kill(node.admin()).await;
        }
        for slot in SLOTS {
            told(&client, &key_in(slot, "again:"), "an authority that is not trusted").await;
        }
        std::fs::copy(authority.file("ca.pem"), &trusted).unwrap();
        for slot in SLOTS {
            heals(&client, &key_in(slot, "again:")).await;
        }
        end([client, other]).await;
        let admins: Vec<_> = cluster.nodes().iter().map(Node::admin).collect();
        let names = SLOTS.map(|slot| key_in(slot, "again:"));
        follows_a_changed_password(&admins, builder(right()), &names).await;
    }
}
