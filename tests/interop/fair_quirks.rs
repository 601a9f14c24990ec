//! What Redisson's fair lock does wrong (protocol 9.8), shown, and that ours does not.

use std::time::Duration;

use distlock_support::agent::AgentOptions;
use futures::future::join_all;

use crate::fair_rig::{GHOST, Lane, Waiter, fair_wait};
use crate::rig::{NEVER, Rig, connect, ms, replied, soon, until};

/// Another one that does not exist.
const SHADE: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:2";

/// What scripts call inside is counted too, but not among these.
async fn asked(rig: &Rig) -> u64 {
    let stats = rig.admin.commandstats().await;
    let sent = ["evalsha", "eval", "script|load", "subscribe", "unsubscribe", "ping"];
    sent.iter().filter_map(|command| stats.get(*command)).sum()
}

/// Somebody holds it who will not give it back, for this long.
async fn held_by_nobody(lane: &Lane<'_>, lease: Duration) {
    lane.rig.admin.cmd::<()>(&["HSET", lane.name, SHADE, "1"]).await;
    lane.rig.admin.cmd::<()>(&["PEXPIRE", lane.name, &lease.as_millis().to_string()]).await;
}

/// A free lock with a head that is dead: Redisson asks without a pause.
pub async fn fair_dead_head_makes_nobody_spin(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version).in_own_process()]).await;
    let client = rig.client().await;
    let lane = Lane::new(&rig, "dead");
    lane.haunt(GHOST, 600_000).await;
    let _spins = lane.java(0, 1).start_lock();
    let java = lane.joined(2).await;
    // One that waited would ask for next to nothing.
    rig.scripts_since(rig.scripts().await, 200).await;
    rig.agents[0].kill9().await;
    lane.exorcise(&java).await;

    let waiters = (0..64).map(|_| {
        let lock = client.fair(lane.name);
        tokio::spawn(async move { lock.lock().await.expect("the lock").unlock().await.expect("a lock held") })
    });
    let waiters: Vec<_> = waiters.collect();
    lane.joined(65).await;
    // Every subscription has been followed by its look.
    until("quiet", async || {
        let from = asked(&rig).await;
        tokio::time::sleep(ms(250)).await;
        asked(&rig).await <= from + 1
    })
    .await;
    // Our 64 keep their places by one command a beat.
    let from = asked(&rig).await;
    tokio::time::sleep(ms(2000)).await;
    let ours = asked(&rig).await - from;
    assert!(ours <= 2 * 2, "{version}: {ours} commands in two seconds behind a dead head");
    lane.exorcise(GHOST).await;
    for ended in soon(join_all(waiters)).await {
        ended.expect("its turn");
    }
    lane.is_gone().await;
    rig.end([client]).await;
}

/// The head gives up while the lock is free: Redisson tells nobody.
pub async fn fair_giver_up_wakes_the_next(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;

    let lane = Lane::new(&rig, "theirs");
    // The scripts are known to the server: each attempt is one command.
    replied(lane.java(0, 1).start_lock()).await;
    replied(lane.java(0, 1).unlock()).await;
    held_by_nobody(&lane, NEVER).await;
    // Each asks once more when it has subscribed: after that it sleeps.
    let before = rig.scripts().await;
    let first = lane.java(0, 1).start_try_lock(ms(1000), Some(NEVER));
    lane.joined(1).await;
    rig.scripts_since(before, 2).await;
    let before = rig.scripts().await;
    let mut second = lane.java(0, 2).start_lock();
    let next = lane.joined(2).await;
    rig.scripts_since(before, 2).await;
    lane.vanish().await;
    assert_eq!(replied(first).await.value, false);
    assert_eq!(second.within(ms(1500)).await, None, "Redisson wakes the next by now");
    assert_eq!(lane.queue().await, std::slice::from_ref(&next));
    rig.admin.publish(&lane.channel(&next), b"0").await;
    replied(second).await;
    replied(lane.java(0, 2).unlock()).await;

    // Ours, with Java behind it.
    let lane = Lane::new(&rig, "ours");
    held_by_nobody(&lane, NEVER).await;
    let first = fair_wait(&client, lane.name);
    let owner = lane.joined(1).await;
    let second = lane.java(0, 3).start_lock();
    lane.joined(2).await;
    lane.refreshed(&owner).await;
    lane.vanish().await;
    first.abort();
    // Its own next look would come in an hour.
    replied(second).await;
    replied(lane.java(0, 3).unlock()).await;

    // Java's, with ours behind it, and Java's with Java's and ours.
    for java_between in [false, true] {
        let name = format!("behind:{java_between}");
        let lane = Lane::new(&rig, &name);
        held_by_nobody(&lane, NEVER).await;
        let head = lane.java(0, 4).start_try_lock(ms(1500), Some(NEVER));
        lane.joined(1).await;
        let mut second = None;
        if java_between {
            second = Some(lane.java(0, 5).start_lock());
            lane.joined(2).await;
        }
        let last = fair_wait(&client, &name);
        let owner = lane.joined(2 + usize::from(java_between)).await;
        lane.refreshed(&owner).await;
        // The head's wait ends before our next look.
        lane.vanish().await;
        assert_eq!(replied(head).await.value, false);
        if let Some(second) = second {
            replied(second).await;
            replied(lane.java(0, 5).unlock()).await;
        }
        soon(last).await.expect("the waiter").1.unlock().await.expect("a lock held");
        lane.is_gone().await;
    }
    rig.end([client]).await;
}

/// Longer waits than deadlines were reckoned for: Redisson throws out who lives.
pub async fn fair_long_waits_keep_places(version: &str) {
    let options = || AgentOptions { fair_wait: Some(ms(1000)), ..AgentOptions::version(version) };
    let rig = Rig::start(vec![options()]).await;
    let holder = rig.watched_client(ms(9000)).await;
    let client = rig.client().await;

    let lane = Lane::new(&rig, "theirs");
    let guard = holder.fair(lane.name).lock().await.expect("a free lock");
    let first = lane.java(0, 1).start_lock();
    let head = lane.joined(1).await;
    let second = lane.java(0, 2).start_lock();
    lane.joined(2).await;
    // Whether it has come in again behind the other when somebody looks is chance.
    until("the head thrown out", async || lane.queue().await.first().is_some_and(|first| *first != head)).await;
    guard.unlock().await.expect("a lock held");
    // By now the other may have been thrown out as well.
    let waiters = [(1, first), (2, second)].map(|(thread, call)| Waiter::Java(lane.java(0, thread), call).turn());
    join_all(waiters).await;
    lane.is_gone().await;

    // One of ours as the head holds its place, and that of Java behind it.
    let lane = Lane::new(&rig, "ours");
    let guard = holder.fair(lane.name).lock().await.expect("a free lock");
    let first = fair_wait(&client, lane.name);
    lane.joined(1).await;
    let second = lane.java(0, 3).start_lock();
    lane.joined(2).await;
    let third = fair_wait(&client, lane.name);
    lane.joined(3).await;
    let fourth = lane.java(0, 4).start_lock();
    lane.joined(4).await;
    let queue = lane.queue().await;
    // Through several deadlines of a waiter of Java's, and longer than a place of ours lasts unless it is kept.
    for _ in 0..650 {
        assert_eq!(lane.queue().await, queue, "a waiter lost its place");
        tokio::time::sleep(ms(10)).await;
    }
    guard.unlock().await.expect("a lock held");
    // From here on Java's deadlines run, by Java's rules: one may be out of date when its turn comes.
    let [second, fourth] = [(3, second), (4, fourth)].map(|(thread, call)| Waiter::Java(lane.java(0, thread), call));
    let waiters = [Waiter::Ours(first), second, Waiter::Ours(third), fourth].map(Waiter::turn);
    let turns = join_all(waiters).await;
    assert!(turns[0].0 < turns[1].0 && turns[0].0 < turns[2].0, "{turns:?}");
    lane.is_gone().await;

    // Ours behind Java's: that is thrown out by its own rules, and comes in behind.
    let lane = Lane::new(&rig, "behind");
    let guard = holder.fair(lane.name).lock().await.expect("a free lock");
    let java = lane.java(0, 5).start_lock();
    let head = lane.joined(1).await;
    let ours = fair_wait(&client, lane.name);
    let next = lane.joined(2).await;
    until("the head thrown out", async || lane.queue().await == [next.clone(), head.clone()]).await;
    for _ in 0..300 {
        assert_eq!(lane.queue().await.first(), Some(&next), "ours lost its place");
        tokio::time::sleep(ms(10)).await;
    }
    guard.unlock().await.expect("a lock held");
    soon(ours).await.expect("the waiter").1.unlock().await.expect("a lock held");
    replied(java).await;
    replied(lane.java(0, 5).unlock()).await;
    lane.is_gone().await;
    rig.end([holder, client]).await;
}

/// A queue whose end is out of date, but not its head: who comes behind that is told of a time in the past.
pub async fn fair_negative_times_are_bounded(version: &str) {
    let rig = Rig::with(version).await;
    // A waiter whose only hope is its own look.
    let client = connect(rig.builder().poll_cap(ms(500))).await;
    let lane = Lane::new(&rig, "negative");
    held_by_nobody(&lane, NEVER).await;
    lane.haunt(GHOST, 600_000).await;
    lane.haunt(SHADE, -600_000).await;
    let ours = fair_wait(&client, lane.name);
    lane.joined(3).await;
    let java = lane.java(0, 1).start_lock();
    lane.joined(4).await;
    lane.vanish().await;
    lane.exorcise(GHOST).await;
    lane.exorcise(SHADE).await;
    let (_, guard) = soon(ours).await.expect("the waiter");
    guard.unlock().await.expect("a lock held");
    replied(java).await;
    replied(lane.java(0, 1).unlock()).await;
    lane.is_gone().await;
    rig.end([client]).await;
}
