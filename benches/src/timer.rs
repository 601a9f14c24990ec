//! A timer that is more exact than tokio's.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Sleeps more exactly than tokio, whose timer may round 1 ms up to 2 ms. A hold must last as long here as in the
/// Java agent, which parks a thread. This timer parks a thread too, one for all its handles.
#[derive(Clone)]
pub struct Timer(mpsc::Sender<(Instant, oneshot::Sender<()>)>);

impl Timer {
    pub fn start() -> Self {
        let (wishes, queue) = mpsc::channel::<(Instant, oneshot::Sender<()>)>();
        // The thread ends with the last handle.
        std::thread::spawn(move || {
            for (until, done) in queue {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                // The receiver is gone if the measurement failed.
                let _ = done.send(());
            }
        });
        Self(wishes)
    }

    pub async fn sleep(&self, span: Duration) {
        let (done, slept) = oneshot::channel();
        let sent = self.0.send((Instant::now() + span, done));
        assert!(sent.is_ok() && slept.await.is_ok(), "the timer's thread has ended");
    }
}
