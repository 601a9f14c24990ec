//! Replica acknowledgement: who is told that it holds a lock before replicas have that, and who is not.
//!
//! Each test has a real primary with real replicas, which are frozen, killed, and brought up to date anew.

mod cluster;
mod cost;
mod counted;
mod holders;
mod lanes;
mod replicas;

use std::time::{Duration, Instant};

use bed::{FLAVOURS, ms, secs};
use distlock::{Acks, Builder, Client, Error, Flavour};
use distlock_support::{Replicas, ReplicasOptions};

/// For what is measured, and wants the machine for itself.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn servers(replicas: usize) -> Replicas {
    let servers = Replicas::start(ReplicasOptions::default().replicas(replicas)).await;
    in_step(&servers).await;
    servers
}

/// All replicas that run acknowledge what is written: one that has come just now does so only a second later.
async fn in_step(servers: &Replicas) {
    servers.synced().await;
    let replicas = servers.nodes().iter().skip(1).filter(|node| node.is_running()).count();
    let admin = servers.node(0).admin();
    let acknowledge = async || {
        admin.cmd::<()>(&["SET", "in-step", "1", "PX", "1"]).await;
        admin.cmd::<usize>(&["WAIT", &replicas.to_string(), "5000"]).await >= replicas
    };
    bed::eventually("replicas acknowledge", acknowledge).await;
    bed::eventually("nothing is left of that", async || !admin.exists("in-step").await).await;
}

/// A client of the primary alone, whose attempts are few: it gives up soon.
fn builder(servers: &Replicas, acks: Acks) -> Builder {
    over(servers.node(0).admin_url(), acks)
}

fn over(url: &str, acks: Acks) -> Builder {
    bed::builder(url).acks(acks).ack_timeout(ms(200)).retry_attempts(1).retry_delay((ms(10), ms(20)))
}

async fn client(servers: &Replicas, acks: Acks) -> Client {
    builder(servers, acks).connect().await.unwrap()
}

async fn end(client: Client) {
    bed::idle(&client).await;
    client.shutdown(secs(5)).await.unwrap();
}

/// Nothing is left at the primary but counters of fenced locks.
async fn nothing_left(servers: &Replicas) {
    let left = async || {
        let mut keys = servers.node(0).admin().keys().await;
        keys.retain(|key| !key.starts_with(bed::COUNTER));
        keys.is_empty()
    };
    bed::eventually("no key is left at the primary", left).await;
}

/// The primary knows that it has so many replicas.
async fn connected(servers: &Replicas, count: usize) {
    let line = format!("connected_slaves:{count}");
    let knows = async || {
        let info: String = servers.node(0).admin().cmd(&["INFO", "replication"]).await;
        info.lines().any(|said| said == line)
    };
    bed::eventually("the primary knows its replicas", knows).await;
}

/// That it is refused for want of replicas, by these numbers, and nothing is left of it.
async fn refused(servers: &Replicas, client: &Client, flavour: Flavour, numbers: (usize, usize)) {
    let name = format!("refused:{flavour}");
    let outcome = client.lock(flavour, &name).try_lock().await;
    assert!(
        matches!(&outcome, Err(error @ Error::Replicas { got, wanted }) if (*got, *wanted) == numbers && error.is_retryable()),
        "{flavour}: {outcome:?}"
    );
    bed::idle(client).await;
    nothing_left(servers).await;
}

/// That it is granted, and given back.
async fn granted(client: &Client, flavour: Flavour) -> Duration {
    let lock = client.lock(flavour, &format!("granted:{flavour}"));
    let began = Instant::now();
    let guard = lock.try_lock().await.unwrap().unwrap_or_else(|| panic!("{flavour}: somebody else has it"));
    let took = began.elapsed();
    guard.unlock().await.unwrap();
    took
}
