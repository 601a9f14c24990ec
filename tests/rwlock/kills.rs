//! Connections, subscribers, processes and servers that are killed under readers and writers, or stand still.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock::{Client, DistLock as _, Error, Flavour, Lost, Prefer};
use distlock_support::child::{self, Child};
use distlock_support::proxy::{Mode, Proxy};
use distlock_support::{Numbers, RedisServer, TtlSampler};
use tokio::task::JoinSet;

use crate::faults::{channel, rw_on, waiter};
use bed::fault::{WATCHDOG, brisk};
use bed::pest::{Deed, Pest};
use bed::{Bed, ends, eventually, idle, ms, rw, secs};

const BOTH: [Flavour; 2] = [Flavour::Read, Flavour::Write];

/// A room that notices a writer beside anybody. Above 0: readers inside; −1: a writer.
#[derive(Debug, Default)]
struct Room(AtomicI64);

impl Room {
    async fn visit(&self, flavour: Flavour, pause: Duration) {
        if flavour == Flavour::Read {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) >= 0, "a reader beside a writer");
            tokio::time::sleep(pause).await;
            assert!(self.0.fetch_sub(1, Ordering::SeqCst) > 0, "a writer beside a reader");
        } else {
            assert_eq!(self.0.swap(-1, Ordering::SeqCst), 0, "a writer beside another");
            tokio::time::sleep(pause).await;
            assert_eq!(self.0.swap(0, Ordering::SeqCst), -1, "somebody beside a writer");
        }
    }
}

/// Clients that sleep for long if nobody wakes them.
async fn sleepers(bed: &Bed, prefer: Prefer) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..4 {
        let builder = brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30)).retry_attempts(100);
        clients.push(bed.connect(builder.prefer(prefer)).await);
    }
    clients
}

/// 32 tasks that read and write, 20 times each, under a pest.
async fn contend(clients: &[Client]) {
    let room = Arc::new(Room::default());
    let mut running = JoinSet::new();
    for n in 0..32 {
        let (client, room) = (clients[n as usize % clients.len()].clone(), Arc::clone(&room));
        running.spawn(async move {
            let mut numbers = Numbers::new(n);
            for _ in 0..20 {
                let flavour = if numbers.below(4) == 0 { Flavour::Write } else { Flavour::Read };
                let guard = ends("an acquire", client.lock(flavour, "hot").lock()).await;
                let guard = guard.unwrap_or_else(|error| panic!("{error:?}"));
                room.visit(flavour, ms(2)).await;
                if let Err(error) = guard.unlock().await {
                    assert!(error.is_retryable(), "{error:?}");
                }
            }
        });
    }
    running.join_all().await;
}

/// Connections and scripts are lost all the time: all are served, no writer is beside anybody, nothing is without an end.
async fn pests_lose_no_reader_and_no_writer((what, prefer, deeds): (&str, Prefer, &'static [Deed])) {
    rw(async |bed| {
        let clients = sleepers(bed, prefer).await;
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let pest = Pest::start(bed, ms(50), deeds).await;
        contend(&clients).await;
        let struck = pest.stop().await;
        assert!(struck > 3, "{what}: struck {struck} times only");
        assert_eq!(sampler.stop().await, [], "keys without an end");
    })
    .await;
}

bed::cases!(on two threads, pests_lose_no_reader_and_no_writer:
    of_messages = ("messages", Prefer::Readers, &[Deed::Kill("pubsub")]),
    of_all_connections = ("all", Prefer::Writers, &[Deed::Kill("normal"), Deed::Kill("pubsub")]),
    of_scripts = ("scripts", Prefer::Writers, &[Deed::Flush]),
);

/// The connection for messages is closed in the very moment of waiting, and the release falls in the gap.
#[tokio::test]
async fn a_release_while_the_subscription_is_away_is_noticed() {
    rw(async |bed| {
        let (holder, waiting) = (bed.client().await, sleepers(bed, Prefer::Readers).await.remove(0));
        for flavour in BOTH {
            let guard = holder.rw("a").write().lock().await.unwrap();
            let next = waiter(&waiting, flavour, "a");
            eventually("it listens", async || bed.admin.numsub(&channel("a")).await == 1).await;
            assert!(bed.admin.client_kill_type("pubsub").await >= 1);
            guard.unlock().await.unwrap();
            let guard = ends("the waiter notices", next).await.unwrap();
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// No message comes at all: whoever waits looks for itself within the poll cap.
#[tokio::test]
async fn silence_of_messages_is_bounded_by_the_poll_cap() {
    rw(async |bed| {
        let (proxy, cap) = (Proxy::start(bed.server.addr()), ms(800));
        let holder = bed.client().await;
        let waiting = bed.connect(brisk(&proxy.url()).poll_cap(cap).watchdog(secs(30))).await;
        for (held, waits) in
            [(Flavour::Write, Flavour::Read), (Flavour::Write, Flavour::Write), (Flavour::Read, Flavour::Write)]
        {
            let name = format!("{waits} behind {held}");
            let guard = holder.lock(held, &name).lock().await.unwrap();
            let next = waiter(&waiting, waits, &name);
            eventually("it listens", async || bed.admin.numsub(&channel(&name)).await == 1).await;
            proxy.set_downstream_mode(Mode::DropMessages);
            guard.unlock().await.unwrap();
            let guard = ends(&name, next).await.unwrap();
            proxy.set_downstream_mode(Mode::Pass);
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A process that holds a half, or waits for it, until it is killed.
#[tokio::test]
async fn rwlock_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let (url, flavour) = (std::env::var("URL").unwrap(), std::env::var("FLAVOUR").unwrap().parse().unwrap());
    let client = brisk(&url).prefer(Prefer::Writers).poll_cap(ms(500)).connect().await.unwrap();
    child::say("asking");
    let _guard = client.lock(flavour, "a").lock().await.unwrap();
    child::say("held");
    std::future::pending::<()>().await;
}

fn spawn(bed: &Bed, flavour: Flavour) -> Child {
    let env = [("URL", &*bed.server.url()), ("FLAVOUR", flavour.as_str())];
    Child::spawn("kills::rwlock_process", &env)
}

/// A killed holder keeps whoever waits out until its lease ends, and no longer: a reader too, although another one, who
/// came before and leaves after, keeps the lock itself alive.
#[tokio::test]
async fn a_killed_holder_frees_the_other_half_within_its_lease() {
    rw(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).watchdog(secs(30))).await;
        for flavour in BOTH {
            let beside = if flavour == Flavour::Read {
                Some(client.rw("a").read().lock_leased(secs(30)).await.unwrap())
            } else {
                None
            };
            let mut holder = spawn(bed, flavour);
            holder.expect("asking").await;
            holder.expect("held").await;
            let next = waiter(&client, Flavour::Write, "a");
            eventually("it listens", async || bed.admin.numsub(&channel("a")).await == 1).await;
            holder.kill9();
            if let Some(beside) = beside {
                tokio::time::sleep(ms(500)).await;
                beside.unlock().await.unwrap();
            }
            let guard = ends("the next one, when the lease of the dead is over", next).await.unwrap();
            guard.unlock().await.unwrap();
        }
        // The dead reader's field went with the hash, its cover ran out.
        idle(&client).await;
        assert_eq!(bed.admin.keys().await, Vec::<String>::new());
    })
    .await;
}

/// A preferred writer that is killed while it waits holds readers back for as long as its mark lasts, twice its poll cap.
#[tokio::test]
async fn a_killed_waiting_writer_holds_readers_back_for_a_bounded_time() {
    rw(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).hold_back(secs(3600)).poll_cap(ms(300))).await;
        let guard = client.rw("a").read().lock().await.unwrap();
        let mut writer = spawn(bed, Flavour::Write);
        writer.expect("asking").await;
        eventually("it waits", async || bed.admin.exists("{a}:rwlock_waiting").await).await;
        writer.kill9();
        let second =
            ends("the reader, when the dead one's mark is over", waiter(&client, Flavour::Read, "a")).await.unwrap();
        for guard in [guard, second] {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// `kill -9` and a restart with the data: readers hold still, a writer waits still, and all are served in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_survive_a_restart_with_data() {
    let durable = RedisServer::builder().aof(true).arg("--appendfsync", "always").start();
    rw_on(durable, async |bed| {
        let clients = sleepers(bed, Prefer::Writers).await;
        let mut guards = Vec::new();
        for client in &clients[..2] {
            guards.push(client.rw("a").read().lock().await.unwrap());
        }
        let writing = waiter(&clients[2], Flavour::Write, "a");
        eventually("it waits", async || bed.admin.exists("{a}:rwlock_waiting").await).await;
        for round in 0..2 {
            tokio::task::block_in_place(|| bed.server.restart());
            for client in &clients[..2] {
                let renewed = async || client.renew_now().await.renewed == 1;
                eventually("it is renewed", renewed).await;
            }
            assert!(guards.iter().all(distlock::Guard::is_held) && !writing.is_finished(), "round {round}");
            assert_eq!(bed.admin.keys().await.iter().filter(|key| key.contains("rwlock_timeout")).count(), 2);
        }
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        let guard = ends("the writer", writing).await.unwrap();
        let reading = waiter(&clients[3], Flavour::Read, "a");
        let guard = guard.downgrade().await.unwrap();
        reading.await.unwrap().unlock().await.unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A restart without the data: whoever held either half hears of it long before the lease ends, and whoever waits is in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_are_lost_in_a_restart_without_data() {
    rw(async |bed| {
        let clients = sleepers(bed, Prefer::Writers).await;
        let guards = [
            clients[0].rw("a").read().lock().await.unwrap(),
            clients[1].rw("a").read().lock().await.unwrap(),
            clients[0].rw("b").write().lock().await.unwrap(),
        ];
        let waiting = [waiter(&clients[2], Flavour::Write, "a"), waiter(&clients[2], Flavour::Read, "b")];
        eventually("both wait", async || clients[2].stats().waiting == 2).await;
        tokio::task::block_in_place(|| bed.server.restart());
        for guard in guards {
            let lost = ends("the loss is signalled", guard.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        }
        for waiting in waiting {
            let guard = ends("a waiter after the restart", waiting).await.unwrap();
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A server that stands still for less than the lease loses nothing; for longer, everybody who held is told before anybody
/// else is in.
#[tokio::test]
async fn a_frozen_server_loses_nothing_unsaid() {
    rw(async |bed| {
        let reader = bed.connect(brisk(&bed.server.url()).retry_attempts(50)).await;
        let builder = brisk(&bed.server.url()).watchdog(secs(30)).retry_attempts(50);
        let waiting = bed.connect(builder.prefer(Prefer::Writers)).await;
        for (name, freeze, survives) in [("short", WATCHDOG / 6, true), ("long", WATCHDOG * 3 / 2, false)] {
            let guards = [reader.rw(name).read().lock().await.unwrap(), reader.rw(name).read().lock().await.unwrap()];
            let next = waiter(&waiting, Flavour::Write, name);
            eventually("it waits", async || bed.admin.exists(&format!("{{{name}}}:rwlock_waiting")).await).await;
            bed.server.stop();
            tokio::time::sleep(freeze).await;
            bed.server.cont();
            if survives {
                eventually("renewed", async || reader.renew_now().await.renewed == 2).await;
                assert!(guards.iter().all(distlock::Guard::is_held) && !next.is_finished());
                for guard in guards {
                    guard.unlock().await.unwrap();
                }
                next.await.unwrap().unlock().await.unwrap();
            } else {
                let guard = ends("the writer", next).await.unwrap();
                assert!(!guards.iter().any(distlock::Guard::is_held), "a writer beside a reader");
                for guard in &guards {
                    ends("the loss is signalled", guard.lost()).await;
                }
                drop(guards);
                idle(&reader).await;
                // What the reader's client gives back late touches nobody.
                assert!(guard.is_held() && waiting.rw(name).write().is_locked().await.unwrap());
                guard.unlock().await.unwrap();
            }
        }
    })
    .await;
}
