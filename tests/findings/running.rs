//! What was found by running things, each a regression test by its number.

use std::path::Path;
use std::time::{Duration, Instant};

use bed::{Bed, eventually, ms, reentrant, run_on, secs};
use distlock::{Acquire, Client, DistLock, Error, Flavour, Lost, NotHeld, Released};
use distlock_support::{Action, Matcher, Proxy, RedisServer};

async fn on(server: RedisServer, body: impl AsyncFnOnce(&Bed)) {
    run_on(server, |client, name| client.lock(Flavour::Reentrant, name), body).await;
}

/// A user of the server of this test, and a client that logs in as it.
async fn client_as(bed: &Bed, rules: &[&str]) -> Client {
    let mut setuser = vec!["ACL", "SETUSER", "probe", "reset", "on", ">secret"];
    setuser.extend(rules);
    bed.admin.cmd::<String>(&setuser).await;
    let builder = bed.builder().username("probe").password("secret").poll_cap(ms(200));
    bed.connect(builder.subscription_linger(ms(50))).await
}

/// F1: an acquire whose reply is lost must not count twice. fred's default sends it again.
#[tokio::test]
async fn f1_a_lost_reply_never_counts_twice() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).retry_delay((ms(20), ms(40)))).await;
        let lock = client.reentrant("x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        for round in 0..5 {
            let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
            let guard = lock.lock_for(secs(5)).await.unwrap().expect("free for us");
            assert!(lost.has_fired(), "round {round}");
            let state = lock.state().await.unwrap();
            assert_eq!((state.holders.len(), state.hold_count(guard.owner())), (1, 1));
            let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
            assert!(lost.has_fired());
            assert!(!bed.admin.exists("x").await);
        }
        // While the proxy is there.
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// F2: dropping a future does not recall its command. What it took unseen is given back.
#[tokio::test]
async fn f2_an_acquire_dropped_after_it_was_sent_is_given_back() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.reentrant("x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        // Not polled: nothing is sent.
        drop(lock.lock());
        bed.admin.reset_stats().await;
        assert_eq!(bed.admin.calls("evalsha").await, 0);
        for _ in 0..100 {
            let mut acquire = Box::pin(lock.lock());
            assert!(futures::poll!(&mut acquire).is_pending());
            drop(acquire);
        }
        bed::idle(&client).await;
        // They were sent, and took the lock, each in its turn; and each gave it back.
        let sent = bed.admin.calls("evalsha").await;
        assert!(sent >= 2, "{sent}");
        assert!(!bed.admin.exists("x").await);
        lock.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// F3: subscribing to a channel that the access list denies looks like success. Waiters look for themselves.
#[tokio::test]
async fn f3_where_no_message_may_be_heard_waiters_poll() {
    reentrant(async |bed| {
        let holder = bed.client().await;
        let client = client_as(bed, &["~*", "resetchannels", "+@all"]).await;
        let guard = holder.reentrant("x").lock().await.unwrap();
        let lock = client.reentrant("x");
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        eventually("it waits", async || client.stats().waiting == 1).await;
        tokio::time::sleep(ms(100)).await;
        let freed = Instant::now();
        guard.unlock().await.unwrap();
        let guard = waiter.await.unwrap();
        assert!(freed.elapsed() < ms(200 + 300), "not within the poll cap: {:?}", freed.elapsed());
        guard.unlock().await.unwrap();
    })
    .await;
}

/// F4: scripts are not rolled back. A lease that cannot be set leaves no lock without an end.
#[tokio::test]
async fn f4_no_lock_without_an_end() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.reentrant("x");
        for lease in [Duration::MAX, secs(u64::MAX / 1000), secs(11 * 366 * 24 * 3600)] {
            let refused = lock.acquire(Acquire::new().lease(lease)).await;
            assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
        }
        // The longest that is allowed does get an end.
        let guard = lock.lock_leased(secs(10 * 365 * 24 * 3600)).await.unwrap();
        assert!(bed.admin.pttl("x").await > 0);
        guard.unlock().await.unwrap();

        let poor = client_as(bed, &["~*", "&*", "+@all", "-pexpire"]).await;
        let refused = poor.reentrant("x").try_lock().await;
        let Err(Error::Server { message }) = refused else { panic!("{refused:?}") };
        assert!(message.contains("command") || message.contains("ACL"), "{message}");
        assert!(!bed.admin.exists("x").await, "left behind without an end");
    })
    .await;
}

/// F5: a lease of nothing deletes the key in the very script that answers "acquired".
#[tokio::test]
async fn f5_a_lease_of_nothing_is_refused() {
    reentrant(async |bed| {
        let lock = bed.client().await.reentrant("x");
        bed.admin.reset_stats().await;
        for lease in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
            let refused = lock.acquire(Acquire::new().lease(lease)).await;
            assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
        }
        assert_eq!(bed.admin.calls("evalsha").await, 0, "something was sent");
        // Rounded up, never down.
        let guard = lock.lock_leased(Duration::from_micros(20_000_500)).await.unwrap();
        assert!((19_000..=20_001).contains(&bed.admin.pttl("x").await));
        guard.unlock().await.unwrap();
    })
    .await;
}

/// F6: a release that may not be announced is a release all the same.
#[tokio::test]
async fn f6_a_release_that_may_not_be_announced_is_released() {
    reentrant(async |bed| {
        let client = client_as(bed, &["~*", "resetchannels", "+@all"]).await;
        let lock = client.reentrant("x");
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(!bed.admin.exists("x").await);
        let guard = lock.lock().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        assert!(matches!(guard.unlock().await, Err(Error::Lost { why: Lost::Gone, .. })));
        // The next waiter of this client need not wait for a message.
        let first = lock.lock().await.unwrap();
        let next = lock.clone();
        let next = tokio::spawn(async move { next.lock().await.unwrap().unlock().await.unwrap() });
        eventually("it waits", async || client.stats().waiting == 1).await;
        first.unlock().await.unwrap();
        tokio::time::timeout(secs(2), next).await.expect("not told").unwrap();
    })
    .await;
}

/// F11: fred's configuration prints the password. Ours does not, anywhere.
#[tokio::test]
async fn f11_debug_shows_no_password() {
    const SECRET: &str = "hunter2-Geheim";
    on(RedisServer::builder().password(SECRET).start(), async |bed| {
        let builder = bed.builder();
        let client = bed.connect(builder.clone().password(SECRET)).await;
        let lock = client.reentrant("x");
        let guard = lock.lock().await.unwrap();
        let owner = guard.owner().clone();
        let wrong = builder.clone().password(format!("{SECRET}-wrong")).connect().await.unwrap_err();
        let odd = Client::connect(&format!("redis://u:{SECRET}@127.0.0.1:notaport")).await.unwrap_err();
        let shown = format!(
            "{builder:?} {client:?} {lock:?} {guard:?} {owner:?} {wrong:?} {wrong} {odd:?} {odd} {:?} {:?}",
            client.options(),
            client.stats()
        );
        assert!(!shown.contains(SECRET), "{shown}");
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A server whose time of day is shifted by what stands in a file.
fn shifted(dir: &Path) -> Option<RedisServer> {
    let shim = dir.join("clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings/clock.c");
    let made = std::process::Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).status();
    if !made.is_ok_and(|status| status.success()) || !cfg!(target_os = "linux") {
        println!("skipped: needs Linux and a C compiler (./x test gets one)");
        return None;
    }
    std::fs::write(dir.join("shift"), 0_i64.to_ne_bytes()).unwrap();
    let file = dir.join("shift");
    Some(RedisServer::builder().env("LD_PRELOAD", shim.as_os_str()).env("DISTLOCK_CLOCK", file.as_os_str()).start())
}

fn shift(dir: &Path, ms: i64) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::options().write(true).open(dir.join("shift")).unwrap();
    file.write_all_at(&ms.to_ne_bytes(), 0).unwrap();
}

/// F14: leases are measured by the server's time of day. A step forward ends them early: premise P2, and the holder is
/// told as soon as a renewal shows it.
#[tokio::test]
async fn f14_a_step_forward_of_the_servers_clock_is_told_by_the_next_renewal() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = shifted(dir.path()) else { return };
    on(server, async |bed| {
        let client = bed.quick().await;
        let guard = client.reentrant("x").lock().await.unwrap();
        let leased = client.reentrant("y").lock_leased(secs(20)).await.unwrap();
        shift(dir.path(), 15_000);
        let left = bed.admin.pttl("y").await;
        assert!((3_000..=5_100).contains(&left), "a lease of 20 s has {left} ms left");
        let stepped = Instant::now();
        let lost = tokio::time::timeout(bed::QUICK, guard.lost()).await.expect("not told");
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(stepped.elapsed() < bed::QUICK / 3 + ms(500), "{:?}", stepped.elapsed());
        assert!(!guard.is_held());
        shift(dir.path(), 25_000);
        // An explicit lease is never renewed, so nothing tells of it before its end by the local clock.
        let other = bed.client().await.reentrant("y").try_lock().await.unwrap().expect("free for the server");
        let refused = leased.unlock().await.unwrap_err();
        let Error::NotHeld { why: NotHeld::HeldBy { owner }, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(owner, other.owner().as_str());
        other.unlock().await.unwrap();
    })
    .await;
}

/// F14: a step back makes leases longer: a matter of liveness, for locks whose holder is gone.
#[tokio::test]
async fn f14_a_step_back_of_the_servers_clock_keeps_a_dead_holders_lock_for_longer() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = shifted(dir.path()) else { return };
    on(server, async |bed| {
        let client = bed.quick().await;
        let (alive, dead) = (client.reentrant("alive"), client.reentrant("dead"));
        let guard = alive.lock().await.unwrap();
        let owner = dead.lock_leased(secs(20)).await.unwrap().into_owner();
        shift(dir.path(), -3_600_000);
        let left = bed.admin.pttl("dead").await;
        assert!((3_600_000..=3_620_000).contains(&left), "{left}");
        // Who lives renews and releases as ever.
        tokio::time::sleep(bed::QUICK).await;
        assert!(guard.is_held());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(alive.lock_for(secs(1)).await.unwrap().is_some());
        assert!(dead.try_lock().await.unwrap().is_none());
        assert_eq!(dead.release(&owner).await.unwrap(), Released::Free);
    })
    .await;
}
