//! Waits that last as long as they were asked to, and what is told at their end: found by a reader and an adversary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard, MultiLock, RedLock};
use distlock_support::{Action, Matcher, Mode, Proxy, RedisServer};
use tokio::task::JoinHandle;

use bed::wire::{Wire, arrives};
use bed::{enter, eventually, fair, idle, ms, reentrant, secs};

/// A grant that came too late is being given back, to a server that has fallen silent: the next attempt stands behind that, and
/// the wait ends all the same.
#[tokio::test]
async fn a_wait_ends_while_a_late_grant_is_given_back() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).command_timeout(ms(800)).retry_attempts(1)).await;
        let lock = client.reentrant("x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        proxy.set_upstream_mode(Mode::Delay(ms(400)));
        let began = Instant::now();
        let waits = lock.acquire(Acquire::new().lease(ms(200)).wait(secs(3)));
        let falls_silent = async {
            eventually("the first grant", async || bed.admin.exists("x").await).await;
            proxy.set_upstream_mode(Mode::Hang);
        };
        let (outcome, ()) = tokio::join!(waits, falls_silent);
        let took = began.elapsed();
        println!("{outcome:?} after {took:?}");
        assert!(outcome.is_err() && took < secs(5), "{outcome:?} after {took:?}");
        proxy.set_upstream_mode(Mode::Pass);
        idle(&client).await;
    })
    .await;
}

/// The hold beside which an owner was to come in is gone, and it has another: nobody who waits for that stands before it.
async fn who_comes_in_beside_a_hold_that_is_gone_does_not_queue(flavour: Flavour) {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, theirs) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
        let me = client.owner();
        let stale = lock.acquire(Acquire::new().owner(&me).lease(secs(60))).await.unwrap().expect("free");
        assert!(theirs.force_unlock().await.unwrap());
        let held = enter(&*theirs, &me).await;
        let behind = waits(Arc::clone(&lock));
        eventually("another waits", async || client.stats().waiting == 1).await;
        let began = Instant::now();
        let again = lock.acquire(Acquire::new().owner(&me).wait(secs(10))).await.unwrap();
        println!("{flavour}: {} after {:?}", again.is_some(), began.elapsed());
        assert!(began.elapsed() < secs(5), "{flavour}: {:?}", began.elapsed());
        again.expect("beside its other hold").unlock().await.unwrap();
        drop(stale);
        held.unlock().await.unwrap();
        behind.await.unwrap().unlock().await.unwrap();
        idle(&client).await;
    })
    .await;
}

bed::cases!(who_comes_in_beside_a_hold_that_is_gone_does_not_queue:
    reentrant = Flavour::Reentrant,
    fair = Flavour::Fair,
);

/// Whoever waits in this process behind another whose command has no answer does not know that the lock is busy.
async fn who_waits_behind_another_at_a_silent_server_is_told_so(kind: &str) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).command_timeout(secs(5))).await;
        let lock: Arc<dyn DistLock> = match kind {
            "striped" => Arc::new(client.striped("x", 2)),
            _ => Arc::new(client.reentrant("x")),
        };
        lock.lock().await.unwrap().unlock().await.unwrap();
        idle(&client).await;
        proxy.set_upstream_mode(Mode::Hang);
        let mut first = std::pin::pin!(lock.lock());
        assert!(futures::poll!(&mut first).is_pending());
        let second = async {
            tokio::task::yield_now().await;
            lock.lock_for(ms(500)).await
        };
        tokio::select! {
            biased;
            second = second => {
                let error = second.expect_err("nobody knows who holds it");
                assert!(error.is_retryable(), "{kind}: {error:?}");
            }
            first = &mut first => panic!("{kind}: {first:?}"),
        }
        proxy.set_upstream_mode(Mode::Pass);
        first.await.unwrap().unlock().await.unwrap();
        idle(&client).await;
    })
    .await;
}

bed::cases!(who_waits_behind_another_at_a_silent_server_is_told_so:
    reentrant = "reentrant",
    striped = "striped",
);

/// A server that does not answer is told as such by every wait but those that end before that can be known.
async fn a_server_that_stays_silent_is_not_busy((given, timeout): (bool, Duration)) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).command_timeout(timeout)).await;
        let lock = client.reentrant("a");
        lock.lock().await.unwrap().unlock().await.unwrap();
        idle(&client).await;
        proxy.set_upstream_mode(Mode::Hang);
        let me = client.owner();
        let died = Instant::now();
        while died.elapsed() < secs(8) {
            let how = if given { Acquire::new().owner(&me) } else { Acquire::new() };
            let (began, outcome) = (died.elapsed(), lock.acquire(how.wait(ms(50))).await);
            assert!(outcome.is_err() || began < ms(200), "given {given}, {timeout:?}: {outcome:?} after {began:?}");
            tokio::time::sleep(ms(337)).await;
        }
        proxy.heal();
        proxy.close_all();
        idle(&client).await;
    })
    .await;
}

bed::cases!(a_server_that_stays_silent_is_not_busy:
    with_no_owner = (false, secs(3)),
    with_an_owner = (true, secs(3)),
    with_an_owner_and_a_short_timeout = (true, ms(600)),
);

/// Nor are servers that died while somebody waited at them.
#[tokio::test]
async fn a_majority_that_dies_during_the_wait_is_no_quorum() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::start(server.addr())).collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (server, proxy) in servers.iter().zip(&proxies) {
        let options = Client::builder(&proxy.url()).command_timeout(secs(1)).poll_cap(ms(300));
        ours.push(options.connect().await.unwrap());
        theirs.push(Client::connect(&server.url()).await.unwrap());
    }
    let held = RedLock::new(theirs.clone(), "x").lock().await.unwrap();
    // Far longer than four answers take on a busy machine: only then is a server known to be silent.
    for wait in [3_000, 4_500] {
        let lock = RedLock::new(ours.clone(), "x");
        // So that no server is known as a slow one, whose silence would tell less: the first answers may have been late.
        for _ in 0..20 {
            assert!(lock.try_lock().await.unwrap().is_none());
        }
        let (outcome, ()) = tokio::join!(lock.lock_for(ms(wait)), async {
            tokio::time::sleep(ms(200)).await;
            proxies.iter().for_each(|proxy| proxy.blackhole(true));
        });
        println!("{wait}: {outcome:?}");
        assert!(matches!(outcome, Err(Error::NoQuorum { .. })), "{wait}: {outcome:?}");
        proxies.iter().for_each(Proxy::heal);
        for client in &ours {
            idle(client).await;
        }
    }
    held.unlock().await.unwrap();
}

/// A multi lock that lost one of its locks while it waited for another gives the rest back, to a server that has fallen silent.
async fn a_multi_lock_that_gives_back_in_vain_ends_with_its_wait(lease: Option<Duration>) {
    reentrant(async |bed| {
        let proxies = [Proxy::start(bed.server.addr()), Proxy::start(bed.server.addr())];
        let clients = [
            bed.connect(Client::builder(&proxies[0].url())).await,
            bed.connect(Client::builder(&proxies[1].url())).await,
        ];
        let other = bed.client().await;
        let locks: [Arc<dyn DistLock>; 2] = [Arc::new(clients[0].reentrant("a")), Arc::new(clients[1].reentrant("b"))];
        let multi = MultiLock::of(locks.to_vec());
        multi.lock().await.unwrap().unlock().await.unwrap();
        let held = other.reentrant("b").lock().await.unwrap();
        let began = Instant::now();
        let how = lease.map_or_else(Acquire::new, |lease| Acquire::new().lease(lease));
        let (outcome, ()) = tokio::join!(multi.acquire(how.wait(secs(1))), async {
            eventually("a is had", async || bed.admin.exists("a").await).await;
            let _: u64 = bed.admin.cmd(&["DEL", "a"]).await;
            // What follows the acquire of b is not answered.
            let second = proxies[1].on_request(Matcher::command("EVALSHA").nth(2), Action::HangReply);
            held.unlock().await.unwrap();
            if tokio::time::timeout(secs(1), second.fired()).await.is_ok() {
                proxies[1].set_upstream_mode(Mode::Hang);
            }
        });
        println!("{lease:?}: {outcome:?} after {:?}", began.elapsed());
        assert!(began.elapsed() < secs(4), "{lease:?}: {outcome:?} after {:?}", began.elapsed());
        drop(outcome);
        proxies[1].heal();
        proxies[1].close_all();
        for client in &clients {
            idle(client).await;
        }
        assert_eq!(bed.admin.keys().await, Vec::<String>::new());
    })
    .await;
}

bed::cases!(a_multi_lock_that_gives_back_in_vain_ends_with_its_wait:
    leased = Some(secs(60)),
    watched = None,
);

/// The server has forgotten the script, and is slow: an attempt is two commands then, and the wait ends all the same.
async fn a_wait_ends_while_a_script_is_sent_anew(flavour: Flavour) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).command_timeout(secs(3))).await;
        let lock = client.lock(flavour, "a");
        lock.lock().await.unwrap().unlock().await.unwrap();
        bed.admin.script_flush().await;
        proxy.set_upstream_mode(Mode::Delay(ms(2500)));
        let began = Instant::now();
        let outcome = lock.lock_for(secs(3)).await;
        println!("{flavour}: {outcome:?} after {:?}", began.elapsed());
        assert!(began.elapsed() < ms(4500), "{flavour}: {outcome:?} after {:?}", began.elapsed());
        drop(outcome);
        proxy.set_upstream_mode(Mode::Pass);
        idle(&client).await;
    })
    .await;
}

bed::cases!(a_wait_ends_while_a_script_is_sent_anew:
    reentrant = Flavour::Reentrant,
    fair = Flavour::Fair,
);

/// A copy of a fresh owner's acquire that comes late takes no place in a fair lock's queue.
#[tokio::test]
async fn a_late_copy_of_a_fair_waiters_acquire_leaves_no_queue() {
    fair(async |bed| {
        let (client, other) = (bed.connect(bed.builder().command_timeout(ms(300))).await, bed.client().await);
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let held = theirs.lock().await.unwrap();
        // The server's clock is known since the client connected.
        let wire = Wire::tap(&bed.server).await;
        assert!(lock.lock_for(ms(200)).await.unwrap().is_none());
        let copies = wire.calls(bed).await;
        held.unlock().await.unwrap();
        idle(&client).await;
        tokio::time::sleep(secs(2)).await;
        let held = theirs.lock_leased(secs(60)).await.unwrap();
        // The first one asked for a place.
        arrives(bed, &copies[0]).await;
        assert!(!bed.admin.exists("redisson_lock_queue:{x}").await, "{:?}", copies[0]);
        held.unlock().await.unwrap();
        assert_eq!(bed.admin.keys().await, Vec::<String>::new());
    })
    .await;
}

/// Waits for a lock.
fn waits(lock: Arc<dyn DistLock>) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.unwrap() })
}
