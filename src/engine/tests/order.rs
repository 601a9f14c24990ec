//! The commands of one owner are sent one after the other, because each command depends on the result of the previous
//! one.

use tokio::time::sleep;

use super::fake::{Fake, Fate};
use super::release::acquire;
use super::{done, learn_clock, ms, secs, settle, with_lock_and_owner, with_owner};
use crate::{Acquire, Client, Guard, Owner};

fn sent(fake: &Fake) -> usize {
    ["acquire", "release", "disown"].map(|script| fake.sent(script).len()).iter().sum()
}

/// An acquire under this owner. Its command has the fate `takes`.
fn slow(client: &Client, fake: &Fake, owner: &Owner, takes: Fate) -> tokio::task::JoinHandle<Guard> {
    fake.next("acquire", takes);
    let (client, owner) = (client.clone(), owner.clone());
    tokio::spawn(async move { acquire(&client, &owner).await })
}

#[tokio::test(start_paused = true)]
async fn commands_of_one_owner_are_sent_one_after_another() {
    for way in ["acquire", "disown", "release by owner", "undo"] {
        let (client, fake, lock, me) = with_lock_and_owner();
        let how = Acquire::new().owner(&me);
        learn_clock(&client, &me).await;
        let held = acquire(&client, &me).await;
        let before = sent(&fake);
        let mut other = None;
        if way == "undo" {
            // This acquire fails. An acquire that waits for its turn runs before the undo.
            fake.next("acquire", Fate::Lost(false));
            let lock = lock.clone();
            other = Some(tokio::spawn(async move { drop(lock.acquire(how.wait(ms(0))).await) }));
            tokio::task::yield_now().await;
        }
        let takes_long = slow(&client, &fake, &me, Fate::Slow(ms(50)));
        tokio::task::yield_now().await;
        let mut held = Some(held);
        match way {
            "acquire" => {
                let lock = client.reentrant("x");
                let how = Acquire::new().owner(&me);
                other = Some(tokio::spawn(async move { drop(lock.acquire(how).await) }));
            }
            "disown" => drop(held.take().map(Guard::into_owner)),
            "release by owner" => {
                let (lock, me) = (client.reentrant("x"), me.clone());
                other = Some(tokio::spawn(async move { drop(lock.release(&me).await) }));
            }
            _ => {}
        }
        sleep(ms(20)).await;
        assert_eq!(sent(&fake) - before, if way == "undo" { 2 } else { 1 }, "{way}");
        drop(takes_long.await.unwrap());
        settle().await;
        assert!(sent(&fake) - before >= 3, "{way}");
        if let Some(other) = other {
            other.await.unwrap();
        }
        drop(held);
        sleep(secs(10)).await;
        fake.delete("x");
        done(client, &fake).await;
    }
}

/// Background work also waits its turn.
#[tokio::test(start_paused = true)]
async fn second_look_for_late_copy_waits_for_command_in_flight() {
    let (client, fake, lock, me) = with_lock_and_owner();
    learn_clock(&client, &me).await;
    let released = || fake.sent("release").len();
    fake.next("acquire", Fate::Lost(false));
    assert!(lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.is_err());
    settle().await;
    let before = released();
    sleep(secs(2)).await;
    let guard = slow(&client, &fake, &me, Fate::Slow(secs(4)));
    sleep(ms(3_500)).await;
    assert_eq!(released(), before);
    let guard = guard.await.unwrap();
    settle().await;
    assert_eq!(released(), before + 1);
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

/// The reply to a renewal came too late, and the server still has the hold. The hold is released after the owner's
/// command in flight.
#[tokio::test(start_paused = true)]
async fn release_of_ended_hold_waits_for_command_in_flight() {
    let (client, fake, me) = with_owner();
    learn_clock(&client, &me).await;
    let guard = acquire(&client, &me).await;
    let released = fake.sent("release").len();
    // This is the only round before that time.
    fake.next("renew", Fate::Late(secs(25)));
    sleep(secs(28)).await;
    assert!(guard.is_held());
    let next = slow(&client, &fake, &me, Fate::Slow(secs(9)));
    sleep(secs(8)).await;
    assert!(!guard.is_held());
    assert_eq!((client.renew_now().await.lost, fake.sent("release").len()), (0, released));
    sleep(secs(2)).await;
    assert!(fake.sent("release").len() > released);
    drop((guard, next.await.unwrap()));
    sleep(secs(5)).await;
    fake.delete("x");
    done(client, &fake).await;
}
