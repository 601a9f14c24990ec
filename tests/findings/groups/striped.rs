use std::time::{Duration, Instant};

use distlock::{Acquire, Client, DistLock as _, Error, Flavour, Released, Striped};
use distlock_support::RedisServer;

use bed::{eventually, ms, reentrant, secs};

const SEGMENTS: usize = 4;
const WAIT: Duration = ms(100);

fn silent(error: &Error) -> bool {
    matches!(error, Error::Timeout { .. } | Error::Connection { .. })
}

/// 17: a frozen server. What is not known is not told as busy, and the wait is the wait; as of a single lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_17_a_frozen_server_is_told_within_the_wait() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let (striped, single) = (client.striped("s", SEGMENTS), client.reentrant("one"));
        let me = client.owner();
        let (_, guard) = striped.any(Acquire::new()).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
        // So that the server is not known as a slow one, whose silence would tell less: the first answers may have been late.
        for _ in 0..20 {
            assert!(!single.is_locked().await.unwrap());
        }
        bed.server.stop();
        let began = Instant::now();
        let one = single.lock_for(WAIT).await;
        println!("a single lock: {one:?} after {:?}", began.elapsed());
        assert!(one.is_err_and(|error| silent(&error)));
        let ways = [
            ("any", Acquire::new().wait(WAIT)),
            ("as an owner", Acquire::new().wait(WAIT).owner(&me)),
            ("not again", Acquire::new().wait(WAIT).owner(&me).not_reentrant()),
        ];
        let mut outcomes = Vec::new();
        for (way, how) in ways {
            let began = Instant::now();
            let outcome = striped.any(how).await;
            println!("{way}: {outcome:?} after {:?}", began.elapsed());
            outcomes.push((way, outcome, began.elapsed()));
        }
        // Asked once: as long as a command may take, not as long as four of them.
        let began = Instant::now();
        let once = striped.try_lock().await;
        println!("once: {once:?} after {:?}", began.elapsed());
        let took = began.elapsed();
        bed.server.cont();
        for (way, outcome, took) in outcomes {
            assert!(outcome.is_err_and(|error| silent(&error)), "{way}");
            assert!(took < WAIT + ms(250), "{way}: {took:?}");
        }
        assert!(once.is_err_and(|error| silent(&error)) && took < secs(5), "{took:?}");
    })
    .await;
}

/// 17: a server that is gone, and many who wait for it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_17_a_dead_server_is_told_within_the_wait() {
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).connect().await.unwrap();
    let striped = client.striped("s", SEGMENTS);
    striped.lock().await.unwrap().unlock().await.unwrap();
    server.kill9();
    let mut waiting = Vec::new();
    for n in 0..6_u64 {
        let striped = striped.clone();
        waiting.push(tokio::spawn(async move {
            tokio::time::sleep(ms(20 * n)).await;
            let began = Instant::now();
            let outcome = striped.any(Acquire::new().wait(WAIT * 2)).await;
            (outcome, began.elapsed())
        }));
    }
    for one in waiting {
        let (outcome, took) = one.await.unwrap();
        println!("{outcome:?} after {took:?}");
        assert!(outcome.is_err_and(|error| silent(&error)));
        assert!(took < WAIT * 2 + ms(250), "{took:?}");
    }
    server.restart();
    let (_, guard) = striped.any(Acquire::new().wait(secs(10))).await.unwrap().expect("it is back");
    guard.unlock().await.unwrap();
    client.shutdown(secs(5)).await.unwrap();
}

/// 17: a key of another type under one segment fails nobody whom another segment serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_17_a_bad_segment_fails_nobody_whom_another_serves() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write] {
            let striped = Striped::over(&client, flavour, "s", SEGMENTS);
            let me = client.owner();
            let () = bed.admin.cmd(&["SET", "s:1", "no lock"]).await;
            let mut failed = 0;
            for n in 0..40 {
                let how = match n % 5 {
                    0 => Acquire::new().wait(Duration::ZERO),
                    1 => Acquire::new().wait(secs(1)),
                    2 => Acquire::new().wait(secs(1)).owner(&me),
                    3 => Acquire::new().wait(secs(1)).owner(&me).not_reentrant(),
                    _ => Acquire::new(),
                };
                match striped.any(how).await {
                    Ok(Some((at, guard))) => {
                        assert_ne!(at, 1);
                        guard.unlock().await.unwrap();
                    }
                    other => {
                        println!("{flavour}: {other:?}");
                        failed += 1;
                    }
                }
            }
            assert_eq!(failed, 0, "{flavour}: of 40, with three free segments");
            // With the others busy it is busy, and whoever waits gets the one that is given back.
            let mut guards = Vec::new();
            for _ in 0..3 {
                guards.push(striped.any(Acquire::new()).await.unwrap().unwrap().1);
            }
            assert!(striped.try_lock().await.unwrap().is_none());
            for how in [Acquire::new().wait(ms(80)), Acquire::new().wait(ms(80)).owner(&me)] {
                // A server that does not run at the end of so short a wait is silent: that is said, and right.
                let busy = async || match striped.any(how.clone()).await {
                    Err(Error::Timeout { .. }) => false,
                    outcome => outcome.unwrap().is_none() || panic!("all of them are held"),
                };
                eventually("it is told as busy", busy).await;
            }
            let waiting = [Acquire::new(), Acquire::new().owner(&me), Acquire::new().wait(secs(20))].map(|how| {
                let striped = striped.clone();
                tokio::spawn(async move { striped.any(how).await.unwrap().unwrap().1.unlock().await.unwrap() })
            });
            eventually("they wait", async || client.stats().waiting >= 3).await;
            drop(guards);
            for one in waiting {
                tokio::time::timeout(secs(5), one).await.expect("left waiting").unwrap();
            }
            // What an owner holds is given back past a bad segment.
            for segment in [0, 2] {
                let lock = striped.segment(segment).unwrap();
                drop(lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap().into_owner());
                assert_eq!(striped.release(&me).await.unwrap(), Released::Free, "{flavour}");
            }
            assert!(matches!(striped.release(&me).await, Err(Error::WrongType { .. } | Error::NotHeld { .. })));
            // All of them bad: that is told.
            for at in [0, 2, 3] {
                let () = bed.admin.cmd(&["SET", &format!("s:{at}"), "no lock"]).await;
            }
            for how in [Acquire::new().wait(Duration::ZERO), Acquire::new().wait(secs(1)), Acquire::new()] {
                for how in [how.clone(), how.owner(&me)] {
                    let told = tokio::time::timeout(secs(5), striped.any(how)).await.expect("waits for what cannot be");
                    assert!(matches!(told, Err(Error::WrongType { .. })), "{flavour}: {told:?}");
                }
            }
            let () = bed.admin.cmd(&["FLUSHALL"]).await;
        }
    })
    .await;
}
