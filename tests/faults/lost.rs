//! A holder that was frozen past its lease.

use distlock::{Error, NotHeld};
use distlock_support::child::{self, Child};

use bed::fault::brisk;
use bed::{PATIENCE, ends, ms, reentrant, secs};

/// A frozen holder cannot be notified. After it resumes, its first check says that the lock is lost, and its calls do
/// not affect the next holder's lock.
#[tokio::test]
async fn resumed_holder_sees_that_its_hold_is_lost() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let one = async |how| {
            let mut holder = Child::spawn("lost::frozen_holder", &[("URL", &bed.server.url()), ("HOW", how)]);
            holder.expect("held").await;
            holder.stop();
            let other = ends("the next holder", client.reentrant(how).lock()).await.unwrap();
            holder.cont();
            holder.expect("held: false").await;
            holder.tell("go on");
            let outcome = holder.line().await.expect("how it ended");
            assert!(matches!(outcome.as_str(), "Lost" | "HeldBy" | "Dropped"), "{how}: {outcome}");
            holder.wait().await;
            assert!(other.is_held(), "{how}");
            other
        };
        let others = futures::future::join_all(["unlock", "extend", "drop", "run"].map(one)).await;
        assert_eq!(client.renew_now().await.renewed, others.len(), "locks of the next holder");
        for other in others {
            other.unlock().await.unwrap();
        }
    })
    .await;
}

/// The child of [`resumed_holder_sees_that_its_hold_is_lost`].
#[tokio::test]
async fn frozen_holder() {
    if !child::is_child() {
        return;
    }
    child::init();
    let (url, how) = (std::env::var("URL").unwrap(), std::env::var("HOW").unwrap());
    let client = brisk(&url).watchdog(secs(3)).retry_attempts(1_000).connect().await.unwrap();
    let guard = client.reentrant(&how).lock().await.unwrap();
    child::say("held");
    // Like slow code, this uses no timer or task, and only checks the clock.
    while guard.is_held() {
        std::thread::sleep(ms(1));
    }
    child::say(&format!("held: {}", guard.is_held()));
    assert_eq!(child::hear().await, "go on");
    let name = |outcome: Result<(), Error>| match outcome {
        Ok(()) => "Ok".to_owned(),
        Err(Error::Lost { .. }) => "Lost".to_owned(),
        Err(Error::NotHeld { why: NotHeld::HeldBy { .. }, .. }) => "HeldBy".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    match how.as_str() {
        "unlock" => child::say(&name(guard.unlock().await.map(drop))),
        "extend" => child::say(&name(guard.extend(secs(5)).await)),
        "run" => child::say(&name(guard.run(async {}).await)),
        _ => {
            drop(guard);
            child::say("Dropped");
        }
    }
    client.shutdown(PATIENCE).await.unwrap();
}
