//! The simulated server and the task that drives it.

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

/// A Redis server in memory. Clones share one server.
#[derive(Clone)]
pub struct SimServer {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    core: Mutex<Core>,
    pub(super) start: Instant,
    pub(super) address: String,
    /// Notified after a new event, which may be earlier than the event that the driver waits for.
    wake: Notify,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Returns the current time on the clock of the clients.
    pub(super) fn moment(&self) -> Moment {
        // One second is added, so that a moment shortly before the start can be represented.
        Moment::from_nanos(1_000_000_000) + Instant::now().saturating_duration_since(self.start)
    }
}

/// Makes sure that a task carries out the events. Outside a runtime, the events wait for the next call inside a
/// runtime.
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

/// The task that carries out events. It ends when the queue is empty, so it does not keep the server alive.
struct Driver {
    shared: Arc<Shared>,
    /// The task has already cleared `driving`.
    done: bool,
}

impl Drop for Driver {
    /// If the runtime drops this task, another driver must be able to take over.
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
                // Cleared under the lock of `step`, so that the next event starts a new driver.
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
                        listener.restored();
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
    /// Takes the script's text. A syntax error is reported when the script runs.
    pub fn new(source: &str) -> Self {
        Self { source: source.to_owned(), sha: Bytes::from(lua::sha1hex(source.as_bytes())) }
    }
}

impl SimServer {
    /// Creates an empty server. The seed decides everything that is random.
    ///
    /// If this process created a real client or an owner before its first simulated server, the order within the
    /// client's tables differs between runs: see [`deterministic_tables`](distlock::transport::deterministic_tables).
    pub fn new(seed: u64) -> Self {
        distlock::transport::deterministic_tables();
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let (start, number) = (Instant::now(), SERVERS.fetch_add(1, Ordering::Relaxed));
        // Zero-padded, so that addresses sort in the order of creation.
        Self::at(format!("sim:{number:020}"), seed, start)
    }

    pub(super) fn at(address: String, seed: u64, start: Instant) -> Self {
        let core = Mutex::new(Core::new(seed, start));
        Self { shared: Arc::new(Shared { core, start, address, wake: Notify::new() }) }
    }

    /// Connects a client.
    pub fn link(&self, options: LinkOptions) -> SimLink {
        let line = self.shared.lock().add_line(options);
        SimLink::new(Arc::clone(&self.shared), line)
    }

    /// Connects a client with default options over a default link, on the current runtime. For other options, or for
    /// faults, use [`link`](Self::link) and [`SimLink::client`].
    ///
    /// # Errors
    /// [`Error::Config`](distlock::Error::Config) outside a runtime.
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

    /// Runs `act` on the server at this moment, without latency or faults.
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

    /// Runs a script, directly at the server.
    pub fn eval(&self, source: &str, keys: &[&[u8]], args: &[&[u8]]) -> SimReply {
        self.run(&SimScript::new(source), keys, args)
    }

    /// Runs a prepared script, directly at the server.
    pub fn run(&self, script: &SimScript, keys: &[&[u8]], args: &[&[u8]]) -> SimReply {
        let keys = keys.iter().map(|key| lua::Word::Text(key));
        let args = args.iter().map(|arg| lua::Word::Text(arg));
        self.now(|core| lua::eval(&mut core.store, &script.sha, &script.source, keys, args))
    }

    /// Runs one command, directly at the server. `words` starts with the command's name.
    pub fn command(&self, words: &[&[u8]]) -> SimReply {
        let ends = ends(words);
        let bytes = words.concat();
        self.now(|core| commands::direct(&mut core.store, &Words::new(&bytes, &ends)))
    }

    /// Publishes a message. Returns the number of clients that are subscribed to the channel.
    pub fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        let reply = self.command(&[b"publish", channel, payload]);
        reply.int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    /// Returns the messages published since the last call, each as channel and payload. The first call starts the
    /// recording.
    pub fn overhear(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let heard = self.shared.lock().overheard.replace(Vec::new()).unwrap_or_default();
        heard.into_iter().map(|(channel, payload)| (channel.to_vec(), payload.to_vec())).collect()
    }

    /// Returns all keys, sorted.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.now(|core| core.store.keys().iter().map(|key| key.to_vec()).collect())
    }

    /// Returns the key's lease in ms; -1 without expiry, -2 if there is no such key.
    pub fn pttl(&self, key: &[u8]) -> i64 {
        self.command(&[b"pttl", key]).int().unwrap_or(-2)
    }

    /// Returns all channels with a subscriber, sorted.
    pub fn channels(&self) -> Vec<Vec<u8>> {
        let mut channels: Vec<Vec<u8>> = self.shared.lock().store.audience.keys().map(|name| name.to_vec()).collect();
        channels.sort();
        channels
    }

    /// Returns how many commands of clients the server ran, including subscribes and unsubscribes.
    pub fn commands_run(&self) -> u64 {
        self.shared.lock().commands
    }

    /// Returns how many commands of clients the server ran, without subscribes and unsubscribes.
    pub fn scripts_run(&self) -> u64 {
        self.shared.lock().scripts
    }

    /// Returns the age of the server, on tokio's clock.
    pub fn uptime(&self) -> Duration {
        Instant::now().saturating_duration_since(self.shared.start)
    }

    /// Steps the server's wall clock by `ms`, forward or back. Leases end by the wall clock.
    pub fn step_clock(&self, ms: i64) {
        self.shared.lock().offset_ms += ms;
    }

    pub(super) fn change<R>(&self, act: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let mut core = self.shared.lock();
        let result = act(&mut core, Instant::now());
        drive(&self.shared, core);
        result
    }

    /// Stops the server. Connections break, and clients cannot send until the server starts again.
    pub fn stop(&self) {
        self.change(|core, _| core.stop());
    }

    /// Starts the server, with its data or empty. Clients reconnect and subscribe again.
    pub fn start(&self, keep_data: bool) {
        self.change(|core, now| core.start(keep_data, now));
    }

    /// Stops the server and starts it again at once.
    pub fn restart(&self, keep_data: bool) {
        self.change(|core, now| {
            core.stop();
            core.start(keep_data, now);
        });
    }

    /// Freezes or wakes the server, like SIGSTOP and SIGCONT. Commands that arrive meanwhile run when it wakes.
    pub fn freeze(&self, frozen: bool) {
        self.change(|core, now| core.freeze(frozen, now));
    }
}

impl fmt::Debug for SimServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimServer").finish_non_exhaustive()
    }
}
