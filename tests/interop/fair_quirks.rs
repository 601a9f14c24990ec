//! Shows bugs of Redisson's fair lock, and that our lock does not have them.

use std::time::Duration;

use bed::with_longer_waits;
use distlock::Client;
use distlock_support::agent::AgentOptions;
use futures::future::join_all;

use crate::fair_rig::{GHOST, Lane, Waiter, fair_wait};
use crate::rig::{NEVER, Rig, connect, had, ms, replied, soon, until, watched};
use crate::rw_rig::sits;

/// The time after which a dead head is removed.
const GRACE: Duration = Duration::from_millis(500);
/// Another waiter that does not exist.
const SHADE: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:2";

/// Makes a foreign owner hold the lock for this long.
async fn held_by_nobody(lane: &Lane<'_>, lease: Duration) {
    lane.rig.admin.cmd::<()>(&["HSET", lane.name, SHADE, "1"]).await;
    lane.rig.admin.cmd::<()>(&["PEXPIRE", lane.name, &lease.as_millis().to_string()]).await;
}

/// The lock is free and its head is dead. Redisson's waiters retry without a pause until the head's deadline. If a
/// client of ours also waits, it removes the head after the grace time, and both waiters acquire.
pub async fn fair_dead_head_is_removed_when_our_client_waits(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version)]).await;
    let client = connect(watched(rig.builder()).configure(|options| options.fair_grace = GRACE)).await;
    let lane = Lane::new(&rig, "dead");
    lane.haunt(GHOST, 600_000).await;
    let spins = lane.java(0, 1).start_lock();
    lane.joined(2).await;
    rig.scripts_since(rig.scripts().await, 200).await;

    let ours = fair_wait(&client, lane.name);
    replied(spins).await;
    replied(lane.java(0, 1).unlock()).await;
    soon(ours).await.expect("our waiter").1.unlock().await.expect("unlock");
    lane.is_gone().await;
    rig.end([client]).await;
}

/// The head gives up while the lock is free: Redisson notifies nobody.
pub async fn fair_waiter_behind_head_that_gives_up_is_served(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version), AgentOptions::version(version).in_own_process()]).await;
    let client = rig.watched_client().await;

    let lane = Lane::new(&rig, "theirs");
    // Loads the scripts, so that each attempt is one command.
    replied(lane.java(0, 1).start_lock()).await;
    replied(lane.java(0, 1).unlock()).await;
    with_longer_waits(ms(1000), async |wait| redisson_tells_nobody(&lane, wait).await).await;

    // Java's head gives up with our waiter behind it, with and without a Java waiter between the two.
    for java_between in [false, true] {
        with_longer_waits(ms(1500), async |wait| javas_head_gives_up(&rig, &client, java_between, wait).await).await;
    }
    rig.end([client]).await;
}

/// Java's head gives up while the lock is free, and the waiters behind it acquire. Returns `None` if the head gave up
/// earlier.
///
/// The head's process is frozen until the wait has ended, so the head does not receive our messages.
async fn javas_head_gives_up(rig: &Rig, client: &Client, java_between: bool, wait: Duration) -> Option<()> {
    let (name, agent) = (format!("behind:{java_between}"), &rig.agents[1]);
    let lane = Lane::new(rig, &name);
    held_by_nobody(&lane, NEVER).await;
    let head = tokio::spawn(lane.java(1, 4).start_try_lock(wait, Some(NEVER)));
    until("the head asleep", async || head.is_finished() || agent.sleeps(4).await).await;
    agent.stop();
    let in_time = lane.queue().await.contains(&lane.java_owner(1, 4));
    let mut second = None;
    if java_between {
        second = Some(lane.java(0, 5).start_lock());
        lane.waits(&lane.java_owner(0, 5)).await;
    }
    let last = fair_wait(client, &name);
    lane.waits_as(client).await;
    lane.vanish().await;
    tokio::time::sleep(wait).await;
    agent.cont();
    assert_eq!(had(soon(head).await.expect("the head")), None, "{name}: the head came in after its wait");
    if let Some(second) = second {
        replied(second).await;
        replied(lane.java(0, 5).unlock()).await;
    }
    soon(last).await.expect("the waiter").1.unlock().await.expect("unlock");
    lane.is_gone().await;
    in_time.then_some(())
}

/// Java's head gives up while the lock is free, and the next waiter sleeps on. Returns `None` if the head gave up
/// earlier.
async fn redisson_tells_nobody(lane: &Lane<'_>, wait: Duration) -> Option<()> {
    let agent = &lane.rig.agents[0];
    held_by_nobody(lane, NEVER).await;
    let first = tokio::spawn(lane.java(0, 1).start_try_lock(wait, Some(NEVER)));
    until("the head asleep", async || first.is_finished() || agent.sleeps(1).await).await;
    let mut second = lane.java(0, 2).start_lock();
    let next = lane.java_owner(0, 2);
    lane.waits(&next).await;
    sits(agent, 2).await;
    lane.vanish().await;
    let in_time = lane.queue().await.contains(&lane.java_owner(0, 1));
    assert_eq!(had(soon(first).await.expect("the head")), None);
    if in_time {
        assert_eq!(second.within(ms(1500)).await, None, "Redisson wakes the next by now");
        assert_eq!(lane.queue().await, std::slice::from_ref(&next));
    }
    lane.rig.admin.publish(&lane.channel(&next), b"0").await;
    replied(second).await;
    replied(lane.java(0, 2).unlock()).await;
    in_time.then_some(())
}

/// Our clients' `fair_wait`, instead of the default of 5 s: shorter than the test, and longer than any pause of the
/// machine.
const OUR_FAIR_WAIT: Duration = Duration::from_secs(25);

/// The waits are longer than the deadlines that Redisson computes, so Redisson removes live waiters.
pub async fn fair_our_waiters_keep_entries_during_long_waits(version: &str) {
    let options = AgentOptions { fair_wait: Some(ms(1000)), ..AgentOptions::version(version) };
    let rig = Rig::start(vec![options]).await;
    // Java computes deadlines from the holder's lease, here the default one, which is renewed.
    let holder = rig.watched_client().await;
    let client = connect(watched(rig.builder()).configure(|options| options.fair_wait = OUR_FAIR_WAIT)).await;
    tokio::join!(java_behind_java(&rig, &holder), java_behind_ours(&rig, &holder, &client));
    rig.end([holder, client]).await;
}

/// Java's head is removed by the next waiter of Java's.
async fn java_behind_java(rig: &Rig, holder: &Client) {
    let lane = Lane::new(rig, "theirs");
    let guard = holder.fair(lane.name).lock().await.expect("lock");
    let first = lane.java(0, 1).start_lock();
    let head = lane.joined(1).await;
    let second = lane.java(0, 2).start_lock();
    lane.joined(2).await;
    // A removed waiter queues again with another deadline. Its new place, ahead of or behind the other waiter, is
    // random.
    let due = lane.score(&head).await;
    until("the head thrown out", async || lane.score(&head).await != due).await;
    guard.unlock().await.expect("unlock");
    // By now the other waiter may have been removed as well.
    let waiters = [(1, first), (2, second)].map(|(thread, call)| Waiter::Java(lane.java(0, thread), call).turn());
    join_all(waiters).await;
    lane.is_gone().await;
}

/// Java's waiter ahead of ours is removed by Java's own rules, and queues again behind ours.
async fn java_behind_ours(rig: &Rig, holder: &Client, client: &Client) {
    let lane = Lane::new(rig, "behind");
    let guard = holder.fair(lane.name).lock().await.expect("lock");
    let java = lane.java(0, 5).start_lock();
    let head = lane.joined(1).await;
    let ours = fair_wait(client, lane.name);
    let next = lane.waits_as(client).await;
    until("the head thrown out", async || lane.queue().await == [next.clone(), head.clone()]).await;
    for _ in 0..300 {
        assert_eq!(lane.queue().await.first(), Some(&next), "ours lost its place");
        tokio::time::sleep(ms(10)).await;
    }
    guard.unlock().await.expect("unlock");
    soon(ours).await.expect("the waiter").1.unlock().await.expect("unlock");
    replied(java).await;
    replied(lane.java(0, 5).unlock()).await;
    lane.is_gone().await;
}

/// The last waiter's deadline has expired, and the head's has not. The deadline of a new waiter behind them is computed
/// from a negative remaining time.
pub async fn fair_waiter_with_negative_remaining_time_is_served(version: &str) {
    let rig = Rig::with(version).await;
    // Only its own polls can wake this waiter.
    let client = connect(watched(rig.builder()).configure(|options| options.poll_cap = ms(500))).await;
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
    guard.unlock().await.expect("unlock");
    replied(java).await;
    replied(lane.java(0, 1).unlock()).await;
    lane.is_gone().await;
    rig.end([client]).await;
}
