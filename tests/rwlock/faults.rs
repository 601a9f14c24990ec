//! Faults of single commands of both halves: every command is lost, repeated, delayed and cut off.

use std::collections::BTreeSet;

use distlock::{Acquire, Builder, Client, Error, Flavour, Owner, Prefer, ReadLock, Released, RwLock, WriteLock};
use distlock_support::Admin;
use distlock_support::proxy::{Action, Matcher};

use crate::rig::{BOTH, HOUR, cover, fields, granted, marked, marks, served, waiter};
use bed::fault::{brisk, gave, got};
use bed::harm::{ACTIONS, in_every_way, runs};
use bed::{Bed, PATIENCE, becomes, ends, eventually, idle, ms, rw, text};

/// Matches requests that run scripts made of these parts by their hash.
fn script(parts: &[&str]) -> Matcher {
    let own = ["covers"].iter().chain(parts).map(|part| format!("rwlock/{part}"));
    runs(&["common/holds".to_owned()].into_iter().chain(own).collect::<Vec<_>>())
}

/// A client whose commands time out soon and are retried for as long as a test lasts. No lease or mark ends by
/// accident, and no automatic renewal adds a command.
fn stubborn(url: &str) -> Builder {
    brisk(url).connect_timeout(PATIENCE).watchdog(HOUR).retry_attempts(1_000).poll_cap(HOUR)
}

/// Runs every script once, so that the server knows it.
async fn warm(bed: &Bed, client: &Client) {
    // Other clients warm up concurrently.
    let name = format!("warm {}", client.id());
    let lock = client.rw(&name).prefer(Prefer::Writers);
    for half in BOTH {
        let guard = client.lock(half, &name).lock().await.unwrap();
        client.renew_now().await;
        guard.unlock().await.unwrap();
    }
    let guard = lock.read().lock().await.unwrap();
    let writer = lock.write();
    let leaves = tokio::spawn(async move { writer.lock().await.map(drop) });
    marked(bed, &name).await;
    leaves.abort();
    let ended = ends("a writer that is aborted", leaves).await;
    assert!(ended.is_err_and(|ended| ended.is_cancelled()), "a writer beside a reader");
    eventually("the writer has left", async || !bed.admin.exists(&marks(&name)).await).await;
    guard.unlock().await.unwrap();
    idle(client).await;
}

/// The lock's state on the server, read directly and not through the proxy.
struct View<'a> {
    client: &'a Client,
    admin: &'a Admin,
    name: &'a str,
}

impl View<'_> {
    /// Waits until the client has nothing in flight. Then asserts exactly these holds, each with a TTL, and a cover for
    /// each read hold.
    async fn holds(&self, mode: &str, expected: &[(&Owner, &str, u32)]) {
        let name = self.name;
        let all: Vec<_> =
            expected.iter().map(|(owner, suffix, count)| (format!("{}{suffix}", text(owner)), *count)).collect();
        let reads = expected.iter().filter(|(_, suffix, _)| suffix.is_empty());
        let covers: BTreeSet<_> =
            reads.flat_map(|(owner, _, count)| (1..=*count as usize).map(|n| cover(name, &text(owner), n))).collect();
        becomes(&format!("{name}: commands in flight"), 0, async || self.client.stats().under_way).await;
        assert_eq!(self.admin.hgetall(name).await, fields(mode, &all), "holds of {name}");
        let found: BTreeSet<_> = self.beside().await.into_iter().collect();
        assert_eq!(found, covers, "covers of {name}");
        for key in covers.iter().map(String::as_str).chain([name]) {
            let ttl = self.admin.pttl(key).await;
            assert!(ttl > 0, "{key} does not expire: {ttl}");
        }
    }

    /// The lock's keys except the hash.
    async fn beside(&self) -> Vec<String> {
        let mut keys = self.admin.keys().await;
        keys.retain(|key| key.starts_with(&format!("{{{}}}:", self.name)));
        keys
    }

    async fn free(&self) -> bool {
        !self.admin.exists(self.name).await && self.beside().await.is_empty()
    }

    /// Waits until all unfinished calls are undone.
    async fn free_soon(&self) {
        eventually(&format!("free again: {}", self.name), async || self.free().await).await;
    }
}

/// Checks the error of a single attempt, which may fail with a retryable error.
fn check_retryable(label: &str, what: &str, error: &Error) {
    let passes = error.is_retryable() || matches!(error, Error::ReleasePending { .. });
    assert!(passes, "{label}: {what}: {error:?}");
}

/// An owner acquires the read half twice while another owner reads, and tries to acquire the write half.
async fn use_read_half(read: &ReadLock, write: &WriteLock, view: &View<'_>, me: &Owner) {
    let (client, label) = (view.client, view.name);
    let got = |what: &str, outcome| got(label, what, outcome);
    let gave = |what: &str, outcome, left| gave(label, what, outcome, left);
    let mine = || Acquire::new().owner(me).wait(PATIENCE);

    let first = got("read", read.acquire(mine()).await);
    view.holds("read", &[(me, "", 1)]).await;
    let second = got("read again", read.acquire(mine().lease(HOUR)).await);
    view.holds("read", &[(me, "", 2)]).await;
    let beside = got("another reads", read.lock_for(PATIENCE).await);
    view.holds("read", &[(me, "", 2), (beside.owner(), "", 1)]).await;
    match write.try_lock().await {
        Ok(guard) => assert!(guard.is_none(), "{label}: a writer beside readers"),
        Err(error) => check_retryable(label, "try to write", &error),
    }
    match write.acquire(mine()).await {
        Err(Error::WouldDeadlock { .. }) => {}
        other => panic!("{label}: upgrade: {other:?}"),
    }
    let round = client.renew_now().await;
    assert_eq!((round.renewed + round.failed, round.lost), (2, 0), "{label}");
    if let Err(error) = second.extend(2 * HOUR).await {
        check_retryable(label, "extend", &error);
    }
    gave("another leaves", beside.unlock().await, Released::Free);
    // The holds are released in another order than they were acquired.
    gave("give one back", first.unlock().await, Released::StillHeld(1));
    view.holds("read", &[(me, "", 1)]).await;
    gave("give the other back", second.unlock().await, Released::Free);
    view.free_soon().await;
}

/// An owner acquires the write half twice, also reads, and downgrades.
async fn use_write_half(read: &ReadLock, write: &WriteLock, view: &View<'_>, me: &Owner) {
    let label = view.name;
    let got = |what: &str, outcome| got(label, what, outcome);
    let gave = |what: &str, outcome, left| gave(label, what, outcome, left);
    let mine = || Acquire::new().owner(me).wait(PATIENCE);

    let outer = got("write", write.acquire(mine()).await);
    let inner = got("write again", write.acquire(mine()).await);
    view.holds("write", &[(me, ":write", 2)]).await;
    match read.try_lock().await {
        Ok(guard) => assert!(guard.is_none(), "{label}: a reader beside a writer"),
        Err(error) => check_retryable(label, "try to read", &error),
    }
    let reads = got("read beside", read.acquire(mine()).await);
    view.holds("write", &[(me, ":write", 2), (me, "", 1)]).await;
    gave("read no more", reads.unlock().await, Released::Free);
    gave("give one back", inner.unlock().await, Released::StillHeld(1));
    view.holds("write", &[(me, ":write", 1)]).await;
    match outer.downgrade().await {
        Ok(guard) => {
            view.holds("read", &[(me, "", 1)]).await;
            assert!(guard.is_held(), "{label}");
            gave("give back what was downgraded", guard.unlock().await, Released::Free);
        }
        Err(error) => check_retryable(label, "downgrade", &error),
    }
    view.free_soon().await;
}

/// One owner and other owners use both halves in every way. Acquires with a wait and releases succeed although a
/// command is lost.
async fn session(lock: &RwLock, view: &View<'_>) {
    let (read, write, client, label) = (lock.read(), lock.write(), view.client, view.name);
    let me = client.owner();
    use_read_half(&read, &write, view, &me).await;
    use_write_half(&read, &write, view, &me).await;
    for half in BOTH {
        drop(client.lock(half, lock.name()).lock().await.unwrap_or_else(|error| panic!("{label}: {half}: {error:?}")));
        view.free_soon().await;
    }
    idle(client).await;
}

/// Applies nine faults to every command of the session: it is lost, repeated, delayed or cut off. Every count and every
/// cover (key that lives as long as one read hold) stays correct. No lock is held after an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_change_no_hold_count_or_cover() {
    rw(async |bed| {
        let mut running = Vec::new();
        for action in ACTIONS {
            let (proxy, admin) = (bed.proxy(), Admin::connect(&bed.server).await);
            let client = bed.connect(stubborn(&proxy.url()).subscription_linger(ms(0))).await;
            running.push(async move {
                warm(bed, &client).await;
                let is_hit = async |n: usize| {
                    let name = format!("{action:?}/{n}");
                    let nth = Matcher::command("EVALSHA").containing(format!("\r\n{name}\r\n")).nth(n);
                    let armed = proxy.on_request(nth, action);
                    session(&client.rw(&name), &View { client: &client, admin: &admin, name: &name }).await;
                    armed.has_fired()
                };
                // The loop ends when a session has no nth command. On a slow machine, retries add commands.
                let mut hit = 0;
                while is_hit(hit + 1).await {
                    hit += 1;
                }
                hit
            });
        }
        for (action, hit) in ACTIONS.into_iter().zip(futures::future::join_all(running).await) {
            println!("{action:?}: {hit} commands");
            assert!(hit >= 20, "{action:?}: a session of {hit} commands");
        }
    })
    .await;
}

/// The command to hit: the half, the script, and which of its calls.
const TARGETS: [(Flavour, &[&str], usize); 6] = [
    (Flavour::Read, &["read"], 1),
    (Flavour::Read, &["read"], 2),
    (Flavour::Write, &["write"], 1),
    (Flavour::Write, &["write"], 2),
    (Flavour::Write, &["leave", "write_release"], 1),
    (Flavour::Write, &["write_release"], 1),
];

/// A waiter whose command is lost, repeated, delayed or cut off acquires once, or leaves nothing when it gives up.
/// Writers are preferred, and hold readers back for long, so that a leftover mark would show.
async fn hit(bed: &Bed, action: Action, (flavour, parts, nth): (Flavour, &[&str], usize)) {
    let name = format!("{action:?} of {flavour} {} {nth}", parts[0]).replace(['{', '}'], "");
    let proxy = bed.proxy();
    let patient = |url: &str| stubborn(url).prefer(Prefer::Writers).hold_back(HOUR).coalesce(false);
    let client = bed.connect(patient(&proxy.url()).subscription_linger(ms(0))).await;
    let direct = bed.connect(patient(&bed.server.url()).command_timeout(PATIENCE)).await;
    let admin = &bed.admin;
    let view = View { client: &client, admin, name: &name };
    let holds = if flavour == Flavour::Read { Flavour::Write } else { Flavour::Read };
    let guard = direct.lock(holds, &name).lock().await.unwrap();
    let armed = proxy.on_request(script(parts).containing(&name).nth(nth), action);
    let waiting = waiter(&client, flavour, &name);
    let fired = async || ends(&name, armed.fired()).await;
    if parts[0] == "leave" {
        marked(bed, &name).await;
        waiting.abort();
        fired().await;
        eventually(&format!("{name}: it has left"), async || !admin.exists(&marks(&name)).await).await;
        // No mark is left that would hold a reader back.
        assert!(direct.rw(&name).read().try_lock().await.unwrap().is_some(), "{name}");
        guard.unlock().await.unwrap();
    } else {
        if parts[0] != "write_release" {
            fired().await;
        }
        guard.unlock().await.unwrap();
        let guard = granted(&name, waiting).await;
        let suffix = if flavour == Flavour::Read { "" } else { ":write" };
        view.holds(flavour.as_str(), &[(guard.owner(), suffix, 1)]).await;
        if let Err(error) = guard.unlock().await {
            panic!("{name}: unlock: {error:?}");
        }
        fired().await;
    }
    idle(&client).await;
    view.free_soon().await;
    for client in [client, direct] {
        client.shutdown(PATIENCE).await.unwrap_or_else(|error| panic!("{name}: shutdown: {error:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_of_waiter_do_not_block_others() {
    rw(async |bed| {
        warm(bed, &bed.client().await).await;
        in_every_way(TARGETS, |action, target| hit(bed, action, target)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_in_doubt_yields_to_waiting_writer() {
    rw(async |bed| {
        warm(bed, &bed.client().await).await;
        for action in [Action::CloseBefore, Action::SwallowReplyClose] {
            let proxy = bed.proxy();
            let client = bed.connect(stubborn(&proxy.url()).hold_back(HOUR)).await;
            // The writer's mark lasts for hours.
            let own = bed.connect(bed.still_builder().prefer(Prefer::Writers)).await;
            let first = own.rw("a").read().lock().await.unwrap();
            let writer = waiter(&own, Flavour::Write, "a");
            marked(bed, "a").await;
            let armed = proxy.on_request(script(&["read"]).containing("a"), action);
            let again = proxy.on_request(script(&["read"]).containing("a").nth(3), Action::Delay(ms(0)));
            let waiting = waiter(&client, Flavour::Read, "a");
            ends("the reader asks", armed.fired()).await;
            ends("the reader asks again: it has not passed the writer", again.fired()).await;
            assert!(!waiting.is_finished() && !writer.is_finished());
            first.unlock().await.unwrap();
            let guard = granted("the writer", writer).await;
            assert!(!waiting.is_finished(), "{action:?}: a reader passed a writer");
            guard.unlock().await.unwrap();
            served("the reader", waiting).await;
        }
    })
    .await;
}
