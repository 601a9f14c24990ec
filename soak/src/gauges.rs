//! Samples everything that could grow.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use distlock_support::leak::alive_tasks;

use crate::bed::{BOUND, Bed, WATCHDOG};

/// A measured quantity. `slack`: allowed growth in addition to 30 %. `left`: once all clients are closed, allowed
/// excess over the value before the run. `None`: not checked.
struct Gauge {
    name: &'static str,
    slack: f64,
    left: Option<f64>,
}

const MIB: f64 = 1024.0 * 1024.0;

const fn gauge(name: &'static str, slack: f64, left: Option<f64>) -> Gauge {
    Gauge { name, slack, left }
}

const N: usize = 11;

const GAUGES: [Gauge; N] = [
    gauge("resident MiB", 24.0, None),
    gauge("open descriptors", 64.0, Some(8.0)),
    gauge("tasks alive", 300.0, Some(0.0)),
    gauge("holds", 100.0, Some(0.0)),
    gauge("waiting", 100.0, Some(0.0)),
    gauge("names in the registry", 500.0, Some(0.0)),
    gauge("under way", 200.0, Some(0.0)),
    gauge("server MiB, all servers", 16.0, None),
    gauge("keys, but fenced counters", 500.0, Some(0.0)),
    gauge("server clients", 64.0, Some(0.0)),
    gauge("channels", 200.0, Some(0.0)),
];

type Figures = [f64; N];

async fn figures(bed: &Bed, connected: bool) -> Figures {
    let (holds, waiting, names, under_way) = if connected {
        let stats = bed.stats();
        (stats.holds, stats.waiting, stats.names, stats.under_way)
    } else {
        (0, 0, 0, 0)
    };
    let [mut memory, mut keys, mut clients, mut channels] = [0.0; 4];
    for admin in &bed.admins {
        let info: String = admin.cmd(&["INFO", "memory"]).await;
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<f64>().ok());
        memory += used.unwrap_or(0.0);
        keys += admin.keys().await.iter().filter(|key| !key.starts_with("redisson_lock_token:")).count() as f64;
        clients += admin.others().await.len() as f64;
        channels += admin.channels().await.len() as f64;
    }
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let pages: f64 = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse().ok())
        .unwrap_or(0.0);
    [
        pages * rustix::param::page_size() as f64 / MIB,
        descriptors as f64,
        alive_tasks() as f64,
        holds as f64,
        waiting as f64,
        names as f64,
        under_way as f64,
        memory / MIB,
        keys,
        clients,
        channels,
    ]
}

/// The samples of a run, and the values before and after the load.
pub struct Log {
    load: Duration,
    before: Figures,
    samples: Vec<(Duration, Figures)>,
    rest: Figures,
    after: Figures,
}

impl Log {
    pub fn new(load: Duration) -> Self {
        Self { load, before: [0.0; N], samples: Vec::new(), rest: [0.0; N], after: [0.0; N] }
    }

    pub async fn before(&mut self, bed: &Bed) {
        self.before = figures(bed, false).await;
    }

    pub async fn sample(&mut self, bed: &Bed, at: Duration) {
        self.samples.push((at, figures(bed, true).await));
    }

    /// Waits, without load, until nothing is held, waited for or subscribed to.
    pub async fn rest(&mut self, bed: &Bed) {
        let still = [3, 4, 5, 6, 8, 10];
        self.rest = settled(bed, true, |figures| still.iter().all(|at| figures[*at] == 0.0)).await;
    }

    /// Takes the last values, with all clients closed.
    pub async fn after(&mut self, bed: &Bed) {
        let before = self.before;
        let floor = |figures: &Figures| {
            GAUGES.iter().enumerate().all(|(at, gauge)| gauge.left.is_none_or(|left| figures[at] <= before[at] + left))
        };
        self.after = settled(bed, false, floor).await;
    }

    /// Returns the medians of the second and the last quarter. A median is None if its quarter has no sample: a fault
    /// may outlast a quarter of a short run.
    fn medians(&self, at: usize) -> (Option<f64>, Option<f64>) {
        let median = |from: f64, to: f64| {
            let part = |time: &Duration| (from..=to).contains(&(time.as_secs_f64() / self.load.as_secs_f64()));
            let mut all: Vec<f64> =
                self.samples.iter().filter(|(time, _)| part(time)).map(|(_, figures)| figures[at]).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        (median(0.25, 0.5), median(0.75, 10.0))
    }

    /// Returns the quantities that have grown or have not returned to their start.
    pub fn verdicts(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (at, gauge) in GAUGES.iter().enumerate() {
            if let (Some(start), Some(end)) = self.medians(at)
                && end > start * 1.3 + gauge.slack
            {
                wrong.push(format!("{} grew from {start:.0} to {end:.0}", gauge.name));
            }
            if let Some(left) = gauge.left
                && self.after[at] > self.before[at] + left
            {
                wrong.push(format!("{}: {} at the end, {} before", gauge.name, self.after[at], self.before[at]));
            }
            if matches!(at, 3..=6 | 8 | 10) && self.rest[at] > 0.0 {
                wrong.push(format!("{}: {} without load", gauge.name, self.rest[at]));
            }
        }
        wrong
    }

    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<26} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
            "", "before", "2nd quart", "last q.", "most", "no load", "closed"
        );
        for (at, gauge) in GAUGES.iter().enumerate() {
            let told =
                |median: Option<f64>| median.map_or_else(|| "no sample".to_owned(), |median| format!("{median:.0}"));
            let (start, end) = self.medians(at);
            let (start, end) = (told(start), told(end));
            let most = self.samples.iter().map(|(_, figures)| figures[at]).fold(0.0, f64::max);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<26} {:>9.0} {start:>9} {end:>9} {most:>9.0} {:>9.0} {:>9.0}",
                gauge.name, self.before[at], self.rest[at], self.after[at]
            );
        }
        text
    }
}

/// Samples until `so` returns true or the time limit ends. Locks of dead processes need time to expire.
async fn settled(bed: &Bed, connected: bool, so: impl Fn(&Figures) -> bool) -> Figures {
    let began = Instant::now();
    loop {
        let figures = figures(bed, connected).await;
        if so(&figures) || began.elapsed() > BOUND + WATCHDOG {
            return figures;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
