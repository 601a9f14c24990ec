//! Owners of queue entries: reuse of an owner, and two waiters of one owner.

use tokio::time::sleep;

use super::{HELD, asked, busy, int, stands, tell};
use crate::Acquire;
use crate::engine::tests::fake::{Fake, Fate};
use crate::engine::tests::{begin, client, done, got, ms, secs, settle, with_owner};
use crate::transport::Reply;

/// An owner is reused only if no message and no late copy of its previous wait can arrive any more. The next wait would
/// take them for its own.
#[tokio::test(start_paused = true)]
async fn owner_is_reused_only_if_no_message_or_command_is_pending() {
    let ways = [
        ("heard", true),
        ("answered", true),
        ("unheard", false),
        ("doubt", false),
        ("passed in doubt", false),
        ("release", false),
        ("known", false),
    ];
    for (way, again) in ways {
        let (client, fake) = client(|_| ());
        let waits = stands(&client, &fake, Acquire::new()).await;
        if way.contains("doubt") {
            fake.next("fair/acquire", Fate::Lost(false));
        }
        match way {
            "answered" | "doubt" => fake.next("fair/acquire", HELD),
            "unheard" => fake.next("fair/acquire", int(-2)),
            "passed in doubt" => {
                tell(&fake, None);
                sleep(ms(10)).await;
            }
            _ => {}
        }
        tell(&fake, (!["answered", "unheard", "doubt"].contains(&way)).then_some(30_000));
        sleep(ms(200)).await;
        let guard = got(ms(10), waits).await;
        match way {
            "known" => drop(guard.owner().as_str().to_owned()),
            "release" => fake.next("fair/release", Fate::Lost(false)),
            _ => {}
        }
        guard.unlock().await.unwrap();
        let owner = asked(&fake).pop().unwrap().text(0);
        fake.next("fair/acquire", HELD);
        let next = client.fair("x").lock().await.unwrap();
        let sent = asked(&fake).pop().unwrap();
        assert_eq!(sent.text(0) == owner, again, "{way}");
        // The hold of a reused owner has an id, and the command requires that the owner has no other hold.
        assert_eq!((sent.text(2).is_empty(), sent.text(5).as_str()), if again { (false, "1") } else { (true, "0") });
        if again {
            fake.next("renew", Fate::Answer(Reply::List(vec![Reply::Int(1)])));
            client.renew_now().await;
            assert_eq!(fake.sent("renew").pop().unwrap().text(3), format!(",{}", sent.text(2)));
        }
        next.unlock().await.unwrap();
        sleep(secs(5)).await;
        // A late copy of the command in doubt may have taken a queue entry.
        assert_eq!(fake.sent("leave").len(), usize::from(way.contains("doubt")), "{way}");
        done(client, &fake).await;
    }
}

/// The second waiter takes no queue entry. Its owner may already hold the lock through the first waiter.
#[tokio::test(start_paused = true)]
async fn second_waiter_of_owner_tries_once_and_gets_no_queue_entry() {
    let (client, fake, me) = with_owner();
    let first = stands(&client, &fake, Acquire::new().owner(&me)).await;
    fake.next("fair/acquire", busy(60_000));
    let second = begin(&client.fair("x"), Acquire::new().owner(&me));
    sleep(secs(10)).await;
    let turns = |fake: &Fake| asked(fake).iter().map(|sent| sent.text(6)).collect::<Vec<_>>();
    assert_eq!(turns(&fake), ["1", "2", "0"]);
    // After a reconnect the contender tries again.
    fake.next("fair/acquire", busy(60_000));
    fake.listener().missed();
    settle().await;
    assert_eq!(turns(&fake), ["1", "2", "0", "2"]);
    // The first waiter acquires, so the second may re-enter.
    fake.times(2, "fair/acquire", || HELD);
    let registered = asked(&fake)[1].text(7);
    assert!(registered.starts_with('!'), "{registered}");
    tell(&fake, None);
    let (first, second) = (got(ms(10), first).await, got(ms(10), second).await);
    assert_eq!(turns(&fake)[4..], ["2", "1"]);
    fake.next("fair/release", int(1));
    first.unlock().await.unwrap();
    second.unlock().await.unwrap();
    sleep(secs(6)).await;
    // An acquire without a wait succeeds. It wakes the waiters of the same owner.
    let waits = stands(&client, &fake, Acquire::new().owner(&me)).await;
    fake.times(2, "fair/acquire", || HELD);
    let held = client.fair("x").acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
    let waited = got(ms(10), waits).await;
    fake.next("fair/release", int(1));
    held.unlock().await.unwrap();
    waited.unlock().await.unwrap();
    done(client, &fake).await;
}
