//! Passing on: a release grants the lock to the head of the queue.

use distlock::{Client, Guard};
use distlock_support::proxy::Mode;
use distlock_support::{Child, child};

use crate::rig::{channel, client_of, holders, keys_gone, listens, patient_client, queue, queued, waiter};
use bed::events::Events;
use bed::{Bed, PATIENCE, becomes, ends, eventually, fair, secs, text};

/// When the release returns, the head of the queue holds the lock, with a first lease. One message notifies the head,
/// which extends the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_passes_the_lock_on_to_the_queue_head() {
    // A place (queue entry) lasts long enough for the refreshes of a slow machine, and not as long as the watchdog's
    // lease.
    const PLACE: i64 = 29_500;
    fair(async |bed| {
        let builder = || bed.builder().configure(|options| options.fair_wait = secs(30)).watchdog(secs(600));
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

/// The head of the queue, a waiter of the client `late`, is silent when a release of `guard` passes the lock on to it.
/// The next waiter acquires when the first lease ends. Then the head hears of its expired grant, and must not use it.
async fn late_head_takes_a_new_place(
    bed: &Bed,
    (direct, guard): (&Client, Guard),
    late: &str,
    silence: impl FnOnce(),
    heal: impl FnOnce(),
) {
    queued(bed, "a", 1).await;
    let behind = waiter(direct, "a");
    queued(bed, "a", 2).await;
    listens(bed, "a", &queue(bed, "a").await[0]).await;
    silence();
    guard.unlock().await.unwrap();
    let guard = ends("the waiter behind it", behind).await.unwrap();
    heal();
    // When the late client's waiter waits again, it has read its old messages.
    let head = async || queue(bed, "a").await.first().map(|owner| client_of(owner).to_owned());
    becomes("the client of the head", Some(late.to_owned()), head).await;
    assert!(guard.is_held(), "the next has lost the lock");
    assert_eq!(holders(bed, "a").await, [(text(guard.owner()), "1".to_owned())].into(), "the next holds it alone");
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_head_loses_the_lock_passed_on_to_it() {
    fair(async |bed| {
        let client = patient_client(bed).await;
        let guard = client.fair("a").lock_leased(secs(600)).await.unwrap();
        let mut peer = Child::spawn("passing::process_to_be_frozen", &[("URL", &bed.server.url())]);
        let late = peer.line().await.unwrap_or_else(|| panic!("no process: {}", peer.output()));
        late_head_takes_a_new_place(bed, (&client, guard), &late, || peer.stop(), || peer.cont()).await;
        peer.expect("closed").await;
        assert!(peer.wait().await.success(), "{}", peer.output());
        keys_gone(bed).await;
    })
    .await;
}

/// Waits for the lock once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_to_be_frozen() {
    if !child::is_child() {
        return;
    }
    child::init();
    let client = bed::builder(&std::env::var("URL").unwrap())
        .configure(|options| options.fair_wait = secs(8))
        .connect()
        .await
        .unwrap();
    child::say(client.id());
    client.fair("a").lock().await.unwrap().unlock().await.unwrap();
    client.shutdown(PATIENCE).await.unwrap();
    child::say("closed");
}

/// Messages and replies to the waiter arrive after the first lease has ended.
async fn a_message_that_comes_after_the_first_lease_is_not_the_lock(only_replies: bool) {
    fair(async |bed| {
        let proxy = bed.proxy();
        let direct = patient_client(bed).await;
        let builder = bed::builder(&proxy.url()).command_timeout(secs(1)).retry_attempts(1_000);
        let late = bed.connect(builder.configure(|options| options.fair_wait = secs(8))).await;
        let guard = direct.fair("a").lock_leased(secs(600)).await.unwrap();
        let first = waiter(&late, "a");
        let silence = || if only_replies { proxy.set_downstream_mode(Mode::Hang) } else { proxy.blackhole(true) };
        late_head_takes_a_new_place(bed, (&direct, guard), late.id(), silence, || proxy.heal()).await;
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
