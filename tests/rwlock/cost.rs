//! The cost of the read-write lock.

use std::ops::RangeInclusive;

use distlock::{Acquire, Client, DistLock, Error, Flavour, Prefer};

use crate::rig::{BOTH, HOUR, RIVALS, channel, cover, marked, marks, unlock_all};
use bed::cost::{only, renewal, sent, turns};
use bed::{Bed, becomes, ends, eventually, in_vain, ms, passer, rw, secs, with_longer_waits};

/// Local readers of one name.
const READERS: usize = 1_000;

/// Maximum number of reader calls in one command.
const TOGETHER: u64 = 32;

/// Number of calls that are sent alone before further calls are batched.
const ALONE: u64 = 3;

/// Connects a client. The server knows all scripts, including those for batches.
async fn begin(bed: &Bed) -> Client {
    let client = bed.still_client().await;
    for half in BOTH {
        bed::cost::warm(bed, &client, half).await;
    }
    let guard = client.rw("warm").read().lock().await.unwrap();
    let leaves = passer(client.rw("warm").prefer(Prefer::Writers).write());
    marked(bed, "warm").await;
    leaves.abort();
    let ended = ends("a writer that is aborted", leaves).await;
    assert!(ended.is_err_and(|ended| ended.is_cancelled()), "a writer beside a reader");
    guard.unlock().await.unwrap();
    let many = (0..8).map(|n| client.rw(&format!("warm {n}")).read());
    futures::future::join_all(many.map(async |lock| lock.lock().await.unwrap().unlock().await.unwrap())).await;
    bed::idle(&client).await;
    // A force of the read half leaves covers until they expire, as in Redisson.
    let () = bed.admin.cmd(&["FLUSHALL"]).await;
    bed.admin.reset_stats().await;
    client
}

/// Runs all futures in one task that never yields while one of them can make progress. On a single-threaded runtime,
/// all calls are made before any reply is read. So the number of calls in a command does not depend on the machine's
/// speed.
async fn at_once<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    tokio::task::unconstrained(futures::future::join_all(all)).await
}

/// The number of commands for `calls` concurrent calls. The first few calls are sent alone, and all others in full
/// batches. The replies to the first calls may trigger a few partial batches. In a cluster, calls that touch several
/// keys per name are sent alone.
fn few(calls: usize) -> RangeInclusive<u64> {
    let calls = calls as u64;
    if bed::is_cluster() {
        return calls..=calls;
    }
    let least = ALONE + (calls - ALONE).div_ceil(TOGETHER);
    least..=least + 2 * ALONE
}

#[tokio::test]
async fn lock_and_release_of_free_half_cost_two_commands() {
    rw(async |bed| {
        let client = begin(bed).await;
        for flavour in BOTH {
            let lock = client.lock(flavour, "x");
            turns(bed, &client, &*lock).await;
        }
    })
    .await;
}

#[tokio::test]
async fn try_lock_of_busy_half_costs_one_command() {
    rw(async |bed| {
        let (client, other) = (begin(bed).await, bed.still_client().await);
        for (held, asked) in RIVALS {
            let guard = client.lock(held, "x").lock().await.unwrap();
            sent(bed).await;
            assert!(other.lock(asked, "x").try_lock().await.unwrap().is_none());
            assert!(client.lock(asked, "x").try_lock().await.unwrap().is_none());
            assert!(client.rw("x").prefer(Prefer::Writers).write().try_lock().await.unwrap().is_none());
            assert_eq!(sent(bed).await, only(&[("evalsha", 3)]), "{asked} beside {held}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// One owner uses both halves, in every order.
#[tokio::test]
async fn re_entry_release_query_extend_and_refusal_cost_one_command_each() {
    rw(async |bed| {
        let client = begin(bed).await;
        let (lock, me) = (client.rw("x"), client.owner());
        let (read, write) = (lock.read(), lock.write());
        let how = || Acquire::new().owner(&me);
        let one = async |what: &str| assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "{what}");
        let outer = write.acquire(how()).await.unwrap().unwrap();
        one("write").await;
        let inner = write.acquire(how()).await.unwrap().unwrap();
        one("write again").await;
        let first = read.acquire(how()).await.unwrap().unwrap();
        one("read beside").await;
        let second = read.acquire(how()).await.unwrap().unwrap();
        one("read again").await;
        for guard in [&outer, &first] {
            guard.extend(2 * HOUR).await.unwrap();
            one("extend").await;
        }
        for half in [&read as &dyn DistLock, &write] {
            assert_eq!(half.hold_count(&me).await.unwrap(), 2);
            one("state").await;
        }
        for guard in [inner, outer, second] {
            guard.unlock().await.unwrap();
            one("unlock").await;
        }
        let refused = write.acquire(how()).await;
        assert!(matches!(refused, Err(Error::WouldDeadlock { .. })), "it would wait for itself: {refused:?}");
        one("upgrade").await;
        assert!(!write.force_unlock().await.unwrap());
        one("force, held otherwise").await;
        assert!(read.force_unlock().await.unwrap());
        one("force").await;
        drop(first);
        // Deletes the covers of readers whose holds were ended by force.
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

#[tokio::test]
async fn downgrade_costs_two_commands() {
    rw(async |bed| {
        let client = begin(bed).await;
        for lease in [None, Some(2 * HOUR)] {
            let how = lease.map_or(Acquire::new(), |lease| Acquire::new().lease(lease));
            let guard = client.rw("x").write().acquire(how).await.unwrap().unwrap();
            sent(bed).await;
            let guard = guard.downgrade().await.unwrap();
            assert_eq!(sent(bed).await, only(&[("evalsha", 2)]));
            guard.unlock().await.unwrap();
            assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        }
    })
    .await;
}

/// A wait that ends without the lock costs a subscribe and three attempts: at the start, after the subscription, and
/// 100 ms before the end. A preferred writer also removes its mark (its entry among the waiting writers).
#[tokio::test]
async fn preferred_writer_sends_one_more_command_when_giving_up() {
    rw(async |bed| {
        let (holder, client) = (
            begin(bed).await,
            bed.connect(bed.still_builder().configure(|options| options.subscription_linger = ms(0))).await,
        );
        let guard = holder.rw("x").read().lock().await.unwrap();
        for (prefer, scripts) in [(Prefer::Readers, 3), (Prefer::Writers, 4)] {
            let lock = client.rw("x").prefer(prefer).write();
            let sent = with_longer_waits(secs(1), async |wait| {
                becomes("listeners", 0, async || bed.admin.numsub(&channel("x")).await).await;
                bed.admin.reset_stats().await;
                let mut waiting = std::pin::pin!(lock.lock_for(wait));
                // The second attempt is sent after the confirmed subscription.
                let two_answers = async || bed.admin.calls("evalsha").await == 2 && client.stats().under_way == 0;
                let (outcome, in_time) = tokio::select! {
                    outcome = &mut waiting => (outcome, false),
                    () = eventually("two attempts are answered", two_answers) => (waiting.await, true),
                };
                assert!(in_vain(&outcome), "{prefer:?}: {outcome:?}");
                bed::idle(&client).await;
                assert!(!bed.admin.exists(&marks("x")).await, "{prefer:?}: a mark is left");
                let sent = sent(bed).await;
                // If the machine is suspended at the end of the wait, there is no time for the last attempt, and the
                // test tries again.
                (in_time && sent.get("evalsha") >= Some(&scripts)).then_some(sent)
            })
            .await;
            assert_eq!(sent.get("evalsha"), Some(&scripts), "{prefer:?}: {sent:?}");
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Behind another process's writer, a thousand readers cost as much as one. After the writer's release, the first
/// reader acquires. Then all others join it, and their calls share commands. Each reader has its own field and cover.
#[tokio::test]
async fn thousand_waiting_readers_are_one_contender_and_granted_together() {
    rw(async |bed| {
        let (holder, client) = (begin(bed).await, bed.still_client().await);
        let scripts = async || bed.admin.calls("evalsha").await;
        let writer = holder.rw("x").write().lock().await.unwrap();
        bed.admin.reset_stats().await;
        let locks: Vec<_> = (0..READERS).map(|_| client.rw("x").read()).collect();
        let readers = tokio::spawn(at_once(locks.into_iter().map(|lock| async move { lock.lock().await.unwrap() })));
        becomes("attempts", 2, async || scripts().await).await;
        let settled = async || (client.stats().waiting, client.stats().under_way);
        becomes("waiters, commands in flight", (READERS, 0), settled).await;
        let mut all = sent(bed).await;
        all.retain(|name, _| !name.starts_with("pubsub"));
        assert_eq!(all, only(&[("evalsha", 2), ("subscribe", 1)]));
        assert_eq!(bed.admin.numsub(&channel("x")).await, 1);

        writer.unlock().await.unwrap();
        let guards = ends("all readers are in", readers).await.unwrap();
        let commands = scripts().await;
        println!("in by {commands} commands");
        // The commands are the writer's release, the first reader's acquire, and the other readers' acquires.
        assert!(few(READERS - 1).contains(&(commands - 2)), "{commands}");
        assert_eq!(sent(bed).await.get("subscribe"), None);
        let (fields, keys) = (bed.admin.hgetall("x").await, bed.admin.keys().await);
        assert_eq!(fields["mode"], "read");
        for (owner, holds) in fields.iter().filter(|(field, _)| *field != "mode") {
            assert_eq!(holds, "1", "{owner}");
            assert!(keys.binary_search(&cover("x", owner, 1)).is_ok(), "{owner} has no cover");
        }
        assert_eq!((fields.len(), keys.len()), (READERS + 1, READERS + 1), "the mode or the hash, and the readers");

        bed.admin.reset_stats().await;
        at_once(guards.into_iter().map(async |guard| guard.unlock().await.unwrap())).await;
        let commands = scripts().await;
        println!("and left by {commands} commands");
        assert!(few(READERS).contains(&commands), "{commands}");
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// Readers of one name, readers of many names, and writers. One command renews a hundred holds of either half.
#[tokio::test]
async fn renewal_of_both_halves_costs_one_command_per_hundred_holds() {
    rw(async |bed| {
        let client = begin(bed).await;
        let mut guards = Vec::new();
        for (flavour, names, each, commands) in
            [(Flavour::Read, 50, 1, 1), (Flavour::Write, 50, 1, 1), (Flavour::Read, 95, 10, 11)]
        {
            for name in 0..names {
                let lock = client.lock(flavour, &bed::kin(&format!("{flavour} {each} {name}")));
                for _ in 0..each {
                    guards.push(lock.lock().await.unwrap());
                }
            }
            renewal(bed, &client, &guards, commands).await;
        }
        unlock_all(guards).await;
    })
    .await;
}
