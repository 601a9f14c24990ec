//! Replica acknowledgement: an acquire succeeds only after enough replicas have the write.
//!
//! Each test has a real primary with real replicas, which are frozen, killed and resynchronized.

mod cluster;
mod cost;
mod counted;
mod holders;
mod lanes;
mod moved;
mod replicas;

use bed::fault::refused_by;
use bed::{FLAVOURS, end, ms, secs};
use distlock::{Acks, Acquire, Builder, Client, DistLock, Error, Flavour, Guard};
use distlock_support::{Admin, Replicas, ReplicasOptions};

async fn servers(replicas: usize) -> Replicas {
    let servers = Replicas::start(ReplicasOptions::default().replicas(replicas)).await;
    in_step(&servers).await;
    servers
}

/// Waits until all running replicas acknowledge writes.
async fn in_step(servers: &Replicas) {
    servers.synced().await;
    let replicas = servers.nodes().iter().skip(1).filter(|node| node.is_running()).count();
    acknowledge(servers.node(0).admin(), replicas, "in-step").await;
}

/// Waits until so many replicas acknowledge writes of this key. A replica does so about a second after it has connected.
async fn acknowledge(admin: &Admin, replicas: usize, key: &str) {
    let acknowledge = async || {
        admin.cmd::<()>(&["SET", key, "1", "PX", "1"]).await;
        admin.cmd::<usize>(&["WAIT", &replicas.to_string(), "5000"]).await >= replicas
    };
    bed::eventually("replicas acknowledge", acknowledge).await;
    bed::eventually("the probe key is gone", async || !admin.exists(key).await).await;
}

/// A client of the primary alone that gives up soon, for calls that must be refused. For calls that must succeed, tests
/// use [`had`], which retries.
fn builder(servers: &Replicas, acks: Acks) -> Builder {
    over(servers.node(0).admin_url(), acks)
}

fn over(url: &str, acks: Acks) -> Builder {
    bed::builder(url).acks(acks).retry_attempts(1).configure(|options| {
        options.ack_timeout = ms(200);
        options.retry_delay = (ms(10), ms(20));
    })
}

async fn client(servers: &Replicas, acks: Acks) -> Client {
    builder(servers, acks).connect().await.unwrap()
}

/// A client whose calls wait for replicas for longer than any test takes, however slow the machine is.
async fn patient(servers: &Replicas, acks: Acks) -> Client {
    let builder = builder(servers, acks).watchdog(secs(3600)).configure(|options| {
        options.ack_timeout = secs(600);
        options.poll_cap = secs(3600);
    });
    builder.retry_attempts(100).connect().await.unwrap()
}

/// Acquires a lock that must be granted. On a slow machine a replica may be late, so a refusal is retried.
async fn had_as<L: DistLock + ?Sized>(lock: &L, how: impl Fn() -> Acquire) -> Guard {
    let mut guard = None;
    bed::eventually(&format!("{} is granted", lock.name()), async || {
        match lock.acquire(how()).await {
            Ok(granted) => guard = granted,
            Err(Error::Replicas { .. }) => {}
            Err(error) => panic!("acquire of {}: {error:?}", lock.name()),
        }
        guard.is_some()
    })
    .await;
    guard.expect("eventually() has ended")
}

async fn had<L: DistLock + ?Sized>(lock: &L) -> Guard {
    had_as(lock, Acquire::new).await
}

/// Waits until no key is left on the primary except counters of fenced locks.
async fn nothing_left(servers: &Replicas) {
    let left = async || {
        let mut keys = servers.node(0).admin().keys().await;
        keys.retain(|key| !key.starts_with(bed::COUNTER));
        keys.is_empty()
    };
    bed::eventually("no key is left at the primary", left).await;
}

async fn connected(primary: &Admin, count: usize) {
    let line = format!("connected_slaves:{count}");
    let knows = async || {
        let info: String = primary.cmd(&["INFO", "replication"]).await;
        info.lines().any(|said| said == line)
    };
    bed::eventually("the primary knows its replicas", knows).await;
}

/// Asserts that an acquire is refused with these numbers of replicas (acknowledged, required), and leaves nothing.
async fn refused(servers: &Replicas, client: &Client, flavour: Flavour, numbers: (usize, usize)) {
    refused_by(client, flavour, &format!("refused:{flavour}"), numbers).await;
    nothing_left(servers).await;
}

async fn granted(client: &Client, flavour: Flavour) {
    let guard = had(&*client.lock(flavour, &format!("granted:{flavour}"))).await;
    guard.unlock().await.unwrap();
}
