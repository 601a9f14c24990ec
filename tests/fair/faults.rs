//! Faults while waiters of a fair lock are in the queue on the server.

use std::sync::Arc;

use distlock::{Client, Error, Flavour, Lost, Released};
use distlock_support::proxy::{Action, Matcher};
use distlock_support::{Admin, RedisServer};
use tokio::sync::Semaphore;

use bed::fault::brisk;
use bed::harm::{in_every_way, runs};
use bed::pest::Deed;
use bed::{Bed, Counter, becomes, ends, eventually, fair, idle, ms, scripts, secs};

use crate::rig::{deadlines, deadlines_key, fair_at_one, patient, patient_client, queue, queued, waiter};

/// Matches requests that run this script of the fair lock by its hash.
fn script(name: &str) -> Matcher {
    runs(&scripts::files(&format!("fair/{name}")))
}

/// Runs every script once, so that the server knows it.
async fn warm(bed: &Bed) {
    let client = patient_client(bed).await;
    let lock = client.fair("warm");
    let guard = lock.lock().await.unwrap();
    let refreshed = bed.proxy();
    let gives_up = bed.connect(patient(bed::builder(&refreshed.url()))).await;
    let seen = refreshed.on_request(script("refresh"), Action::Delay(ms(0)));
    let head = waiter(&gives_up, "warm");
    queued(bed, "warm", 1).await;
    ends("the first refresh", seen.fired()).await;
    head.abort();
    queued(bed, "warm", 0).await;
    guard.unlock().await.unwrap();
    idle(&client).await;
    bed::end(gives_up).await;
}

/// Clients that detect faults soon, and sleep long without wake-ups.
async fn sleepers(bed: &Bed) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..4 {
        let builder = patient(brisk(&bed.server.url()))
            .watchdog(secs(30))
            .configure(|options| options.poll_cap = secs(30))
            .retry_attempts(1_000);
        clients.push(bed.connect(builder).await);
    }
    clients
}

/// Returns the number of deeds (faults of the server) that took effect.
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

/// Connections or scripts are lost repeatedly while 64 tasks of 4 clients wait. All tasks acquire, one at a time. Every
/// eighth release runs together with these deeds, so a slow machine gets as many faults for each release as a fast one.
async fn repeated_faults_lose_no_waiter(deeds: &'static [Deed]) {
    const TASKS: usize = 64;
    const ROUNDS: usize = 3;
    fair(async |bed| {
        let clients = sleepers(bed).await;
        let (admin, counter) = (Arc::new(Admin::connect(&bed.server).await), Arc::new(Counter::default()));
        let tasks = (0..TASKS).map(|n| {
            let lock = clients[n % clients.len()].fair("hot");
            let (admin, counter) = (Arc::clone(&admin), Arc::clone(&counter));
            tokio::spawn(async move {
                let mut done = 0;
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    counter.bump(ms(1)).await;
                    let now: &[Deed] = if counter.get().is_multiple_of(8) { deeds } else { &[] };
                    let (struck, released) = tokio::join!(strike(&admin, now), guard.unlock());
                    assert!(matches!(released, Ok(_) | Err(Error::ReleasePending { .. })), "unlock(): {released:?}");
                    done += struck;
                }
                done
            })
        });
        let mut done = 0;
        for task in tasks.collect::<Vec<_>>() {
            // The bed's limit ends a test that hangs here.
            done += task.await.unwrap();
        }
        assert_eq!(counter.get() as usize, TASKS * ROUNDS, "exclusion broken: an increment was lost");
        assert!(done > 3, "{deeds:?}: {done} done only");
    })
    .await;
}

bed::cases!(on two threads, repeated_faults_lose_no_waiter:
    of_messages = &[Deed::Kill("pubsub")],
    of_all_connections = &[Deed::Kill("normal"), Deed::Kill("pubsub")],
    of_scripts = &[Deed::Flush],
);

/// After `kill -9` and a restart with the data, the queue is unchanged, and all waiters are served in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_survives_a_restart_with_data() {
    let durable = RedisServer::builder().aof(true).arg("--appendfsync", "always").start();
    bed::run_on(
        durable,
        |client, name| client.lock(Flavour::Fair, name),
        async |bed| {
            let clients = sleepers(bed).await;
            let mut guard = clients[0].fair("a").lock_leased(secs(600)).await.unwrap();
            let mut line = Vec::new();
            for n in 0..8 {
                line.push(waiter(&clients[1 + n % 3], "a"));
                queued(bed, "a", n + 1).await;
            }
            let places = queue(bed, "a").await;
            for _ in 0..3 {
                tokio::task::block_in_place(|| bed.server.restart());
                // Some waiters may already have refreshed their deadlines.
                let before = deadlines(bed, "a").await;
                assert_eq!(before.len(), places.len(), "deadlines after the restart: {before:?}");
                let refreshed = async || {
                    let now = deadlines(bed, "a").await;
                    now.len() == before.len() && before.iter().all(|(owner, due)| now.get(owner) > Some(due))
                };
                eventually("every waiter has refreshed its place", refreshed).await;
                assert_eq!(queue(bed, "a").await, places);
            }
            for next in line {
                guard.unlock().await.unwrap();
                guard = ends("the next waiter", next).await.unwrap();
            }
            guard.unlock().await.unwrap();
        },
    )
    .await;
}

/// After a restart without the data, the holder learns of the loss although its lease would last for hours. One waiter
/// gets the lock. The others take new places (queue entries), and all are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_again_after_a_restart_without_data() {
    fair(async |bed| {
        let clients = sleepers(bed).await;
        let hours = patient(brisk(&bed.server.url())).watchdog(secs(36_000)).retry_attempts(1_000);
        let holder = bed.connect(hours).await;
        for _ in 0..3 {
            let guard = holder.fair("a").lock().await.unwrap();
            let leave = Arc::new(Semaphore::new(0));
            let waiting: Vec<_> = (0..8)
                .map(|n| {
                    let (lock, leave) = (clients[1 + n % 3].fair("a"), Arc::clone(&leave));
                    tokio::spawn(async move {
                        let guard = lock.lock().await.unwrap_or_else(|error| panic!("waiter {n}: {error:?}"));
                        let _ = leave.acquire().await.unwrap();
                        guard.unlock().await.unwrap_or_else(|error| panic!("release of waiter {n}: {error:?}"));
                    })
                })
                .collect();
            queued(bed, "a", 8).await;
            tokio::task::block_in_place(|| bed.server.restart());
            let lost = ends("the loss is signalled", guard.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            queued(bed, "a", 7).await;
            leave.add_permits(8);
            for waiting in waiting {
                ends("a waiter", waiting).await.unwrap();
            }
        }
    })
    .await;
}

/// The commands to hit: the script, and which of its calls.
const TARGETS: [(&str, usize); 5] = [("acquire", 1), ("acquire", 2), ("refresh", 1), ("release", 1), ("leave", 1)];

/// A waiter's command is lost, repeated, delayed or cut off. The waiter acquires once, or gives up and leaves the
/// queue. The waiter behind also acquires.
async fn hit(bed: &Bed, action: Action, (name, nth): (&str, usize)) {
    let label = format!("{action:?} of {name} {nth}");
    let key = label.replace(['{', '}'], "");
    let proxy = bed.proxy();
    let builder = patient(brisk(&proxy.url())).watchdog(secs(30)).retry_attempts(1_000);
    let client = bed
        .connect(builder.configure(|options| {
            options.batching = false;
            options.subscription_linger = ms(0);
        }))
        .await;
    let direct = patient_client(bed).await;
    let guard = direct.fair(&key).lock_leased(secs(600)).await.unwrap();
    let armed = proxy.on_request(script(name).containing(&key).nth(nth), action);
    let hit = waiter(&client, &key);
    queued(bed, &key, 1).await;
    let behind = bed::passer(direct.fair(&key));
    queued(bed, &key, 2).await;
    if name == "leave" {
        hit.abort();
        queued(bed, &key, 1).await;
        guard.unlock().await.unwrap();
    } else {
        if name == "refresh" || nth == 2 {
            ends(&label, armed.fired()).await;
        }
        guard.unlock().await.unwrap();
        let guard = ends(&format!("{label}: the waiter"), hit).await.unwrap();
        let expected = [(bed::text(guard.owner()), "1".to_owned())].into();
        assert_eq!(bed.admin.hgetall(&key).await, expected, "{label}: holds");
        if let Err(error) = guard.unlock().await {
            panic!("{label}: the release failed: {error:?}");
        }
    }
    ends(&format!("{label}: the waiter behind it"), behind).await.unwrap();
    assert!(armed.has_fired(), "{label}: the command was never sent");
    idle(&client).await;
    let keys = async || bed.admin.keys().await.into_iter().filter(|left| left.contains(&key)).collect::<Vec<_>>();
    becomes(&format!("{label}: keys"), Vec::new(), keys).await;
    bed::end(client).await;
    bed::end(direct).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_of_waiter_do_not_block_others() {
    fair(async |bed| {
        warm(bed).await;
        in_every_way(TARGETS, |action, target| hit(bed, action, target)).await;
    })
    .await;
}

/// The queue's keys are unusable, so a waiter takes no place. The holder can release the lock, and other clients can
/// force it open.
#[tokio::test]
async fn queue_key_of_wrong_type_is_an_error_for_waiters_only() {
    const BESIDE: [&str; 3] = ["redisson_lock_queue:{x}", "redisson_lock_timeout:{x}", "redisson_lock_waiters:{x}:x"];
    fair(async |bed| {
        let client = bed.client().await;
        let lock = client.fair("x");
        for key in BESIDE {
            for forced in [false, true] {
                let guard = lock.lock().await.unwrap();
                let () = bed.admin.cmd(&["SET", key, "something"]).await;
                let refused = lock.lock_for(secs(600)).await;
                assert!(matches!(refused, Err(Error::WrongType { .. })), "{key}: {refused:?}");
                becomes("calls under way", 0, async || client.stats().under_way).await;
                let mut keys = bed.admin.keys().await;
                keys.sort();
                assert_eq!(keys, [key, "x"], "a place is left");
                if forced {
                    assert!(lock.force_unlock().await.unwrap(), "{key}");
                    drop(guard);
                } else {
                    assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{key}");
                }
                becomes("calls under way", 0, async || client.stats().under_way).await;
                assert_eq!(bed.admin.keys().await, [key], "{forced}");
                let () = bed.admin.cmd(&["DEL", key]).await;
            }
        }
    })
    .await;
}

/// One command refreshes many places. The server refuses the whole command if the login has lost the right to one key.
#[tokio::test]
async fn denied_key_does_not_stop_refresh_of_other_places() {
    fair_at_one(async |bed| {
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "reset", "on", ">SECRET", "+@all", "&*", "~*"]).await;
        let holder = bed.client().await;
        let held = [holder.fair("a").lock().await.unwrap(), holder.fair("b").lock().await.unwrap()];
        // Waiters make no attempt of their own, so only a refresh moves their deadlines.
        let login = bed.builder().username("locks").password("SECRET").configure(|options| {
            options.preflight = false;
            options.poll_cap = secs(3_600);
        });
        let client = bed.connect(login).await;
        let waiters = ["a", "b"].map(|name| waiter(&client, name));
        queued(bed, "a", 1).await;
        queued(bed, "b", 1).await;
        let owner = queue(bed, "a").await.remove(0);
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "resetkeys", "~a", "~*{a}*"]).await;
        let deadline = async || bed.admin.cmd::<f64>(&["ZSCORE", &deadlines_key("a"), &owner]).await;
        let before = deadline().await;
        eventually("the place at a is refreshed", async || deadline().await > before).await;
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "~*"]).await;
        for guard in held {
            guard.unlock().await.unwrap();
        }
        for waiter in waiters {
            ends("a waiter", waiter).await.unwrap().unlock().await.unwrap();
        }
    })
    .await;
}
