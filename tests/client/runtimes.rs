//! Work that began on another runtime continues on the client's runtime after that runtime ends.

use std::sync::Arc;

use bed::{becomes, builder, end, ends, eventually, idle, ms, reentrant, secs};
use distlock::{Acquire, Client, DistLock, Flavour};
use distlock_sim::{LinkOptions, SimServer};
use distlock_support::{Action, Matcher};
use futures::future::BoxFuture;
use tokio::runtime::Builder;

use super::rig::{is_served, runtime, takes};

type Work = fn(Arc<dyn DistLock>) -> BoxFuture<'static, ()>;

/// Work that may be in flight when a runtime ends.
const WORKS: [(&str, Work); 6] = [
    ("lock", |lock| Box::pin(async move { drop(lock.lock().await) })),
    ("lock, as an owner of its own", |lock| {
        Box::pin(async move {
            let owner = "7d9e0c47-6b0c-4a2b-9a35-1f6b5b6f0b11:5".parse().unwrap();
            drop(lock.acquire(Acquire::new().owner(&owner)).await);
        })
    }),
    ("lock_for", |lock| Box::pin(async move { drop(lock.lock_for(secs(5)).await) })),
    ("unlock", |lock| Box::pin(async move { drop(lock.lock().await.unwrap().unlock().await) })),
    ("extend", |lock| Box::pin(async move { drop(lock.lock().await.unwrap().extend(secs(20)).await) })),
    ("force_unlock", |lock| Box::pin(async move { drop(lock.force_unlock().await) })),
];

/// Runs the flavour's scripts once, so that the server knows them and the test sends each command once.
async fn learn(client: &Client, flavour: Flavour) {
    let lock = client.lock(flavour, "known");
    let guard = lock.lock().await.unwrap();
    guard.extend(secs(20)).await.unwrap();
    guard.unlock().await.unwrap();
    lock.force_unlock().await.unwrap();
}

/// The reply arrives after the runtime has ended, or never. If it never arrives, the undo needs timers, and the ended
/// runtime has none.
async fn a_runtime_that_ends_with_a_command_in_flight_leaves_nothing(lost: bool) {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        // No lease ends during the test, so only the undo can remove a key.
        let options = builder(&proxy.url())
            .watchdog(secs(3600))
            .configure(|options| options.retry_delay = (ms(20), ms(40)))
            .retry_attempts(1_000);
        let (options, action, flavours, commands) = if lost {
            (options.command_timeout(ms(300)), Action::HangReply, &[Flavour::Reentrant][..], 1)
        } else {
            (options, Action::DelayReply(ms(150)), &[Flavour::Reentrant, Flavour::Fair, Flavour::Write][..], 2)
        };
        let client = bed.connect(options).await;
        for flavour in flavours {
            learn(&bed.client().await, *flavour).await;
            for (what, work) in WORKS {
                for nth in 1..=commands {
                    let name = format!("{flavour} {what} {nth}").replace(' ', "-");
                    let lock = client.lock(*flavour, &name);
                    let hit = proxy.on_request(Matcher::command("EVALSHA").containing(&name).nth(nth), action);
                    let there = runtime();
                    let task = there.spawn(work(Arc::clone(&lock)));
                    let sent = async || hit.has_fired() || task.is_finished();
                    eventually("a command is in flight", sent).await;
                    hit.disarm();
                    there.shutdown_background();
                    idle(&client).await;
                    // Other tasks may share the hold of an explicit owner, so the client does not undo such a hold.
                    if lost && what.contains("owner") {
                        bed.admin.cmd::<u64>(&["DEL", &name]).await;
                    }
                    becomes(&format!("{name} is held"), false, async || bed.admin.exists(&name).await).await;
                    if lost {
                        proxy.close_all();
                    }
                    ends("the next acquire", lock.lock()).await.unwrap().unlock().await.unwrap();
                }
            }
        }
        end(client).await;
    })
    .await;
}

bed::cases!(a_runtime_that_ends_with_a_command_in_flight_leaves_nothing:
    with_late_reply = false,
    with_lost_reply = true,
);

/// The task that created the local queue of a striped lock ends with its runtime.
#[tokio::test]
async fn striped_lock_waiter_is_served_after_runtime_of_first_waiter_ends() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = client.striped("s", 2);
        let held = [striped.lock().await.unwrap(), striped.lock().await.unwrap()];
        let there = runtime();
        let first = striped.clone();
        there.spawn(async move { first.lock().await.unwrap() });
        eventually("it waits", async || client.stats().waiting >= 2).await;
        let second = takes(striped.clone());
        // The second waiter joins the first waiter's queue in this time. No counter shows this.
        tokio::time::sleep(ms(50)).await;
        there.shutdown_background();
        for guard in held {
            guard.unlock().await.unwrap();
        }
        is_served("the second waiter", second).await;
    })
    .await;
}

#[test]
fn runtime_that_ends_after_any_step_leaves_no_keys() {
    let server = SimServer::new(11);
    let home = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let link = server.link(LinkOptions::default());
    let client = home.block_on(async { link.client(|_| {}) }).unwrap();
    for (what, work) in WORKS {
        for steps in 0..24 {
            let lock = client.lock(Flavour::Reentrant, what);
            // Another runtime with a timer. No task waits for its end.
            let there = Builder::new_current_thread().enable_all().build().unwrap();
            let task = there.spawn(work(lock));
            for _ in 0..steps {
                there.block_on(tokio::task::yield_now());
                home.block_on(async { tokio::time::sleep(ms(1) / 10).await });
            }
            drop((there, task));
            let busy = || client.stats().under_way + client.stats().holds + client.stats().waiting > 0;
            for round in 0..=100 {
                assert!(round < 100 || !busy(), "{what}, {steps} steps: {:?}", client.stats());
                if busy() {
                    home.block_on(async { tokio::time::sleep(ms(5)).await });
                }
            }
            assert!(server.keys().is_empty(), "{what}, {steps} steps: {:?}", server.keys());
        }
    }
    home.block_on(client.shutdown(secs(5))).unwrap();
}
