//! `rediss-cluster://`: nodes that speak TLS with clients and among each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Builder, Client, Credentials, Error, Flavour, Tls};
use distlock_support::cluster::key_in;
use distlock_support::{Cluster, ClusterOptions};
use parking_lot::Mutex;

use crate::pki::{Authority, When};
use crate::rig::{BOTH, brisk, message, refusal};
use crate::{certificates, have, url};

/// A slot of each of three primaries.
const SLOTS: [u16; 3] = [0, 8_000, 16_000];

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn three(folder: &std::path::Path) -> Cluster {
    Cluster::start(ClusterOptions::default().primaries(3).replicas(0).tls(folder)).await
}

/// As the test's second process is told to, over the transport under test.
fn builder() -> Builder {
    Client::builder(&url()).direct(true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_cluster_go_over_tls_and_follow_their_slots() {
    let folder = certificates("IP:127.0.0.1");
    let cluster = three(folder.path()).await;
    let url = cluster.url();
    assert!(url.starts_with("rediss-cluster://"), "{url}");
    let trusted = folder.path().join("ca.pem");
    // One seed is enough, and tells the others' ports for TLS.
    let (first, _) = url.split_once(',').unwrap();
    for url in [&*url, first] {
        have(&trusted, url, "cluster::inner_locks_on_every_primary_wait_and_wake");
    }
    // A command that goes to the wrong server is told the right one's port for TLS.
    let begun = tokio::task::spawn_blocking({
        let (trusted, url) = (trusted.clone(), url.clone());
        move || have(&trusted, &url, "cluster::inner_a_lock_is_kept_while_its_slot_moves")
    });
    let holder = &cluster.nodes()[0];
    let name = key_in(SLOTS[0], "moves:");
    let held = async || holder.admin().exists(&name).await;
    bed::eventually("it is held", held).await;
    cluster.move_slot(SLOTS[0], &cluster.nodes()[1]).await;
    begun.await.unwrap();
    have(&folder.path().join("stranger.pem"), &url, "cluster::inner_refused");
}

/// Servers that call themselves by addresses for which their certificate is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostnames_are_those_of_the_address_map() {
    let folder = certificates("DNS:localhost");
    let cluster = three(folder.path()).await;
    let trusted = folder.path().join("ca.pem");
    have(&trusted, &cluster.url(), "cluster::inner_refused");
    have(&trusted, &cluster.url(), "cluster::inner_locks_by_names");
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

async fn end(clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        client.shutdown(secs(5)).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_locks_on_every_primary_wait_and_wake() {
    let other = Client::connect(&url()).await.unwrap();
    for builder in [Client::builder(&url()), builder()] {
        let client = builder.connect().await.unwrap();
        assert_eq!(client.capabilities().await.unwrap().servers, 3);
        turns(&client, &other).await;
        for slot in SLOTS {
            let name = key_in(slot, "wakes:");
            let guard = client.reentrant(&name).lock().await.unwrap();
            let lock = other.reentrant(&name);
            let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
            bed::eventually("it waits", async || other.stats().waiting == 1 && other.stats().under_way == 0).await;
            let freed = Instant::now();
            guard.unlock().await.unwrap();
            let guard = waiter.await.unwrap();
            assert!(freed.elapsed() < secs(2), "not woken by the message: {:?}", freed.elapsed());
            guard.unlock().await.unwrap();
        }
        end([client]).await;
    }
    end([other]).await;
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_a_lock_is_kept_while_its_slot_moves() {
    let client = builder().scan_interval(secs(3600)).connect().await.unwrap();
    let name = key_in(SLOTS[0], "moves:");
    let guard = client.reentrant(&name).lock().await.unwrap();
    // Until the map is asked for in an hour, only a redirect tells: of the old primary, or of both while the slot is open.
    let began = Instant::now();
    while began.elapsed() < secs(3) {
        client.renew_now().await;
        assert!(guard.is_held());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    guard.unlock().await.unwrap();
    let lock = client.reentrant(&name);
    lock.try_lock().await.unwrap().expect("free again").unlock().await.unwrap();
    end([client]).await;
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_locks_by_names() {
    let (_, hosts) = url().split_once("://").map(|(scheme, hosts)| (scheme.to_owned(), hosts.to_owned())).unwrap();
    let named = |host: &str| (host.to_owned(), host.replace("127.0.0.1", "localhost"));
    let map: HashMap<String, String> = hosts.split(',').map(named).collect();
    let client = Client::builder(&url()).address_map(map.clone()).connect().await.unwrap();
    let other = builder().address_map(map).connect().await.unwrap();
    turns(&client, &other).await;
    end([client, other]).await;
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_refused() {
    for builder in [Client::builder(&url()), builder()] {
        let refused = builder.connect_timeout(secs(2)).connect().await;
        let Err(Error::Connection { message, .. }) = &refused else { panic!("{refused:?}") };
        assert!(message.to_lowercase().contains("cert"), "{message}");
    }
}

/// Servers that know clients by their certificates, have one certificate for the name of the whole, and call themselves by addresses.
#[cfg(not(feature = "native-tls"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_both_sides_and_a_name_for_the_whole() {
    let authority = Authority::new("cluster");
    authority.server("DNS:cluster.internal", When::Now);
    let (certificate, key) = authority.sign("client-", "DNS:client", When::Now);
    let options = ClusterOptions::default().primaries(3).replicas(0).config("tls-auth-clients yes");
    let cluster = Cluster::start(options.tls(authority.folder())).await;
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

        // What is trusted is replaced under it: told of every server, and healed.
        let works = async |slot| client.reentrant(&key_in(slot, "again:")).try_lock().await;
        std::fs::copy(stranger.file("ca.pem"), &trusted).unwrap();
        for node in cluster.nodes() {
            node.admin().client_kill_type("normal").await;
            node.admin().client_kill_type("pubsub").await;
        }
        for slot in SLOTS {
            let told = async || match works(slot).await {
                Err(Error::Connection { message, .. }) => message.contains("an authority that is not trusted"),
                _ => false,
            };
            bed::eventually("it is told", told).await;
        }
        std::fs::copy(authority.file("ca.pem"), &trusted).unwrap();
        for slot in SLOTS {
            let heals = async || match works(slot).await {
                Ok(guard) => guard.expect("nobody has it").unlock().await.is_ok(),
                Err(_) => false,
            };
            bed::eventually("it is healed", heals).await;
        }
        end([client, other]).await;
    }
}

/// A password that changes on all servers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_asked_for_by_each_server() {
    let authority = Authority::new("cluster");
    authority.server("IP:127.0.0.1", When::Now);
    let cluster = Cluster::start(ClusterOptions::default().primaries(3).replicas(0).tls(authority.folder())).await;
    let set = async |password: &str| {
        for node in cluster.nodes() {
            let rule = format!(">{password}");
            let () =
                node.admin().cmd(&["ACL", "SETUSER", "locks", "on", "resetpass", &rule, "~*", "&*", "+@all"]).await;
        }
    };
    for direct in BOTH {
        let token = Arc::new(Mutex::new("hunter2 of yesterday".to_owned()));
        set("hunter2 of yesterday").await;
        let provider = Arc::clone(&token);
        let credentials = move || {
            let password = provider.lock().clone();
            async move { Ok::<_, std::io::Error>(Credentials::new("locks", password)) }
        };
        let builder = brisk(&cluster.url(), direct).tls(Tls::new().ca_file(authority.file("ca.pem")));
        let builder = builder.credentials(credentials);
        let (client, other) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
        turns(&client, &other).await;
        set("hunter2 of today").await;
        *token.lock() = "hunter2 of today".to_owned();
        for node in cluster.nodes() {
            node.admin().client_kill_type("normal").await;
            node.admin().client_kill_type("pubsub").await;
        }
        for slot in SLOTS {
            let heals = async || match client.reentrant(&key_in(slot, "again:")).try_lock().await {
                Ok(guard) => guard.expect("nobody has it").unlock().await.is_ok(),
                Err(_) => false,
            };
            bed::eventually("it is healed", heals).await;
        }
        end([client, other]).await;
    }
}
