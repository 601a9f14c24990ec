//! Slots move back and forth while locks in them are held and waited for. A slot moves key by key, or atomically on
//! servers that support it (`CLUSTER MIGRATESLOTS` of Valkey 9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use distlock::{Acquire, Client, Flavour, Guard};
use distlock_support::{Cluster, slot_of};
use futures::FutureExt as _;
use redis::Value;
use tokio::task::JoinHandle;

use crate::{
    FLAVOURS, client, end, eventually, kept, lock, ms, primaries, secs, turn, waiter, woken, woken_by_messages,
};

/// The hash tag of all names in this file.
const TAG: &str = "turns";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    KeyByKey,
    Atomic,
}

/// Moves the slot to the other of two servers.
async fn go(cluster: &Cluster, way: Way) {
    let slot = slot_of(TAG);
    let to = cluster.other_primary(cluster.owner(slot).await).await;
    match way {
        Way::KeyByKey => cluster.move_slot(slot, to).await,
        Way::Atomic => cluster.migrate_atomically(slot..=slot, to).await.expect("CLUSTER MIGRATESLOTS"),
    }
}

/// Starts two servers. Returns None if they cannot move slots this way.
async fn cluster(way: Way) -> Option<Cluster> {
    let cluster = primaries(2).await;
    let ask = ["COMMAND", "INFO", "CLUSTER|MIGRATESLOTS"];
    let known: Vec<Value> = cluster.nodes()[0].admin().cmd(&ask).await;
    if way == Way::Atomic && !matches!(known.as_slice(), [Value::Array(_)]) {
        distlock_support::skip(
            "atomic moves of slots need CLUSTER MIGRATESLOTS (Valkey 9.0 and later, named in DISTLOCK_SERVER)",
        );
        return None;
    }
    Some(cluster)
}

fn name(flavour: Flavour) -> String {
    // The two halves are one lock.
    let of = if flavour == Flavour::Read { Flavour::Write } else { flavour };
    format!("{{{TAG}}}:{of}")
}

/// Returns true if the guard is held and has never reported a loss.
fn is_safe(guard: &Guard) -> bool {
    guard.is_held() && guard.lost().now_or_never().is_none()
}

/// The held flavour, and the flavour that another client waits for. Plain locks are left out, because their waiters
/// poll.
const PAIRS: [(Flavour, Flavour); 6] = [
    (Flavour::Reentrant, Flavour::Reentrant),
    (Flavour::Fair, Flavour::Fair),
    (Flavour::Fenced, Flavour::Fenced),
    (Flavour::Write, Flavour::Write),
    (Flavour::Write, Flavour::Read),
    (Flavour::Read, Flavour::Write),
];

/// A release wakes a waiter that subscribed before the move. In the first rounds the release follows the move, and in
/// the others it is during the move. Only messages wake this waiter.
async fn release_after_or_during_a_move_wakes_the_waiter(way: Way) {
    let Some(cluster) = cluster(way).await else { return };
    let (one, other) = (client(&cluster).await, woken_by_messages(&cluster).connect().await.unwrap());
    for (n, (held, waited)) in PAIRS.into_iter().cycle().take(4 * PAIRS.len()).enumerate() {
        let guard = lock(&one, held, &name(held)).lock().await.unwrap();
        let waiting = waiter(&other, waited, &name(waited)).await;
        if let Some(n) = n.checked_sub(PAIRS.len()) {
            let releasing = async {
                tokio::time::sleep(ms(2) * u32::try_from(n).unwrap()).await;
                guard.unlock().await.unwrap();
            };
            tokio::join!(releasing, go(&cluster, way));
        } else {
            go(&cluster, way).await;
            guard.unlock().await.unwrap();
        }
        woken(&format!("round {n}, {waited} behind {held}"), waiting).await.unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

bed::cases!(on two threads, release_after_or_during_a_move_wakes_the_waiter:
    key_by_key = Way::KeyByKey,
    atomic = Way::Atomic,
);

/// Counts the tasks that hold a lock now, and the turns (acquires) so far.
#[derive(Debug, Default)]
struct Inside {
    readers: AtomicU32,
    others: AtomicU32,
    turns: AtomicUsize,
}

impl Inside {
    /// Takes one turn. Asserts that the holder is alone or shares the lock with readers, and that its lock is not
    /// reported lost.
    async fn turn(&self, flavour: Flavour, guard: &Guard) {
        let reads = flavour == Flavour::Read;
        let mine = if reads { &self.readers } else { &self.others };
        let before = mine.fetch_add(1, Ordering::SeqCst);
        let (others, readers) = (self.others.load(Ordering::SeqCst), self.readers.load(Ordering::SeqCst));
        assert_eq!(others, u32::from(!reads), "{flavour}: exclusive holders inside");
        assert!(reads || before + readers == 0, "{flavour}: {before} writers and {readers} readers inside");
        tokio::time::sleep(ms(1)).await;
        assert!(is_safe(guard), "{flavour}: signalled as lost: {guard:?}");
        mine.fetch_sub(1, Ordering::SeqCst);
        self.turns.fetch_add(1, Ordering::SeqCst);
    }
}

/// Takes turns until `done`. Every call must succeed.
async fn take_turns(client: Client, flavour: Flavour, inside: Arc<Inside>, done: Arc<AtomicBool>) {
    let lock = lock(&client, flavour, &name(flavour));
    while !done.load(Ordering::SeqCst) {
        let guard = lock.acquire(Acquire::new().wait(secs(300))).await;
        let guard = guard.unwrap_or_else(|error| panic!("{flavour}: acquire: {error:?}"));
        let guard = guard.unwrap_or_else(|| panic!("{flavour}: acquire: the wait ran out"));
        inside.turn(flavour, &guard).await;
        guard.unlock().await.unwrap_or_else(|error| panic!("{flavour}: unlock: {error:?}"));
    }
}

/// A held lock of this flavour in the slot that moves.
fn held_name(flavour: Flavour) -> String {
    format!("{{{TAG}}}:held:{flavour}")
}

/// After a move, other clients find every lock held. Only readers share theirs.
async fn are_held(other: &Client) {
    for flavour in FLAVOURS {
        let taken = lock(other, flavour, &held_name(flavour)).try_lock().await.unwrap();
        assert_eq!(taken.is_some(), flavour == Flavour::Read, "{flavour}: the number of holders");
        if let Some(reader) = taken {
            reader.unlock().await.unwrap();
        }
    }
}

/// Three clients take turns at locks of every flavour while the slot moves. Other locks of every flavour in this slot,
/// and locks in other slots, are held and renewed by the same commands.
async fn holds_and_turns_go_on_during_moves(way: Way) {
    let Some(cluster) = cluster(way).await else { return };
    let clients = [client(&cluster).await, client(&cluster).await, client(&cluster).await];
    let done = Arc::new(AtomicBool::new(false));
    // Both halves of the read-write lock use one counter.
    let both = Arc::new(Inside::default());
    let inside = FLAVOURS.map(|flavour| match flavour {
        Flavour::Read | Flavour::Write => (flavour, Arc::clone(&both)),
        _ => (flavour, Arc::default()),
    });
    let mut held = Vec::new();
    for n in 0..60 {
        let name = if n % 3 == 0 { format!("{{{TAG}}}:held:{n}") } else { format!("held:{n}") };
        held.push(clients[0].reentrant(&name).lock().await.unwrap());
    }
    // The second read hold has an owner of its own.
    for flavour in FLAVOURS.into_iter().chain([Flavour::Read]) {
        held.push(lock(&clients[0], flavour, &held_name(flavour)).lock().await.unwrap());
    }
    let tasks: Vec<JoinHandle<()>> = clients
        .iter()
        .flat_map(|client| inside.iter().map(move |(flavour, inside)| (client, *flavour, Arc::clone(inside))))
        .map(|(client, flavour, inside)| tokio::spawn(take_turns(client.clone(), flavour, inside, Arc::clone(&done))))
        .collect();
    let counts = || inside.each_ref().map(|(_, inside)| inside.turns.load(Ordering::SeqCst));
    for _ in 0..10 {
        let last = counts();
        go(&cluster, way).await;
        are_held(&clients[1]).await;
        assert_eq!(clients[0].renew_now().await.lost, 0, "renewals find every held lock");
        assert!(held.iter().all(is_safe), "a held lock is signalled as lost: {held:?}");
        eventually("every flavour has had turns since the move", async || {
            tasks.iter().any(JoinHandle::is_finished) || counts().iter().zip(last).all(|(now, then)| *now > then + 3)
        })
        .await;
    }
    done.store(true, Ordering::SeqCst);
    for task in tasks {
        bed::ends("a task that takes turns", task).await.unwrap();
    }
    kept(&clients[0], held.len()).await;
    for guard in held {
        guard.unlock().await.unwrap();
    }
    for client in clients {
        end(client).await;
    }
}

bed::cases!(on two threads, holds_and_turns_go_on_during_moves: key_by_key = Way::KeyByKey, atomic = Way::Atomic);

/// During the move, the slot's keys are on both servers. A lock with one key works during the move. A lock with several
/// keys works again after the move.
#[tokio::test]
async fn half_moved_slot_keeps_exclusion_and_releases() {
    let cluster = primaries(2).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in FLAVOURS {
        let name = format!("half:{flavour}");
        let slot = slot_of(&name);
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        let from = cluster.primary_of(&name).await;
        let to = cluster.other_primary(from).await;
        cluster.open_slot(slot, to).await;
        cluster.move_keys(slot, &[&name]).await;
        let has_one_key = matches!(flavour, Flavour::Reentrant | Flavour::Spin | Flavour::Plain);
        if flavour != Flavour::Read {
            match lock(&other, flavour, &name).try_lock().await {
                Ok(taken) => assert!(taken.is_none(), "{flavour}: two holders"),
                Err(error) => assert!(!has_one_key && error.is_retryable(), "{flavour}: {error:?}"),
            }
        }
        assert_eq!(one.renew_now().await.lost, 0, "{flavour}: renewal");
        assert!(guard.is_held(), "{flavour}");
        let releasing = tokio::spawn(guard.unlock());
        if has_one_key {
            releasing.await.unwrap().unwrap();
            cluster.close_slot(slot).await;
        } else {
            let rest = cluster.keys_in_slot(slot).await;
            cluster.move_keys(slot, &rest).await;
            cluster.close_slot(slot).await;
            releasing.await.unwrap().unwrap();
        }
        turn(&other, flavour, &name).await;
    }
    end(one).await;
    end(other).await;
}
