//! Our semaphore and Redisson's `RSemaphore` share one number. Also the waiters for permits and for semaphores.

use distlock::{Client, PermitGuard, Permits, Semaphore};
use distlock_support::Admin;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::latch::{end_with_tokens, java, spoken};
use crate::listener::Listener;
use crate::permits::{GATE, counts, end, gate, take, texts};
use crate::rig::{Rig, ms, replied, soon, until};
use crate::rw_rig::sits;

/// A TTL that outlasts every test, and one whose end a test waits for, in ms.
const TTL: u64 = 600_000;
const MOMENT: u64 = 50;
/// A lease whose end a waiter waits for, in ms.
const BRIEF: u64 = 700;
const COUNTER: &str = "counter";
const ROUNDS: u64 = 100;

/// The channel of permits and of semaphores.
pub fn sc_channel(name: &str) -> String {
    format!("redisson_sc:{{{name}}}")
}

/// Waits until one task of our client waits and is subscribed.
async fn we_wait(rig: &Rig, client: &Client, name: &str) {
    rig.waiting(client, 1).await;
    rig.listeners(&sc_channel(name), 1).await;
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// `trySetPermits`.
    Set(u32),
    /// `trySetPermits` with [`TTL`].
    SetFor(u32),
    /// `trySetPermits` with a TTL of [`MOMENT`], and waits for its end.
    SetBriefly(u32),
    /// `tryAcquire`.
    Take(u32),
    Give(u32),
    /// `releaseIfExists`.
    GiveIf(u32),
    Add(i32),
    Drain,
    Delete,
}

use Step::{Add, Delete, Drain, Give, GiveIf, Set, SetBriefly, SetFor, Take};

/// Steps with their answer (1 for true and for no answer) and the number after them.
type Row = &'static [(Step, i64, Option<i64>)];

/// Each row has a name of its own. Redisson's add and drain remove the TTL.
const ROWS: [Row; 9] = [
    &[(Give(0), 1, None), (Take(0), 1, None), (Take(1), 0, None), (GiveIf(1), 0, None), (Drain, 0, None)],
    &[(Delete, 0, None), (Give(1), 1, Some(1)), (Give(1), 1, Some(2)), (Set(5), 0, Some(2)), (Take(2), 1, Some(0))],
    &[(Set(4), 1, Some(4)), (Add(3), 1, Some(7)), (Take(8), 0, Some(7)), (Take(7), 1, Some(0)), (Drain, 0, Some(0))],
    &[(Add(2), 1, Some(2)), (Add(-5), 1, Some(-3)), (Take(1), 0, Some(-3)), (Drain, -3, Some(0))],
    &[(Add(-5), 1, Some(-5)), (Give(1), 1, Some(-4)), (Give(5), 1, Some(1)), (GiveIf(2), 1, Some(3))],
    &[(SetFor(3), 1, Some(3)), (SetFor(9), 0, Some(3)), (Take(1), 1, Some(2)), (Give(2), 1, Some(4))],
    &[(SetFor(3), 1, Some(3)), (GiveIf(1), 1, Some(4)), (Add(1), 1, Some(5)), (Delete, 1, None)],
    &[(SetFor(3), 1, Some(3)), (Drain, 3, Some(0))],
    &[(SetBriefly(2), 1, None), (Take(1), 0, None), (GiveIf(1), 0, None), (Give(1), 1, Some(1))],
];

/// Returns Redisson's answer as a number.
async fn theirs(rig: &Rig, name: &str, step: Step) -> i64 {
    let (op, fields) = match step {
        Set(n) => ("sem_set", json!({"permits": n})),
        SetFor(n) => ("sem_set", json!({"permits": n, "ttl_ms": TTL})),
        SetBriefly(n) => ("sem_set", json!({"permits": n, "ttl_ms": MOMENT})),
        Take(n) => ("sem_try", json!({"permits": n})),
        Give(n) => ("sem_release", json!({"permits": n})),
        GiveIf(n) => ("sem_release_if_exists", json!({"permits": n})),
        Add(n) => ("sem_add", json!({"permits": n})),
        Drain => ("sem_drain", json!({})),
        Delete => ("sem_delete", json!({})),
    };
    let mut answer = soon(rig.java(name, 1).start(op, fields)).await;
    if let (GiveIf(n), "3.52.0") = (step, rig.agents[0].version()) {
        assert_eq!(answer.expect_err("a later version has it").error, "UnsupportedOperationException");
        if !rig.admin.exists(name).await {
            return 0;
        }
        answer = soon(rig.java(name, 1).start("sem_release", json!({"permits": n}))).await;
    }
    let value = answer.expect("an operation in Java").value;
    value.as_i64().or_else(|| value.as_bool().map(i64::from)).unwrap_or_else(|| panic!("{step:?}: {value}"))
}

async fn ours(semaphore: &Semaphore, step: Step) -> i64 {
    match step {
        Set(n) => semaphore.try_set_permits(n).await.expect("try_set_permits").into(),
        SetFor(n) => semaphore.try_set_permits_for(n, ms(TTL)).await.expect("try_set_permits_for").into(),
        SetBriefly(n) => semaphore.try_set_permits_for(n, ms(MOMENT)).await.expect("try_set_permits_for").into(),
        Take(n) => semaphore.try_acquire(n).await.expect("try_acquire").into(),
        Give(n) => semaphore.release(n).await.map(|()| 1).expect("release"),
        GiveIf(n) => semaphore.release_if_exists(n).await.expect("release_if_exists").into(),
        Add(n) => semaphore.add_permits(n).await.map(|()| 1).expect("add_permits"),
        Drain => semaphore.drain().await.expect("drain"),
        Delete => semaphore.delete().await.expect("delete").into(),
    }
}

/// Asserts what a step has left under this name.
async fn has_left(rig: &Rig, what: &str, name: &str, step: Step, number: Option<i64>, expires: bool) {
    if let SetBriefly(_) = step {
        until("the end of a number", async || !rig.admin.exists(name).await).await;
    }
    let (left, ttl): (Option<i64>, _) = (rig.admin.cmd(&["GET", name]).await, rig.admin.pttl(name).await);
    assert_eq!(left, number, "{what} at {name}");
    let without = if number.is_some() { -1 } else { -2 };
    assert!(if expires { ttl > 0 && ttl <= TTL as i64 } else { ttl == without }, "{what} at {name}: {ttl} ms");
}

/// Redisson also announces numbers that are not positive, at which its own waiters fail.
pub async fn semaphore_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::with(version).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    for (at, row) in ROWS.into_iter().enumerate() {
        let (a, b) = (format!("java:{at}"), format!("rust:{at}"));
        let semaphore = client.semaphore(&b);
        let (mut in_java, mut with_us) = (false, false);
        for &(step, answer, number) in row {
            let what = format!("{version}, {step:?}");
            (in_java, with_us) = match step {
                SetFor(_) => (true, true),
                Add(_) | Drain => (false, with_us),
                Delete => (false, false),
                _ => (in_java, with_us),
            };
            assert_eq!(theirs(&rig, &a, step).await, answer, "{what} of Redisson");
            has_left(&rig, &what, &a, step, number, in_java).await;
            let mut said = spoken(&rig, &listener, &sc_channel(&a)).await;
            said.retain(|number| *number > 0);

            assert_eq!(ours(&semaphore, step).await, answer, "{what} of ours");
            has_left(&rig, &what, &b, step, number, with_us).await;
            assert_eq!(spoken(&rig, &listener, &sc_channel(&b)).await, said, "{what}");

            let number = number.unwrap_or(0);
            assert_eq!(client.semaphore(&a).available().await.expect("available"), number, "{what}");
            assert_eq!(java(&rig, &b, "sem_available", json!({})).await, number, "{what}");
        }
        rig.admin.cmd::<()>(&["DEL", &a, &b]).await;
    }
    drop(listener);
    end_with_tokens(rig, [client]).await;
}

/// How many permits a waiter wants, the number before, steps that do not serve it, and the step that does.
const WAITS: [(u32, Step, &[Step], Step); 3] = [
    (2, Set(1), &[Take(1), Give(1)], Add(1)),
    (4, Set(2), &[Give(1)], Give(1)),
    // Redisson announces a negative number here.
    (1, Set(0), &[Add(-5), Give(5)], Give(1)),
];

pub async fn semaphore_waiters_are_served_by_the_other_side(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for (at, (wanted, before, vain, last)) in WAITS.into_iter().enumerate() {
        let name = format!("waits:rust:{at}");
        let semaphore = client.semaphore(&name);
        assert_eq!(theirs(&rig, &name, before).await, 1);
        let waits = semaphore.clone();
        let waiter = tokio::spawn(async move { waits.acquire(wanted).await.expect("acquire") });
        we_wait(&rig, &client, &name).await;
        for step in vain {
            theirs(&rig, &name, *step).await;
        }
        assert!(!waiter.is_finished(), "{name}: we have taken more than there was");
        theirs(&rig, &name, last).await;
        soon(waiter).await.expect("the waiter");
        assert!(semaphore.available().await.expect("available") == 0 && semaphore.delete().await.expect("delete"));

        let name = format!("waits:java:{at}");
        let semaphore = client.semaphore(&name);
        assert_eq!(ours(&semaphore, before).await, 1);
        let mut waiter = rig.java(&name, 2).start("sem_acquire", json!({"permits": wanted}));
        sits(&rig.agents[0], 2).await;
        for step in vain {
            ours(&semaphore, *step).await;
        }
        assert_eq!(waiter.within(ms(100)).await, None, "{name}: Redisson has taken more than there was");
        ours(&semaphore, last).await;
        replied(waiter).await;
        assert!(semaphore.available().await.expect("available") == 0 && semaphore.delete().await.expect("delete"));
    }
    end_with_tokens(rig, [client]).await;
}

/// Waits for permits in a separate task.
fn wait_for(permits: &Permits, n: u32) -> JoinHandle<PermitGuard> {
    let permits = permits.clone();
    tokio::spawn(async move { permits.acquire(n).await.expect("acquire") })
}

/// Each waiter for two permits is served by the second of two single releases. Then one permit more serves one waiter
/// more.
pub async fn permit_waiters_are_served_by_releases_and_additions_of_the_other_side(version: &str) {
    let (rig, client, permits) = gate(version, 2).await;
    let ask = async |op: &str, fields: Value| java(&rig, GATE, op, fields).await;
    let held = texts(&ask("permit_acquire", json!({"permits": 2})).await);
    let waiter = wait_for(&permits, 2);
    we_wait(&rig, &client, GATE).await;
    assert_eq!(ask("permit_release", json!({"permit": held[0]})).await, true);
    assert_eq!(counts(&permits).await, (1, 1));
    assert!(!waiter.is_finished(), "we have taken more than there was");
    assert_eq!(ask("permit_release", json!({"permit": held[1]})).await, true);
    soon(waiter).await.expect("the waiter").release().await.expect("release");

    let (one, two) = (take(&permits, 1, TTL).await, take(&permits, 1, TTL).await);
    let mut waiter = rig.java(GATE, 2).start("permit_acquire", json!({"permits": 2}));
    sits(&rig.agents[0], 2).await;
    one.release().await.expect("release");
    assert_eq!(waiter.within(ms(100)).await, None, "Redisson has taken more than there was");
    two.release().await.expect("release");
    let mut held = texts(&replied(waiter).await.value);
    assert_eq!((held.len(), counts(&permits).await), (2, (0, 2)));

    let mut guards = Vec::new();
    for (op, n) in [("permit_add", 1), ("permit_set_total", 5)] {
        let waiter = wait_for(&permits, 1);
        we_wait(&rig, &client, GATE).await;
        ask(op, json!({"permits": n})).await;
        guards.push(soon(waiter).await.expect("the waiter"));
        let waiter = rig.java(GATE, 2).start("permit_acquire", json!({}));
        sits(&rig.agents[0], 2).await;
        let more = if op == "permit_add" { permits.add_permits(1).await } else { permits.set_permits(6).await };
        more.expect("one permit more");
        held.push(replied(waiter).await.value.as_str().expect("an id").to_owned());
    }
    for guard in guards {
        guard.release().await.expect("release");
    }
    assert_eq!(ask("permit_release", json!({"ids": held})).await, 4);
    end(rig, client, &permits, 6).await;
}

/// Beside a permit of Java's without a lease, which is never reclaimed.
pub async fn permit_waiters_are_served_when_a_lease_of_the_other_side_ends(version: &str) {
    let (rig, client, permits) = gate(version, 2).await;
    let ask = async |op: &str, fields: Value| java(&rig, GATE, op, fields).await;
    let endless = ask("permit_acquire", json!({})).await;
    let from = rig.now().await;
    let leased = ask("permit_acquire", json!({"lease_ms": BRIEF})).await;
    let guard = soon(wait_for(&permits, 1)).await.expect("the waiter");
    assert!(rig.now().await >= from + BRIEF as i64, "we are in before the end of Java's lease");
    assert_eq!(ask("permit_release", json!({"permit": leased})).await, false);
    assert!(permits.try_acquire(1).await.expect("try_acquire").is_none());
    let held = permits.holders().await.expect("holders");
    let held: Vec<_> = held.iter().map(|held| (held.id.to_string(), held.remaining.is_some())).collect();
    let endless = endless.as_str().expect("an id").to_owned();
    assert_eq!(held, [(guard.ids()[0].to_string(), true), (endless.clone(), false)]);
    assert_eq!(ask("permit_lease", json!({"permit": endless})).await, -1);
    guard.release().await.expect("release");

    let from = rig.now().await;
    let guard = take(&permits, 1, BRIEF).await;
    let next = ask("permit_acquire", json!({})).await;
    assert!(rig.now().await >= from + BRIEF as i64, "Java is in before the end of our lease");
    assert!(!guard.is_held());
    assert!(guard.release().await.is_err(), "its lease has ended");
    assert_eq!(ask("permit_release", json!({"ids": [endless, next]})).await, 2);
    end(rig, client, &permits, 2).await;
}

/// A section that only a permit protects: reads a counter, adds one, and writes it.
async fn add_one(admin: &Admin) {
    let old: Option<u64> = admin.cmd(&["GET", COUNTER]).await;
    admin.cmd::<()>(&["SET", COUNTER, &(old.unwrap_or(0) + 1).to_string()]).await;
}

/// Waits for loops of [`ROUNDS`] sections each.
async fn all_are_counted(rig: &Rig, loops: Vec<JoinHandle<()>>) {
    let total = loops.len() as u64 * ROUNDS;
    for ended in join_all(loops).await {
        ended.expect("a loop");
    }
    let counted: u64 = rig.admin.cmd(&["GET", COUNTER]).await;
    assert_eq!(counted, total, "updates were lost: two had the only permit at once");
    rig.admin.cmd::<()>(&["DEL", COUNTER]).await;
}

/// The loops of two Java threads. These calls take a permit and return it.
async fn java_counts(rig: &Rig, name: &str, [take, give]: [&'static str; 2]) -> Vec<JoinHandle<()>> {
    let mut loops = Vec::new();
    for thread in [1, 2] {
        let (java, admin) = (rig.java(name, thread), Admin::connect(&rig.server).await);
        loops.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let permit = replied(java.start(take, json!({}))).await.value;
                add_one(&admin).await;
                assert_eq!(replied(java.start(give, json!({"permit": permit}))).await.value, true);
            }
        }));
    }
    loops
}

pub async fn permit_counter_is_exact_with_clients_of_both_languages(version: &str) {
    let (rig, client, permits) = gate(version, 1).await;
    let other = rig.client().await;
    let mut loops = java_counts(&rig, GATE, ["permit_acquire", "permit_release"]).await;
    for permits in [permits.clone(), other.permits(GATE)] {
        let admin = Admin::connect(&rig.server).await;
        loops.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = permits.acquire(1).await.expect("acquire");
                add_one(&admin).await;
                guard.release().await.expect("release");
            }
        }));
    }
    all_are_counted(&rig, loops).await;
    bed::end(other).await;
    end(rig, client, &permits, 1).await;
}

pub async fn semaphore_counter_is_exact_with_clients_of_both_languages(version: &str) {
    let rig = Rig::with(version).await;
    let clients = [rig.client().await, rig.client().await];
    let till = clients[0].semaphore("till");
    assert!(till.try_set_permits(1).await.expect("try_set_permits"));
    let mut loops = java_counts(&rig, "till", ["sem_acquire", "sem_release"]).await;
    for client in &clients {
        let (till, admin) = (client.semaphore("till"), Admin::connect(&rig.server).await);
        loops.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                till.acquire(1).await.expect("acquire");
                add_one(&admin).await;
                till.release(1).await.expect("release");
            }
        }));
    }
    all_are_counted(&rig, loops).await;
    assert_eq!(till.drain().await.expect("drain"), 1);
    assert!(till.delete().await.expect("delete"));
    end_with_tokens(rig, clients).await;
}
