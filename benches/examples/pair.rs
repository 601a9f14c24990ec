//! Counts what one acquire and release cost this process, in figures that load on the machine does not change:
//! allocations, and instructions under `valgrind --tool=callgrind`. `docs/performance.md` shows the results.
//!
//! `pair WHAT TASKS PAIRS [URL]`, where WHAT is one of:
//!
//! - `distlock`, with the server at URL;
//! - `raw`: the same two commands through the same client library, with the server at URL;
//! - `own`: distlock over a transport that answers at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use distlock::transport::{Call, Fault, Listener, Moment, Reply, Transport, World};
use distlock::{Client, Options};
use fred::clients::Client as Fred;
use fred::interfaces::{ClientLike as _, LuaInterface as _};
use fred::types::config::Config;
use fred::types::{ClusterHash, CustomCommand, RespVersion, Value};
use futures::future::BoxFuture;

const ACQUIRE: &str =
    concat!(include_str!("../../lua/common/holds.lua"), include_str!("../../lua/reentrant/acquire.lua"));
const RELEASE: &str =
    concat!(include_str!("../../lua/common/holds.lua"), include_str!("../../lua/reentrant/release.lua"));

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        FREED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers every call at once, like a server on which every lock is free.
#[derive(Debug)]
struct Free;

#[derive(Debug)]
struct Machine(Instant);

impl World for Machine {
    fn now(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn random(&self) -> u64 {
        7
    }
}

impl Transport for Free {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let reply = if call.script.name.contains("release") { Reply::Int(0) } else { Reply::Nil };
        Box::pin(std::future::ready(Ok(reply)))
    }

    fn subscribe(&self, _: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unsubscribe(&self, _: Bytes) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn listen(&self, _: Weak<dyn Listener>) {}

    fn address(&self) -> &str {
        "nowhere"
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine(Instant::now()))
    }

    fn close(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

async fn pairs_of_distlock(client: Client, task: usize, pairs: usize) {
    let lock = client.reentrant(&format!("pair:{task}"));
    for _ in 0..pairs {
        let guard = lock.lock().await.expect("the lock is free");
        guard.unlock().await.expect("it is held");
    }
}

async fn pairs_of_raw(client: Fred, scripts: [Bytes; 2], task: usize, pairs: usize) {
    let (key, channel) =
        (Bytes::from(format!("raw:{task}")), Bytes::from(format!("redisson_lock__channel:{{raw:{task}}}")));
    for pair in 0..pairs {
        let owner = Bytes::from(format!("00000000-0000-8000-8000-000000000000:{pair}"));
        let command = || CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let begin = |script: &Bytes| {
            [
                Value::Bytes(script.clone()),
                1.into(),
                Value::Bytes(key.clone()),
                Value::Bytes(owner.clone()),
                30_000.into(),
            ]
        };
        let reply: Value = client.custom(command(), begin(&scripts[0]).to_vec()).await.expect("an answer");
        assert!(reply.is_null());
        let mut words = begin(&scripts[1]).to_vec();
        words.extend([Value::Bytes(Bytes::from_static(b"PUBLISH")), Value::Bytes(channel.clone())]);
        let _: Value = client.custom(command(), words).await.expect("an answer");
    }
}

async fn all<F: Future<Output = ()> + Send + 'static>(tasks: usize, of: impl Fn(usize) -> F) {
    let tasks: Vec<_> = (0..tasks).map(|task| tokio::spawn(of(task))).collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
}

struct Subject {
    what: String,
    tasks: usize,
    distlock: Option<Client>,
    raw: Option<(Fred, [Bytes; 2])>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Subject {
    async fn connect(what: &str, tasks: usize, url: &str) -> Self {
        let (mut distlock, mut raw) = (None, None);
        match what {
            "own" => distlock = Some(Client::over_transport(Arc::new(Free), Options::default()).expect("a client")),
            "distlock" | "direct" => {
                let options = Client::builder(url).configure(|options| options.use_fred = what != "direct");
                let options = options.configure(|options| options.batching = std::env::var_os("ALONE").is_none());
                distlock = Some(options.connect().await.expect("a server"));
            }
            _ => {
                let mut config = Config::from_url_centralized(url).expect("a url");
                config.version = RespVersion::RESP3;
                let client = Fred::new(config, None, None, None);
                drop(client.connect());
                client.wait_for_connect().await.expect("a server");
                let mut scripts = Vec::new();
                for text in [ACQUIRE, RELEASE] {
                    let sha: String = client.script_load(text).await.expect("a script");
                    scripts.push(Bytes::from(sha));
                }
                raw = Some((client, scripts.try_into().expect("two")));
            }
        }
        Self { what: what.to_owned(), tasks, distlock, raw }
    }

    async fn run(&self, pairs: usize) {
        let each = pairs / self.tasks;
        if let Some(client) = &self.distlock {
            all(self.tasks, |task| pairs_of_distlock(client.clone(), task, each)).await;
        }
        if let Some((client, scripts)) = &self.raw {
            all(self.tasks, |task| pairs_of_raw(client.clone(), scripts.clone(), task, each)).await;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse().ok()).expect("pair WHAT TASKS PAIRS [URL]");
    let (tasks, pairs) = (number(1), number(2));
    let heap = || BYTES.load(Ordering::Relaxed) - FREED.load(Ordering::Relaxed);
    let before = heap();
    let subject = Subject::connect(&args[0], tasks, args.get(3).map_or("", String::as_str)).await;
    let connected = heap() - before;
    subject.run(tasks * 4).await;
    let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed), Instant::now());
    subject.run(pairs).await;
    let per = |count: u64| count as f64 / pairs as f64;
    println!(
        "{subject:?}, {tasks} tasks: {:.1} allocations and {:.0} bytes a pair, {:.1} us; heap at connect {connected}",
        per(ALLOCATIONS.load(Ordering::Relaxed) - before.0),
        per(BYTES.load(Ordering::Relaxed) - before.1),
        before.2.elapsed().as_secs_f64() * 1e6 / pairs as f64,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A higher number is a regression of the fast path. A release build without `metrics` makes 12.3 allocations a
    /// pair. This must be the only test here: the counter is global.
    #[tokio::test]
    async fn pair_of_acquire_and_release_makes_fewer_than_sixteen_allocations() {
        const PAIRS: u64 = 5_000;
        let subject = Subject::connect("own", 1, "").await;
        subject.run(100).await;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        subject.run(PAIRS as usize).await;
        let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!(made < 16 * PAIRS, "{:.2} allocations a pair", made as f64 / PAIRS as f64);
    }
}
