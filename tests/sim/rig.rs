//! A simulated server, its clients, and what must be true when all is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use distlock::{Client, DistLock, Flavour, Options};
use distlock_sim::{LinkOptions, SimLink, SimReply, SimServer};
use tokio::time::{Instant, sleep};

/// Milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The lock of this name and flavour.
pub fn lock(client: &Client, flavour: Flavour, name: &str) -> Box<dyn DistLock> {
    match flavour {
        Flavour::Reentrant => Box::new(client.reentrant(name)),
        Flavour::Fair => Box::new(client.fair(name)),
        Flavour::Read => Box::new(client.rw(name).read()),
        Flavour::Write => Box::new(client.rw(name).write()),
        Flavour::Fenced => Box::new(client.fenced(name)),
        Flavour::Spin => Box::new(client.spin(name)),
        Flavour::Plain => Box::new(client.plain(name)),
        other => panic!("no simulated locks of flavour {other}"),
    }
}

/// A test body that gets no further than this in virtual time for [`SPINS`] minutes spins.
const BEAT: Duration = Duration::from_secs(10);
const SPINS: u32 = 5;
/// No test body lasts for so many beats: one that does waits for something that never happens.
const FOR_EVER: u64 = 10_000_000;

/// Runs a test body in virtual time, on one thread. It may take any real time for as long as virtual time goes on.
pub fn virtually<T: Send + 'static>(body: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = std::sync::mpsc::channel();
    let beats = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&beats);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let output = runtime.block_on(async {
            tokio::spawn(async move {
                loop {
                    sleep(BEAT).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _printer = crate::trace::start();
            body().await
        });
        drop(runtime);
        let _ = done.send(());
        output
    });
    let (mut last, mut still) = (0, 0);
    while ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
        let now = beats.load(Ordering::Relaxed);
        still = if now == last { still + 1 } else { 0 };
        assert!(still < SPINS, "virtual time stands still: something spins");
        assert!(now < FOR_EVER, "the test waits for something that never happens");
        last = now;
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// One client and its connections.
#[derive(Clone)]
pub struct Party {
    pub link: SimLink,
    pub client: Client,
}

impl Party {
    pub fn new(server: &SimServer, options: LinkOptions, set: impl FnOnce(&mut Options)) -> Self {
        let link = server.link(options);
        let client = link.client(set).unwrap();
        Self { link, client }
    }

    /// What this client still has to do with the server, in words; empty when it is idle.
    pub fn busy(&self) -> String {
        let stats = self.client.stats();
        let in_flight = self.link.in_flight();
        if (stats.holds, stats.waiting, stats.names, stats.under_way, in_flight) == (0, 0, 0, 0, 0) {
            return String::new();
        }
        format!("{stats:?}, {in_flight} commands in flight; ")
    }
}

/// Everything that is left anywhere, in words; empty when nothing is.
pub fn left_over(server: &SimServer, parties: &[&Party]) -> String {
    let mut left: String = parties.iter().map(|party| party.busy()).collect();
    // What counts a fenced lock's sections stays (M3).
    for key in server.keys().into_iter().filter(|key| !key.starts_with(b"redisson_lock_token:")) {
        let fields = server.command(&[b"hgetall", &key]);
        left += &format!("key {} {fields:?}, {} ms left; ", String::from_utf8_lossy(&key), server.pttl(&key));
    }
    for channel in server.channels() {
        left += &format!("channel {}; ", String::from_utf8_lossy(&channel));
    }
    left
}

/// Waits until nothing is left; how long that took.
pub async fn settled(server: &SimServer, parties: &[&Party], within: Duration) -> Result<Duration, String> {
    let start = Instant::now();
    loop {
        let left = left_over(server, parties);
        if left.is_empty() {
            return Ok(start.elapsed());
        }
        if start.elapsed() >= within {
            return Err(format!("left after {within:?}: {left}"));
        }
        // Coarser as time goes by: looking costs more than waiting.
        sleep((start.elapsed() / 16).max(ms(1))).await;
    }
}

/// How many tasks of this runtime are alive.
pub fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The field of an owner's holds.
pub fn field(flavour: Flavour, owner: &str) -> String {
    if flavour == Flavour::Write { format!("{owner}:write") } else { owner.to_owned() }
}

/// An owner's hold count as the server has it.
pub fn count(server: &SimServer, flavour: Flavour, name: &str, owner: &str) -> u64 {
    if flavour == Flavour::Plain {
        return u64::from(value(server, name).is_some_and(|value| value.split('/').next() == Some(owner)));
    }
    match server.command(&[b"hget", name.as_bytes(), field(flavour, owner).as_bytes()]) {
        SimReply::Text(text) => std::str::from_utf8(&text).unwrap().parse().unwrap(),
        SimReply::Nil => 0,
        odd => panic!("{odd:?}"),
    }
}

/// What stands in Redis for a plain lock.
pub fn value(server: &SimServer, name: &str) -> Option<String> {
    match server.command(&[b"get", name.as_bytes()]) {
        SimReply::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
        SimReply::Nil => None,
        odd => panic!("{odd:?}"),
    }
}

/// For how long the server has an owner's hold, in ms. A reader's is covered by keys of its own.
pub fn lasts(server: &SimServer, flavour: Flavour, name: &str, owner: &str) -> i64 {
    let left = server.pttl(name.as_bytes());
    if flavour != Flavour::Read {
        return left;
    }
    let cover = |n| server.pttl(format!("{{{name}}}:{owner}:rwlock_timeout:{n}").as_bytes());
    (1..=count(server, flavour, name, owner)).map(cover).max().unwrap_or(-2).min(left)
}
