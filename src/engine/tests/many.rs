//! Many locks in a single command: late and unexpected replies.

use super::fake::Fate;
use super::{client, done, ms, secs, settle};
use crate::transport::Reply;
use crate::{Acquire, Error};

#[tokio::test(start_paused = true)]
async fn multi_lock_granted_late_or_after_shutdown_is_released() {
    for closes in [false, true] {
        let (client, fake) = client(|_| ());
        let locks = client.multi(["a", "b"]);
        fake.next("multi/acquire", Fate::Later(Reply::Nil, ms(60)));
        fake.next("multi/acquire", Fate::Answer(Reply::List(vec![Reply::Int(3), Reply::Text("WRONGTYPE x".into())])));
        let lease = if closes { secs(50) } else { ms(50) };
        let task = tokio::spawn(async move { locks.acquire(Acquire::new().lease(lease).wait(ms(0))).await });
        if closes {
            settle().await;
            client.shutdown(secs(10)).await.unwrap();
        }
        let outcome = task.await.unwrap();
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
        tokio::time::sleep(secs(1)).await;
        assert_eq!((fake.sent("release").len(), client.stats().holds), (2, 0), "closes: {closes}");
        if closes {
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
            let asked = fake.sent("multi/acquire").len();
            let outcome = client.multi(["a", "b"]).acquire(Acquire::new().wait(ms(0))).await;
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
            assert_eq!(fake.sent("multi/acquire").len(), asked);
        } else {
            fake.calm();
            done(client, &fake).await;
        }
    }
}

/// Only two locks were requested, so the reply is invalid, or it is lost. The server may have acquired them.
#[tokio::test(start_paused = true)]
async fn multi_lock_with_unexpected_reply_fails_and_is_undone() {
    let (client, fake) = client(|_| ());
    let of_lock = |at| Reply::List(vec![Reply::Int(at), Reply::Text("WRONGTYPE x".into())]);
    for (n, odd) in (1..).zip([of_lock(0), of_lock(3), Reply::Int(7)]) {
        fake.next("multi/acquire", Fate::Answer(odd));
        let outcome = client.multi(["a", "b"]).acquire(Acquire::new().wait(ms(0))).await;
        assert!(
            matches!(&outcome, Err(Error::Server { message, .. }) if message.contains("unexpected")),
            "{outcome:?}"
        );
        // The first undo is sent at once, the second for a late copy.
        tokio::time::sleep(secs(10)).await;
        assert_eq!(fake.sent("release").len(), 4 * n);
    }
    // The reply is lost. The undo runs long before the leases end.
    fake.next("multi/acquire", Fate::Lost(true));
    let outcome = client.multi(["a", "b"]).acquire(Acquire::new().wait(ms(0))).await;
    assert!(outcome.as_ref().is_err_and(Error::outcome_unknown), "{outcome:?}");
    settle().await;
    assert_eq!(fake.held(), Vec::<String>::new());
    tokio::time::sleep(secs(10)).await;
    done(client, &fake).await;
}
