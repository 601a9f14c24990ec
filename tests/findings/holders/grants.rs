//! Fair locks: who is told that it has the lock must have been made its owner.

use distlock::{Acquire, Client, DistLock as _};

use bed::{Bed, eventually, ms, secs, text};

/// The channel at which the only waiter of a lock is told.
async fn channel_of_the_waiter(bed: &Bed, name: &str) -> String {
    let prefix = format!("redisson_lock__channel:{{{name}}}:");
    let mut channel = None;
    eventually("somebody waits, and listens", async || {
        channel = bed.admin.channels().await.into_iter().find(|channel| channel.starts_with(&prefix));
        channel.is_some()
    })
    .await;
    channel.unwrap()
}

/// Finding 7: whoever may only publish makes nobody a holder.
#[tokio::test]
async fn f7_a_forged_message_is_no_grant() {
    bed::fair(async |bed| {
        let (holder, client) = (bed.client().await, bed.client().await);
        let held = holder.fair("x").lock().await.unwrap();
        let lock = client.fair("x");
        let waiting = tokio::spawn(async move { lock.lock().await });
        let channel = channel_of_the_waiter(bed, "x").await;
        eventually("it stands", async || holder.fair("x").queue_len().await.unwrap() == 1).await;
        for message in ["4000", "2", "30000", "4000 0", "4000 18446744073709551615", "30000:1", "1", "0", "4000 "] {
            for _ in 0..3 {
                bed.admin.publish(&channel, message.as_bytes()).await;
            }
            tokio::time::sleep(ms(30)).await;
            assert!(!waiting.is_finished(), "{message:?} made a holder");
        }
        assert!(held.is_held());
        held.unlock().await.unwrap();
        waiting.await.unwrap().unwrap().unlock().await.unwrap();
    })
    .await;
}

/// A message that was a grant once is none when it comes again.
#[tokio::test]
async fn f7_a_grant_heard_before_is_none() {
    bed::fair(async |bed| {
        let (holder, client) = (bed.client().await, bed.client().await);
        let mut channel = String::new();
        let mut heard: Vec<Vec<u8>> = Vec::new();
        for round in 0..4 {
            let held = holder.fair("x").lock().await.unwrap();
            let lock = client.fair("x");
            let waiting = tokio::spawn(async move { lock.lock().await });
            eventually("it stands", async || holder.fair("x").queue_len().await.unwrap() == 1).await;
            channel = channel_of_the_waiter(bed, "x").await;
            for message in &heard {
                bed.admin.publish(&channel, message).await;
            }
            tokio::time::sleep(ms(30)).await;
            assert!(!waiting.is_finished(), "round {round}: an old message made a holder");
            let (messages, told) = listen(bed, &channel).await;
            held.unlock().await.unwrap();
            waiting.await.unwrap().unwrap().unlock().await.unwrap();
            eventually("told", async || !messages.lock().is_empty()).await;
            told.abort();
            heard.append(&mut messages.lock());
        }
        assert!(!channel.is_empty() && heard.len() >= 4);
    })
    .await;
}

type Messages = std::sync::Arc<parking_lot::Mutex<Vec<Vec<u8>>>>;

/// Hears what is said on a channel.
async fn listen(bed: &Bed, channel: &str) -> (Messages, tokio::task::JoinHandle<()>) {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let mut stream = tokio::net::TcpStream::connect(bed.server.addr()).await.unwrap();
    stream.write_all(format!("SUBSCRIBE {channel}\r\n").as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    while lines.next_line().await.unwrap().unwrap() != ":1" {}
    let messages = Messages::default();
    let told = std::sync::Arc::clone(&messages);
    let task = tokio::spawn(async move {
        let mut last = Vec::new();
        while let Ok(Some(line)) = lines.next_line().await {
            last.push(line);
            // *3 $7 message $n channel $n payload
            if last.len() == 7 {
                told.lock().push(last.pop().unwrap().into_bytes());
                last.clear();
            }
        }
    });
    (messages, task)
}

/// Who waits for `x` is not made the owner of `{x}`, though both have one queue and one channel, as in Redisson.
async fn collide(bed: &Bed, two: &Client, three: &Client, held: &str, free: &str) {
    let one = bed.client().await;
    let holder = one.fair(held).lock().await.unwrap();
    let lock = two.fair(held);
    let waiting = tokio::spawn(async move { lock.lock().await });
    eventually("it stands", async || one.fair(held).queue_len().await.unwrap() == 1).await;
    let other = three.fair(free).lock_for(secs(2)).await.unwrap();
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished(), "{held} has two holders");
    let state = three.fair(free).state().await.unwrap();
    match &other {
        Some(guard) => assert_eq!(state.holders, [(text(guard.owner()), 1)], "{free}"),
        None => assert!(state.holders.is_empty(), "{free} was given to somebody who waits for {held}: {state:?}"),
    }
    assert!(holder.is_held());
    drop(other);
    holder.unlock().await.unwrap();
    let guard = tokio::time::timeout(secs(5), waiting).await.expect("left behind").unwrap().unwrap();
    assert_eq!(one.fair(held).state().await.unwrap().holders, [(text(guard.owner()), 1)]);
    guard.unlock().await.unwrap();
    eventually("both free", async || !three.fair(free).is_locked().await.unwrap()).await;
}

/// Finding 7: without malice.
#[tokio::test]
async fn f7_names_that_share_a_queue_share_no_grant() {
    bed::fair(async |bed| {
        let (two, three) = (bed.client().await, bed.client().await);
        for (held, free) in [("x", "{x}"), ("{x}", "x")] {
            collide(bed, &two, &two, held, free).await;
            collide(bed, &two, &three, held, free).await;
        }
    })
    .await;
}

/// The same among owners that were given: a grant of one name is none of the other.
#[tokio::test]
async fn f7_one_owner_waits_for_names_that_share_a_queue() {
    bed::fair(async |bed| {
        let (holder, client) = (bed.client().await, bed.client().await);
        let me = client.owner();
        let (a, b) = (holder.fair("x").lock().await.unwrap(), holder.fair("{x}").lock().await.unwrap());
        let wait = |name: &str| {
            let (lock, how) = (client.fair(name), Acquire::new().owner(&me).wait(secs(20)));
            tokio::spawn(async move { lock.acquire(how).await })
        };
        let (one, two) = (wait("x"), wait("{x}"));
        eventually("both wait", async || client.stats().waiting == 2).await;
        tokio::time::sleep(ms(100)).await;
        a.unlock().await.unwrap();
        let one = one.await.unwrap().unwrap().expect("served");
        assert!(b.is_held() && !two.is_finished());
        assert_eq!(holder.fair("{x}").hold_count(&me).await.unwrap(), 0);
        b.unlock().await.unwrap();
        let two = two.await.unwrap().unwrap().expect("served");
        assert_eq!(holder.fair("x").hold_count(&me).await.unwrap(), 1);
        one.unlock().await.unwrap();
        two.unlock().await.unwrap();
    })
    .await;
}
