//! Faults of single commands of both halves: every command is lost, repeated, delayed and cut off.

use std::collections::BTreeSet;

use distlock::{Acquire, Builder, Client, Error, Flavour, Owner, Prefer, ReadLock, Released, RwLock, WriteLock};
use distlock_support::Admin;
use distlock_support::proxy::{Action, Matcher};

use crate::rig::{BOTH, HOUR, cover, fields, granted, marked, served, waiter};
use bed::fault::{brisk, gave, got};
use bed::harm::{ACTIONS, runs};
use bed::{PATIENCE, becomes, ends, eventually, idle, ms, rw, text};

/// A client whose commands time out soon and are retried for as long as a test lasts. No lease or mark ends by
/// accident, and no automatic renewal adds a command.
fn stubborn(url: &str) -> Builder {
    brisk(url)
        .connect_timeout(PATIENCE)
        .watchdog(HOUR)
        .retry_attempts(1_000)
        .configure(|options| options.poll_cap = HOUR)
}

/// Runs the scripts of both halves once, so that the server knows them.
async fn warm(client: &Client) {
    for half in BOTH {
        // Other clients warm up concurrently.
        let guard = client.lock(half, &format!("warm {}", client.id())).lock().await.unwrap();
        client.renew_now().await;
        guard.unlock().await.unwrap();
    }
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
        assert_eq!(self.beside().await, covers, "covers of {name}");
        for key in covers.iter().map(String::as_str).chain([name]) {
            let ttl = self.admin.pttl(key).await;
            assert!(ttl > 0, "{key} does not expire: {ttl}");
        }
    }

    /// The lock's keys except the hash.
    async fn beside(&self) -> BTreeSet<String> {
        let mut keys = self.admin.keys().await;
        keys.retain(|key| key.starts_with(&format!("{{{}}}:", self.name)));
        keys.into_iter().collect()
    }

    /// Waits until all unfinished calls are undone.
    async fn free_soon(&self) {
        let is_free = async || !self.admin.exists(self.name).await && self.beside().await.is_empty();
        eventually(&format!("free again: {}", self.name), is_free).await;
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
            let client =
                bed.connect(stubborn(&proxy.url()).configure(|options| options.subscription_linger = ms(0))).await;
            running.push(async move {
                warm(&client).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_in_doubt_yields_to_waiting_writer() {
    rw(async |bed| {
        warm(&bed.client().await).await;
        for action in [Action::CloseBefore, Action::SwallowReplyClose] {
            let proxy = bed.proxy();
            let client = bed.connect(stubborn(&proxy.url()).configure(|options| options.max_reader_delay = HOUR)).await;
            // The writer's mark lasts for hours.
            let own = bed.connect(bed.still_builder().configure(|options| options.prefer = Prefer::Writers)).await;
            let first = own.rw("a").read().lock().await.unwrap();
            let writer = waiter(&own, Flavour::Write, "a");
            marked(bed, "a").await;
            let reads = || runs(&["common/holds", "rwlock/covers", "rwlock/read"]).containing("a");
            let armed = proxy.on_request(reads(), action);
            let again = proxy.on_request(reads().nth(3), Action::Delay(ms(0)));
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
