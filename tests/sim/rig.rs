//! A simulated server, its clients, and the checks at the end of a test.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::mpsc::RecvTimeoutError;

pub use bed::EXCLUSIVE;

use crate::prelude::*;

/// Flavours with several holds by one owner.
pub const REENTRANT: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

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

/// Virtual time that must pass in [`SPINS`] minutes of real time. If less passes, the test body spins.
const BEAT: Duration = Duration::from_secs(10);
const SPINS: u32 = 5;
/// A test body that takes this many beats waits for an event that never happens.
const FOR_EVER: u64 = 10_000_000;

/// Runs this work on its own thread, with a counter that the work increments. Panics if `stuck` returns a reason.
/// `stuck` gets the counter's value, and the minutes since its last change.
pub fn watched<T: Send + 'static>(
    work: impl FnOnce(Arc<AtomicU64>) -> T + Send + 'static,
    stuck: impl Fn(u64, u32) -> Option<String>,
) -> T {
    let (done, ended) = std::sync::mpsc::channel();
    let at = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&at);
    let thread = std::thread::spawn(move || {
        let output = work(count);
        let _ = done.send(());
        output
    });
    let (mut last, mut still) = (0, 0);
    while ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
        let now = at.load(Ordering::Relaxed);
        still = if now == last { still + 1 } else { 0 };
        if let Some(why) = stuck(now, still) {
            panic!("{why}");
        }
        last = now;
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Runs a test body in virtual time, on one thread. Real time is not limited while virtual time advances.
pub fn virtually<T: Send + 'static>(body: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let work = |beats: Arc<AtomicU64>| {
        runtime().block_on(async {
            tokio::spawn(async move {
                loop {
                    sleep(BEAT).await;
                    beats.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _printer = crate::trace::start();
            body().await
        })
    };
    watched(work, |beats, still| {
        let why = if still >= SPINS { "virtual time stands still: something spins" } else { "the test never ends" };
        (still >= SPINS || beats >= FOR_EVER).then(|| why.to_owned())
    })
}

/// Runs a body for each of these cases, each in its own virtual time. The output of a failure ends with its case.
pub fn each<T, F>(cases: impl IntoIterator<Item = T>, body: F)
where
    T: Debug + Send + 'static,
    F: AsyncFnOnce(T) + Clone + Send + 'static,
{
    for case in cases {
        println!("case {case:?}");
        let body = body.clone();
        virtually(async move || body(case).await);
    }
}

/// All pairs of an element of `these` and an element of `those`.
pub fn pairs<A: Clone, B: Clone>(
    these: impl IntoIterator<Item = A>,
    those: impl IntoIterator<Item = B> + Clone,
) -> Vec<(A, B)> {
    let with = |a: A| those.clone().into_iter().map(move |b| (a.clone(), b));
    these.into_iter().flat_map(with).collect()
}

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().expect("a number"))
}

/// True if the environment asks for all cases. Otherwise tests try a selection.
pub fn full() -> bool {
    std::env::var_os("FULL").is_some()
}

/// Only `SEED`, or `SEEDS` seeds from `FROM` on. Without these variables, the first `usual` seeds.
pub fn seeds(usual: u64) -> Range<u64> {
    let from = number("SEED").or_else(|| number("FROM")).unwrap_or(0);
    from..from + if number("SEED").is_some() { 1 } else { number("SEEDS").unwrap_or(usual) }
}

pub fn way(one: Duration) -> LinkOptions {
    LinkOptions { latency_min: one, latency_max: one, ..LinkOptions::default() }
}

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

    /// Describes the client's unfinished work and remaining state. Empty if the client is idle.
    pub fn busy(&self) -> String {
        busy(&self.client, self.link.in_flight())
    }
}

pub fn busy(client: &Client, in_flight: usize) -> String {
    let stats = client.stats();
    if (stats.holds, stats.waiting, stats.names, stats.under_way, in_flight) == (0, 0, 0, 0, 0) {
        return String::new();
    }
    format!("{stats:?}, {in_flight} commands in flight; ")
}

/// Describes everything that is left anywhere. Empty if nothing is left.
pub fn left_over(server: &SimServer, parties: &[&Party]) -> String {
    let mut left: String = parties.iter().map(|party| party.busy()).collect();
    // The counter of a fenced lock's tokens stays on the server (M3).
    for key in server.keys().into_iter().filter(|key| !key.starts_with(b"redisson_lock_token:")) {
        let fields = server.command(&[b"hgetall", &key]);
        left += &format!("key {} {fields:?}, {} ms left; ", String::from_utf8_lossy(&key), server.pttl(&key));
    }
    for channel in server.channels() {
        left += &format!("channel {}; ", String::from_utf8_lossy(&channel));
    }
    left
}

pub async fn settled(server: &SimServer, parties: &[&Party], within: Duration) -> Result<(), String> {
    gone(|| left_over(server, parties), within).await
}

/// Waits until `left` returns an empty string.
pub async fn gone(left: impl Fn() -> String, within: Duration) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let left = left();
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() >= within {
            return Err(format!("left after {within:?}: {left}"));
        }
        // The pause grows with time, because a look costs more than a sleep.
        sleep((start.elapsed() / 16).max(ms(1))).await;
    }
}

pub async fn shut(client: &Client) -> Result<(), String> {
    match timeout(ms(30_000), client.shutdown(ms(5_000))).await {
        Ok(Ok(())) => Ok(()),
        odd => Err(format!("shutdown: {odd:?}")),
    }
}

pub fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

pub async fn no_task_is_left(before: usize, within: Duration) -> Result<(), String> {
    let left = || (tasks() > before).then(|| format!("{} tasks, {before} were there before", tasks()));
    gone(|| left().unwrap_or_default(), within).await
}

/// The owner's text. Unlike `as_str`, this does not tell the crate that other processes may know the owner.
pub fn text(owner: &Owner) -> String {
    format!("{owner:?}").trim_start_matches("Owner(").trim_end_matches(')').to_owned()
}

/// The text of the guard's owner. `Guard::owner` would prevent a hand-over inside the process.
pub fn holder(guard: &Guard) -> String {
    let shown = format!("{guard:?}");
    let from = shown.find("Owner(").unwrap() + "Owner(".len();
    shown[from..].split(')').next().unwrap().to_owned()
}

/// The owner as another process would parse it from the lock. The crate does not notice that the owner is shared.
pub fn elsewhere(owner: &Owner) -> Owner {
    text(owner).parse().unwrap()
}

pub async fn take(lock: &dyn DistLock, owner: &Owner) -> Guard {
    lock.acquire(Acquire::new().owner(owner)).await.unwrap().unwrap()
}

/// Acquires as this owner, with a lease of `lease` ms.
pub async fn enter(lock: &dyn DistLock, owner: &Owner, lease: u64) -> Guard {
    lock.acquire(Acquire::new().owner(owner).lease(ms(lease))).await.unwrap().unwrap()
}

/// Asserts that a wait for this busy lock ends as busy, not early and not late.
pub async fn ends_busy(lock: &dyn DistLock, wait: Duration, who: &str) {
    let began = Instant::now();
    let outcome = lock.lock_for(wait).await;
    let took = began.elapsed();
    assert!(matches!(outcome, Ok(None)), "{who}, after {wait:?}: {outcome:?}");
    assert!(took >= wait && took <= wait + ms(20), "{who}: {took:?} of {wait:?}");
}

/// Waits for the write half. The task returns whether it acquired.
pub fn writer(client: &Client, name: &str, wait: Duration) -> JoinHandle<bool> {
    let lock = client.rw(name).write();
    tokio::spawn(async move { lock.lock_for(wait).await.unwrap().is_some() })
}

/// Waits for the lock and unlocks it. The task returns the time of the acquire.
pub fn waiter(lock: Arc<dyn DistLock>) -> JoinHandle<Instant> {
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        let had = Instant::now();
        guard.unlock().await.unwrap();
        had
    })
}

/// Acquires the lock `rounds` times, each time for `hold`. Returns the longest wait.
pub fn turns(lock: Arc<dyn DistLock>, rounds: u32, hold: Duration) -> JoinHandle<Duration> {
    tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        for _ in 0..rounds {
            let began = Instant::now();
            let guard = lock.lock().await.unwrap();
            longest = longest.max(began.elapsed());
            sleep(hold).await;
            guard.unlock().await.unwrap();
        }
        longest
    })
}

/// The results of these tasks, which must end within a minute of virtual time.
pub async fn all<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let tasks = futures::future::join_all(tasks);
    timeout(ms(60_000), tasks).await.expect("deadlock or livelock").into_iter().map(Result::unwrap).collect()
}

/// Runs a command.
pub fn does(server: &SimServer, command: &str) -> SimReply {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    server.command(&words)
}

fn word(reply: &SimReply) -> Option<String> {
    match reply {
        SimReply::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        SimReply::Nil => None,
        odd => panic!("no text: {odd:?}"),
    }
}

pub fn words(reply: &SimReply) -> Vec<String> {
    match reply {
        SimReply::List(items) => items.iter().map(|item| word(item).unwrap()).collect(),
        odd => panic!("no list: {odd:?}"),
    }
}

pub fn now(server: &SimServer) -> i64 {
    let time: Vec<i64> = words(&does(server, "time")).iter().map(|part| part.parse().unwrap()).collect();
    time[0] * 1_000 + time[1] / 1_000
}

/// The hash field that counts an owner's holds.
pub fn field(flavour: Flavour, owner: &str) -> String {
    if flavour == Flavour::Write { format!("{owner}:write") } else { owner.to_owned() }
}

pub fn count(server: &SimServer, flavour: Flavour, name: &str, owner: &str) -> u64 {
    if flavour == Flavour::Plain {
        let value = word(&does(server, &format!("get {name}")));
        return u64::from(value.is_some_and(|value| value.split('/').next() == Some(owner)));
    }
    let count = word(&does(server, &format!("hget {name} {}", field(flavour, owner))));
    count.map_or(0, |count| count.parse().unwrap())
}

/// Remaining time of an owner's hold at the server, in ms: for a reader, at most that of its covers.
pub fn lasts(server: &SimServer, flavour: Flavour, name: &str, owner: &str) -> i64 {
    let left = server.pttl(name.as_bytes());
    if flavour != Flavour::Read {
        return left;
    }
    let cover = |n| server.pttl(format!("{{{name}}}:{owner}:rwlock_timeout:{n}").as_bytes());
    (1..=count(server, flavour, name, owner)).map(cover).max().unwrap_or(-2).min(left)
}
