//! Readers and writers of both languages and several processes use one page, which is two keys. A writer is always
//! alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bed::in_vain;
use distlock::{Acquire, Client, Guard, Prefer};
use distlock_support::agent::{AgentOptions, JavaLock, monotonic_ns};
use distlock_support::child::{self, Child};
use distlock_support::{Admin, Numbers};
use futures::future::join_all;
use parking_lot::Mutex;

use crate::rig::{Rig, connect, had, ms, until, watched};
use crate::rw_rig::{Doc, HALVES, half_of};

const NAME: &str = "mixed";
/// Two copies of a number. A writer sets one after the other, and a reader must find them equal.
const PAGE: [&str; 2] = ["page:left", "page:right"];
/// Tasks of each kind in each client.
const TASKS: u64 = 3;
/// Clients of each language. One more client of ours has its own process.
const CLIENTS: usize = 2;
const ROUNDS: u64 = 1000;
const AT: &str = "INTEROP_URL";
const SEED: &str = "INTEROP_SEED";

/// A span in which a worker certainly held the lock, from the acquire to the release.
#[derive(Debug, Clone, Copy)]
struct Span {
    writer: bool,
    who: u64,
    from: u64,
    to: u64,
}

#[derive(Default)]
struct Tally {
    rounds: AtomicU64,
    done: AtomicU64,
    written: AtomicU64,
    downgraded: AtomicU64,
    given_up: AtomicU64,
    spans: Mutex<Vec<Span>>,
}

impl Tally {
    fn take(&self) -> bool {
        self.rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS
    }

    async fn write(&self, admin: &Admin) {
        let old: Option<u64> = admin.cmd(&["GET", PAGE[0]]).await;
        for copy in PAGE {
            admin.cmd::<()>(&["SET", copy, &(old.unwrap_or(0) + 1).to_string()]).await;
        }
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    async fn read(&self, admin: &Admin) {
        let left: Option<u64> = admin.cmd(&["GET", PAGE[0]]).await;
        let right: Option<u64> = admin.cmd(&["GET", PAGE[1]]).await;
        let again: Option<u64> = admin.cmd(&["GET", PAGE[0]]).await;
        assert!(left == right && left == again, "a reader beside a writer: {left:?}, {right:?}, {again:?}");
    }

    fn log(&self, writer: bool, who: u64, from: u64, to: u64) {
        self.spans.lock().push(Span { writer, who, from, to });
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

async fn in_java(tally: Arc<Tally>, [read, write]: [JavaLock; 2], admin: Admin, who: u64) {
    let mut dice = Numbers::new(who);
    while tally.take() {
        let (kind, patient) = (dice.below(10), dice.below(4) != 0);
        let lock = if kind < 6 { &read } else { &write };
        let wait = ms(1 + dice.below(40));
        let call = if patient { lock.start_lock() } else { lock.start_try_lock(wait, None) };
        let Some(got) = had(call.await) else {
            tally.given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        if kind < 6 {
            let twice = kind < 2;
            if twice {
                read.lock().await.expect("lock, once more");
            }
            tally.read(&admin).await;
            if twice {
                read.unlock().await.expect("unlock");
            }
            tally.log(false, who, got.t1, read.unlock().await.expect("unlock").t0);
        } else {
            tally.write(&admin).await;
            if kind == 9 {
                let reading = read.lock().await.expect("lock");
                tally.log(true, who, got.t1, write.unlock().await.expect("unlock").t0);
                tally.read(&admin).await;
                tally.log(false, who, reading.t1, read.unlock().await.expect("unlock").t0);
                tally.downgraded.fetch_add(1, Ordering::Relaxed);
            } else {
                tally.log(true, who, got.t1, write.unlock().await.expect("unlock").t0);
            }
        }
    }
}

async fn in_rust(tally: Arc<Tally>, client: Client, admin: Admin, who: u64) {
    let mut dice = Numbers::new(who);
    let halves = HALVES.map(|half| half_of(&client, half, NAME));
    while tally.take() {
        let (kind, how) = (dice.below(10), dice.below(8));
        let (lock, owner, wait) = (&halves[usize::from(kind >= 6)], client.owner(), ms(1 + dice.below(40)));
        let ask = || Acquire::new().owner(&owner);
        let guard = match how {
            0..=4 => lock.acquire(ask()).await.expect("acquire"),
            5 => match lock.acquire(ask().wait(wait)).await {
                got if in_vain(&got) => None,
                got => got.expect("acquire"),
            },
            // Drops the acquire while it waits or its command is in flight.
            _ => tokio::time::timeout(wait, lock.acquire(ask())).await.ok().and_then(|got| got.expect("acquire")),
        };
        let from = monotonic_ns();
        let Some(guard) = guard else {
            tally.given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        if kind < 6 {
            let again = if kind < 2 { lock.acquire(ask()).await.expect("acquire") } else { None };
            tally.read(&admin).await;
            drop(again);
            tally.log(false, who, from, monotonic_ns());
            give_back(guard, dice.below(4) == 0).await;
        } else {
            tally.write(&admin).await;
            tally.log(true, who, from, monotonic_ns());
            if kind == 9 {
                let guard = guard.downgrade().await.expect("downgrade");
                let from = monotonic_ns();
                tally.read(&admin).await;
                tally.log(false, who, from, monotonic_ns());
                tally.downgraded.fetch_add(1, Ordering::Relaxed);
                give_back(guard, false).await;
            } else {
                give_back(guard, dice.below(4) == 0).await;
            }
        }
    }
}

async fn give_back(guard: Guard, drops: bool) {
    if drops {
        drop(guard);
    } else {
        guard.unlock().await.expect("unlock");
    }
}

/// Asserts that a writer's span overlaps no other span.
fn judge(spans: &mut [Span]) {
    spans.sort_by_key(|span| span.from);
    for (at, one) in spans.iter().enumerate() {
        for other in spans[at + 1..].iter().take_while(|other| other.from < one.to) {
            let apart = one.who != other.who && (one.writer || other.writer);
            assert!(!apart, "at once: {one:?}, {other:?}");
        }
    }
}

pub async fn rw_writer_never_overlaps_readers_or_writers(version: &str) {
    // A Java waiter that misses its message sleeps until the lease ends. So the lease is the default, not an hour.
    let rig = Rig::start(vec![AgentOptions::version(version); CLIENTS]).await;
    let mut clients = Vec::new();
    for prefer in [Prefer::Readers, Prefer::Writers] {
        let builder = watched(rig.builder()).prefer(prefer);
        // A waiting writer's mark (see `rw_prefer.rs`) outlives its writer by twice the poll cap.
        clients.push(connect(builder.poll_cap(Duration::from_secs(2))).await);
    }
    let doc = Doc::new(&rig, NAME);
    let tally = Arc::new(Tally::default());
    let env = [(AT, rig.server.url()), (SEED, "7000".to_owned())];
    let mut child =
        Child::spawn("rw_mixed::rw_peer_process", &env.each_ref().map(|(name, value)| (*name, value.as_str())));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        for (i, client) in clients.iter().enumerate() {
            let seed = 1000 * (task + 1) + 10 * i as u64;
            let (java, rust) = (Admin::connect(&rig.server).await, Admin::connect(&rig.server).await);
            let halves = HALVES.map(|half| doc.java(i, half, task as i64 + 1));
            tasks.push(tokio::spawn(in_java(Arc::clone(&tally), halves, java, seed + 1)));
            tasks.push(tokio::spawn(in_rust(Arc::clone(&tally), client.clone(), rust, seed + 2)));
        }
    }
    for ended in join_all(tasks).await {
        ended.expect("the rounds of one");
    }
    let mut spans = std::mem::take(&mut *tally.spans.lock());
    let mut elsewhere = 0;
    child.tell("enough");
    let end = loop {
        let line = child.line().await.expect("what the other process did");
        let mut words = line.split(' ');
        match words.next() {
            Some("span") => {
                let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
                spans.push(Span { writer: number() == 1, who: number(), from: number(), to: number() });
            }
            Some("written") => break words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number"),
            _ => panic!("{line}"),
        }
        elsewhere += 1;
    };
    let count = |part: &AtomicU64| part.load(Ordering::Relaxed);
    judge(&mut spans);
    assert!(elsewhere > 20 && count(&tally.downgraded) > 20 && count(&tally.given_up) > 20, "not mixed");
    for copy in PAGE {
        assert_eq!(
            rig.admin.cmd::<u64>(&["GET", copy]).await,
            count(&tally.written) + end,
            "{version}: two wrote at once"
        );
        rig.admin.cmd::<()>(&["DEL", copy]).await;
    }
    doc.is_gone().await;
    rig.end(clients).await;
}

/// The other process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rw_peer_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let seed: u64 = set(SEED).parse().expect("a number");
    let client = connect(bed::builder(&set(AT))).await;
    let tally = Arc::new(Tally::default());
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let admin = Admin::from_url(&set(AT)).await;
        tasks.push(tokio::spawn(in_rust(Arc::clone(&tally), client.clone(), admin, seed + task)));
    }
    assert_eq!(child::hear().await, "enough");
    until("rounds in this process", async || tally.done.load(Ordering::Relaxed) > 20).await;
    tally.rounds.store(ROUNDS, Ordering::Relaxed);
    for ended in join_all(tasks).await {
        ended.expect("the rounds of one");
    }
    bed::end(client).await;
    for Span { writer, who, from, to } in tally.spans.lock().drain(..) {
        child::say(&format!("span {} {who} {from} {to}", u64::from(writer)));
    }
    child::say(&format!("written {}", tally.written.load(Ordering::Relaxed)));
    // The parent closes our input after it has read everything.
    child::hear().await;
}
