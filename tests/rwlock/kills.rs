//! Connections, subscribers and servers are killed while readers and writers use them. `dead.rs` tests killed processes,
//! and `tests/sim` lost messages, frozen servers, and clients that are cut off.

use std::sync::Arc;

use distlock::{Client, Error, Flavour, Guard, Lost, Prefer};
use distlock_support::{Admin, Numbers, RedisServer, TtlSampler};
use tokio::task::JoinSet;

use crate::rig::{BOTH, HOUR, Inside, granted, marked, served, unlock_all, waiter};
use bed::fault::brisk;
use bed::pest::Deed;
use bed::{Bed, PATIENCE, becomes, ends, ms, rw, secs};

/// Clients that sleep long without wake-ups. Their connections are closed, so no command has to time out soon.
async fn sleepers(bed: &Bed, prefer: Prefer) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..4 {
        let builder = brisk(&bed.server.url()).watchdog(HOUR).command_timeout(secs(10)).connect_timeout(PATIENCE);
        let builder = builder.configure(|options| options.poll_cap = secs(30)).retry_attempts(100);
        clients.push(bed.connect(builder.configure(|options| options.prefer = prefer)).await);
    }
    clients
}

const TASKS: u64 = 32;
const ROUNDS: usize = 20;

/// Applies these deeds to the server. Returns how many took effect.
async fn strike(admin: &Admin, deeds: &[Deed]) -> u64 {
    let mut done = 0;
    for deed in deeds {
        done += match deed {
            Deed::Kill(kind) => admin.client_kill_type(kind).await,
            Deed::Flush => {
                admin.script_flush().await;
                1
            }
        };
    }
    done
}

/// Runs tasks that read and write. Every eighth release of a task runs together with faults, which hit the release and
/// the next acquires. So a slow machine gets as many faults for each section as a fast one. Returns the number of
/// faults.
async fn contend(clients: &[Client], admin: &Arc<Admin>, deeds: &'static [Deed]) -> u64 {
    let inside = Arc::<Inside>::default();
    let mut running = JoinSet::new();
    for n in 0..TASKS {
        let (client, inside) = (clients[n as usize % clients.len()].clone(), Arc::clone(&inside));
        let admin = Arc::clone(admin);
        running.spawn(async move {
            let (mut numbers, mut done) = (Numbers::new(n), 0);
            for round in 0..ROUNDS {
                let writes = numbers.below(4) == 0;
                let guard = ends("an acquire", client.lock(BOTH[usize::from(writes)], "hot").lock()).await;
                let guard = guard.unwrap_or_else(|error| panic!("lock: {error:?}"));
                if writes {
                    inside.write(ms(2)).await;
                } else {
                    inside.read(ms(2)).await;
                }
                let deeds = if (round + n as usize).is_multiple_of(8) { deeds } else { &[] };
                let (struck, released) = tokio::join!(strike(&admin, deeds), guard.unlock());
                done += struck;
                if let Err(error) = released {
                    assert!(matches!(error, distlock::Error::ReleasePending { .. }), "unlock: {error:?}");
                }
            }
            done
        });
    }
    running.join_all().await.into_iter().sum()
}

/// Connections and scripts are lost again and again. All tasks acquire, a writer is always alone, and every key has a
/// TTL.
async fn pests_lose_no_reader_and_no_writer((prefer, deeds): (Prefer, &'static [Deed])) {
    rw(async |bed| {
        let clients = sleepers(bed, prefer).await;
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let struck = contend(&clients, &Arc::new(Admin::connect(&bed.server).await), deeds).await;
        println!("{deeds:?}: {struck} done");
        assert!(struck > 3, "{deeds:?}: {struck} done only");
        assert_eq!(sampler.stop().await, [], "keys without an end");
    })
    .await;
}

bed::cases!(on two threads, pests_lose_no_reader_and_no_writer:
    of_messages = (Prefer::Readers, &[Deed::Kill("pubsub")]),
    of_all_connections = (Prefer::Writers, &[Deed::Kill("normal"), Deed::Kill("pubsub")]),
    of_scripts = (Prefer::Writers, &[Deed::Flush]),
);

/// After `kill -9` and a restart with the data, readers still hold the lock, a writer still waits, and all waiters
/// acquire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_survive_server_restart_with_data() {
    let durable = RedisServer::builder().aof(true).arg("--appendfsync", "always").start();
    bed::run_on(
        durable,
        |client, name| client.lock(Flavour::Write, name),
        async |bed| {
            let clients = sleepers(bed, Prefer::Writers).await;
            let mut guards = Vec::new();
            for client in &clients[..2] {
                guards.push(client.rw("a").read().lock().await.unwrap());
            }
            let writing = waiter(&clients[2], Flavour::Write, "a");
            marked(bed, "a").await;
            for round in 0..2 {
                tokio::task::block_in_place(|| bed.server.restart());
                for client in &clients[..2] {
                    becomes("renewed", 1, async || client.renew_now().await.renewed).await;
                }
                assert!(guards.iter().all(Guard::is_held) && !writing.is_finished(), "round {round}");
                assert_eq!(bed.admin.keys().await.iter().filter(|key| key.contains("rwlock_timeout")).count(), 2);
            }
            unlock_all(guards).await;
            let guard = granted("the writer", writing).await;
            let reading = waiter(&clients[3], Flavour::Read, "a");
            let guard = guard.downgrade().await.unwrap();
            served("a reader", reading).await;
            guard.unlock().await.unwrap();
        },
    )
    .await;
}

/// After a restart without the data, every holder of either half learns of the loss long before its lease ends, and
/// waiters acquire the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_are_lost_in_server_restart_without_data() {
    rw(async |bed| {
        let clients = sleepers(bed, Prefer::Writers).await;
        let guards = [
            clients[0].rw("a").read().lock().await.unwrap(),
            clients[1].rw("a").read().lock().await.unwrap(),
            clients[0].rw("b").write().lock().await.unwrap(),
        ];
        let waiting = [waiter(&clients[2], Flavour::Write, "a"), waiter(&clients[2], Flavour::Read, "b")];
        becomes("waiters", 2, async || clients[2].stats().waiting).await;
        tokio::task::block_in_place(|| bed.server.restart());
        for guard in guards {
            let lost = ends("the loss is signalled", guard.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        }
        for waiting in waiting {
            served("a waiter after the restart", waiting).await;
        }
    })
    .await;
}
