//! Fair locks: delays by dead waiters, lifetimes of places, and how often clients check places.

use crate::prelude::*;

mod places;

const SECOND: Duration = ms(1_000);
/// The longest delay caused by dead waiters (`fair_wait`), plus a few round trips.
const BOUND: Duration = ms(6_000 + 20);
/// How far a deadline is ahead of the last refresh, in ms.
const PLACE: f64 = 5_500.0;
const QUEUE: &str = "redisson_lock_queue:{a}";
const DEADLINES: &str = "redisson_lock_timeout:{a}";

fn party(server: &SimServer, set: impl FnOnce(&mut Options)) -> Party {
    Party::new(server, way(ms(1)), set)
}

/// The lock `a`, held by one client, and further clients.
struct Held<const N: usize> {
    server: SimServer,
    holder: Party,
    guard: Guard,
    others: [Party; N],
}

async fn held<const N: usize>() -> Held<N> {
    held_by(|_| {}).await
}

async fn held_by<const N: usize>(set: impl FnOnce(&mut Options)) -> Held<N> {
    let server = SimServer::new(1);
    let holder = party(&server, set);
    let others = [(); N].map(|()| party(&server, |_| {}));
    let guard = holder.client.fair("a").lock().await.unwrap();
    Held { server, holder, guard, others }
}

fn queue(server: &SimServer) -> Vec<String> {
    words(&does(server, &format!("lrange {QUEUE} 0 -1")))
}

/// The ms left until each deadline, without fractions. In our deadlines the fraction encodes the time of the refresh.
fn deadlines(server: &SimServer) -> BTreeMap<String, f64> {
    let flat = words(&does(server, &format!("zrange {DEADLINES} 0 -1 withscores")));
    let left = |pair: &[String]| (pair[0].clone(), pair[1].parse::<f64>().unwrap().floor() - now(server) as f64);
    flat.chunks(2).map(left).collect()
}

/// Appends a waiter of a dead Java process to the queue.
fn plant(server: &SimServer, n: u32, left: f64) -> String {
    let owner = format!("ffffffff-ffff-4fff-8fff-ffffffffffff:{n}");
    does(server, &format!("zadd {DEADLINES} {} {owner}", now(server) as f64 + left));
    does(server, &format!("rpush {QUEUE} {owner}"));
    owner
}

/// Starts a waiter at the end of the queue. Its task returns when it acquired the lock, and unlocks it.
async fn waiter(server: &SimServer, party: &Party) -> JoinHandle<Instant> {
    waiter_as(server, party, None).await
}

async fn waiter_as(server: &SimServer, party: &Party, owner: Option<Owner>) -> JoinHandle<Instant> {
    let (lock, before) = (party.client.fair("a"), queue(server).len());
    let how = owner.map_or_else(Acquire::new, |owner| Acquire::new().owner(&owner));
    let task = tokio::spawn(async move {
        let guard = lock.acquire(how).await.unwrap().unwrap();
        let had = Instant::now();
        // A waiter that was cut off may have lost the lock.
        let _ = guard.unlock().await;
        had
    });
    sleep(ms(20)).await;
    assert_eq!(queue(server).len(), before + 1, "it has no place");
    task
}

async fn waiters(server: &SimServer, party: &Party, count: usize) -> Vec<JoinHandle<Instant>> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(waiter(server, party).await);
    }
    all
}

/// For any number of dead waiters, any time of the release, and any lease of a grant.
#[test]
fn dead_waiters_delay_next_waiter_by_at_most_fair_wait() {
    each(
        pairs([(1, ms(30_000)), (16, ms(30_000)), (4, ms(3_000))], [0, 1_500, 3_500, 6_000].map(ms)),
        async |((dead, watchdog), pause)| {
            let set = |options: &mut Options| (options.watchdog, options.command_timeout) = (watchdog, watchdog / 10);
            let Held { server, holder: _holder, guard, others: [going, alive] } = held_by(set).await;
            waiters(&server, &going, dead).await;
            let behind = waiter(&server, &alive).await;
            going.link.partition(true);
            sleep(pause).await;
            let released = Instant::now();
            guard.unlock().await.unwrap();
            let cost = behind.await.unwrap() - released;
            assert!(cost <= BOUND, "{dead} dead for {pause:?}, watchdog {watchdog:?}: {cost:?}");
        },
    );
}

/// Applies to any dead waiter of Java. Applies to our dead waiter if its connection is closed, or if Java waits too.
#[test]
fn each_dead_java_or_disconnected_waiter_costs_grace_time() {
    const GRACE: Duration = ms(500);
    // The line ahead of a live waiter: J = a dead waiter of Java; C = ours, its connection is closed; F = ours, frozen.
    each(["J", "JJJ", "C", "CC", "JFJ", "FCJ"], async |line: &str| {
        let Held { server, holder: _holder, guard, others: [closed, frozen, alive] } = held().await;
        for (n, who) in (1..).zip(line.chars()) {
            match who {
                'J' => drop(plant(&server, n, 500_000.0)),
                'C' => drop(waiter(&server, &closed).await),
                _ => drop(waiter(&server, &frozen).await),
            }
        }
        let behind = waiter(&server, &alive).await;
        closed.link.partition(true);
        frozen.link.partition(true);
        closed.link.hang_up();
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let (cost, dead) = (behind.await.unwrap() - released, u32::try_from(line.len()).unwrap());
        assert!(cost >= GRACE * dead && cost <= (GRACE + ms(20)) * dead, "{line}: {cost:?}");
    });
}

#[test]
fn dead_holder_that_also_waits_costs_at_most_lease_plus_fair_wait() {
    const WATCHDOG: Duration = ms(1_800);
    virtually(async || {
        let set = |options: &mut Options| (options.watchdog, options.command_timeout) = (WATCHDOG, WATCHDOG / 3);
        let Held { server, holder: going, guard, others: [alive] } = held_by(set).await;
        waiters(&server, &going, 3).await;
        let behind = waiter(&server, &alive).await;
        going.link.partition(true);
        let died = Instant::now();
        let cost = behind.await.unwrap() - died;
        assert!(cost <= WATCHDOG + BOUND, "{cost:?}");
        drop(guard);
    });
}

/// The message or its connection is lost. The waiter's next refresh finds the grant.
#[test]
fn waiter_that_misses_message_is_granted_by_next_refresh() {
    each(pairs([false, true], [0, 300, 900, 1_700, 2_900].map(ms)), async |(hang_up, phase)| {
        let Held { server, holder: _holder, guard, others: [waiting] } = held().await;
        let next = waiter(&server, &waiting).await;
        sleep(phase).await;
        if hang_up {
            waiting.link.hang_up();
        } else {
            waiting.link.drop_messages(true);
        }
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let cost = next.await.unwrap() - released;
        assert!(cost <= ms(2_250), "hung up {hang_up}, after {phase:?}: {cost:?}");
    });
}

/// The freeze is shorter or longer than the life of a place.
#[test]
fn all_waiters_are_served_after_server_freeze() {
    each([2_000, 6_000, 20_000].map(ms), async |freeze| {
        let Held { server, holder, guard, others: [one, two] } = held().await;
        let mut line = waiters(&server, &one, 3).await;
        line.extend(waiters(&server, &two, 3).await);
        server.freeze(true);
        sleep(freeze).await;
        server.freeze(false);
        let back = Instant::now();
        guard.unlock().await.unwrap();
        for had in all(line).await {
            let took = had - back;
            assert!(took <= 7 * SECOND, "frozen for {freeze:?}: served after {took:?}");
        }
        settled(&server, &[&holder, &one, &two], 30 * SECOND).await.unwrap();
    });
}

/// The head gives up at any moment around the release, even after the lock was granted to it (Redisson #3254, #6427).
#[test]
fn next_waiter_is_served_at_once_when_head_gives_up() {
    each(0..8, async |moment| {
        let Held { server, holder, guard, others: [going, alive] } = held().await;
        let lock = going.client.fair("a");
        let head = tokio::spawn(async move { lock.lock().await.map(drop) });
        sleep(ms(20)).await;
        let behind = waiter(&server, &alive).await;
        let release = tokio::spawn(guard.unlock());
        sleep(Duration::from_micros(500 * moment)).await;
        head.abort();
        release.await.unwrap().unwrap();
        let released = Instant::now();
        let cost = behind.await.unwrap().saturating_duration_since(released);
        assert!(cost <= ms(10), "given up {moment} half milliseconds after the release began: {cost:?}");
        settled(&server, &[&holder, &going, &alive], 30 * SECOND).await.unwrap();
    });
}

/// Redisson's `testLeaseTimeout`: each waiter enters when the lease before it expires, without any release. Redisson
/// needs 11 s.
#[test]
fn waiters_are_served_in_order_as_leases_expire() {
    virtually(async || {
        let server = SimServer::new(1);
        let clients = [(); 2].map(|()| party(&server, |_| {}));
        let began = Instant::now();
        let mut tasks = Vec::new();
        for n in 0..8 {
            let lock = clients[n % 2].client.fair("a");
            tasks.push(tokio::spawn(async move {
                let guard = lock.acquire(Acquire::new().wait(10 * SECOND).lease(SECOND)).await.unwrap();
                (guard.unwrap_or_else(|| panic!("waiter {n} was not served in 10 s")), Instant::now())
            }));
            sleep(ms(100)).await;
        }
        let (guards, times): (Vec<_>, Vec<_>) = all(tasks).await.into_iter().unzip();
        assert!(times.is_sorted_by(|one, next| one < next), "served out of order: {times:?}");
        assert!(times[7] - began < 11 * SECOND, "{:?}", times[7] - began);
        drop(guards);
        settled(&server, &[&clients[0], &clients[1]], 30 * SECOND).await.unwrap();
    });
}

/// One command every 1 to 2.7 s, however many waiters.
#[test]
fn client_refreshes_all_queue_entries_with_one_command_per_beat() {
    each([1, 100, 400], async |count| {
        let server = SimServer::new(1);
        let [holder, client] = [(); 2].map(|()| party(&server, |_| {}));
        let _guard = holder.client.fair("a").lock_leased(600 * SECOND).await.unwrap();
        let line = waiters(&server, &client, count).await;
        sleep(5 * SECOND).await;
        let before = server.scripts_run();
        sleep(60 * SECOND).await;
        let commands = server.scripts_run() - before;
        assert!((22..=61).contains(&commands), "{count} waiters: {commands} a minute");
        assert_eq!(queue(&server).len(), count);
        drop(line);
    });
}
