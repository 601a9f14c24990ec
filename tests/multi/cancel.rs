//! Acquires and releases of multi locks that are dropped at any point leave nothing. Leases outlast the test, so that
//! leftovers stay visible.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Flavour, MultiLock, Step};
use distlock_support::Numbers;

use crate::rig::{Second, member, multi};
use bed::dropped::{at_each_await, only_left};
use bed::harm::cut;
use bed::{apart, ends, ms, reentrant, secs};

/// Subscriptions end and restart during the test.
const LINGER: Duration = ms(20);

/// Longer than any wait of the test.
const LONG: Duration = secs(600);

/// Drops `count` acquires at random points. The last acquire is not dropped.
async fn drops(lock: MultiLock, client: Client, seed: u64, count: u64) {
    let mut numbers = Numbers::new(seed);
    let mut dropped = 0;
    while dropped < count {
        let how = match numbers.below(5) {
            0 => Acquire::new().wait(ms(numbers.below(3))),
            1 => Acquire::new().lease(LONG),
            2 => Acquire::new().owner(&client.owner()),
            3 => Acquire::new().owner(&client.owner()).lease(LONG),
            _ => Acquire::new(),
        };
        let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(4000)) };
        match cut(lock.acquire(how), numbers.below(8), pause).await {
            None => dropped += 1,
            Some(Ok(Some(guard))) => match numbers.below(3) {
                0 => drop(cut(guard.unlock(), numbers.below(4), Duration::ZERO).await),
                1 => drop(guard),
                _ => drop(guard.unlock().await.unwrap()),
            },
            // A wait of a few milliseconds may end while a command is in flight, which is then undone.
            Some(Ok(None) | Err(Error::Timeout { step: Step::Command, .. })) => {}
            Some(Err(error)) => panic!("an acquire failed: {error}"),
        }
    }
    let guard = ends("an acquire that is not dropped", lock.lock()).await.unwrap();
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
}

/// The lists have overlapping plain members (reentrant locks of one client), or members of all flavours on two servers
/// and of two clients.
async fn dropped_at_random_points_it_leaves_nothing(all_flavours: bool) {
    reentrant(async |bed| {
        let builder = || bed.builder().subscription_linger(LINGER).watchdog(LONG);
        let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
        let second = Second::with(|builder| builder.subscription_linger(LINGER).watchdog(LONG)).await;
        let lock = |n: usize| {
            let client = &clients[n % 2];
            if !all_flavours {
                return client.multi((0..4).map(|i| format!("c{}", (n + i * 3) % 8)));
            }
            let mut locks: Vec<_> =
                Flavour::ALL.iter().map(|flavour| client.lock(*flavour, flavour.as_str())).collect();
            locks.push(member(second.client.reentrant("there")));
            locks.push(member(multi(client, &[(Flavour::Reentrant, "inner"), (Flavour::Fair, "most")])));
            locks.rotate_left(n * 2);
            MultiLock::of(locks)
        };
        let (tasks, each) = if all_flavours { (4, 80) } else { (8, 100) };
        let tasks: Vec<_> =
            (0..tasks).map(|n| tokio::spawn(drops(lock(n), clients[n % 2].clone(), n as u64 + 1, each))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        for client in &clients {
            only_left(bed, client, &[], "after all").await;
        }
        second.end().await;
    })
    .await;
}

bed::cases!(on two threads, dropped_at_random_points_it_leaves_nothing:
    plain_members = false,
    members_of_all_flavours_on_two_servers = true,
);

/// Drops an acquire at its first await, then one at its second, and so on. Does the same with releases. In a cluster
/// the members are on different primaries. All members are free, or another client holds one member.
#[tokio::test]
async fn acquire_or_release_dropped_at_each_await_leaves_no_keys() {
    reentrant(async |bed| {
        let client = bed.connect(bed.builder().subscription_linger(LINGER)).await;
        let other = bed.client().await;
        let mut kinds: Vec<_> = Flavour::ALL.iter().map(|flavour| [*flavour; 3]).collect();
        kinds.push([Flavour::Reentrant, Flavour::Fair, Flavour::Write]);
        for kind in kinds {
            let names = apart("each");
            let members: Vec<_> = kind.into_iter().zip(names.iter().map(String::as_str)).collect();
            let lock = multi(&client, &members);
            for taken in [None, Some(0), Some(2)] {
                let mut theirs = Vec::new();
                if let Some(taken) = taken {
                    // The rival of a reader is a writer, because two readers do not exclude each other.
                    let flavour = if kind[taken] == Flavour::Read { Flavour::Write } else { kind[taken] };
                    theirs.push(other.lock(flavour, &names[taken]).lock_leased(LONG).await.unwrap());
                }
                let keys = bed.keys().await;
                let how = || Acquire::new().lease(LONG).wait(if taken.is_some() { ms(60) } else { LONG });
                let look = async |when: String| only_left(bed, &client, &keys, &when).await;
                at_each_await(async || lock.acquire(how()).await, look).await;
                for guard in theirs {
                    guard.unlock().await.unwrap();
                }
            }
            let free = multi(&other, &members).try_lock().await.unwrap();
            free.expect("all members are free").unlock().await.unwrap();
        }
    })
    .await;
}
