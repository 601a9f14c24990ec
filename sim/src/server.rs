//! The simulated server, as tests hold it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use distlock::Client;
use distlock::transport::Moment;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::commands::{self, Words};
use super::core::{Core, ends};
use super::events::{News, Step};
use super::faults::LinkOptions;
use super::link::SimLink;
use super::lua;
use super::reply::SimReply;

/// A Redis server in memory. Clones are the same server.
#[derive(Clone)]
pub struct SimServer {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    core: Mutex<Core>,
    pub(super) start: Instant,
    /// Another one for every server.
    pub(super) address: String,
    /// An event has come in before the one the driver waits for.
    wake: Notify,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Now, on the clock of its clients.
    pub(super) fn moment(&self) -> Moment {
        // A second on top: a moment shortly before the start has to exist.
        Moment::from_nanos(1_000_000_000) + Instant::now().saturating_duration_since(self.start)
    }
}

/// Sees to it that somebody carries out the events. Without a runtime they wait for the next caller who has one.
pub(super) fn drive(shared: &Arc<Shared>, mut core: MutexGuard<'_, Core>) {
    if !core.has_events() {
        return;
    }
    if core.driving {
        shared.wake.notify_one();
    } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        core.driving = true;
        drop(core);
        runtime.spawn(run(Driver { shared: Arc::clone(shared), done: false }));
    }
}

/// The task that carries out events. It ends when there are none, so it keeps nothing alive.
struct Driver {
    shared: Arc<Shared>,
    /// It has given up its place already.
    done: bool,
}

impl Drop for Driver {
    /// When the runtime goes away under it, another driver has to be able to take over.
    fn drop(&mut self) {
        if !self.done {
            self.shared.lock().driving = false;
        }
    }
}

async fn run(mut driver: Driver) {
    let shared = Arc::clone(&driver.shared);
    loop {
        let step = {
            let mut core = shared.lock();
            let step = core.step(Instant::now());
            if matches!(step, Step::Idle) {
                // Under this lock, so that whoever adds an event next starts a new driver.
                core.driving = false;
                driver.done = true;
            }
            step
        };
        match step {
            Step::Idle => break,
            Step::Again => {}
            Step::Wait(at) => {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(at) => {}
                    () = shared.wake.notified() => {}
                }
            }
            Step::Tell(News::Message(listener, channel, payload)) => {
                if let Some(listener) = listener.upgrade() {
                    listener.message(&channel, &payload);
                }
            }
            Step::Tell(News::Broken(listener)) => {
                if let Some(listener) = listener.upgrade() {
                    listener.broken();
                }
            }
            Step::Tell(News::Ended(listener, channel)) => {
                if let Some(listener) = listener.upgrade() {
                    listener.ended(&channel);
                }
            }
            Step::Tell(News::Back(listener, told)) => {
                if let Some(listener) = listener.upgrade() {
                    if told {
                        listener.mended();
                    }
                    listener.missed();
                    listener.reconnected();
                }
            }
        }
    }
}

/// A script's text with its SHA-1.
#[derive(Clone, Debug)]
pub struct SimScript {
    source: String,
    sha: Bytes,
}

impl SimScript {
    /// Takes the text; whether it compiles shows when it is run.
    pub fn new(source: &str) -> Self {
        Self { source: source.to_owned(), sha: Bytes::from(lua::sha1hex(source.as_bytes())) }
    }
}

impl SimServer {
    /// An empty server. The seed decides everything that is left to chance. (Where a real client, or an owner, was made in
    /// this process before the first simulated server, the order within the client's tables differs from run to run; see
    /// [`deterministic_tables`](distlock::transport::deterministic_tables).)
    pub fn new(seed: u64) -> Self {
        distlock::transport::deterministic_tables();
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let (start, number) = (Instant::now(), SERVERS.fetch_add(1, Ordering::Relaxed));
        // In the order of their making.
        Self::at(format!("sim:{number:020}"), seed, start)
    }

    /// A server at this address.
    pub(super) fn at(address: String, seed: u64, start: Instant) -> Self {
        let core = Mutex::new(Core::new(seed, start));
        Self { shared: Arc::new(Shared { core, start, address, wake: Notify::new() }) }
    }

    /// Connects a client.
    pub fn link(&self, options: LinkOptions) -> SimLink {
        let line = self.shared.lock().add_line(options);
        SimLink::new(Arc::clone(&self.shared), line)
    }

    /// Connects a client with default options, over a link with default options, on the current runtime. Whoever wants it
    /// otherwise, or something to go wrong, has a [`link`](Self::link) and its [`client`](SimLink::client).
    ///
    /// *Errors*: [`Error::Config`](distlock::Error::Config) without a runtime.
    pub fn client(&self) -> distlock::Result<Client> {
        self.link(LinkOptions::default()).client(|_| {})
    }

    pub(super) fn address(&self) -> &str {
        &self.shared.address
    }

    pub(super) fn moment(&self) -> Moment {
        self.shared.moment()
    }

    pub(super) fn is_down(&self) -> bool {
        self.shared.lock().down
    }

    /// The store at this moment, for a look or a change from outside: no latency, no faults.
    pub(super) fn now<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        let now = Instant::now();
        let mut core = self.shared.lock();
        core.tick(now);
        let result = act(&mut core);
        core.note();
        core.spread(now);
        drive(&self.shared, core);
        result
    }

    /// Runs a script.
    pub fn eval(&self, source: &str, keys: &[&[u8]], args: &[&[u8]]) -> SimReply {
        self.run(&SimScript::new(source), keys, args)
    }

    /// Runs a script that was prepared before.
    pub fn run(&self, script: &SimScript, keys: &[&[u8]], args: &[&[u8]]) -> SimReply {
        let keys = keys.iter().map(|key| lua::Word::Text(key));
        let args = args.iter().map(|arg| lua::Word::Text(arg));
        self.now(|core| lua::eval(&mut core.store, &script.sha, &script.source, keys, args))
    }

    /// Runs one command, its name first.
    pub fn command(&self, words: &[&[u8]]) -> SimReply {
        let ends = ends(words);
        let bytes = words.concat();
        self.now(|core| commands::direct(&mut core.store, &Words::new(&bytes, &ends)))
    }

    /// Publishes a message; how many clients are subscribed to the channel.
    pub fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        let reply = self.command(&[b"publish", channel, payload]);
        reply.int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    /// What was published since the last call, channels and payloads: for who listens in on the wire. The first call
    /// begins it.
    pub fn overhear(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let heard = self.shared.lock().overheard.replace(Vec::new()).unwrap_or_default();
        heard.into_iter().map(|(channel, payload)| (channel.to_vec(), payload.to_vec())).collect()
    }

    /// Every key there is, sorted.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.now(|core| core.store.keys().iter().map(|key| key.to_vec()).collect())
    }

    /// The key's lease in ms; -1 = without end, -2 = no such key.
    pub fn pttl(&self, key: &[u8]) -> i64 {
        self.command(&[b"pttl", key]).int().unwrap_or(-2)
    }

    /// The channels somebody is subscribed to, sorted.
    pub fn channels(&self) -> Vec<Vec<u8>> {
        let mut channels: Vec<Vec<u8>> = self.shared.lock().store.audience.keys().map(|name| name.to_vec()).collect();
        channels.sort();
        channels
    }

    /// How many commands clients had carried out: scripts, subscriptions and their ends.
    pub fn commands_run(&self) -> u64 {
        self.shared.lock().commands
    }

    /// How many of them were scripts.
    pub fn scripts_run(&self) -> u64 {
        self.shared.lock().scripts
    }

    /// How long there has been this server, in the time of tokio's clock.
    pub fn uptime(&self) -> Duration {
        Instant::now().saturating_duration_since(self.shared.start)
    }

    /// Steps the server's wall clock by so many ms, either way. Leases end at wall clock times.
    pub fn step_clock(&self, ms: i64) {
        self.shared.lock().offset_ms += ms;
    }

    pub(super) fn change<R>(&self, act: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let mut core = self.shared.lock();
        let result = act(&mut core, Instant::now());
        drive(&self.shared, core);
        result
    }

    /// Ends the server. Connections break; commands are not sent until it is started again.
    pub fn stop(&self) {
        self.change(|core, _| core.stop());
    }

    /// Starts it again, with its data or empty. Clients reconnect and subscribe anew.
    pub fn start(&self, keep_data: bool) {
        self.change(|core, now| core.start(keep_data, now));
    }

    /// Ends it and starts it again at once.
    pub fn restart(&self, keep_data: bool) {
        self.change(|core, now| {
            core.stop();
            core.start(keep_data, now);
        });
    }

    /// SIGSTOP and SIGCONT: commands that come in meanwhile are carried out afterwards.
    pub fn freeze(&self, frozen: bool) {
        self.change(|core, now| core.freeze(frozen, now));
    }
}

impl fmt::Debug for SimServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimServer").finish_non_exhaustive()
    }
}
