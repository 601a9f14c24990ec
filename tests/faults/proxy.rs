//! A proxy loses, repeats, delays or cuts off a single command: each command of a session, in each way.

use std::collections::BTreeMap;

use distlock::{Acquire, Client, Error, Lost, Owner, ReentrantLock, Released};
use distlock_support::Admin;
use distlock_support::proxy::{Action, Matcher, Mode, Proxy};

use crate::rig::{patient, stubborn, warm};
use bed::fault::{gave, got};
use bed::harm::ACTIONS;
use bed::pest::contend;
use bed::{PATIENCE, becomes, idle, ms, reentrant, secs, text};

/// A session's direct view of the server, not through the proxy.
struct View<'a> {
    admin: &'a Admin,
    name: &'a str,
    label: String,
}

impl View<'_> {
    /// Asserts that Redis has exactly these holds now.
    async fn holds(&self, expected: &[(&Owner, u64)]) {
        let found = self.admin.hgetall(self.name).await;
        let expected: BTreeMap<_, _> = expected.iter().map(|(who, count)| (text(who), count.to_string())).collect();
        assert_eq!(found, expected, "{}", self.label);
        if !found.is_empty() {
            let ttl = self.admin.pttl(self.name).await;
            assert!(ttl > 0, "{}: no end of life, {ttl}", self.label);
        }
    }

    /// Waits until unfinished calls are undone.
    async fn free_soon(&self) {
        becomes(&self.label, BTreeMap::new(), async || self.admin.hgetall(self.name).await).await;
    }
}

/// Runs every operation of a lock. Acquires with a wait and releases must succeed, although one command is lost.
async fn session(client: &Client, lock: &ReentrantLock, view: &View<'_>) {
    let label = &view.label;
    // The error of a single attempt is retryable, whether the command is in doubt or not.
    let passing = |what: &str, error: &Error| {
        let passes = error.is_retryable() || matches!(error, Error::ReleasePending { .. });
        assert!(passes, "{label}: {what}: {error:?}");
    };
    let me = client.owner();
    let mine = Acquire::new().owner(&me).wait(PATIENCE);
    let first = got(label, "acquire", lock.acquire(mine.clone()).await);
    view.holds(&[(&me, 1)]).await;
    let second = got(label, "come in again", lock.acquire(mine).await);
    view.holds(&[(&me, 2)]).await;
    match lock.try_lock().await {
        Ok(guard) => assert!(guard.is_none(), "{label}: two holders"),
        Err(error) => passing("try", &error),
    }
    let renewed = client.renew_now().await;
    assert_eq!((renewed.renewed + renewed.failed, renewed.lost), (1, 0), "{label}");
    if let Err(error) = first.extend(secs(900)).await {
        passing("extend", &error);
    }
    view.holds(&[(&me, 2)]).await;
    gave(label, "give one back", second.unlock().await, Released::StillHeld(1));
    view.holds(&[(&me, 1)]).await;
    assert!(first.is_held(), "{label}");
    gave(label, "give the other back", first.unlock().await, Released::Free);
    view.holds(&[]).await;
    match lock.try_lock().await {
        Ok(guard) => {
            let guard = guard.unwrap_or_else(|| panic!("{label}: busy, with nobody there"));
            view.holds(&[(guard.owner(), 1)]).await;
            gave(label, "release", guard.unlock().await, Released::Free);
        }
        Err(error) => passing("try", &error),
    }
    view.free_soon().await;
    drop(got(label, "lock", lock.lock().await.map(Some)));
    view.free_soon().await;
    if let Err(error) = lock.state().await {
        passing("state", &error);
    }
    let guard = got(label, "lock", lock.lock().await.map(Some));
    match lock.force_unlock().await {
        Ok(forced) => {
            assert!(forced, "{label}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { why: Lost::Gone, .. })), "{label}");
        }
        Err(error) => {
            passing("force", &error);
            match guard.unlock().await {
                Ok(Released::Free) | Err(Error::NotHeld { .. } | Error::Lost { .. }) => {}
                odd => panic!("{label}: release after a force in doubt: {odd:?}"),
            }
        }
    }
    view.free_soon().await;
    idle(client).await;
}

/// Runs a session with a fault at its nth command. Returns false if the session had no nth command.
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

/// Applies nine faults to every command of the session: it is lost, repeated, delayed or cut off. No hold is counted
/// twice, no lock stays held after an error, and the client never mistakes its own hold for that of another owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_change_no_hold_count() {
    reentrant(async |bed| {
        warm(bed).await;
        let running = ACTIONS.map(async |action| {
            let (proxy, admin) = (bed.proxy(), Admin::connect(&bed.server).await);
            let client =
                bed.connect(stubborn(&proxy.url()).configure(|options| options.subscription_linger = ms(0))).await;
            assert!(run(&proxy, &client, &admin, action, None).await);
            let mut hit = 0;
            // The loop ends when a session has no nth command. On a slow machine, retries add commands.
            while run(&proxy, &client, &admin, action, Some(hit + 1)).await {
                hit += 1;
            }
            assert!(hit >= 13, "{action:?}: {hit} commands");
        });
        futures::future::join_all(running).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_work_over_split_and_delayed_bytes() {
    reentrant(async |bed| {
        let admin = Admin::connect(&bed.server).await;
        warm(bed).await;
        for (n, mode) in [Mode::Split, Mode::Jitter(ms(0), ms(20)), Mode::Delay(ms(30))].into_iter().enumerate() {
            let proxy = bed.proxy();
            let client = bed.connect(patient(&proxy.url())).await;
            proxy.set_upstream_mode(mode);
            proxy.set_downstream_mode(mode);
            let name = format!("lock {n}");
            let view = View { admin: &admin, name: &name, label: format!("{mode:?}") };
            session(&client, &client.reentrant(&name), &view).await;
            let clients = [client, bed.connect(patient(&bed.server.url())).await];
            contend(&clients, 8, 10, ms(1)).await;
        }
    })
    .await;
}
