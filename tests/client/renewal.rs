//! The watchdog on a real server: what is held stays held, what is lost is told in time, and nothing else is.

use std::time::{Duration, Instant};

use bed::{QUICK, eventually, ms, reentrant, secs};
use distlock::{Client, Error, Lost, Released};
use distlock_support::{Action, Matcher, Mode, Proxy, TtlSampler};

/// A third of the watchdog, when renewals go out.
const PERIOD: Duration = Duration::from_millis(QUICK.as_millis() as u64 / 3);

/// Room for a busy machine.
const SLACK: Duration = ms(600);

#[tokio::test]
async fn a_held_lock_lives_for_five_watchdogs_and_never_comes_near_its_end() {
    reentrant(async |bed| {
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let client = bed.quick().await;
        let guard = client.reentrant("x").lock().await.unwrap();
        let began = Instant::now();
        let mut least = i64::MAX;
        while began.elapsed() < QUICK * 5 {
            least = least.min(bed.admin.pttl("x").await);
            assert!(guard.is_held());
            tokio::time::sleep(ms(20)).await;
        }
        // L3: never below a third of the lease.
        assert!(least > QUICK.as_millis() as i64 / 3 - 200, "{least}");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(sampler.stop().await.is_empty(), "a lock without an end");
    })
    .await;
}

#[tokio::test]
async fn a_lock_deleted_by_hand_is_told_and_the_next_one_is_renewed_again() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let lock = client.reentrant("x");
        for _ in 0..2 {
            let guard = lock.lock().await.unwrap();
            let lost = tokio::spawn(guard.lost());
            let deleted = Instant::now();
            bed.admin.cmd::<i64>(&["DEL", "x"]).await;
            let lost = tokio::time::timeout(QUICK, lost).await.expect("not told").unwrap();
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(deleted.elapsed() < PERIOD + SLACK, "{:?}", deleted.elapsed());
            assert!(!guard.is_held());
            assert!(matches!(guard.unlock().await, Err(Error::Lost { why: Lost::Gone, .. })));
        }
        let guard = lock.lock().await.unwrap();
        tokio::time::sleep(QUICK * 2).await;
        assert!(guard.is_held() && bed.admin.exists("x").await);
        guard.unlock().await.unwrap();
        // Nothing is renewed after a loss or a release.
        bed.admin.reset_stats().await;
        tokio::time::sleep(PERIOD * 3).await;
        assert_eq!(bed.admin.calls("evalsha").await, 0);
    })
    .await;
}

#[tokio::test]
async fn two_of_three_renewals_may_fail() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let builder = Client::builder(&proxy.url()).watchdog(secs(3)).command_timeout(ms(300));
        let client = bed.connect(builder.retry_delay((ms(10), ms(50)))).await;
        let guard = client.reentrant("x").lock().await.unwrap();
        client.renew_now().await;
        let lost = guard.lost();
        for _ in 0..3 {
            let first = proxy.on_request(Matcher::command("EVALSHA"), Action::CloseBefore);
            first.fired().await;
            let second = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
            second.fired().await;
            eventually("renewed after two failures", async || bed.admin.pttl("x").await > 2500).await;
        }
        assert!(guard.is_held());
        assert!(futures::FutureExt::now_or_never(lost).is_none(), "a failed renewal is not a loss");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        client.shutdown(secs(3)).await.unwrap();
    })
    .await;
}

/// M2: ten locks of a client that is cut off: each is told lost before anybody else has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lock_is_told_before_another_client_has_it() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let builder = Client::builder(&proxy.url()).watchdog(secs(2)).command_timeout(ms(300)).retry_attempts(1);
        let client = bed.connect(builder).await;
        let other = bed.client().await;
        let mut guards = Vec::new();
        for n in 0..10 {
            guards.push(client.reentrant(&format!("x{n}")).lock().await.unwrap());
        }
        proxy.blackhole(true);
        let lost: Vec<_> = guards
            .iter()
            .map(|guard| {
                let lost = guard.lost();
                tokio::spawn(async move { (lost.await, Instant::now()) })
            })
            .collect();
        let taken: Vec<_> = (0..10)
            .map(|n| {
                let lock = other.reentrant(&format!("x{n}"));
                tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    (guard, Instant::now())
                })
            })
            .collect();
        for (lost, taken) in lost.into_iter().zip(taken) {
            let (error, told) = lost.await.unwrap();
            let (guard, taken) = taken.await.unwrap();
            assert!(matches!(error, Error::Lost { why: Lost::Expired, .. }), "{error:?}");
            assert!(told < taken, "told {:?} after another had it", told - taken);
            println!("told {:?} before another had it", taken - told);
            guard.unlock().await.unwrap();
        }
        for guard in &guards {
            assert!(!guard.is_held());
        }
        proxy.heal();
        drop(guards);
        client.shutdown(secs(10)).await.unwrap();
    })
    .await;
}

/// A server that stands still for longer than the lease: no renewal that comes back late revives the hold.
#[tokio::test]
async fn a_hold_that_ended_here_is_not_revived_by_a_late_answer() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed
            .connect(Client::builder(&proxy.url()).watchdog(secs(2)).command_timeout(ms(600)).retry_attempts(1))
            .await;
        let lock = client.reentrant("x");
        let guard = lock.lock().await.unwrap();
        proxy.set_downstream_mode(Mode::Hang);
        let lost = tokio::time::timeout(secs(4), guard.lost()).await.expect("not told");
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        proxy.heal();
        tokio::time::sleep(ms(300)).await;
        assert!(!guard.is_held());
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        // And what the server may have kept alive was given back.
        let other = bed.client().await;
        let next = other.reentrant("x").lock_for(secs(5)).await.unwrap().expect("free before long");
        next.unlock().await.unwrap();
        client.shutdown(secs(10)).await.unwrap();
    })
    .await;
}

/// 10^5 sections with a listener each: a deliberate release is never a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_normal_cycles_give_no_false_signal() {
    reentrant(async |bed| {
        const TASKS: u32 = 64;
        const ROUNDS: u32 = 100_000 / TASKS + 1;
        // Renewals all the time, so that they race with the releases.
        let client = bed.connect(bed.builder().watchdog(ms(300)).command_timeout(ms(100))).await;
        let tasks: Vec<_> = (0..TASKS)
            .map(|n| {
                let lock = client.reentrant(&format!("x{}", n % 48));
                tokio::spawn(async move {
                    let mut signals = 0;
                    for _ in 0..ROUNDS {
                        let Ok(guard) = lock.lock().await else { continue };
                        let mut lost = std::pin::pin!(guard.lost());
                        let early = futures::poll!(lost.as_mut()).is_ready();
                        let held = guard.is_held();
                        let released = guard.unlock().await;
                        let late = futures::poll!(lost.as_mut()).is_ready();
                        // One that was truly lost, on a machine too busy to renew in 300 ms, is told by everybody.
                        let truly = !held || released.is_err();
                        signals += u32::from((early || late) && !truly);
                    }
                    signals
                })
            })
            .collect();
        let mut renewing = tokio::time::interval(ms(1));
        let mut rounds = 0_u32;
        let all = futures::future::join_all(tasks);
        tokio::pin!(all);
        let signals: u32 = loop {
            tokio::select! {
                done = &mut all => break done.into_iter().map(|signals| signals.unwrap()).sum(),
                _ = renewing.tick() => {
                    client.renew_now().await;
                    rounds += 1;
                }
            }
        };
        println!("{} cycles, {rounds} rounds of renewal between them, {signals} false signals", TASKS * ROUNDS);
        assert!(rounds > 100);
        assert_eq!(signals, 0);
    })
    .await;
}
