//! A hand-over inside the process races with a renewal that finds the lock gone.

use std::sync::Arc;
use std::sync::mpsc;

use distlock_support::{Action, Matcher};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use bed::{PATIENCE, becomes, builder, end, ends, eventually, ms, reentrant, secs, waiter};

/// Stops a release after its first step: the guard's hold has ended, and is not handed over yet.
struct Between {
    there: mpsc::SyncSender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl HistogramFn for Between {
    fn record(&self, _: f64) {
        self.there.send(()).unwrap();
        self.go_on.lock().recv_timeout(PATIENCE).unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_is_found_during_a_hand_off_reaches_the_next_holder() {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let ours = bed.connect(builder(&proxy.url()).configure(|options| options.local_handoff_time = secs(60))).await;
        let lock = ours.reentrant("job");
        let held = lock.lock().await.unwrap();
        let next = waiter(lock.clone());
        becomes("waiters", 1, async || ours.stats().waiting).await;
        eventually("it listens", async || !bed.admin.channels().await.is_empty()).await;
        tokio::time::sleep(ms(50)).await;

        // A renewal finds the lock gone, and its reply is delayed.
        bed.admin.cmd::<()>(&["DEL", "job"]).await;
        let asked = proxy.requests_seen("EVALSHA");
        proxy.on_request(Matcher::command("EVALSHA"), Action::DelayReply(ms(300)));
        let renewal = tokio::spawn({
            let ours = ours.clone();
            async move { ours.renew_now().await }
        });
        eventually("the renewal is sent", async || proxy.requests_seen("EVALSHA") > asked).await;
        let ((there, is_there), (go, goes_on)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let stop = Stop(Arc::new(Between { there, go_on: Mutex::new(goes_on) }));
        let runtime = tokio::runtime::Handle::current();
        let gives_back = std::thread::spawn(move || {
            let _runtime = runtime.enter();
            metrics::with_local_recorder(&stop, || drop(held));
        });
        is_there.recv_timeout(PATIENCE).expect("the release reaches its second step");
        let round = bed::ends("the renewal", renewal).await.unwrap();
        go.send(()).unwrap();
        gives_back.join().unwrap();

        let (guard, _) = ends("the next holder", next).await.unwrap();
        let (is_held, there) = (guard.is_held(), bed.admin.exists("job").await);
        assert!(!is_held || there, "the next holder was not told that the lock is gone: {round:?}");
        drop(guard);
        end(ours).await;
    })
    .await;
}
