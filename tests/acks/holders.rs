//! By whatever way somebody becomes a holder, or a holder for longer: replicas have it before the guard does.

use std::time::Instant;

use bed::{QUICK, eventually};
use distlock::{Acks, Acquire, Builder, Client, DistLock, Error, Flavour};
use distlock_support::{Replicas, must, undisturbed};

use crate::{FLAVOURS, builder, client, end, in_step, ms, nothing_left, secs, servers};

fn quick(servers: &Replicas, acks: Acks) -> Builder {
    builder(servers, acks).watchdog(QUICK).command_timeout(QUICK / 3)
}

fn is_refused<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Replicas { got: 0, wanted: 1 }))
}

/// What is undone is undone.
async fn undone(client: &Client) {
    let is_undone = async || client.stats().under_way == 0;
    eventually("nothing is under way", is_undone).await;
}

#[tokio::test]
async fn a_renewal_that_no_replica_has_moves_no_deadline() {
    undisturbed(async || {
        let servers = servers(1).await;
        let strict = quick(&servers, Acks::AtLeast(1)).connect().await.unwrap();
        let asynchronous = quick(&servers, Acks::Off).connect().await.unwrap();
        let name = |flavour| format!("renewed:{flavour}");
        let guards = FLAVOURS.map(async |flavour| strict.lock(flavour, &name(flavour)).lock().await.unwrap());
        let guards = futures::future::join_all(guards).await;
        let others =
            FLAVOURS.map(async |flavour| asynchronous.lock(flavour, &format!("a:{flavour}")).lock().await.unwrap());
        let others = futures::future::join_all(others).await;
        // They are renewed, and that is acknowledged.
        tokio::time::sleep(QUICK).await;
        for (guard, flavour) in guards.iter().zip(FLAVOURS) {
            must(guard.is_held(), &format!("{flavour} is renewed while replicas acknowledge"));
        }
        servers.node(1).stop();
        // What was under way is answered by then.
        tokio::time::sleep(ms(300)).await;
        let deadlines: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
        // What Redis has left of them, as long as they are held here.
        let mut left = FLAVOURS.map(|_| 0);
        while guards.iter().any(|guard| guard.is_held()) {
            for ((guard, flavour), left) in guards.iter().zip(FLAVOURS).zip(&mut left) {
                let pttl = servers.node(0).admin().pttl(&name(flavour)).await;
                if guard.is_held() {
                    *left = pttl;
                }
            }
            for (guard, deadline) in guards.iter().zip(&deadlines) {
                must(
                    guard.deadline() <= *deadline + ms(50) || !guard.is_held(),
                    "no renewal moves a deadline any more",
                );
            }
        }
        let last = deadlines.iter().max().copied().unwrap();
        assert!(Instant::now() >= last - ms(50), "and none before it is forgotten");
        for ((guard, flavour), left) in guards.iter().zip(FLAVOURS).zip(left) {
            let lost = guard.lost().await;
            assert!(matches!(lost, Error::Lost { why: distlock::Lost::Expired, .. }), "{flavour}: {lost:?}");
            must(
                left > i64::try_from(QUICK.as_millis()).unwrap() / 3,
                &format!("{flavour}: Redis had {left} ms left of it"),
            );
        }
        for (guard, flavour) in others.iter().zip(FLAVOURS) {
            must(guard.is_held(), &format!("{flavour}: without acknowledgement it goes on"));
        }
        servers.node(1).cont();
        drop((guards, others));
        undone(&strict).await;
        undone(&asynchronous).await;
        nothing_left(&servers).await;
        end(strict).await;
        end(asynchronous).await;
    })
    .await;
}

/// Of several that are renewed by one command: the answer for the others may wait for replicas, this one need not.
#[tokio::test]
async fn a_lock_that_is_gone_is_told_without_waiting_for_replicas() {
    let servers = servers(1).await;
    for acks in [Acks::AtLeast(1), Acks::All] {
        let client = builder(&servers, acks).ack_timeout(secs(5)).command_timeout(secs(9)).connect().await.unwrap();
        for flavour in [Flavour::Reentrant, Flavour::Write, Flavour::Plain] {
            let locks = ["kept", "taken"].map(|name| client.lock(flavour, name));
            let [kept, taken] = [locks[0].lock().await.unwrap(), locks[1].lock().await.unwrap()];
            servers.node(1).stop();
            servers.node(0).admin().cmd::<u64>(&["DEL", "taken"]).await;
            let deadline = kept.deadline();
            let renewing = tokio::spawn({
                let client = client.clone();
                async move { client.renew_now().await }
            });
            let lost = tokio::time::timeout(secs(3), taken.lost()).await;
            let lost = lost
                .unwrap_or_else(|_| panic!("{acks:?} {flavour}: not told while replicas are waited for: {client:?}"));
            assert!(matches!(lost, Error::Lost { why: distlock::Lost::Gone, .. }), "{flavour}: {lost:?}");
            assert!(kept.is_held() && kept.deadline() <= deadline + ms(50), "{flavour}: nobody has acknowledged it");
            servers.node(1).cont();
            let renewed = renewing.await.unwrap();
            assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (1, 0, 1), "{flavour}");
            assert!(kept.deadline() > deadline, "{flavour}");
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
async fn an_extension_that_no_replica_has_moves_no_deadline() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS {
        let lock = strict.lock(flavour, "extended");
        let guard = lock.acquire(Acquire::new().lease(secs(20))).await.unwrap().unwrap();
        guard.extend(secs(30)).await.unwrap();
        let deadline = guard.deadline();
        servers.node(1).stop();
        let refused = guard.extend(secs(300)).await;
        assert!(is_refused(&refused), "{flavour}: {refused:?}");
        assert!(guard.is_held() && guard.deadline() <= deadline + ms(50), "{flavour}");
        servers.node(1).cont();
        in_step(&servers).await;
        guard.extend(secs(300)).await.unwrap();
        assert!(guard.deadline() > deadline, "{flavour}");
        guard.unlock().await.unwrap();
    }
    end(strict).await;
}

#[tokio::test]
async fn a_fencing_token_that_no_replica_has_is_not_given_out() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    let lock = strict.fenced("token");
    let first = lock.lock().await.unwrap();
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
    let guard = lock.lock().await.unwrap();
    let token = guard.fencing_token().unwrap();
    assert!(token >= before + 4, "{token}: those of {before} and behind it that were refused are used up");
    // The replica has it: after a failover the next one is higher.
    let there: u64 = servers.node(1).admin().cmd(&["GET", &format!("{}{{token}}", bed::COUNTER)]).await;
    assert_eq!(there, token);
    guard.unlock().await.unwrap();
    end(strict).await;
}

/// A release by another passes a fair lock on, in Redis, without the waiter's doing.
#[tokio::test]
async fn a_fair_lock_that_is_passed_on_is_had_once_replicas_have_that() {
    let servers = servers(1).await;
    for acks in [Acks::AtLeast(1), Acks::Off] {
        let patient = || builder(&servers, acks).retry_attempts(100).connect();
        let (holder, waiter) = (patient().await.unwrap(), patient().await.unwrap());
        let held = holder.fair("passed").lock().await.unwrap();
        let lock = waiter.fair("passed");
        let waiting = tokio::spawn(async move { lock.lock().await });
        let queued = async || servers.node(0).admin().exists("redisson_lock_queue:{passed}").await;
        eventually("it stands in the queue", queued).await;
        tokio::time::sleep(ms(50)).await;
        servers.node(1).stop();
        held.unlock().await.unwrap();
        tokio::time::sleep(ms(700)).await;
        // The control: without acknowledgement it is had at once.
        assert_eq!(waiting.is_finished(), acks == Acks::Off, "{acks:?}");
        servers.node(1).cont();
        let guard = waiting.await.unwrap().unwrap();
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

/// Within a process the next one goes on with the hold of the one before, owner and deadline, which replicas have.
#[tokio::test]
async fn a_lock_that_is_handed_over_is_what_replicas_have() {
    undisturbed(async || {
        let servers = servers(1).await;
        let strict = quick(&servers, Acks::AtLeast(1)).handoff_time(secs(60)).connect().await.unwrap();
        let lock = strict.reentrant("handed");
        let first = lock.lock().await.unwrap();
        // Not asked of the guard, whose owner would be known from then on.
        let there = servers.node(0).admin().hgetall("handed").await;
        let next = bed::waiter(lock.clone());
        eventually("it waits", async || strict.stats().waiting == 1).await;
        servers.node(1).stop();
        let deadline = first.deadline();
        first.unlock().await.unwrap();
        let (second, _) = next.await.unwrap();
        let owner = bed::text(second.owner());
        assert!(there.contains_key(&owner), "handed over, not acquired anew: {there:?}");
        must(second.deadline() <= deadline + ms(20), "it is held for no longer than replicas know");
        servers.node(0).kill();
        servers.node(1).cont();
        let there = servers.node(1).admin().hgetall("handed").await;
        assert!(there.contains_key(&owner), "{there:?}");
        drop(second);
        strict.shutdown(ms(100)).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_downgrade_that_no_replica_has_is_refused() {
    let servers = servers(1).await;
    let strict = client(&servers, Acks::AtLeast(1)).await;
    let rw = strict.rw("halves");
    let guard = rw.write().lock().await.unwrap();
    servers.node(1).stop();
    let refused = guard.downgrade().await;
    assert!(is_refused(&refused), "{refused:?}");
    undone(&strict).await;
    nothing_left(&servers).await;
    servers.node(1).cont();
    in_step(&servers).await;
    let reading = rw.write().lock().await.unwrap().downgrade().await.unwrap();
    reading.unlock().await.unwrap();
    end(strict).await;
}

#[tokio::test]
async fn locks_made_of_others_are_refused_as_a_whole() {
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
        lock.lock().await.unwrap_or_else(|error| panic!("{what}: {error}")).unlock().await.unwrap();
    }
    servers.node(1).stop();
    for (what, lock) in locks() {
        let outcome = lock.try_lock().await;
        let is_replicas = |error: &Error| matches!(error, Error::Replicas { got: 0, wanted: 1 });
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

/// Dropped at each await, whether replicas acknowledge or not, it leaves nothing behind.
#[tokio::test]
async fn acquires_dropped_at_each_await_leave_nothing() {
    let servers = servers(1).await;
    let strict = builder(&servers, Acks::AtLeast(1)).subscription_linger(ms(0)).connect().await.unwrap();
    for flavour in FLAVOURS {
        let look = async |when: String| {
            undone(&strict).await;
            nothing_left(&servers).await;
            eventually(&format!("{flavour}: {when}: no trace"), async || strict.stats().names == 0).await;
        };
        let lock = strict.lock(flavour, "dropped");
        let acquire = async || lock.acquire(Acquire::new().wait(secs(10))).await;
        bed::dropped::at_each_await(acquire, look).await;
        servers.node(1).stop();
        let mut waits = 0;
        loop {
            match bed::harm::cut_at(lock.try_lock(), waits).await {
                None => look(format!("dropped at await {waits}")).await,
                Some(outcome) => {
                    assert!(is_refused(&outcome) && waits > 0, "{flavour}: {outcome:?}");
                    look("refused".to_owned()).await;
                    break;
                }
            }
            waits += 1;
        }
        servers.node(1).cont();
        in_step(&servers).await;
    }
    end(strict).await;
}
