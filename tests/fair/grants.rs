//! Only the server's grant makes a waiter the holder. Tests of forged messages, repeated messages, and locks that share
//! a queue.

use std::collections::BTreeSet;

use distlock::{Acquire, Client, Guard, Owner, Released};
use tokio::task::JoinHandle;

use crate::rig::{channel, holders, listens, patient_client, queue, queued};
use bed::harm::sha;
use bed::wire::Wire;
use bed::{Bed, becomes, ends, eventually, fair, in_vain, secs, text};

fn waits(client: &Client, name: &str, owner: Option<&Owner>) -> JoinHandle<Guard> {
    let lock = client.fair(name);
    let how = owner.map_or_else(Acquire::new, |owner| Acquire::new().owner(owner));
    tokio::spawn(async move { lock.acquire(how).await.unwrap().unwrap() })
}

/// Waits until the only waiter for `x` listens. Returns its channel.
async fn channel_of_the_waiter(bed: &Bed) -> String {
    queued(bed, "x", 1).await;
    let owner = queue(bed, "x").await.remove(0);
    listens(bed, "x", &owner).await;
    channel("x", &owner)
}

/// Counts the acquires of this lock on the wire so far.
async fn asks(bed: &Bed, wire: &Wire, name: &str) -> usize {
    let acquire = sha(&["common/holds", "fair/queue", "fair/acquire"]);
    wire.calls(bed).await.iter().filter(|call| call[1] == acquire && call.iter().any(|word| word == name)).count()
}

/// Waits until the client has processed all earlier messages. The proof is a grant of the unused lock `marker`, which
/// is sent after them over the same connection.
async fn all_heard(bed: &Bed, holder: &Client, client: &Client, marker: &str) {
    let held = holder.fair(marker).lock().await.unwrap();
    let wire = Wire::tap(&bed.server).await;
    let waiting = waits(client, marker, None);
    // The second attempt follows the subscription. From then on only a message can grant the lock to the waiter.
    becomes("asks of a waiter", 2, async || asks(bed, &wire, marker).await).await;
    becomes("calls under way", 0, async || client.stats().under_way).await;
    held.unlock().await.unwrap();
    ends("the waiter that is granted another lock", waiting).await.unwrap().unlock().await.unwrap();
    becomes("calls under way", 0, async || client.stats().under_way).await;
}

/// Every client may publish. A forged message grants nothing.
#[tokio::test]
async fn forged_message_grants_no_lock() {
    fair(async |bed| {
        let (holder, client) = (patient_client(bed).await, patient_client(bed).await);
        let held = holder.fair("x").lock().await.unwrap();
        let waiting = waits(&client, "x", None);
        let channel = channel_of_the_waiter(bed).await;
        for message in ["4000", "2", "30000", "4000 0", "4000 18446744073709551615", "30000:1", "1", "0", "4000 "] {
            for _ in 0..3 {
                assert_eq!(bed.admin.publish(&channel, message.as_bytes()).await, 1, "clients that hear {message:?}");
            }
            all_heard(bed, &holder, &client, &format!("after {message}")).await;
            assert!(!waiting.is_finished(), "{message:?} made a holder");
            assert_eq!(holders(bed, "x").await, [(text(held.owner()), "1".to_owned())].into(), "{message:?}");
        }
        assert!(held.is_held());
        held.unlock().await.unwrap();
        ends("the waiter", waiting).await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// A client repeats the messages of other waiters of this client.
#[tokio::test]
async fn repeated_grant_message_grants_no_lock() {
    fair(async |bed| {
        let (holder, client) = (patient_client(bed).await, patient_client(bed).await);
        let published = Wire::hear(&bed.server, &["publish"]).await;
        let mut heard: Vec<String> = Vec::new();
        for round in 0..4 {
            let held = holder.fair("x").lock().await.unwrap();
            let waiting = waits(&client, "x", None);
            let channel = channel_of_the_waiter(bed).await;
            for message in &heard {
                let clients = bed.admin.publish(&channel, message.as_bytes()).await;
                assert_eq!(clients, 1, "round {round}: clients that hear a message");
            }
            all_heard(bed, &holder, &client, &format!("round {round}")).await;
            assert!(!waiting.is_finished(), "round {round}: an old message made a holder");
            assert_eq!(holders(bed, "x").await, [(text(held.owner()), "1".to_owned())].into(), "round {round}");
            let before = published.calls(bed).await.len();
            held.unlock().await.unwrap();
            ends("the waiter", waiting).await.unwrap().unlock().await.unwrap();
            let new = published.calls(bed).await.split_off(before);
            let new: Vec<_> =
                new.into_iter().filter(|call| call[1] == channel).map(|mut call| call.remove(2)).collect();
            assert_eq!(new.iter().filter(|message| is_grant(message)).count(), 1, "round {round}: {new:?}");
            heard.extend(new);
        }
        let grants: BTreeSet<_> = heard.iter().filter(|message| is_grant(message)).collect();
        assert_eq!(grants.len(), 4, "a grant of its own for each waiter: {heard:?}");
    })
    .await;
}

/// A grant message has the first lease in ms, and the waiter's nonce.
fn is_grant(message: &str) -> bool {
    message.split_once(' ').is_some_and(|(lease, nonce)| lease.parse::<u64>().is_ok() && !nonce.is_empty())
}

/// `x` and `{x}` share one queue and one channel, as in Redisson. One client holds `held`, another waits for it, and a
/// third tries to acquire `free`.
async fn collide(bed: &Bed, two: &Client, three: &Client, held: &str, free: &str) {
    let one = patient_client(bed).await;
    let holder = one.fair(held).lock().await.unwrap();
    let waiting = waits(two, held, None);
    queued(bed, "x", 1).await;
    let other = three.fair(free).lock_for(secs(2)).await;
    assert!(matches!(other, Ok(Some(_))) || in_vain(&other), "{other:?}");
    let other = other.ok().flatten();
    if other.is_none() {
        // The acquire is being undone.
        becomes("calls under way", 0, async || three.stats().under_way).await;
    }
    assert!(!waiting.is_finished(), "{held} has two holders");
    let state = three.fair(free).state().await.unwrap();
    match &other {
        Some(guard) => assert_eq!(state.holders, [(text(guard.owner()), 1)], "{free}"),
        None => assert!(state.holders.is_empty(), "{free} was given to a waiter of {held}: {state:?}"),
    }
    assert!(holder.is_held());
    drop(other);
    holder.unlock().await.unwrap();
    let guard = ends("the waiter", waiting).await.unwrap();
    assert_eq!(one.fair(held).state().await.unwrap().holders, [(text(guard.owner()), 1)]);
    guard.unlock().await.unwrap();
    for name in [held, free] {
        eventually("both are free", async || !three.fair(name).is_locked().await.unwrap()).await;
    }
}

#[tokio::test]
async fn locks_that_share_a_queue_do_not_share_grants() {
    fair(async |bed| {
        let (two, three) = (patient_client(bed).await, patient_client(bed).await);
        for (held, free) in [("x", "{x}"), ("{x}", "x")] {
            collide(bed, &two, &two, held, free).await;
            collide(bed, &two, &three, held, free).await;
        }
    })
    .await;
}

#[tokio::test]
async fn owner_acquires_two_locks_that_share_a_queue() {
    fair(async |bed| {
        let (holder, client) = (patient_client(bed).await, patient_client(bed).await);
        let me = client.owner();
        let (a, b) = (holder.fair("x").lock().await.unwrap(), holder.fair("{x}").lock().await.unwrap());
        let wire = Wire::tap(&bed.server).await;
        let (one, two) = (waits(&client, "x", Some(&me)), waits(&client, "{x}", Some(&me)));
        let both_asked = async || {
            let stats = client.stats();
            (stats.waiting, stats.under_way) == (2, 0)
                && asks(bed, &wire, "x").await > 0
                && asks(bed, &wire, "{x}").await > 0
        };
        eventually("both waiters have asked", both_asked).await;
        assert_eq!(queue(bed, "x").await, [text(&me)], "one owner has one place");
        a.unlock().await.unwrap();
        let one = ends("the waiter for x", one).await.unwrap();
        assert!(b.is_held() && !two.is_finished());
        assert_eq!(holder.fair("{x}").hold_count(&me).await.unwrap(), 0);
        b.unlock().await.unwrap();
        let two = ends("the waiter for {x}", two).await.unwrap();
        assert_eq!(holder.fair("x").hold_count(&me).await.unwrap(), 1);
        one.unlock().await.unwrap();
        two.unlock().await.unwrap();
    })
    .await;
}

/// Waiters of two clients have one owner, so they share a place in the queue.
#[tokio::test]
async fn two_waiters_of_one_owner_get_two_holds() {
    fair(async |bed| {
        let (first, second, holder) = (patient_client(bed).await, patient_client(bed).await, patient_client(bed).await);
        let me = first.owner();
        let they: Owner = me.as_str().parse().unwrap();
        let held = holder.fair("x").lock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        let one = waits(&first, "x", Some(&me));
        becomes("asks of the first", 2, async || asks(bed, &wire, "x").await).await;
        let two = waits(&second, "x", Some(&they));
        becomes("asks of both", 4, async || asks(bed, &wire, "x").await).await;
        becomes("calls of the second under way", 0, async || second.stats().under_way).await;
        assert_eq!(queue(bed, "x").await, [text(&me)], "both have one place");
        held.unlock().await.unwrap();
        let one = ends("the first waiter", one).await.unwrap();
        let two = ends("the second waiter", two).await.unwrap();
        assert_eq!(holder.fair("x").hold_count(&me).await.unwrap(), 2);
        assert_eq!(one.unlock().await.unwrap(), Released::StillHeld(1));
        assert!(two.is_held());
        assert!(holder.fair("x").try_lock().await.unwrap().is_none(), "a third client acquired a lock that is held");
        assert_eq!(two.unlock().await.unwrap(), Released::Free);
    })
    .await;
}
