//! The metrics and log events of this crate, and no others, are listed in `docs/observability.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bed::{Bed, becomes, ms, secs};
use distlock::{Acquire, DistLock, Flavour};
use distlock_support::RedisServer;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

mod fields;

const GUIDE: &str = include_str!("../../docs/observability.md");

/// Returns the cells of those table rows in the guide that begin with `begin`.
fn rows(begin: &str) -> Vec<Vec<&'static str>> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    GUIDE.lines().filter(|line| line.starts_with(begin)).map(cells).collect()
}

fn sources() -> Vec<String> {
    fn walk(dir: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                walk(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = Vec::new();
    for folder in ["../src", "../crates/wire/src"] {
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    found
}

/// Counts the different lines that contain `text`. Equal lines in two places count once.
fn lines(sources: &[String], text: &str) -> usize {
    let mut all = BTreeSet::new();
    for (file, source) in sources.iter().enumerate() {
        for (number, line) in source.lines().enumerate().filter(|(_, line)| line.contains(text)) {
            // A statement that continues on the next line is identified by its position, because its first line says
            // too little.
            let place = if line.ends_with(';') { (0, 0) } else { (file + 1, number) };
            all.insert((line.trim(), place));
        }
    }
    all.len()
}

#[test]
fn the_guide_lists_every_metric() {
    let listed: BTreeSet<_> = rows("| `distlock_").iter().map(|row| row[0].trim_matches('`')).collect();
    let source = include_str!("../../src/engine/metrics.rs");
    let made: BTreeSet<_> = source.split('"').filter(|text| text.starts_with("distlock_")).collect();
    assert_eq!(listed, made);
    assert!(made.len() > 5, "{made:?}");
}

#[test]
fn the_guide_lists_every_event() {
    let sources = sources();
    let mut listed = 0;
    for level in ["warn", "info", "debug", "trace"] {
        let made = lines(&sources, &format!("tracing::{level}!"));
        let rows = rows(&format!("| {level} |"));
        assert_eq!(rows.len(), made, "events of level {level}");
        listed += made;
        for row in rows {
            // Two dots in the guide mark omitted text.
            for part in row[1].trim_matches('`').split("..").map(|part| part.trim_matches([',', ' '])) {
                assert!(sources.iter().any(|text| text.contains(part)), "no event says {part:?}");
            }
            for field in row[2].split(',').map(|field| field.trim().trim_matches('`')).filter(|field| !field.is_empty())
            {
                assert!(sources.iter().any(|text| text.contains(field)), "no event has the field {field:?}");
            }
        }
    }
    let others = lines(&sources, "tracing::Instrument") + lines(&sources, "tracing::debug_span!");
    assert_eq!(listed, lines(&sources, "tracing::") - others, "an event of another level");
}

/// Metrics recorded so far, by name: counters and gauges as numbers, histograms with every value.
#[derive(Debug, Default)]
struct Seen {
    numbers: BTreeMap<String, f64>,
    times: BTreeMap<String, Vec<f64>>,
}

impl Seen {
    /// Adds the metrics since the last snapshot. A snapshot resets every metric, and the gauge reports only changes.
    fn look(&mut self, snapshotter: &Snapshotter) {
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let key = key.key();
            let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = std::iter::once(key.name().to_owned()).chain(labels).collect::<Vec<_>>().join(" ");
            match value {
                DebugValue::Counter(count) => *self.numbers.entry(name).or_default() += count as f64,
                DebugValue::Gauge(change) => *self.numbers.entry(name).or_default() += change.into_inner(),
                DebugValue::Histogram(times) => {
                    self.times.entry(name).or_default().extend(times.into_iter().map(|time| time.into_inner()));
                }
            }
        }
    }

    fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    fn expect(&self, numbers: &[(&str, f64)]) {
        for (name, expected) in numbers {
            assert_eq!(self.number(name), *expected, "{name}: {self:#?}");
        }
    }
}

/// Produces each outcome of an acquire and of a release.
async fn bring_about_each_outcome(bed: &Bed, seen: &mut Seen, snapshotter: &Snapshotter) {
    let (one, two) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (one.reentrant("metrics"), two.reentrant("metrics"));

    let guard = lock.lock().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    // A waiter behind a hold of its own client may not send a command.
    assert!(lock.lock_for(ms(60)).await.unwrap().is_none());
    assert!(other.acquire(Acquire::new().lease(Duration::ZERO)).await.is_err(), "no lease is of zero length");

    let waiter = bed::passer(other);
    becomes("the gauge of waiters", 1.0, async || {
        seen.look(snapshotter);
        seen.number("distlock_waiters")
    })
    .await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(one.renew_now().await.renewed, 1);
    guard.unlock().await.unwrap();
    bed::ends("the waiter", waiter).await.unwrap();

    let guard = lock.lock().await.unwrap();
    DistLock::force_unlock(&lock).await.unwrap();
    assert!(guard.unlock().await.is_err());

    // The lease ends while this thread sleeps, so the release finds the loss. The server may still have the hold.
    for beyond in [ms(0), ms(100)] {
        let guard = lock.lock_leased(ms(300)).await.unwrap();
        std::thread::sleep(guard.remaining() + beyond);
        assert!(guard.unlock().await.is_err());
    }
}

#[tokio::test]
async fn each_outcome_is_counted_once_and_timed() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // This runtime has one thread, and the recorder records this thread.
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut seen = Seen::default();
    bed::run_on(
        RedisServer::start(),
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| bring_about_each_outcome(bed, &mut seen, &snapshotter).await,
    )
    .await;

    seen.look(&snapshotter);
    seen.expect(&[
        ("distlock_acquired_total flavour=reentrant", 5.0),
        ("distlock_busy_total flavour=reentrant", 1.0),
        ("distlock_timed_out_total flavour=reentrant", 1.0),
        ("distlock_lost_total flavour=reentrant", 3.0),
        ("distlock_renewals_total", 1.0),
        ("distlock_renewals_failed_total", 0.0),
        ("distlock_release_failed_total flavour=reentrant", 0.0),
        ("distlock_waiters", 0.0),
    ]);
    let waits = &seen.times["distlock_wait_seconds flavour=reentrant outcome=acquired"];
    assert_eq!(waits.len(), 5, "{seen:#?}");
    assert!(waits.iter().any(|wait| *wait >= 0.1), "in seconds, one of them waited for 0.1: {seen:#?}");
    assert_eq!(seen.times["distlock_wait_seconds flavour=reentrant outcome=timed_out"].len(), 1);
    let holds = &seen.times["distlock_hold_seconds flavour=reentrant"];
    assert_eq!(holds.len(), 5, "{seen:#?}");
    assert!(holds.iter().any(|hold| *hold >= 0.1), "in seconds, one was held for 0.1: {seen:#?}");
}

/// The two halves of a read-write lock have separate metrics. A downgrade counts as an acquire of the read half and a
/// release of the write half.
#[tokio::test]
async fn read_and_write_halves_are_counted_separately() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    bed::reentrant(async |bed| {
        let (one, two) = (bed.still_client().await, bed.still_client().await);
        let (mine, theirs) = (one.rw("metrics"), two.rw("metrics"));

        let readers = [mine.read().lock().await.unwrap(), theirs.read().lock().await.unwrap()];
        assert!(theirs.write().try_lock().await.unwrap().is_none());
        assert!(theirs.write().lock_for(secs(5)).await.unwrap().is_none());
        let me = readers[0].owner();
        assert!(mine.write().acquire(Acquire::new().owner(me)).await.is_err(), "would wait for itself");
        assert_eq!(one.renew_now().await.renewed, 1);
        for guard in readers {
            guard.unlock().await.unwrap();
        }

        let guard = mine.write().lock().await.unwrap();
        assert!(theirs.read().try_lock().await.unwrap().is_none());
        let guard = guard.downgrade().await.unwrap();
        theirs.read().lock().await.unwrap().unlock().await.unwrap();
        guard.unlock().await.unwrap();

        let guard = mine.write().lock().await.unwrap();
        DistLock::force_unlock(&mine.write()).await.unwrap();
        assert!(guard.unlock().await.is_err());
    })
    .await;

    let mut seen = Seen::default();
    seen.look(&snapshotter);
    seen.expect(&[
        ("distlock_acquired_total flavour=read", 4.0),
        ("distlock_acquired_total flavour=write", 2.0),
        ("distlock_busy_total flavour=read", 1.0),
        ("distlock_busy_total flavour=write", 1.0),
        ("distlock_timed_out_total flavour=read", 0.0),
        ("distlock_timed_out_total flavour=write", 1.0),
        ("distlock_acquire_failed_total flavour=read", 0.0),
        ("distlock_acquire_failed_total flavour=write", 1.0),
        ("distlock_lost_total flavour=read", 0.0),
        ("distlock_lost_total flavour=write", 1.0),
        ("distlock_release_failed_total flavour=read", 0.0),
        ("distlock_release_failed_total flavour=write", 0.0),
        ("distlock_renewals_total", 1.0),
        ("distlock_waiters", 0.0),
    ]);
    assert_eq!(seen.times["distlock_hold_seconds flavour=read"].len(), 4, "{seen:#?}");
    assert_eq!(seen.times["distlock_hold_seconds flavour=write"].len(), 2, "{seen:#?}");
}
