//! Lanes: the extra connections on which calls wait for replicas.

use distlock::{Acks, Acquire, Client, Error, Flavour, Released, Step};
use distlock_support::{Action, Matcher, Proxy, Replicas};
use tokio::task::JoinHandle;

use crate::{FLAVOURS, client, end, granted, had, had_as, in_step, ms, nothing_left, over, patient, secs, servers};

/// `WAIT` counts the replicas that have all earlier writes of its connection. On a new connection without writes, every
/// replica counts.
#[tokio::test]
async fn wait_after_a_reconnect_acknowledges_nothing() {
    let servers = servers(1).await;
    for action in [Action::CloseBefore, Action::CloseAfter, Action::Rst, Action::SwallowReplyClose] {
        let proxy = Proxy::start(servers.node(0).server().addr());
        let strict = over(&proxy.url(), Acks::AtLeast(1))
            .watchdog(secs(3600))
            // After this time the client looks for a late copy of the acquire. `nothing_left` waits for longer than
            // that.
            .command_timeout(bed::PATIENCE / 3)
            .connect()
            .await
            .unwrap();
        for flavour in FLAVOURS {
            granted(&strict, flavour).await;
        }
        servers.node(1).stop();
        for flavour in FLAVOURS {
            let broken = proxy.on_request(Matcher::command("WAIT"), action);
            let outcome = strict.lock(flavour, "behind").try_lock().await;
            assert!(outcome.is_err(), "{action:?} {flavour}: {outcome:?}");
            bed::ends("the harm done to WAIT", broken.fired()).await;
            bed::idle(&strict).await;
            nothing_left(&servers).await;
        }
        servers.node(1).cont();
        in_step(&servers).await;
        granted(&strict, FLAVOURS[0]).await;
        end(strict).await;
    }
}

/// A re-entry with a shorter lease changes no value on the server, nor does such an extend. The script writes
/// nevertheless, so that `WAIT` covers the call.
#[tokio::test]
async fn calls_that_change_no_value_need_acknowledgement() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Plain) {
        let (lock, owner) = (strict.lock(flavour, "repeat"), strict.owner());
        let outer = had_as(&*lock, || Acquire::new().owner(&owner).lease(secs(600))).await;
        servers.node(1).stop();
        let again = lock.acquire(Acquire::new().owner(&owner).lease(secs(60)).wait(ms(0))).await;
        assert!(matches!(again, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{flavour}: {again:?}");
        // The extend does not lengthen a lease.
        let extended = outer.extend(secs(120)).await;
        assert!(matches!(extended, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{flavour}: {extended:?}");
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

/// A script that is sent again as text has its own `WAIT`, because the first `WAIT` does not cover it.
#[tokio::test]
async fn script_that_is_sent_again_has_its_own_wait() {
    let servers = servers(1).await;
    let admin = servers.node(0).admin();
    let (strict, patient) = (client(&servers, Acks::AtLeast(1)).await, patient(&servers, Acks::AtLeast(1)).await);
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Plain) {
        granted(&strict, flavour).await;
        granted(&patient, flavour).await;
        admin.script_flush().await;
        admin.reset_stats().await;
        let guard = patient.lock(flavour, "unknown").lock().await.unwrap();
        assert_eq!((admin.calls("eval").await, admin.calls("wait").await), (1, 2), "{flavour}");
        guard.unlock().await.unwrap();
        servers.node(1).stop();
        admin.script_flush().await;
        let refused = strict.lock(flavour, "unknown").try_lock().await;
        assert!(matches!(refused, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{flavour}: {refused:?}");
        servers.node(1).cont();
        in_step(&servers).await;
        bed::idle(&strict).await;
    }
    nothing_left(&servers).await;
    end(strict).await;
    end(patient).await;
}

/// The wait runs out while the call is queued for a lane. No holder was seen, so the error says that acknowledgements
/// are missing. If the server is silent, the call times out.
#[tokio::test]
async fn wait_that_runs_out_in_the_queue_of_a_lane_says_that_replicas_are_missing() {
    let servers = servers(1).await;
    let strict = patient(&servers, Acks::AtLeast(1)).await;
    let waiting = all_lanes_taken(&servers, &strict).await;
    let late = FLAVOURS.map(async |flavour| {
        let lock = strict.lock(flavour, &format!("late:{flavour}"));
        let outcome = bed::with_longer_waits(ms(300), async |wait| {
            let outcome = lock.lock_for(wait).await;
            // The server did not answer at the end of the wait.
            let is_silent = matches!(outcome, Err(Error::Timeout { step: Step::Command, .. }));
            (!is_silent).then_some(outcome)
        })
        .await;
        assert!(matches!(outcome, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{flavour}: {outcome:?}");
    });
    futures::future::join_all(late).await;
    // The server falls silent, so no holder was seen.
    servers.node(0).stop();
    let outcome = strict.reentrant("late").lock_for(secs(1)).await;
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    servers.node(0).cont();
    servers.node(1).cont();
    for lane in waiting {
        bed::ends("a lane", lane).await.unwrap();
    }
    end(strict).await;
}

/// Further calls do not wait for the `WAIT` of a group of calls in flight.
#[tokio::test]
async fn many_calls_at_once_use_all_lanes() {
    let servers = servers(1).await;
    let strict = patient(&servers, Acks::AtLeast(1)).await;
    servers.node(1).stop();
    let crowd = (0..150).map(|n| {
        let lock = strict.reentrant(&format!("crowd:{n}"));
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    });
    let crowd: Vec<_> = crowd.collect();
    bed::eventually("all lanes are taken", async || blocked(&servers, 3).await).await;
    servers.node(1).cont();
    for one in crowd {
        bed::ends("one of the calls", one).await.unwrap();
    }
    end(strict).await;
}

/// Returns true if `lanes` connections are blocked in a `WAIT`.
pub(crate) async fn blocked(servers: &Replicas, lanes: usize) -> bool {
    let info: String = servers.node(0).admin().cmd(&["INFO", "clients"]).await;
    info.contains(&format!("blocked_clients:{lanes}\r"))
}

/// Starts three calls that no replica acknowledges, one in each lane.
async fn all_lanes_taken(servers: &Replicas, client: &Client) -> Vec<JoinHandle<Released>> {
    servers.node(1).stop();
    let mut waiting = Vec::new();
    for lane in 1..=3 {
        let lock = client.reentrant(&format!("lane:{lane}"));
        let wait = async move { lock.lock_for(secs(600)).await.unwrap().unwrap().unlock().await.unwrap() };
        waiting.push(tokio::spawn(wait));
        bed::eventually("a lane is taken", async || blocked(servers, lane).await).await;
    }
    waiting
}

/// A retried acquire and a renewal find a longer lease on the server, over a new connection that has written nothing.
/// After a script without a write, `WAIT` would count every replica.
#[tokio::test]
async fn retry_that_changes_no_value_is_not_acknowledged_by_a_new_connection() {
    let servers = servers(1).await;
    let proxy = Proxy::start(servers.node(0).server().addr());
    let strict = over(&proxy.url(), Acks::AtLeast(1)).retry_attempts(4).watchdog(secs(3600)).connect().await.unwrap();
    // Another client extends the lease. The holder's client would request the longest lease of its own holds.
    let other = client(&servers, Acks::Off).await;
    for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Plain) {
        let (lock, owner) = (strict.lock(flavour, "copy"), strict.owner());
        let how = || Acquire::new().owner(&owner).wait(secs(1));
        let theirs = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        let theirs = had(&*other.lock(theirs, "theirs")).await;
        let outer = had_as(&*other.lock(flavour, "copy"), || how().lease(secs(7200))).await;
        let watched = had_as(&*lock, how).await;
        servers.node(1).stop();
        // The acquire runs, and its reply is lost. The client retries it over the next connection.
        let again = bed::with_longer_waits(secs(1), async |wait| {
            let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
            let again = lock.acquire(how().lease(secs(60)).wait(wait)).await;
            bed::ends("the loss of the reply", lost.fired()).await;
            bed::eventually("what was refused is undone", async || strict.stats().under_way == 0).await;
            // On a slow machine the wait may end before the retry has run.
            let is_too_short = bed::in_vain(&again) || matches!(again, Err(Error::Connection { .. }));
            (!is_too_short).then_some(again)
        })
        .await;
        assert!(matches!(again, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{flavour}: {again:?}");
        proxy.close_all();
        // The new connection is open, and has written nothing.
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
