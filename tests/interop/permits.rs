//! Our permits and Redisson's `RPermitExpirableSemaphore` share their state, ids and messages.

use std::collections::VecDeque;

use distlock::{Acquire, Client, PermitGuard, PermitId, Permits};
use serde_json::{Value, json};

use crate::latch::{java, spoken};
use crate::listener::Listener;
use crate::rig::{Rig, ms, soon, until};
use crate::semaphore::sc_channel;

/// The name of permits that both sides use.
pub const GATE: &str = "gate";
/// The names of the compared permits.
const JAVA: &str = "java";
const RUST: &str = "rust";
/// Leases in ms: one that outlasts every test, and one whose end a test waits for.
const LEASE: u64 = 600_000;
const MOMENT: u64 = 50;
/// An id that no permit has.
const UNKNOWN: &str = "00112233445566778899aabbccddeeff";

/// Steps. Leases are in seconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// `trySetPermits`.
    New(u32),
    /// `setPermits`.
    Total(u32),
    Add(i32),
    /// Acquires permits.
    Take(u32, u64),
    /// As `Take`. The oldest permits have expired, so the acquire returns them first.
    Reclaim(u32, u64),
    /// Releases what the oldest acquire took.
    Give,
    /// Sets the lease of the newest permits to [`MOMENT`].
    Cut,
    /// Waits until that lease has ended.
    Lapse,
    /// Gives the number of permits a TTL.
    Expire,
    Delete,
}

use Step::{Add, Cut, Delete, Expire, Give, Lapse, New, Reclaim, Take, Total};

/// A step, the number of free permits after it, and the messages of Redisson and of this crate.
type Row = (Step, Option<i64>, &'static [i64], &'static [i64]);

/// Redisson's single release announces the free permits. Its `setPermits`, `addPermits` and bulk release announce their
/// argument, and a lower total too. Ours always announces the free permits, if there are any.
const ROWS: [Row; 21] = [
    (New(3), Some(3), &[3], &[3]),
    (New(9), Some(3), &[], &[]),
    (Take(1, 500), Some(2), &[], &[]),
    (Take(2, 1000), Some(0), &[], &[]),
    (Total(2), Some(-1), &[2], &[]),
    (Give, Some(0), &[0], &[]),
    (Total(5), Some(3), &[5], &[3]),
    (Total(5), Some(3), &[], &[]),
    (Total(4), Some(2), &[4], &[]),
    (Add(2), Some(4), &[2], &[4]),
    (Add(-1), Some(3), &[], &[]),
    (Give, Some(5), &[2], &[5]),
    (Take(1, 500), Some(4), &[], &[]),
    (Cut, Some(4), &[], &[]),
    (Lapse, Some(4), &[], &[]),
    (Reclaim(2, 500), Some(3), &[5], &[3]),
    (Expire, Some(3), &[], &[]),
    (Take(1, 1000), Some(2), &[], &[]),
    (Give, Some(4), &[2], &[4]),
    (Give, Some(5), &[5], &[5]),
    (Delete, None, &[], &[]),
];

/// The number of permits of each acquire that holds some, and the bounds of the ends of their leases, in ms of the
/// server's time. The oldest acquire comes first.
#[derive(Default)]
struct Leases(VecDeque<(u32, i64, i64)>);

impl Leases {
    /// Notes a step that was made between these times.
    fn note(&mut self, step: Step, began: i64, ended: i64) {
        match step {
            Take(n, lease) | Reclaim(n, lease) => {
                if matches!(step, Reclaim(..)) {
                    self.0.pop_front();
                }
                let lease = 1000 * lease as i64;
                self.0.push_back((n, began + lease, ended + lease));
            }
            Cut => {
                let (n, ..) = self.0.pop_back().expect("permits");
                self.0.push_back((n, began + MOMENT as i64, ended + MOMENT as i64));
            }
            Give => {
                self.0.pop_front();
            }
            New(_) | Total(_) | Add(_) | Lapse | Expire | Delete => {}
        }
    }

    fn held(&self) -> u32 {
        self.0.iter().map(|(n, ..)| n).sum()
    }
}

/// The free permits, the TTLs of both keys, and the held permits.
const LOOK: &str = "return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]), redis.call('pttl', KEYS[2]), \
                    redis.call('zrange', KEYS[2], 0, -1, 'WITHSCORES')}";

/// Asserts what a step has left under this name. Returns whether the number and the set of held permits have a TTL.
async fn has_left(rig: &Rig, what: &str, name: &str, free: Option<i64>, leases: &Leases) -> [bool; 2] {
    let args = ["EVAL", LOOK, "2", name, &format!("{{{name}}}:timeout")];
    let (number, life, set_life, held): (Option<i64>, i64, i64, Vec<Vec<u8>>) = rig.admin.cmd(&args).await;
    assert_eq!(number, free, "{what} of {name}");
    assert_eq!(held.len(), 2 * leases.held() as usize, "{what} of {name}");
    let bounds = leases.0.iter().flat_map(|&(n, from, to)| std::iter::repeat_n((from, to), n as usize));
    for (permit, (from, to)) in held.chunks(2).zip(bounds) {
        let end: i64 = String::from_utf8_lossy(&permit[1]).parse().expect("a time in ms");
        assert!((from..=to).contains(&end), "{what} of {name}: a lease ends at {end}, not from {from} to {to}");
        assert_eq!(permit[0].len(), 16, "{what} of {name}");
    }
    [life >= 0, set_life >= 0]
}

#[derive(Default)]
struct Theirs {
    ids: VecDeque<Vec<String>>,
    leases: Leases,
}

impl Theirs {
    /// Returns Redisson's answer; true for none.
    async fn act(&mut self, rig: &Rig, step: Step) -> bool {
        let ask = async |op: &str, fields: Value| java(rig, JAVA, op, fields).await;
        match step {
            New(n) => ask("permit_set", json!({"permits": n})).await == true,
            Total(n) => ask("permit_set_total", json!({"permits": n})).await == true,
            Add(n) => ask("permit_add", json!({"permits": n})).await == true,
            Take(n, lease) | Reclaim(n, lease) => {
                let ids = ask("permit_acquire", json!({"permits": n, "lease_ms": 1000 * lease})).await;
                if matches!(step, Reclaim(..)) {
                    self.ids.pop_front();
                }
                self.ids.push_back(texts(&ids));
                true
            }
            Give => match &self.ids.pop_front().expect("permits")[..] {
                [id] => ask("permit_release", json!({"permit": id})).await == true,
                ids => ask("permit_release", json!({"ids": ids})).await == ids.len(),
            },
            Cut => {
                let id = &self.ids.back().expect("a permit")[0];
                ask("permit_renew", json!({"permit": id, "lease_ms": MOMENT})).await == true
            }
            Delete => ask("permit_delete", json!({})).await == true,
            Lapse | Expire => true,
        }
    }
}

struct Ours {
    permits: Permits,
    guards: VecDeque<PermitGuard>,
    /// Guards of permits that have expired.
    expired: Vec<PermitGuard>,
    leases: Leases,
}

impl Ours {
    async fn act(&mut self, step: Step) -> bool {
        let permits = &self.permits;
        match step {
            New(n) => return permits.try_set_permits(n).await.expect("try_set_permits"),
            Total(n) => permits.set_permits(n).await.expect("set_permits"),
            Add(n) => permits.add_permits(n).await.expect("add_permits"),
            Take(n, lease) | Reclaim(n, lease) => {
                let guard = take(permits, n, 1000 * lease).await;
                if matches!(step, Reclaim(..)) {
                    self.expired.extend(self.guards.pop_front());
                }
                self.guards.push_back(guard);
            }
            Give => self.guards.pop_front().expect("permits").release().await.expect("release"),
            Cut => {
                let ids = self.guards.back().expect("a permit").ids();
                return permits.extend_ids(&ids, ms(MOMENT)).await.expect("extend_ids");
            }
            Delete => return permits.delete().await.expect("delete"),
            Lapse | Expire => {}
        }
        true
    }
}

/// Also, each side reads the other side's numbers.
pub async fn permits_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::with(version).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let (guards, expired, leases) = (VecDeque::new(), Vec::new(), Leases::default());
    let (mut theirs, mut ours) = (Theirs::default(), Ours { permits: client.permits(RUST), guards, expired, leases });
    for (at, (step, free, they_say, we_say)) in ROWS.into_iter().enumerate() {
        let what = format!("{version}, step {at}: {step:?}");
        if let Lapse = step {
            let (.., end) = *ours.leases.0.back().expect("a lease");
            until("the end of the leases", async || rig.now().await > end).await;
        } else if let Expire = step {
            for name in [JAVA, RUST] {
                assert!(rig.admin.cmd::<bool>(&["PEXPIRE", name, &LEASE.to_string()]).await, "{what}");
            }
        }
        let began = rig.now().await;
        let answer = theirs.act(&rig, step).await;
        theirs.leases.note(step, began, rig.now().await);
        assert_eq!(spoken(&rig, &listener, &sc_channel(JAVA)).await, they_say, "{what} of Redisson");
        let expected = has_left(&rig, &what, JAVA, free, &theirs.leases).await;

        let began = rig.now().await;
        assert_eq!(ours.act(step).await, answer, "{what}");
        ours.leases.note(step, began, rig.now().await);
        assert_eq!(spoken(&rig, &listener, &sc_channel(RUST)).await, we_say, "{what} of ours");
        assert_eq!(has_left(&rig, &what, RUST, free, &ours.leases).await, expected, "{what}");

        // While a permit has expired, Redisson's reads would return it.
        if !matches!(step, Cut | Lapse) {
            let (free, held) = (free.unwrap_or(0), ours.leases.held());
            assert_eq!(counts(&client.permits(JAVA)).await, (free, held.into()), "{what}");
            let numbers = [("available", free), ("acquired", held.into()), ("total", free + i64::from(held))];
            for (op, number) in numbers {
                assert_eq!(java(&rig, RUST, &format!("permit_{op}"), json!({})).await, number, "{what}: {op}");
            }
        }
    }
    drop((ours, listener));
    rig.end([client]).await;
}

pub fn texts(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap_or_else(|_| panic!("no list of ids: {value}"))
}

/// Acquires permits with a lease in ms.
pub async fn take(permits: &Permits, n: u32, lease: u64) -> PermitGuard {
    let taken = soon(permits.acquire_with(n, Acquire::new().lease(ms(lease)))).await;
    taken.expect("acquire_with").expect("the permits")
}

pub async fn counts(permits: &Permits) -> (i64, u64) {
    let counts = permits.counts().await.expect("counts");
    (counts.available, counts.acquired)
}

/// A server, our client, and [`GATE`] with this total.
pub async fn gate(version: &str, total: u32) -> (Rig, Client, Permits) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let permits = client.permits(GATE);
    assert!(permits.try_set_permits(total).await.expect("try_set_permits"));
    (rig, client, permits)
}

/// Ends a test in which all permits have been released.
pub async fn end(rig: Rig, client: Client, permits: &Permits, total: i64) {
    assert_eq!(counts(permits).await, (total, 0));
    assert!(permits.delete().await.expect("delete"));
    rig.end([client]).await;
}

/// Java's call on [`GATE`].
async fn ask(rig: &Rig, op: &str, fields: Value) -> Value {
    java(rig, GATE, op, fields).await
}

/// The rest of a permit's lease in ms, as Java sees it.
async fn rest(rig: &Rig, id: &str) -> i64 {
    ask(rig, "permit_lease", json!({"permit": id})).await.as_i64().expect("a time")
}

pub async fn permits_ids_of_each_side_are_extended_and_released_by_the_other(version: &str) {
    let (rig, client, permits) = gate(version, 4).await;
    java_uses_our_ids(&rig, &permits).await;
    we_use_javas_ids(&rig, &permits).await;
    end(rig, client, &permits, 4).await;
}

async fn java_uses_our_ids(rig: &Rig, permits: &Permits) {
    let guard = take(permits, 2, LEASE).await;
    let ids: Vec<String> = guard.ids().iter().map(ToString::to_string).collect();
    assert!((1..=LEASE as i64).contains(&rest(rig, &ids[0]).await));
    assert_eq!(ask(rig, "permit_renew", json!({"permit": ids[0], "lease_ms": 10 * LEASE})).await, true);
    let held = permits.holders().await.expect("holders");
    let longer: Vec<_> = held.iter().filter(|held| held.remaining > Some(ms(LEASE))).map(|held| held.id).collect();
    assert_eq!((held.len(), longer), (2, vec![guard.ids()[0]]), "{held:?}");

    assert_eq!(ask(rig, "permit_renew", json!({"permit": UNKNOWN, "lease_ms": LEASE})).await, false);
    assert_eq!(ask(rig, "permit_release", json!({"permit": UNKNOWN})).await, false);
    assert_eq!(ask(rig, "permit_release", json!({"ids": [ids[0], UNKNOWN]})).await, 0);
    assert_eq!(counts(permits).await, (2, 2));
    assert_eq!(ask(rig, "permit_release", json!({"ids": ids})).await, 2);
    assert_eq!(counts(permits).await, (4, 0));
    assert!(guard.release().await.is_err(), "Java has released them");
}

async fn we_use_javas_ids(rig: &Rig, permits: &Permits) {
    let unknown: PermitId = UNKNOWN.parse().expect("an id");
    let theirs = texts(&ask(rig, "permit_acquire", json!({"permits": 2, "lease_ms": LEASE})).await);
    let ids: Vec<PermitId> = theirs.iter().map(|id| id.parse().expect("an id")).collect();
    assert!(permits.extend_ids(&ids, ms(10 * LEASE)).await.expect("extend_ids"));
    assert!(!permits.extend_ids(&[ids[0], unknown], ms(LEASE)).await.expect("extend_ids"));
    for id in &theirs {
        assert!(rest(rig, id).await > LEASE as i64);
    }
    assert!(!permits.release_ids(&[ids[0], unknown]).await.expect("release_ids"));
    assert_eq!(counts(permits).await, (2, 2));
    assert!(permits.release_ids(&ids).await.expect("release_ids"));
    assert_eq!(counts(permits).await, (4, 0));
    assert_eq!(ask(rig, "permit_release", json!({"permit": theirs[0]})).await, false);
    let gone = soon(rig.java(GATE, 1).start("permit_lease", json!({"permit": theirs[0]}))).await;
    assert!(gone.expect_err("a lease of no permit").message.contains("doesn't exist"));
}

/// The second id belongs to an expired permit that nobody has reclaimed.
pub async fn permits_bulk_release_with_an_expired_id_releases_nothing(version: &str) {
    let (rig, client, permits) = gate(version, 4).await;
    let guard = take(&permits, 1, LEASE).await;
    let brief = ask(&rig, "permit_acquire", json!({"lease_ms": MOMENT})).await;
    let end_of_lease = rig.now().await + MOMENT as i64;
    until("the end of a lease", async || rig.now().await > end_of_lease).await;
    let ids = [guard.ids()[0], brief.as_str().expect("an id").parse().expect("an id")];
    assert!(!permits.extend_ids(&ids, ms(LEASE)).await.expect("extend_ids"));
    assert!(!permits.release_ids(&ids).await.expect("release_ids"));
    assert_eq!(ask(&rig, "permit_release", json!({"ids": ids.map(|id| id.to_string())})).await, 0);
    let free: i64 = rig.admin.cmd(&["GET", GATE]).await;
    assert_eq!(free, 2, "a permit was returned");
    // This returns the expired permit, and finds it gone.
    assert_eq!(ask(&rig, "permit_renew", json!({"permit": brief, "lease_ms": LEASE})).await, false);
    assert_eq!(counts(&permits).await, (3, 1));
    guard.release().await.expect("release");
    end(rig, client, &permits, 4).await;
}
