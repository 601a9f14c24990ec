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

/// The longest time since then in which nothing ran.
fn stood_still(since: Instant) -> Duration {
    let now = Instant::now();
    loop {
        {
            let seen = seen().lock();
            // The thread may have to come to itself first.
            if seen.until.is_some_and(|until| until >= now) {
                let each = seen.standstills.iter().filter(|(_, end)| *end > since);
                return each.map(|(start, end)| *end - since.max(*start)).max().unwrap_or_default();
            }
        }
        std::thread::sleep(TICK);
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
        // From here on somebody looks.
        seen();
        let start = Instant::now();
        let Err(failure) = AssertUnwindSafe(test()).catch_unwind().await else { return };
        let still = stood_still(start);
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
    use std::process::Command;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Stops this process, with all its threads.
    fn stand_still() {
        let this = std::process::id();
        let stop = format!("kill -STOP {this}; sleep 0.2; kill -CONT {this}");
        assert!(Command::new("sh").args(["-c", &stop]).status().expect("a shell").success());
    }

    /// One test, because a standstill is one for all tests of a process.
    #[tokio::test]
    async fn a_failure_in_a_standstill_is_run_again_and_no_other() {
        let failing = async |when: fn(u32) -> bool, still: fn(u32) -> bool| {
            let (runs, start) = (AtomicU32::new(0), Instant::now());
            let test = async || {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                if still(run) {
                    stand_still();
                }
                assert!(!when(run), "late");
            };
            let passed = AssertUnwindSafe(undisturbed(test)).catch_unwind().await.is_ok();
            (passed, runs.into_inner(), stood_still(start) >= DISTURBED)
        };
        let (passed, runs, still) = failing(|_| true, |_| false).await;
        // The machine may do so by itself.
        assert!(!passed && (runs == 1 || still));
        assert_eq!(failing(|run| run < 2, |run| run < 2).await, (true, 3, true));
        assert_eq!(failing(|_| true, |_| true).await, (false, 3, true));
        let runs = AtomicU32::new(0);
        let never = async || {
            runs.fetch_add(1, Ordering::Relaxed);
            stand_still();
            must(false, "two at once");
        };
        AssertUnwindSafe(undisturbed(never)).catch_unwind().await.expect_err("that is never excused");
        assert_eq!(runs.into_inner(), 1);
    }
}
