//! Only the server's grant makes a waiter the holder. Tests of forged messages, repeated messages, and locks that share
//! a queue.

use std::sync::Arc;

use distlock::{Acquire, Client, DistLock as _, Guard, Owner, Released};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::task::JoinHandle;

use crate::rig::{holders, patient_client, queue};
use bed::harm::sha;
use bed::wire::Wire;
use bed::{Bed, becomes, ends, eventually, fair, in_vain, secs, text};

fn waits(client: &Client, name: &str, owner: Option<&Owner>) -> JoinHandle<Guard> {
    let lock = client.fair(name);
    let how = owner.map_or_else(Acquire::new, |owner| Acquire::new().owner(owner));
    tokio::spawn(async move { lock.acquire(how).await.unwrap().unwrap() })
}

async fn queued(client: &Client, name: &str) {
    let lock = client.fair(name);
    becomes("waiters in the queue", 1, async || lock.queue_len().await.unwrap()).await;
}

async fn channel_of_the_waiter(bed: &Bed, name: &str) -> String {
    let prefix = format!("redisson_lock__channel:{{{name}}}:");
    let mut channel = None;
    eventually("a waiter listens", async || {
        channel = bed.admin.channels().await.into_iter().find(|channel| channel.starts_with(&prefix));
        channel.is_some()
    })
    .await;
    channel.unwrap()
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
        let channel = channel_of_the_waiter(bed, "x").await;
        queued(&holder, "x").await;
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

/// A client repeats the grant message of another waiter of this client.
#[tokio::test]
async fn repeated_grant_message_grants_no_lock() {
    fair(async |bed| {
        let (holder, client) = (patient_client(bed).await, patient_client(bed).await);
        let mut heard: Vec<Vec<u8>> = Vec::new();
        for round in 0..4 {
            let held = holder.fair("x").lock().await.unwrap();
            let waiting = waits(&client, "x", None);
            queued(&holder, "x").await;
            let channel = channel_of_the_waiter(bed, "x").await;
            for message in &heard {
                assert_eq!(bed.admin.publish(&channel, message).await, 1, "round {round}: clients that hear a message");
            }
            all_heard(bed, &holder, &client, &format!("round {round}")).await;
            assert!(!waiting.is_finished(), "round {round}: an old message made a holder");
            assert_eq!(holders(bed, "x").await, [(text(held.owner()), "1".to_owned())].into(), "round {round}");
            let (messages, listening) = listen(bed, &channel).await;
            held.unlock().await.unwrap();
            ends("the waiter", waiting).await.unwrap().unlock().await.unwrap();
            let granted = async || messages.lock().iter().filter(|message| is_grant(message)).count();
            becomes("grants on the waiter's channel", 1, granted).await;
            listening.abort();
            heard.append(&mut messages.lock());
        }
        let mut grants: Vec<_> = heard.iter().filter(|message| is_grant(message)).collect();
        grants.sort();
        grants.dedup();
        assert_eq!(grants.len(), 4, "a grant of its own for each waiter: {heard:?}");
    })
    .await;
}

/// A grant message has the first lease in ms, and the waiter's nonce.
fn is_grant(message: &[u8]) -> bool {
    let text = String::from_utf8_lossy(message);
    text.split_once(' ').is_some_and(|(lease, nonce)| lease.parse::<u64>().is_ok() && !nonce.is_empty())
}

type Messages = Arc<Mutex<Vec<Vec<u8>>>>;

/// Records the messages of a channel.
async fn listen(bed: &Bed, channel: &str) -> (Messages, JoinHandle<()>) {
    let mut stream = tokio::net::TcpStream::connect(bed.server.addr()).await.unwrap();
    stream.write_all(format!("SUBSCRIBE {channel}\r\n").as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    while lines.next_line().await.unwrap().unwrap() != ":1" {}
    let messages = Messages::default();
    let heard = Arc::clone(&messages);
    let task = tokio::spawn(async move {
        let mut last = Vec::new();
        while let Ok(Some(line)) = lines.next_line().await {
            last.push(line);
            // The reply is: *3 $7 message $n channel $n payload
            if last.len() == 7 {
                heard.lock().push(last.pop().unwrap().into_bytes());
                last.clear();
            }
        }
    });
    (messages, task)
}

/// `x` and `{x}` share one queue and one channel, as in Redisson. One client holds `held`, another waits for it, and a
/// third tries to acquire `free`.
async fn collide(bed: &Bed, two: &Client, three: &Client, held: &str, free: &str) {
    let one = patient_client(bed).await;
    let holder = one.fair(held).lock().await.unwrap();
    let waiting = waits(two, held, None);
    queued(&one, held).await;
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
