//! Turns at locks of every flavour, while the slot that they are all in goes from one server to the other and back: key by key, and
//! in one go where the servers know how (`CLUSTER MIGRATESLOTS` of Valkey 9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use bed::lag::Lag;
use distlock::{Acquire, Client, Flavour, Guard};
use distlock_support::{Cluster, must, slot_of};
use futures::FutureExt as _;
use redis::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::{FLAVOURS, client, end, exclusive, kept, lock, ms, primaries, secs};

/// What all names here have in braces.
const TAG: &str = "turns";

/// How a slot is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    KeyByKey,
    InOneGo,
}

/// Moves the slot to the other one of two servers.
async fn go(cluster: &Cluster, way: Way) {
    let slot = slot_of(TAG);
    let to = cluster.other_primary(cluster.owner(slot).await).await;
    match way {
        Way::KeyByKey => cluster.move_slot(slot, to).await,
        Way::InOneGo => cluster.migrate_atomically(slot..=slot, to).await.expect("it is known here"),
    }
}

/// Two servers, unless they do not know this way.
async fn cluster(way: Way) -> Option<Cluster> {
    let cluster = primaries(2).await;
    let ask = ["COMMAND", "INFO", "CLUSTER|MIGRATESLOTS"];
    let known: Vec<Value> = cluster.nodes()[0].admin().cmd(&ask).await;
    if way == Way::InOneGo && !matches!(known.as_slice(), [Value::Array(_)]) {
        println!("skipped: needs CLUSTER MIGRATESLOTS (Valkey 9.0 and later, named in DISTLOCK_SERVER)");
        return None;
    }
    Some(cluster)
}

fn name(flavour: Flavour) -> String {
    // Both halves are of one lock.
    let of = if flavour == Flavour::Read { Flavour::Write } else { flavour };
    format!("{{{TAG}}}:{of}")
}

/// Nobody was told that this is lost.
fn is_safe(guard: &Guard) -> bool {
    guard.is_held() && guard.lost().now_or_never().is_none()
}

/// What is held when the slot goes is held by the same ones after that, and by nobody else.
async fn what_is_held_stays_held(way: Way) {
    let Some(cluster) = cluster(way).await else { return };
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let mut guards = Vec::new();
    for flavour in exclusive() {
        guards.push(lock(&one, flavour, &name(flavour)).lock().await.unwrap());
    }
    let read = |client: &Client| lock(client, Flavour::Read, &format!("{{{TAG}}}:read"));
    guards.extend([read(&one).lock().await.unwrap(), read(&one).lock().await.unwrap()]);
    for _ in 0..4 {
        go(&cluster, way).await;
        for flavour in exclusive() {
            let taken = lock(&other, flavour, &name(flavour)).try_lock().await.unwrap();
            must(taken.is_none(), "two holders");
        }
        read(&other).try_lock().await.unwrap().expect("others may read").unlock().await.unwrap();
        kept(&one, guards.len()).await;
        assert!(guards.iter().all(is_safe));
    }
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    for flavour in FLAVOURS {
        lock(&other, flavour, &name(flavour)).try_lock().await.unwrap().expect("free").unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

bed::cases!(what_is_held_stays_held: key_by_key = Way::KeyByKey, in_one_go = Way::InOneGo);

/// What is held, and what another waits for beside it.
const PAIRS: [(Flavour, Flavour); 7] = [
    (Flavour::Reentrant, Flavour::Reentrant),
    (Flavour::Fair, Flavour::Fair),
    (Flavour::Fenced, Flavour::Fenced),
    (Flavour::Plain, Flavour::Plain),
    (Flavour::Write, Flavour::Write),
    (Flavour::Write, Flavour::Read),
    (Flavour::Read, Flavour::Write),
];

/// Waits at a second client; done once it does nothing but wait.
async fn waits(client: &Client, flavour: Flavour) -> JoinHandle<(Guard, Instant)> {
    let waiter = lock(client, flavour, &name(flavour));
    let waiting =
        tokio::spawn(async move { waiter.lock().await.map(|guard| (guard, Instant::now())).expect("it waits") });
    while client.stats().waiting == 0 || client.stats().under_way > 0 {
        tokio::time::sleep(ms(5)).await;
    }
    waiting
}

/// A release wakes who has waited since before the slot went, in 50 ms.
async fn who_waits_is_woken(way: Way) {
    let Some(cluster) = cluster(way).await else { return };
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let lag = Lag::start();
    for (held, waited) in PAIRS {
        let guard = lock(&one, held, &name(held)).lock().await.unwrap();
        let waiting = waits(&other, waited).await;
        go(&cluster, way).await;
        kept(&one, 1).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let (guard, at) = waiting.await.unwrap();
        println!("{way:?}, {waited} behind {held}: woken {:?} after the release", at - released);
        assert!(at - released < lag.allow(ms(50)), "{waited} behind {held}: woken after {:?}", at - released);
        guard.unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

bed::cases!(on two threads, who_waits_is_woken: key_by_key = Way::KeyByKey, in_one_go = Way::InOneGo);

/// The same, where the release comes while the slot goes.
async fn who_waits_is_woken_in_between(way: Way) {
    let Some(cluster) = cluster(way).await else { return };
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let lag = Lag::start();
    // In one go a server lets commands wait for a moment. Key by key, a lock of several keys is out of reach until the slot is whole,
    // and asked for every 100 ms: by who releases it, and by who is woken.
    let most = if way == Way::InOneGo { ms(50) } else { ms(250) };
    for (n, (held, waited)) in PAIRS.into_iter().cycle().take(3 * PAIRS.len()).enumerate() {
        let guard = lock(&one, held, &name(held)).lock().await.unwrap();
        let waiting = waits(&other, waited).await;
        let releasing = async {
            tokio::time::sleep(ms(2) * u32::try_from(n).unwrap()).await;
            guard.unlock().await.unwrap();
            Instant::now()
        };
        let moving = async {
            go(&cluster, way).await;
            Instant::now()
        };
        let (released, whole) = tokio::join!(releasing, moving);
        let (guard, at) = waiting.await.unwrap();
        let took = at.saturating_duration_since(if way == Way::InOneGo { released } else { released.max(whole) });
        println!("{way:?}, {waited} behind {held}: woken after {took:?}");
        assert!(took < lag.allow(most), "{waited} behind {held}: woken after {took:?}");
        guard.unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

bed::cases!(on two threads, who_waits_is_woken_in_between: key_by_key = Way::KeyByKey, in_one_go = Way::InOneGo);

/// How many are inside a lock, and how many turns there were.
#[derive(Debug, Default)]
struct Inside {
    readers: AtomicU32,
    others: AtomicU32,
    turns: AtomicUsize,
}

impl Inside {
    /// One turn: nobody is inside who must not be, and the lock is not lost meanwhile.
    async fn turn(&self, flavour: Flavour, guard: &Guard) {
        let mine = if flavour == Flavour::Read { &self.readers } else { &self.others };
        let before = mine.fetch_add(1, Ordering::SeqCst);
        must(self.others.load(Ordering::SeqCst) == u32::from(flavour != Flavour::Read), "somebody else is inside");
        must(flavour == Flavour::Read || before + self.readers.load(Ordering::SeqCst) == 0, "two are inside");
        tokio::time::sleep(ms(1)).await;
        must(is_safe(guard), "it was told as lost");
        mine.fetch_sub(1, Ordering::SeqCst);
        self.turns.fetch_add(1, Ordering::SeqCst);
    }
}

/// Clients take turns at locks of every flavour, while the slot goes back and forth: one at a time, and none of their calls fails.
async fn turns_go_on(way: Way) {
    const TIMES: usize = 10;
    let Some(cluster) = cluster(way).await else { return };
    let clients = [client(&cluster).await, client(&cluster).await, client(&cluster).await];
    let done = Arc::new(AtomicBool::new(false));
    // Both halves are counted together.
    let both = Arc::new(Inside::default());
    let inside = FLAVOURS.map(|flavour| match flavour {
        Flavour::Read | Flavour::Write => (flavour, Arc::clone(&both)),
        _ => (flavour, Arc::default()),
    });
    let tasks: Vec<_> = clients
        .iter()
        .flat_map(|client| inside.iter().map(move |(flavour, inside)| (client, *flavour, Arc::clone(inside))))
        .map(|(client, flavour, inside)| {
            let (lock, done) = (lock(client, flavour, &name(flavour)), Arc::clone(&done));
            tokio::spawn(async move {
                while !done.load(Ordering::SeqCst) {
                    let guard = lock.acquire(Acquire::new().wait(secs(60))).await;
                    let guard = guard.unwrap_or_else(|error| panic!("{flavour}: {error:?}")).expect("a minute is long");
                    inside.turn(flavour, &guard).await;
                    guard.unlock().await.unwrap_or_else(|error| panic!("{flavour}: {error:?}"));
                }
            })
        })
        .collect();
    let counts = || inside.each_ref().map(|(_, inside)| inside.turns.load(Ordering::SeqCst));
    let mut last = counts();
    for n in 0..TIMES {
        go(&cluster, way).await;
        // Everybody has had a turn since.
        bed::eventually("all have had a turn", async || {
            tasks.iter().any(JoinHandle::is_finished) || counts().iter().zip(last).all(|(now, then)| *now > then + 3)
        })
        .await;
        println!("{way:?}, {n}: {:?}", counts());
        last = counts();
    }
    done.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    for client in clients {
        end(client).await;
    }
}

bed::cases!(on two threads, turns_go_on: key_by_key = Way::KeyByKey, in_one_go = Way::InOneGo);
