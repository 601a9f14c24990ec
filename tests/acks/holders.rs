//! Every way to acquire or extend a hold. Replicas must have the write before the guard counts the lease.

use std::time::Duration;

use bed::{deadline, eventually, moved};
use distlock::{Acks, Acquire, Client, DistLock, Error, Flavour, Released};

use crate::lanes::blocked;
use crate::{FLAVOURS, builder, client, end, had, had_as, in_step, ms, nothing_left, patient, secs, servers};

/// Any renewal in these tests moves a deadline by at least this.
const BEYOND: Duration = secs(1);

/// Asserts that a deadline has not moved. A pause of the test changes a reading, so the best of ten readings counts.
fn stays(moved: Duration, what: &str) {
    assert!(moved <= BEYOND / 2, "{what}: the deadline has moved by {moved:?}");
}

fn is_refused<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Replicas { got: 0, wanted: 1, .. }))
}

/// Waits until refused acquires are undone.
async fn undone(client: &Client) {
    let is_undone = async || client.stats().under_way == 0;
    eventually("nothing is under way", is_undone).await;
}

/// A renewal reaches the primary but no replica. In Redis the lease then ends later than the guard's deadline.
#[tokio::test]
async fn renewal_that_no_replica_acknowledges_moves_no_deadline() {
    let servers = servers(1).await;
    let strict = builder(&servers, Acks::AtLeast(1)).watchdog(secs(3600)).connect().await.unwrap();
    let name = |flavour| format!("renewed:{flavour}");
    let guards = FLAVOURS.map(async |flavour| had(&*strict.lock(flavour, &name(flavour))).await);
    let guards = futures::future::join_all(guards).await;
    bed::becomes("renewed, lost", (guards.len(), 0), async || {
        let round = strict.renew_now().await;
        (round.renewed, round.lost)
    })
    .await;
    servers.node(1).stop();
    let deadlines: Vec<_> = guards.iter().map(deadline).collect();
    // The TTL is made shorter, so that the test can see whether the renewal has set it.
    for flavour in FLAVOURS {
        servers.node(0).admin().cmd::<u64>(&["PEXPIRE", &name(flavour), "1000000"]).await;
    }
    tokio::time::sleep(BEYOND).await;
    let round = strict.renew_now().await;
    assert_eq!((round.renewed, round.lost), (0, 0), "{round:?}");
    for ((guard, before), flavour) in guards.iter().zip(&deadlines).zip(FLAVOURS) {
        stays(moved(guard, *before), &format!("{flavour}: an unacknowledged renewal"));
        let left = servers.node(0).admin().pttl(&name(flavour)).await;
        assert!(left > 1_000_000, "{flavour}: the primary has renewed it: {left} ms");
    }
    servers.node(1).cont();
    in_step(&servers).await;
    bed::becomes("renewed, lost", (guards.len(), 0), async || {
        let round = strict.renew_now().await;
        (round.renewed, round.lost)
    })
    .await;
    assert!(guards.iter().zip(deadlines).all(|(guard, before)| deadline(guard) > before));
    drop(guards);
    undone(&strict).await;
    nothing_left(&servers).await;
    end(strict).await;
}

/// The release of one of two holds restarts the lease at the primary. No replica acknowledges it.
#[tokio::test]
async fn partial_release_moves_no_deadline() {
    let servers = servers(1).await;
    for acks in [Acks::AtLeast(1), Acks::All] {
        let strict = builder(&servers, acks).watchdog(secs(3600)).connect().await.unwrap();
        for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Plain) {
            for lease in [None, Some(secs(3000))] {
                let (lock, owner) = (strict.lock(flavour, "partial"), strict.owner());
                let how = || lease.map_or(Acquire::new(), |lease| Acquire::new().lease(lease)).owner(&owner);
                let (outer, inner) = (had_as(&*lock, how).await, had_as(&*lock, how).await);
                let before = deadline(&outer);
                tokio::time::sleep(BEYOND).await;
                assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
                stays(moved(&outer, before), &format!("{acks:?} {flavour} {lease:?}"));
                outer.unlock().await.unwrap();
            }
        }
        end(strict).await;
    }
    nothing_left(&servers).await;
}

/// One command renews several locks. For the lock that is gone, the reply does not wait for replicas.
#[tokio::test]
async fn lost_lock_is_signalled_without_waiting_for_replicas() {
    let servers = servers(1).await;
    for acks in [Acks::AtLeast(1), Acks::All] {
        let client = patient(&servers, acks).await;
        for flavour in [Flavour::Reentrant, Flavour::Write, Flavour::Plain] {
            let locks = ["kept", "taken"].map(|name| client.lock(flavour, name));
            let [kept, taken] = [locks[0].lock().await.unwrap(), locks[1].lock().await.unwrap()];
            servers.node(1).stop();
            servers.node(0).admin().cmd::<u64>(&["DEL", "taken"]).await;
            let before = deadline(&kept);
            tokio::time::sleep(BEYOND).await;
            let renewing = tokio::spawn({
                let client = client.clone();
                async move { client.renew_now().await }
            });
            let lost = bed::ends(&format!("{acks:?} {flavour}: the signal of the loss"), taken.lost()).await;
            assert!(matches!(lost, Error::Lost { why: distlock::Lost::Gone, .. }), "{flavour}: {lost:?}");
            assert!(kept.is_held(), "{flavour}: the other lock of the command is lost");
            stays(moved(&kept, before), &format!("{flavour}: a renewal that no replica has acknowledged"));
            servers.node(1).cont();
            let renewed = bed::ends("the renewal", renewing).await.unwrap();
            assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (1, 0, 1), "{flavour}");
            assert!(deadline(&kept) > before, "{flavour}");
            kept.unlock().await.unwrap();
            drop(taken);
            in_step(&servers).await;
        }
        undone(&client).await;
        end(client).await;
    }
    nothing_left(&servers).await;
}

#[tokio::test]
async fn extension_that_no_replica_acknowledges_moves_no_deadline() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS {
        let lock = strict.lock(flavour, "extended");
        let guard = had_as(&*lock, || Acquire::new().lease(secs(600))).await;
        let before = deadline(&guard);
        servers.node(1).stop();
        let refused = guard.extend(secs(3_000)).await;
        assert!(is_refused(&refused), "{flavour}: {refused:?}");
        assert!(guard.is_held(), "{flavour}");
        stays(moved(&guard, before), &format!("{flavour}: an extension that was refused"));
        servers.node(1).cont();
        in_step(&servers).await;
        eventually("the extension is acknowledged", async || guard.extend(secs(3_000)).await.is_ok()).await;
        assert!(deadline(&guard) > before, "{flavour}");
        guard.unlock().await.unwrap();
    }
    end(strict).await;
}

#[tokio::test]
async fn fencing_token_that_no_replica_has_is_not_issued() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    let lock = strict.fenced("token");
    let first = had(&lock).await;
    let before = first.fencing_token().unwrap();
    first.unlock().await.unwrap();
    servers.node(1).stop();
    for _ in 0..3 {
        let refused = lock.try_lock().await;
        assert!(is_refused(&refused), "{refused:?}");
        undone(&strict).await;
    }
    servers.node(1).cont();
    in_step(&servers).await;
    let guard = had(&lock).await;
    let token = guard.fencing_token().unwrap();
    assert!(token >= before + 4, "{token} after {before}: tokens of refused acquires are used up");
    // The replica has the token counter, so the next token after a failover is higher.
    let there: u64 = servers.node(1).admin().cmd(&["GET", &format!("{}{{token}}", bed::COUNTER)]).await;
    assert_eq!(there, token);
    guard.unlock().await.unwrap();
    end(strict).await;
}

#[tokio::test]
async fn fair_lock_that_is_passed_on_is_granted_once_a_replica_has_it() {
    let servers = servers(1).await;
    for acks in [Acks::AtLeast(1), Acks::Off] {
        let (holder, waiter) = (patient(&servers, acks).await, patient(&servers, acks).await);
        let held = holder.fair("passed").lock().await.unwrap();
        let lock = waiter.fair("passed");
        let waiting = tokio::spawn(async move { lock.lock().await });
        let queued = async || servers.node(0).admin().exists("redisson_lock_queue:{passed}").await;
        eventually("the waiter is in the queue", async || queued().await && waiter.stats().under_way == 0).await;
        servers.node(1).stop();
        held.unlock().await.unwrap();
        if acks == Acks::Off {
            // As a control, the waiter without acknowledgement returns while the replica is frozen.
            eventually("the waiter returns", async || waiting.is_finished()).await;
        } else {
            eventually("a WAIT is blocked", async || blocked(&servers, 1).await).await;
            assert!(!waiting.is_finished(), "granted without a replica");
        }
        servers.node(1).cont();
        let guard = bed::ends("the waiter", waiting).await.unwrap().unwrap();
        if acks != Acks::Off {
            let there = servers.node(1).admin().hgetall("passed").await;
            assert!(there.contains_key(&bed::text(guard.owner())), "{there:?}");
        }
        guard.unlock().await.unwrap();
        end(holder).await;
        end(waiter).await;
        in_step(&servers).await;
        nothing_left(&servers).await;
    }
}

/// A hand-over inside a process changes neither owner nor deadline of the hold, and the replicas already have this
/// hold.
#[tokio::test]
async fn hand_off_keeps_the_hold_and_the_deadline_that_replicas_have() {
    let servers = servers(1).await;
    let strict = builder(&servers, Acks::AtLeast(1))
        .watchdog(secs(3600))
        .configure(|options| options.local_handoff_time = secs(600))
        .connect()
        .await
        .unwrap();
    let lock = strict.reentrant("handed");
    let first = had(&lock).await;
    // The owner is read from the server, because `Guard::owner` would prevent the hand-over.
    let there = servers.node(0).admin().hgetall("handed").await;
    let next = bed::waiter(lock.clone());
    bed::becomes("waiting tasks", 1, async || strict.stats().waiting).await;
    servers.node(1).stop();
    let before = deadline(&first);
    tokio::time::sleep(BEYOND).await;
    first.unlock().await.unwrap();
    let (second, _) = bed::ends("the next holder", next).await.unwrap();
    let owner = bed::text(second.owner());
    assert!(there.contains_key(&owner), "handed off, not acquired again: {there:?}");
    stays(moved(&second, before), "a hand-off, of which replicas know no later deadline");
    servers.node(0).kill();
    servers.node(1).cont();
    let there = servers.node(1).admin().hgetall("handed").await;
    assert!(there.contains_key(&owner), "{there:?}");
    drop(second);
    let _ = strict.shutdown(ms(100)).await;
}

#[tokio::test]
async fn downgrade_that_no_replica_acknowledges_is_refused() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    let rw = strict.rw("halves");
    let guard = had(&rw.write()).await;
    servers.node(1).stop();
    let refused = guard.downgrade().await;
    assert!(is_refused(&refused), "{refused:?}");
    undone(&strict).await;
    nothing_left(&servers).await;
    servers.node(1).cont();
    in_step(&servers).await;
    let patient = patient(&servers, Acks::AtLeast(1)).await;
    let reading = patient.rw("halves").write().lock().await.unwrap().downgrade().await.unwrap();
    reading.unlock().await.unwrap();
    end(patient).await;
    end(strict).await;
}

#[tokio::test]
async fn group_locks_are_refused_as_a_whole() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    let locks = || -> Vec<(&str, Box<dyn DistLock>)> {
        let mixed = vec![strict.lock(Flavour::Fair, "m:1"), strict.lock(Flavour::Reentrant, "m:2")];
        vec![
            ("multi, by one script", Box::new(strict.multi(["a", "b", "c"]))),
            ("multi of several flavours", Box::new(distlock::MultiLock::of(mixed))),
            ("all segments", Box::new(strict.striped("s", 4).all())),
            ("redlock", Box::new(distlock::RedLock::new([strict.clone()], "red"))),
        ]
    };
    for (what, lock) in locks() {
        let granted = async || match lock.lock().await {
            Ok(guard) => guard.unlock().await.is_ok(),
            Err(error) => {
                assert!(error.is_retryable(), "{what}: {error:?}");
                false
            }
        };
        eventually(what, granted).await;
    }
    servers.node(1).stop();
    for (what, lock) in locks() {
        let outcome = lock.try_lock().await;
        let is_replicas = |error: &Error| matches!(error, Error::Replicas { got: 0, wanted: 1, .. });
        let is_right = match &outcome {
            Err(Error::NoQuorum { why, .. }) => is_replicas(why),
            Err(error) => is_replicas(error),
            Ok(_) => false,
        };
        assert!(is_right, "{what}: {outcome:?}");
        undone(&strict).await;
        nothing_left(&servers).await;
    }
    servers.node(1).cont();
    end(strict).await;
}

/// Each case is tested with and without a replica that acknowledges.
#[tokio::test]
async fn acquires_dropped_at_each_await_leave_no_keys() {
    let servers = servers(1).await;
    let lasting = builder(&servers, Acks::AtLeast(1))
        .watchdog(secs(3600))
        .configure(|options| options.subscription_linger = ms(0));
    let strict = lasting.clone().connect().await.unwrap();
    let patient = lasting.configure(|options| options.ack_timeout = secs(60)).connect().await.unwrap();
    for flavour in FLAVOURS {
        let look = async |client: &Client, when: String| {
            undone(client).await;
            nothing_left(&servers).await;
            eventually(&format!("{flavour}: {when}: no trace"), async || client.stats().names == 0).await;
        };
        let lock = patient.lock(flavour, "dropped");
        let acquire = async || lock.acquire(Acquire::new().wait(secs(100))).await;
        bed::dropped::at_each_await(acquire, async |when| look(&patient, when).await).await;
        servers.node(1).stop();
        let lock = strict.lock(flavour, "dropped");
        let mut waits = 0;
        loop {
            match bed::harm::cut_at(lock.try_lock(), waits).await {
                None => look(&strict, format!("dropped at await {waits}")).await,
                Some(outcome) => {
                    assert!(is_refused(&outcome) && waits > 0, "{flavour}: {outcome:?}");
                    look(&strict, "refused".to_owned()).await;
                    break;
                }
            }
            waits += 1;
        }
        servers.node(1).cont();
        in_step(&servers).await;
    }
    end(strict).await;
    end(patient).await;
}
