//! A proxy loses, repeats, delays and cuts single commands: every command of a session, in every way.

use std::collections::BTreeMap;
use std::sync::Arc;

use distlock::{Acquire, Client, DistLock, Error, Lost, Owner, ReentrantLock, Released};
use distlock_support::Admin;
use distlock_support::proxy::{Action, Matcher, Mode, Proxy};

use bed::fault::{brisk, script, warm};
use bed::harm::ACTIONS;
use bed::pest::contend;
use bed::{eventually, idle, ms, reentrant, secs, text};

/// One session's view of the server, past the proxy.
struct View<'a> {
    admin: &'a Admin,
    name: &'a str,
    label: String,
}

impl View<'_> {
    /// Exactly these holds stand in Redis, now.
    async fn holds(&self, expected: &[(&Owner, u64)]) {
        let found = self.found().await;
        let expected: BTreeMap<_, _> = expected.iter().map(|(who, count)| (text(who), count.to_string())).collect();
        assert_eq!(found, expected, "{}", self.label);
        if !found.is_empty() {
            let ttl = self.admin.pttl(self.name).await;
            assert!(ttl > 0, "{}: no end of life, {ttl}", self.label);
        }
    }

    async fn found(&self) -> BTreeMap<String, String> {
        self.admin.hgetall(self.name).await
    }

    /// What was begun is undone.
    async fn free_soon(&self) {
        eventually(&format!("free again: {}", self.label), async || self.found().await.is_empty()).await;
    }
}

/// All that a client does with a lock. Whatever is lost once, acquires with a wait and releases succeed all the same.
async fn session(client: &Client, lock: &ReentrantLock, view: &View<'_>) {
    let label = &view.label;
    let ok = |what: &str, error: Error| -> ! { panic!("{label}: {what}: {error:?}") };
    // In doubt or not, an error of a single attempt may pass.
    let passing = |what: &str, error: &Error| assert!(error.is_retryable(), "{label}: {what}: {error:?}");
    let me = client.owner();
    let mine = Acquire::new().owner(&me).wait(secs(5));
    let first = match lock.acquire(mine.clone()).await {
        Ok(guard) => guard.unwrap_or_else(|| panic!("{label}: busy, with nobody there")),
        Err(error) => ok("acquire", error),
    };
    view.holds(&[(&me, 1)]).await;
    let second = match lock.acquire(mine).await {
        Ok(guard) => guard.unwrap_or_else(|| panic!("{label}: busy, held by itself")),
        Err(error) => ok("come in again", error),
    };
    view.holds(&[(&me, 2)]).await;
    match lock.try_lock().await {
        Ok(guard) => assert!(guard.is_none(), "{label}: two holders"),
        Err(error) => passing("try", &error),
    }
    let renewed = client.renew_now().await;
    assert_eq!((renewed.renewed + renewed.failed, renewed.lost), (1, 0), "{label}");
    if let Err(error) = first.extend(secs(20)).await {
        passing("extend", &error);
    }
    view.holds(&[(&me, 2)]).await;
    match second.unlock().await {
        Ok(left) => assert_eq!(left, Released::StillHeld(1), "{label}"),
        Err(error) => ok("give one back", error),
    }
    view.holds(&[(&me, 1)]).await;
    assert!(first.is_held(), "{label}");
    match first.unlock().await {
        Ok(left) => assert_eq!(left, Released::Free, "{label}"),
        Err(error) => ok("give the other back", error),
    }
    view.holds(&[]).await;
    match lock.try_lock().await {
        Ok(guard) => {
            let guard = guard.unwrap_or_else(|| panic!("{label}: busy, with nobody there"));
            view.holds(&[(guard.owner(), 1)]).await;
            let left = guard.unlock().await;
            assert!(matches!(left, Ok(Released::Free)), "{label}: {left:?}");
        }
        Err(error) => passing("try", &error),
    }
    view.free_soon().await;
    drop(lock.lock().await.unwrap_or_else(|error| ok("lock", error)));
    view.free_soon().await;
    if let Err(error) = distlock::DistLock::state(lock).await {
        passing("state", &error);
    }
    let guard = lock.lock().await.unwrap_or_else(|error| ok("lock", error));
    match distlock::DistLock::force_unlock(lock).await {
        Ok(forced) => {
            assert!(forced, "{label}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { why: Lost::Gone, .. })), "{label}");
        }
        Err(error) => {
            passing("force", &error);
            match guard.unlock().await {
                Ok(left) => assert_eq!(left, Released::Free, "{label}"),
                Err(Error::NotHeld { .. } | Error::Lost { .. }) => {}
                Err(error) => ok("release after a force in doubt", error),
            }
        }
    }
    view.free_soon().await;
    idle(client).await;
}

/// A session with the nth of its commands hit; false when there was none.
async fn run(proxy: &Proxy, client: &Client, admin: &Admin, action: Action, n: Option<usize>) -> bool {
    let name = format!("{action:?}/{n:?}");
    let lock = client.reentrant(&name);
    let armed = n.map(|n| {
        let nth = Matcher::command("EVALSHA").containing(format!("\r\n{name}\r\n")).nth(n);
        proxy.on_request(nth, action)
    });
    session(client, &lock, &View { admin, name: &name, label: name.clone() }).await;
    armed.is_none_or(|armed| armed.has_fired())
}

/// Every command of the session, lost, repeated, delayed or cut off in nine ways: never counted twice, never held after
/// an error, never "busy" with the key ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_lost_in_every_way_changes_no_count() {
    reentrant(async |bed| {
        let admin = Arc::new(Admin::connect(&bed.server).await);
        let mut running = Vec::new();
        for action in ACTIONS {
            let proxy = Proxy::start(bed.server.addr());
            let client = bed.connect(brisk(&proxy.url()).watchdog(secs(30)).subscription_linger(ms(0))).await;
            let admin = Arc::clone(&admin);
            running.push(async move {
                warm(&client).await;
                let before = proxy.requests_seen("EVALSHA");
                assert!(run(&proxy, &client, &admin, action, None).await);
                let commands = proxy.requests_seen("EVALSHA") - before;
                for n in 1..=commands {
                    assert!(
                        run(&proxy, &client, &admin, action, Some(n)).await,
                        "{action:?}: there was no command {n}"
                    );
                }
                commands
            });
        }
        for (action, commands) in ACTIONS.into_iter().zip(futures::future::join_all(running).await) {
            println!("{action:?}: {commands} commands");
            assert!(commands >= 13, "{commands}");
        }
    })
    .await;
}

/// An acquire whose reply is lost until its wait is over: an error in doubt, never "busy", and what it took is given back.
#[tokio::test]
async fn a_wait_that_ends_in_doubt_is_not_busy() {
    reentrant(async |bed| {
        for (n, action) in
            [Action::HangReply, Action::DelayReply(ms(1500)), Action::Delay(ms(1500))].into_iter().enumerate()
        {
            let proxy = Proxy::start(bed.server.addr());
            let client = bed.connect(brisk(&proxy.url()).command_timeout(secs(2)).watchdog(secs(30))).await;
            warm(&client).await;
            let name = format!("lock {n}");
            let lock = client.reentrant(&name);
            proxy.on_request(script("acquire").containing(&name), action);
            let error = lock.lock_for(ms(500)).await.expect_err("not busy");
            assert!(error.outcome_unknown(), "{action:?}: {error:?}");
            let ran = async || bed.admin.commandstats().await.get("hset").is_some_and(|calls| *calls > n as u64);
            eventually("the acquire runs", ran).await;
            eventually("it is undone", async || !bed.admin.exists(&name).await).await;
            idle(&client).await;
            assert!(!bed.admin.exists(&name).await, "{action:?}");
        }
    })
    .await;
}

/// The wait is over while the one command is under way, and the server takes no longer than it usually does, or answers others:
/// that is a wait that ran out. A client whose server is known to be silent is told so however short the wait.
async fn a_wait_that_ends_before_a_healthy_server_answers_has_run_out(kind: &str) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url()).command_timeout(secs(2)).watchdog(secs(30))).await;
        warm(&client).await;
        let lock: Arc<dyn DistLock> = match kind {
            "multi" => Arc::new(client.multi(["a", "b"])),
            "single" => Arc::new(client.reentrant("a")),
            _ => Arc::new(client.striped("a", 2)),
        };
        lock.lock().await.unwrap().unlock().await.unwrap();
        let me = client.owner();
        let how = match kind {
            "striped, not reentrant" => Acquire::new().owner(&me).not_reentrant(),
            _ => Acquire::new(),
        };
        let lock_for = async |wait| lock.acquire(how.clone().wait(wait)).await;
        let undone = async || {
            idle(&client).await;
            assert_eq!(bed.admin.keys().await, Vec::<String>::new(), "{kind}: not undone");
        };
        proxy.set_upstream_mode(Mode::Delay(ms(90)));
        for _ in 0..5 {
            let outcome = lock_for(ms(20)).await;
            assert!(matches!(outcome, Ok(None)), "{kind}: {outcome:?}");
            undone().await;
        }
        // A slow one, which usually takes 400 ms.
        proxy.set_upstream_mode(Mode::Delay(ms(400)));
        for _ in 0..6 {
            assert!(!lock.is_locked().await.unwrap());
        }
        let outcome = lock_for(ms(200)).await;
        assert!(matches!(outcome, Ok(None)), "{kind}: {outcome:?}");
        proxy.set_upstream_mode(Mode::Pass);
        undone().await;
        for _ in 0..30 {
            assert!(!lock.is_locked().await.unwrap());
        }
        // Silent, and known to be.
        proxy.set_upstream_mode(Mode::Hang);
        for wait in [300, 10, 10] {
            let Err(error) = lock_for(ms(wait)).await else { panic!("{kind}: silent for {wait} ms") };
            assert!(error.outcome_unknown(), "{kind}: {error:?}");
        }
        proxy.set_upstream_mode(Mode::Pass);
        undone().await;
    })
    .await;
}

bed::cases!(a_wait_that_ends_before_a_healthy_server_answers_has_run_out:
    single = "single",
    multi = "multi",
    striped = "striped",
    striped_not_reentrant = "striped, not reentrant",
);

/// A reply that takes longer than the lease it grants: no success, and nothing stays.
#[tokio::test]
async fn a_grant_that_comes_after_its_lease_is_none() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url()).command_timeout(secs(1)).retry_attempts(2)).await;
        warm(&client).await;
        let lock = client.reentrant("a");
        let once = Acquire::new().wait(ms(0)).lease(ms(100));
        proxy.on_request(script("acquire").containing("\r\na\r\n"), Action::DelayReply(ms(300)));
        let error = lock.acquire(once.clone()).await.expect_err("the lease is over");
        assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        idle(&client).await;
        assert!(!bed.admin.exists("a").await);
        // One that waits tries again, and has it by a reply in time.
        proxy.on_request(script("acquire").containing("\r\na\r\n"), Action::DelayReply(ms(300)));
        let guard = lock.acquire(Acquire::new().wait(secs(5)).lease(secs(1))).await.unwrap().expect("free");
        assert!(guard.is_held() && guard.remaining() <= ms(988));
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Frames that come byte by byte, and late by different times: the same results.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_and_jittered_bytes_change_nothing() {
    reentrant(async |bed| {
        let admin = Admin::connect(&bed.server).await;
        for (n, mode) in [Mode::Split, Mode::Jitter(ms(0), ms(20)), Mode::Delay(ms(30))].into_iter().enumerate() {
            let proxy = Proxy::start(bed.server.addr());
            let client = bed.connect(brisk(&proxy.url()).command_timeout(secs(2)).watchdog(secs(30))).await;
            warm(&client).await;
            proxy.set_upstream_mode(mode);
            proxy.set_downstream_mode(mode);
            let name = format!("lock {n}");
            let view = View { admin: &admin, name: &name, label: format!("{mode:?}") };
            session(&client, &client.reentrant(&name), &view).await;
            let clients = [client, bed.connect(brisk(&bed.server.url()).watchdog(secs(30))).await];
            let waits = contend(&clients, 8, 10, ms(1)).await;
            println!("{mode:?}: longest wait {:?}", waits.last().unwrap());
        }
    })
    .await;
}
