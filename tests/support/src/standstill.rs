//! When the machine stood still: a virtual machine that its host did not run, say. What a test measures by the clock says
//! nothing of the code under test while nobody runs.
//!
//! A thread that does nothing but sleep finds out: where it slept far longer than it wanted to, nothing else ran either.

use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use parking_lot::Mutex;

/// How often the thread looks.
const TICK: Duration = Duration::from_millis(5);

/// What a busy machine may keep it waiting.
const BUSY: Duration = Duration::from_millis(45);

/// From here on a standstill is worth another try.
const DISTURBED: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Seen {
    /// Each from when to when.
    standstills: Vec<(Instant, Instant)>,
    until: Option<Instant>,
}

fn seen() -> &'static Mutex<Seen> {
    static SEEN: OnceLock<Mutex<Seen>> = OnceLock::new();
    SEEN.get_or_init(|| {
        std::thread::spawn(|| {
            let mut last = Instant::now();
            loop {
                std::thread::sleep(TICK);
                let now = Instant::now();
                let mut seen = seen().lock();
                if now - last > TICK + BUSY {
                    seen.standstills.push((last + TICK, now));
                }
                seen.until = Some(now);
                last = now;
            }
        });
        Mutex::default()
    })
}

/// How much of the time from then to now nothing ran.
fn stood_still(from: Instant) -> Duration {
    let now = Instant::now();
    loop {
        {
            let seen = seen().lock();
            // The thread may have to come to itself first.
            if seen.until.is_some_and(|until| until >= now) {
                let each = seen.standstills.iter().filter(|(_, end)| *end > from);
                return each.map(|(start, end)| *end - from.max(*start)).sum();
            }
        }
        std::thread::sleep(TICK);
    }
}

/// A clock for what may take only so long.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        // From here on somebody looks.
        seen();
        Self(Instant::now())
    }

    /// By the clock on the wall: for what may not take less.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Without the time in which the machine stood still: for what may not take more. Blocks for a tick.
    #[must_use]
    pub fn worked(&self) -> Duration {
        let elapsed = self.elapsed();
        elapsed.saturating_sub(stood_still(self.0))
    }
}

/// True once a test of this process has found what must never be.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// As `assert!`, for what no standstill excuses: two that hold a lock at once, say.
#[track_caller]
pub fn must(holds: bool, what: &str) {
    if !holds {
        BROKEN.store(true, Ordering::SeqCst);
        panic!("{what}");
    }
}

/// Runs a test that keeps up with leases or measures them. If it fails while the machine stood still, that says nothing
/// yet: it is run again, at most three times in all. A test that fails on a machine that runs has failed, and so has one
/// that found what [`must`] not be.
pub async fn undisturbed(test: impl AsyncFn()) {
    for attempt in 1.. {
        let watch = Stopwatch::start();
        let Err(failure) = AssertUnwindSafe(test()).catch_unwind().await else { return };
        let still = stood_still(watch.0);
        if still < DISTURBED || attempt == 3 || BROKEN.load(Ordering::SeqCst) {
            std::panic::resume_unwind(failure);
        }
        // Not by a macro, whose words are kept from who looks on when the test passes in the end.
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let _ = writeln!(std::io::stderr(), "the machine stood still for {still:?} during {test}: it is run again");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_clock_runs() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(watch.elapsed() >= Duration::from_millis(20) && watch.worked() <= watch.elapsed());
    }

    #[tokio::test]
    async fn a_failure_is_one() {
        let runs = AtomicU32::new(0);
        let test = async || {
            runs.fetch_add(1, Ordering::Relaxed);
            panic!("it is broken");
        };
        let watch = Stopwatch::start();
        AssertUnwindSafe(undisturbed(test)).catch_unwind().await.expect_err("it is broken");
        assert!(runs.load(Ordering::Relaxed) == 1 || watch.worked() < watch.elapsed());
    }

    #[test]
    fn a_standstill_is_seen() {
        let watch = Stopwatch::start();
        let at = Instant::now();
        let still = (at, at + Duration::from_millis(30));
        std::thread::sleep(Duration::from_millis(40));
        seen().lock().standstills.push(still);
        let worked = watch.worked();
        assert!(watch.elapsed() - worked >= Duration::from_millis(30));
    }

    #[tokio::test]
    async fn a_disturbed_test_runs_again() {
        let runs = AtomicU32::new(0);
        undisturbed(async || {
            if runs.fetch_add(1, Ordering::Relaxed) < 2 {
                let now = Instant::now();
                std::thread::sleep(DISTURBED);
                seen().lock().standstills.push((now, now + DISTURBED));
                panic!("late");
            }
        })
        .await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
