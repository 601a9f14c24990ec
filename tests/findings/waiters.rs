//! Waiters left behind (findings 9, 10, 14).

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard, NotHeld, Owner};
use distlock_support::{Action, Matcher, Proxy};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use bed::{Bed, enter, eventually, idle, ms, reentrant, secs};

/// Waits for a lock, and tells when it had it.
fn waiter(lock: Arc<dyn DistLock>) -> JoinHandle<(Guard, Instant)> {
    tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) })
}

/// Waits for a lock as this owner.
fn waits_as(lock: &Arc<dyn DistLock>, owner: &Owner) -> JoinHandle<Guard> {
    let (lock, owner) = (Arc::clone(lock), owner.clone());
    tokio::spawn(async move { enter(&*lock, &owner).await })
}

/// Waits until so many of a client's acquires wait.
async fn waiting(client: &Client, count: usize) {
    eventually("they wait", async || client.stats().waiting == count).await;
}

/// A guard that is to come within two seconds. `poll_cap` is 5 s, so that it does not come by looking now and then.
async fn soon<T>(what: &str, task: JoinHandle<T>) -> T {
    let granted = tokio::time::timeout(secs(2), task).await;
    granted.unwrap_or_else(|_| panic!("left behind: {what}")).unwrap()
}

/// What keeps waiters of a flavour out.
const fn opposite(flavour: Flavour) -> Flavour {
    match flavour {
        Flavour::Read => Flavour::Write,
        other => other,
    }
}

/// Two tasks wait as one owner, another one between them. The first to have the lock waits for the second.
#[tokio::test]
async fn finding_9_who_waits_as_the_owner_that_came_in_comes_in_too() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let mut left = Vec::new();
        // A plain lock is not had twice.
        for flavour in Flavour::ALL.iter().filter(|flavour| **flavour != Flavour::Plain) {
            let name = format!("job {flavour}");
            let held = theirs.lock(opposite(*flavour), &name).lock().await.unwrap();
            let (lock, me) = (ours.lock(*flavour, &name), ours.owner());
            let contender = waiter(Arc::clone(&lock));
            waiting(&ours, 1).await;
            let first = waits_as(&lock, &me);
            waiting(&ours, 2).await;
            let between = waiter(Arc::clone(&lock));
            waiting(&ours, 3).await;
            let mut second = waits_as(&lock, &me);
            waiting(&ours, 4).await;
            held.unlock().await.unwrap();
            soon("the contender", contender).await.0.unlock().await.unwrap();
            let first = soon("the first", first).await;
            match tokio::time::timeout(secs(2), &mut second).await {
                Ok(second) => {
                    assert_eq!(lock.state().await.unwrap().hold_count(&me), 2, "{flavour}");
                    second.unwrap().unlock().await.unwrap();
                }
                Err(_) => {
                    left.push(*flavour);
                    second.abort();
                }
            }
            first.unlock().await.unwrap();
            soon("the one between", between).await.0.unlock().await.unwrap();
            idle(&ours).await;
        }
        assert!(left.is_empty(), "left behind: {left:?}");
    })
    .await;
}

/// As above, but the lock came to the owner past the queue; and the one who waits is itself the contender.
#[tokio::test]
async fn finding_9_who_waits_comes_in_when_its_owner_came_in_past_the_queue() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let mut left = Vec::new();
        for flavour in [Flavour::Reentrant, Flavour::Write, Flavour::Fenced, Flavour::Read, Flavour::Fair] {
            for behind in [true, false] {
                if behind && flavour == Flavour::Fair {
                    // Nobody comes in past that queue.
                    continue;
                }
                let name = format!("job {flavour} {behind}");
                let held = theirs.lock(opposite(flavour), &name).lock().await.unwrap();
                let (lock, me) = (ours.lock(flavour, &name), ours.owner());
                let other = behind.then(|| waiter(Arc::clone(&lock)));
                waiting(&ours, usize::from(behind)).await;
                let mut waits = waits_as(&lock, &me);
                waiting(&ours, 1 + usize::from(behind)).await;
                let told = async || bed.admin.channels().await.iter().any(|channel| channel.contains(&name));
                eventually("the contender listens", told).await;
                // Looks once more when it listens.
                tokio::time::sleep(ms(50)).await;
                // Nobody is told.
                bed.admin.cmd::<()>(&["DEL", &name]).await;
                let first = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().expect("free");
                if let Ok(second) = tokio::time::timeout(secs(2), &mut waits).await {
                    assert_eq!(lock.state().await.unwrap().hold_count(&me), 2, "{name}");
                    second.unwrap().unlock().await.unwrap();
                    first.unlock().await.unwrap();
                } else {
                    left.push(name);
                    waits.abort();
                    first.unlock().await.unwrap();
                }
                if let Some(other) = other {
                    other.await.unwrap().0.unlock().await.unwrap();
                }
                drop(held);
                idle(&ours).await;
            }
        }
        assert!(left.is_empty(), "left behind: {left:?}");
    })
    .await;
}

/// A reader of the owner that writes comes in under it, whoever else waits to read.
#[tokio::test]
async fn finding_9_who_waits_to_read_comes_in_under_its_owners_write() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let (read, write) = (ours.lock(Flavour::Read, "job"), ours.lock(Flavour::Write, "job"));
        let me = ours.owner();
        let held = theirs.lock(Flavour::Write, "job").lock().await.unwrap();
        let other = waiter(Arc::clone(&read));
        waiting(&ours, 1).await;
        let reads = waits_as(&read, &me);
        waiting(&ours, 2).await;
        let told = async || bed.admin.channels().await.iter().any(|channel| channel.contains("job"));
        eventually("the contender listens", told).await;
        tokio::time::sleep(ms(50)).await;
        bed.admin.cmd::<()>(&["DEL", "job"]).await;
        let writes = write.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().expect("free");
        let reads = soon("the reader of the owner that writes", reads).await;
        assert!(!other.is_finished());
        reads.unlock().await.unwrap();
        writes.unlock().await.unwrap();
        soon("the other reader", other).await.0.unlock().await.unwrap();
        drop(held);
        idle(&ours).await;
    })
    .await;
}

/// No reply to SUBSCRIBE ever comes. Who waits looks when the lease is over that it was told of.
#[tokio::test]
async fn finding_10_a_silent_subscription_keeps_nobody_beyond_the_lease() {
    reentrant(async |bed| {
        let theirs = bed.client().await;
        let mut late = Vec::new();
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Read] {
            let proxy = Proxy::start(bed.server.addr());
            let ours = bed.connect(Client::builder(&proxy.url())).await;
            let name = format!("job {flavour}");
            let held = theirs.lock(opposite(flavour), &name).lock_leased(secs(1)).await.unwrap();
            let silent = proxy.on_request(Matcher::command("SUBSCRIBE"), Action::HangReply);
            let began = Instant::now();
            let (guard, at) = waiter(ours.lock(flavour, &name)).await.unwrap();
            let took = at - began;
            println!("{flavour}: a lease of 1 s, granted after {took:?}");
            assert!(silent.has_fired());
            if took > ms(2200) {
                late.push((flavour, took));
            }
            guard.unlock().await.unwrap();
            drop(held);
            ours.shutdown(secs(20)).await.unwrap();
        }
        assert!(late.is_empty(), "{late:?}");
    })
    .await;
}

/// The contender leaves while it subscribes, and the subscription stands before the next one waits for it.
#[tokio::test]
async fn finding_10_a_contender_that_leaves_while_it_subscribes_leaves_nobody_asleep() {
    reentrant(async |bed| {
        let theirs = bed.client().await;
        let proxy = Proxy::start(bed.server.addr());
        let ours = bed.connect(Client::builder(&proxy.url())).await;
        let lock = ours.lock(Flavour::Reentrant, "job");
        // Connections and scripts are there.
        lock.lock().await.unwrap().unlock().await.unwrap();
        let held = theirs.lock(Flavour::Reentrant, "job").lock_leased(secs(2)).await.unwrap();
        let leased = Instant::now();
        proxy.on_request(Matcher::command("SUBSCRIBE"), Action::DelayReply(ms(300)));
        let seen = proxy.requests_seen("SUBSCRIBE");
        let leaves = waiter(Arc::clone(&lock));
        eventually("it subscribes", async || proxy.requests_seen("SUBSCRIBE") > seen).await;
        let next = waiter(Arc::clone(&lock));
        waiting(&ours, 2).await;
        // The next one asks while the subscription comes to stand.
        let asked = proxy.requests_seen("EVALSHA");
        proxy.on_request(Matcher::command("EVALSHA"), Action::DelayReply(ms(600)));
        leaves.abort();
        eventually("it asks", async || proxy.requests_seen("EVALSHA") > asked).await;
        let (guard, at) = next.await.unwrap();
        let took = at - leased;
        println!("a lease of 2 s, granted after {took:?}");
        guard.unlock().await.unwrap();
        drop(held);
        ours.shutdown(secs(20)).await.unwrap();
        assert!(took < ms(2600), "asleep for {took:?}");
    })
    .await;
}

/// What this process itself gives back needs no message.
#[tokio::test]
async fn finding_10_a_release_in_this_process_is_heard_while_the_subscription_is_silent() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let ours = bed.connect(Client::builder(&proxy.url()).handoff_limit(0)).await;
        let lock = ours.lock(Flavour::Reentrant, "job");
        let held = lock.lock().await.unwrap();
        let silent = proxy.on_request(Matcher::command("SUBSCRIBE"), Action::HangReply);
        let next = waiter(Arc::clone(&lock));
        eventually("it subscribes", async || silent.has_fired()).await;
        let released = Instant::now();
        held.unlock().await.unwrap();
        let (guard, at) = next.await.unwrap();
        println!("granted {:?} after the release", at - released);
        let late = at - released;
        guard.unlock().await.unwrap();
        ours.shutdown(secs(20)).await.unwrap();
        assert!(late < ms(300), "{late:?}");
    })
    .await;
}

/// Stops whoever gives a guard back between its two steps: it is out of its hold, and the hold is not handed over yet.
struct Between {
    there: mpsc::SyncSender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl HistogramFn for Between {
    fn record(&self, _: f64) {
        self.there.send(()).unwrap();
        self.go_on.lock().recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

struct Stop(Arc<Between>);

impl Recorder for Stop {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if key.name() == "distlock_hold_seconds" { Histogram::from_arc(Arc::clone(&self.0)) } else { Histogram::noop() }
    }
}

/// The server's word that a lock is gone comes between the two steps of passing it on in the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_14_a_refusal_between_the_steps_of_a_hand_off_reaches_the_next_holder() {
    reentrant(async |bed: &Bed| {
        let proxy = Proxy::start(bed.server.addr());
        let ours = bed.connect(Client::builder(&proxy.url()).handoff_time(secs(60))).await;
        let lock = ours.lock(Flavour::Reentrant, "job");
        let held = lock.lock().await.unwrap();
        let next = waiter(Arc::clone(&lock));
        waiting(&ours, 1).await;
        eventually("it listens", async || !bed.admin.channels().await.is_empty()).await;
        tokio::time::sleep(ms(50)).await;

        // Nobody is told; a renewal finds out, and its answer comes late.
        bed.admin.cmd::<()>(&["DEL", "job"]).await;
        let asked = proxy.requests_seen("EVALSHA");
        proxy.on_request(Matcher::command("EVALSHA"), Action::DelayReply(ms(300)));
        let renewal = tokio::spawn({
            let ours = ours.clone();
            async move { ours.renew_now().await }
        });
        eventually("it asks", async || proxy.requests_seen("EVALSHA") > asked).await;
        let ((there, is_there), (go, goes_on)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let stop = Stop(Arc::new(Between { there, go_on: Mutex::new(goes_on) }));
        let runtime = tokio::runtime::Handle::current();
        let gives_back = std::thread::spawn(move || {
            let _runtime = runtime.enter();
            metrics::with_local_recorder(&stop, || drop(held));
        });
        is_there.recv_timeout(Duration::from_secs(5)).unwrap();
        let round = renewal.await.unwrap();
        go.send(()).unwrap();
        gives_back.join().unwrap();

        let (guard, _) = soon("the next one", next).await;
        let (is_held, there) = (guard.is_held(), bed.admin.exists("job").await);
        println!("{round:?}; the next one thinks that it holds the lock: {is_held}; in the server it is held: {there}");
        drop(guard);
        idle(&ours).await;
        ours.shutdown(secs(20)).await.unwrap();
        assert!(!is_held || there, "two may be inside: the next one was never told");
    })
    .await;
}

/// A plain lock of the name of a read-write lock: who is named as its holder is an owner.
#[tokio::test]
async fn finding_14_the_holder_that_is_named_is_an_owner() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mut odd = Vec::new();
        for half in [Flavour::Write, Flavour::Read] {
            let held = client.lock(half, "job").lock().await.unwrap();
            for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Fenced, Flavour::Spin] {
                let refused = client.lock(flavour, "job").release(&client.owner()).await.unwrap_err();
                let Error::NotHeld { why: NotHeld::HeldBy { owner }, .. } = &refused else { panic!("{refused:?}") };
                if *owner != held.owner().to_string() {
                    odd.push(format!("{flavour} names {owner:?} as the holder where {half} is held"));
                }
            }
            held.unlock().await.unwrap();
        }
        assert!(odd.is_empty(), "{odd:#?}");
    })
    .await;
}
