//! Passing on: a release grants the lock to the head of the queue.

use distlock_support::proxy::Mode;

use crate::monitor::client_of;
use crate::peer::{HISTORY, Peer, history};
use crate::rig::{channel, holders, keys_gone, listens, patient_client, queue, queued, waiter};
use bed::events::Events;
use bed::{becomes, ends, eventually, fair, secs, text};

/// When the release returns, the head of the queue holds the lock, with a first lease. One message notifies the head,
/// which extends the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_passes_the_lock_on_to_the_queue_head() {
    // A place (queue entry) lasts long enough for the refreshes of a slow machine, and not as long as the watchdog's
    // lease.
    const PLACE: i64 = 29_500;
    fair(async |bed| {
        let builder = || bed.builder().fair_wait(secs(30)).watchdog(secs(600));
        let (holder, waiting) = (bed.connect(builder()).await, bed.connect(builder()).await);
        let guard = holder.fair("a").lock().await.unwrap();
        let first = waiter(&waiting, "a");
        queued(bed, "a", 1).await;
        let second = waiter(&waiting, "a");
        queued(bed, "a", 2).await;
        let places = queue(bed, "a").await;
        let on = channel("a", &places[0]);
        listens(bed, "a", &places[0]).await;
        let events = Events::subscribe(&bed.server, &[&on, &channel("a", &places[1])]).await;
        guard.unlock().await.unwrap();
        assert_eq!(holders(bed, "a").await, [(places[0].clone(), "1".to_owned())].into());
        assert_eq!(queue(bed, "a").await, places[1..]);
        let guard = ends("the head of the queue", first).await.unwrap();
        assert!(guard.is_held());
        // The message has the first lease, which is the remaining time of the waiter's place.
        let told = async || (1..=PLACE).map(|ms| events.count_of(&on, &format!("{ms} "))).sum::<usize>();
        becomes("messages that pass the lock on", 1, told).await;
        eventually("it is renewed", async || bed.admin.pttl("a").await > PLACE).await;
        eventually("the guard knows", async || guard.remaining() > secs(30)).await;
        assert_eq!(events.count(&channel("a", &places[1]), "0"), 0, "the one behind it was woken");
        guard.unlock().await.unwrap();
        ends("the second waiter", second).await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// A process is frozen just before its waiter gets the grant. The next waiter acquires when the first lease ends. When
/// the process resumes, it does not use the expired grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_head_loses_the_lock_passed_on_to_it() {
    fair(async |bed| {
        let client = patient_client(bed).await;
        let mut peer = Peer::start(bed, &[("FAIR_WAIT", "8000")]).await;
        let guard = client.fair("a").lock_leased(secs(600)).await.unwrap();
        peer.wait("a", 1);
        queued(bed, "a", 1).await;
        let behind = waiter(&client, "a");
        queued(bed, "a", 2).await;
        let places = queue(bed, "a").await;
        listens(bed, "a", &places[0]).await;
        peer.child.stop();
        guard.unlock().await.unwrap();
        let guard = ends("the waiter behind the frozen one", behind).await.unwrap();
        let _: u64 = bed.admin.cmd(&["RPUSH", HISTORY, "+me"]).await;
        peer.child.cont();
        // When the resumed process waits again, it has read its old messages.
        let head = async || queue(bed, "a").await.first().map(|owner| client_of(owner).to_owned());
        becomes("the client of the head", Some(peer.id.clone()), head).await;
        assert!(guard.is_held(), "the next has lost the lock");
        assert_eq!(holders(bed, "a").await, [(text(guard.owner()), "1".to_owned())].into(), "the next holds it alone");
        let _: u64 = bed.admin.cmd(&["RPUSH", HISTORY, "-me"]).await;
        guard.unlock().await.unwrap();
        peer.child.expect("+ a").await;
        peer.child.expect("- a").await;
        assert_eq!(history(bed).await, ["me", peer.id.as_str()]);
        peer.close().await;
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed).await;
    })
    .await;
}

/// Messages and replies to the waiter arrive after the first lease has ended. The waiter must not treat them as a
/// grant.
async fn a_message_that_comes_after_the_first_lease_is_not_the_lock(only_replies: bool) {
    fair(async |bed| {
        let proxy = bed.proxy();
        let direct = patient_client(bed).await;
        let builder = bed::builder(&proxy.url()).command_timeout(secs(1)).retry_attempts(1_000);
        let late = bed.connect(builder.fair_wait(secs(8))).await;
        let guard = direct.fair("a").lock_leased(secs(600)).await.unwrap();
        let first = waiter(&late, "a");
        queued(bed, "a", 1).await;
        let behind = waiter(&direct, "a");
        queued(bed, "a", 2).await;
        let places = queue(bed, "a").await;
        listens(bed, "a", &places[0]).await;
        if only_replies {
            proxy.set_downstream_mode(Mode::Hang);
        } else {
            proxy.blackhole(true);
        }
        guard.unlock().await.unwrap();
        let guard = ends("the waiter behind it", behind).await.unwrap();
        proxy.heal();
        let again = async || queue(bed, "a").await.iter().any(|owner| client_of(owner) == late.id());
        eventually("it stands in the queue again", again).await;
        assert!(!first.is_finished(), "it has taken an old message for the lock");
        assert!(guard.is_held(), "the waiter behind it has lost the lock");
        assert_eq!(holders(bed, "a").await, [(text(guard.owner()), "1".to_owned())].into(), "it holds alone");
        guard.unlock().await.unwrap();
        ends("the late waiter", first).await.unwrap().unlock().await.unwrap();
        bed::end(late).await;
        keys_gone(bed).await;
    })
    .await;
}

bed::cases!(on two threads, a_message_that_comes_after_the_first_lease_is_not_the_lock:
    behind_late_replies = true,
    behind_a_silent_network = false,
);
