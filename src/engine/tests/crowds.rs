//! Many tasks of one process acquire one name. The number of their attempts in flight is limited.

use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::fake::Fate;
use super::{client, done, ms, secs};
use crate::engine::acquire::admission::MOST;
use crate::error::Error;
use crate::transport::Reply;

const CROWD: usize = 3_000;

/// At a silent server every task gets `Timeout`. At a slow server the tasks that get an answer return `Ok(None)`. A
/// task whose attempt was not answered or not sent has seen no holder, and returns `Timeout`. Tasks of another name do
/// not wait.
#[tokio::test(start_paused = true)]
async fn crowd_waiter_without_answer_gets_timeout_not_busy() {
    for silent in [true, false] {
        let (client, fake) = client(|_| ());
        let busy = || Reply::List(vec![Reply::Int(60_000), Reply::Int(1_700_000_000_000)]);
        let takes = if silent { secs(2) } else { ms(200) };
        fake.times(4 * CROWD, "fair/acquire", || Fate::Later(busy(), takes));
        let start = Instant::now();
        let crowd = tokio::spawn({
            let lock = client.fair("x");
            async move { join_all((0..CROWD).map(|_| async { (lock.lock_for(ms(800)).await, start.elapsed()) })).await }
        });
        tokio::time::sleep(ms(100)).await;
        // The first `MOST` attempts run at once. The crowd (queue of the other tasks) also runs `MOST`.
        assert_eq!(fake.sent("fair/acquire").len(), 2 * MOST);
        let other = timeout(ms(50), client.reentrant("other").lock()).await.unwrap().unwrap();
        other.unlock().await.unwrap();
        let (mut busy, mut unanswered) = (0, 0);
        for (outcome, after) in crowd.await.unwrap() {
            match outcome {
                Ok(None) => busy += 1,
                Err(Error::Timeout { .. }) => unanswered += 1,
                outcome => panic!("silent: {silent}, {outcome:?} after {after:?}"),
            }
            assert!(after >= ms(800) && after < ms(900), "silent: {silent}, after {after:?}");
        }
        let expected = if silent { 0..1 } else { 4 * MOST..CROWD };
        assert!(expected.contains(&busy), "silent: {silent}, busy: {busy}, unanswered: {unanswered}");
        tokio::time::sleep(secs(10)).await;
        fake.calm();
        done(client, &fake).await;
    }
}

/// At a silent server, a task waits for its turn to attempt for at most one command timeout.
#[tokio::test(start_paused = true)]
async fn crowd_sends_all_attempts_after_command_timeout() {
    let (client, fake) = client(|_| ());
    fake.times(CROWD, "fair/acquire", || Fate::Late(secs(60)));
    let lock = client.fair("x");
    let crowd = tokio::spawn(async move { join_all((0..CROWD).map(|_| lock.lock())).await });
    tokio::time::sleep(secs(4)).await;
    assert_eq!(fake.sent("fair/acquire").len(), CROWD);
    crowd.abort();
    assert!(crowd.await.is_err());
    tokio::time::sleep(secs(60)).await;
    fake.calm();
    done(client, &fake).await;
}
