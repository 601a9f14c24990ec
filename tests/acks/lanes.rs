//! The connections that acknowledged calls go by.

use std::time::Instant;

use distlock::{Acks, Acquire, Client, Error, Flavour, Released};
use distlock_support::{Action, Matcher, Proxy, Replicas};
use tokio::task::JoinHandle;

use crate::{FLAVOURS, builder, client, end, granted, in_step, ms, nothing_left, over, secs, servers};

/// A `WAIT` on another connection than its command's counts the replicas that have what *that* connection wrote, which is nothing:
/// all of them, at once.
#[tokio::test]
async fn a_wait_behind_a_reconnect_vouches_for_nothing() {
    let servers = servers(1).await;
    for action in [Action::CloseBefore, Action::CloseAfter, Action::Rst, Action::SwallowReplyClose] {
        let proxy = Proxy::start(servers.node(0).server().addr());
        let strict = over(&proxy.url(), Acks::AtLeast(1)).command_timeout(ms(500)).connect().await.unwrap();
        // The lane is there, and works.
        for flavour in FLAVOURS {
            granted(&strict, flavour).await;
        }
        servers.node(1).stop();
        for flavour in FLAVOURS {
            let broken = proxy.on_request(Matcher::command("WAIT"), action);
            let outcome = strict.lock(flavour, "behind").try_lock().await;
            assert!(outcome.is_err(), "{action:?} {flavour}: {outcome:?}");
            broken.fired().await;
            bed::idle(&strict).await;
            nothing_left(&servers).await;
        }
        servers.node(1).cont();
        in_step(&servers).await;
        granted(&strict, FLAVOURS[0]).await;
        end(strict).await;
    }
}

/// Coming in again with a lease that is shorter changes nothing there; nor does a renewal of such. All the same it is written, and
/// acknowledged or not.
#[tokio::test]
async fn what_changes_nothing_is_acknowledged_as_well() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Plain) {
        let (lock, owner) = (strict.lock(flavour, "repeat"), strict.owner());
        let outer = lock.acquire(Acquire::new().owner(&owner).lease(secs(60))).await.unwrap().unwrap();
        servers.node(1).stop();
        let again = lock.acquire(Acquire::new().owner(&owner).lease(secs(10)).wait(ms(0))).await;
        assert!(matches!(again, Err(Error::Replicas { got: 0, wanted: 1 })), "{flavour}: {again:?}");
        // One that makes no lease longer.
        let extended = outer.extend(secs(20)).await;
        assert!(matches!(extended, Err(Error::Replicas { got: 0, wanted: 1 })), "{flavour}: {extended:?}");
        servers.node(1).cont();
        in_step(&servers).await;
        let undone = async || strict.stats().under_way == 0;
        bed::eventually("what was refused is undone", undone).await;
        assert!(outer.is_held(), "{flavour}");
        outer.unlock().await.unwrap();
    }
    nothing_left(&servers).await;
    end(strict).await;
}

/// The first `WAIT` says nothing of a script that is sent again.
#[tokio::test]
async fn a_script_that_the_server_does_not_know_has_a_wait_of_its_own() {
    let servers = servers(1).await;
    let admin = servers.node(0).admin();
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Plain) {
        granted(&strict, flavour).await;
        admin.script_flush().await;
        admin.reset_stats().await;
        let guard = strict.lock(flavour, "unknown").lock().await.unwrap();
        assert_eq!((admin.calls("eval").await, admin.calls("wait").await), (1, 2), "{flavour}");
        guard.unlock().await.unwrap();
        // The lane knows another replica's state, and is asked again.
        servers.node(1).stop();
        admin.script_flush().await;
        let refused = strict.lock(flavour, "unknown").try_lock().await;
        assert!(matches!(refused, Err(Error::Replicas { got: 0, wanted: 1 })), "{flavour}: {refused:?}");
        servers.node(1).cont();
        in_step(&servers).await;
        bed::idle(&strict).await;
    }
    nothing_left(&servers).await;
    end(strict).await;
}

/// Neither a busy answer nor what others ask waits behind a `WAIT`.
#[tokio::test]
async fn who_gains_nothing_waits_for_no_replica() {
    let servers = servers(1).await;
    let strict = over(servers.node(0).admin_url(), Acks::AtLeast(1)).ack_timeout(secs(8)).connect().await.unwrap();
    let held: Vec<_> = futures::future::join_all(
        FLAVOURS.map(async |flavour| strict.lock(flavour, &format!("busy:{flavour}")).lock().await.unwrap()),
    )
    .await;
    servers.node(1).stop();
    // All at once, as a group: behind its WAIT the next one would wait.
    let began = Instant::now();
    futures::future::join_all(FLAVOURS.map(async |flavour| {
        let name = format!("busy:{flavour}");
        let rival = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        assert!(strict.lock(rival, &name).try_lock().await.unwrap().is_none());
        strict.lock(flavour, &name).state().await.unwrap();
    }))
    .await;
    distlock_support::must(began.elapsed() < secs(4), "answered before their WAIT");
    let began = Instant::now();
    for guard in held {
        guard.unlock().await.unwrap();
    }
    distlock_support::must(began.elapsed() < secs(4), "releases wait for nobody");
    servers.node(1).cont();
    end(strict).await;
}

/// The server answers all others meanwhile: a wait that is over is no sign that it is silent.
#[tokio::test]
async fn whoever_waits_for_a_lane_waits_for_no_answer() {
    let servers = servers(1).await;
    let strict = patient(&servers).await;
    let waiting = all_lanes_taken(&servers, &strict).await;
    let late = FLAVOURS.map(async |flavour| {
        let began = Instant::now();
        let outcome = strict.lock(flavour, &format!("late:{flavour}")).lock_for(ms(300)).await;
        assert!(matches!(outcome, Ok(None)), "{flavour}: {outcome:?} after {:?}", began.elapsed());
    });
    futures::future::join_all(late).await;
    servers.node(1).cont();
    for lane in waiting {
        lane.await.unwrap();
    }
    end(strict).await;
}

/// Those that were too many for one group do not wait for its `WAIT`.
#[tokio::test]
async fn a_crowd_that_comes_at_once_takes_all_lanes() {
    let servers = servers(1).await;
    let strict = patient(&servers).await;
    servers.node(1).stop();
    let crowd = (0..150).map(|n| {
        let lock = strict.reentrant(&format!("crowd:{n}"));
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    });
    let crowd: Vec<_> = crowd.collect();
    bed::eventually("all lanes are taken", async || blocked(&servers, 3).await).await;
    servers.node(1).cont();
    for one in crowd {
        one.await.unwrap();
    }
    end(strict).await;
}

/// Its answer has the time of any other, so that it is not sent twice.
#[tokio::test]
async fn whoever_waited_for_a_lane_has_its_time_there() {
    let servers = servers(1).await;
    let proxy = Proxy::start(servers.node(0).server().addr());
    // A call may take 10 s, of which this one waits for 7.
    let builder = over(&proxy.url(), Acks::AtLeast(1)).command_timeout(secs(5)).ack_timeout(secs(5));
    let strict = builder.connect().await.unwrap();
    let mut lanes = Vec::new();
    for lane in 1..=3 {
        let waits = proxy.on_request(Matcher::command("WAIT"), Action::DelayReply(secs(7)));
        let lock = strict.reentrant(&format!("lane:{lane}"));
        lanes.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        waits.fired().await;
    }
    let slow = proxy.on_request(Matcher::command("EVALSHA"), Action::DelayReply(secs(4)));
    servers.node(0).admin().reset_stats().await;
    let guard = strict.reentrant("late").lock().await.unwrap();
    slow.fired().await;
    assert_eq!(servers.node(0).admin().calls("evalsha").await, 1);
    guard.unlock().await.unwrap();
    for lane in lanes {
        lane.await.unwrap().unlock().await.unwrap();
    }
    end(strict).await;
}

/// Once the server has fallen silent as well, that is what is told: nobody knows who holds the lock.
#[tokio::test]
async fn whoever_waits_for_a_lane_hears_that_the_server_is_silent() {
    let servers = servers(1).await;
    let strict = patient(&servers).await;
    let waiting = all_lanes_taken(&servers, &strict).await;
    servers.node(0).stop();
    // A pause of two tenths of a second at the most, then as long as an answer may take.
    let outcome = strict.reentrant("late").lock_for(secs(1)).await;
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    servers.node(0).cont();
    servers.node(1).cont();
    for lane in waiting {
        lane.await.unwrap();
    }
    end(strict).await;
}

/// Its calls wait for replicas for longer than any test takes, however busy the machine is.
async fn patient(servers: &Replicas) -> Client {
    let builder = builder(servers, Acks::AtLeast(1)).ack_timeout(secs(30)).watchdog(secs(120)).retry_attempts(9);
    builder.connect().await.unwrap()
}

/// True while so many connections wait for replicas.
async fn blocked(servers: &Replicas, lanes: usize) -> bool {
    let info: String = servers.node(0).admin().cmd(&["INFO", "clients"]).await;
    info.contains(&format!("blocked_clients:{lanes}\r"))
}

/// Three calls that no replica acknowledges, one in each lane.
async fn all_lanes_taken(servers: &Replicas, client: &Client) -> Vec<JoinHandle<Released>> {
    servers.node(1).stop();
    let mut waiting = Vec::new();
    for lane in 1..=3 {
        let lock = client.reentrant(&format!("lane:{lane}"));
        let wait = async move { lock.lock_for(secs(60)).await.unwrap().unwrap().unlock().await.unwrap() };
        waiting.push(tokio::spawn(wait));
        bed::eventually("a lane is taken", async || blocked(servers, lane).await).await;
    }
    waiting
}

/// A copy of an acquire, and a renewal, that find a longer lease there: over a connection that has written nothing, so that a `WAIT`
/// behind what writes nothing would count every replica.
#[tokio::test]
async fn a_repeat_that_changes_nothing_vouches_for_nothing() {
    let servers = servers(1).await;
    let proxy = Proxy::start(servers.node(0).server().addr());
    let strict = over(&proxy.url(), Acks::AtLeast(1)).retry_attempts(4).connect().await.unwrap();
    // Of a hold of its own a client knows how long it lasts, and asks for that.
    let other = client(&servers, Acks::Off).await;
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Plain) {
        let (lock, owner) = (strict.lock(flavour, "copy"), strict.owner());
        let how = || Acquire::new().owner(&owner).wait(secs(1));
        let theirs = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        let theirs = other.lock(theirs, "theirs").lock().await.unwrap();
        let outer = other.lock(flavour, "copy").acquire(how().lease(secs(60))).await.unwrap().unwrap();
        let watched = lock.acquire(how()).await.unwrap().unwrap();
        servers.node(1).stop();
        // Carried out, and its answer lost: it is sent again, by the next connection.
        let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
        let again = lock.acquire(how().lease(secs(10))).await;
        lost.fired().await;
        assert!(matches!(again, Err(Error::Replicas { got: 0, wanted: 1 })), "{flavour}: {again:?}");
        let undone = async || strict.stats().under_way == 0;
        bed::eventually("what was refused is undone", undone).await;
        proxy.close_all();
        // The new connection stands, and has written nothing.
        let stands = async || matches!(strict.lock(flavour, "theirs").try_lock().await, Ok(None));
        bed::eventually("a lane stands", stands).await;
        let renewed = async || strict.renew_now().await;
        let outcome = renewed().await;
        assert_eq!((outcome.renewed, outcome.lost), (0, 0), "{flavour}: over a new connection");
        servers.node(1).cont();
        in_step(&servers).await;
        bed::eventually("it is renewed", async || renewed().await.renewed > 0).await;
        theirs.unlock().await.unwrap();
        watched.unlock().await.unwrap();
        outer.unlock().await.unwrap();
    }
    end(strict).await;
    end(other).await;
}
