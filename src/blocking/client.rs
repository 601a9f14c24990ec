//! The client, and the thread that runs its tasks.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::executor;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::{Barrier, Latch, Lock, Permits, RwLock, Semaphore};
use crate::error::{Error, Result};
use crate::flavour::Flavour;
use crate::lock::DistLock;
use crate::owner::Owner;
use crate::runtime::home::Home;

/// Name of the runtime's threads, as the operating system lists them.
const THREAD: &str = "distlock";

/// A client whose calls block the calling thread. Cheap to clone.
///
/// # Drop
///
/// Dropping the last client, lock, guard or other object of a client ends its thread and its connections. The drop
/// waits until the releases in the background have ended: at most one
/// [`command_timeout`](crate::Options::command_timeout) (3 s). So a program may end right after it has dropped its
/// guards. On a thread of a tokio runtime, the drop does not wait.
///
/// Statics are never dropped, and `std::process::exit` drops nothing. Call [`shutdown`](Self::shutdown) before the
/// process exits. Otherwise the locks end with their leases.
///
/// # Fork
///
/// A process made by `fork` has no copy of the thread, so its calls never end. Connect after the fork.
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
    /// Dropped after `inner`. `None` for a client by [`over`](Self::over), whose tasks run on the user's runtime.
    _thread: Option<Arc<RuntimeThread>>,
}

impl Client {
    /// Connects with the default options, and starts the client's thread.
    ///
    /// # Errors
    ///
    /// The errors of [`start`](Self::start).
    pub fn connect(url: &str) -> Result<Self> {
        Self::start(crate::Client::builder(url).connect())
    }

    /// Starts the client's thread, and connects there by a function of the async API.
    ///
    /// # Errors
    ///
    /// - The errors of [`crate::Client::connect`].
    /// - [`Error::Config`]: the operating system starts no thread, or the call is made [inside a
    ///   runtime](crate::blocking#not-inside-a-runtime).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn example() -> distlock::Result<()> {
    /// use distlock::blocking::Client;
    ///
    /// let options = distlock::Client::builder("redis://localhost:6379").watchdog(Duration::from_secs(10));
    /// let client = Client::start(options.connect())?;
    /// client.shutdown(Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(connecting: impl Future<Output = Result<crate::Client>> + Send + 'static) -> Result<Self> {
        check_thread()?;
        let (open, dropped) = oneshot::channel();
        let (send, connected) = mpsc::channel();
        let work = move || run(connecting, &send, dropped);
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(work);
        let thread = RuntimeThread { open: Some(open), thread: Some(thread.map_err(|error| no_thread(&error))?) };
        // The thread ends without a message only if connecting panics.
        let inner = connected.recv().unwrap_or(Err(Error::RuntimeGone))?;
        Ok(Self { inner, _thread: Some(Arc::new(thread)) })
    }

    /// Returns a blocking client over an async client. Both share connections. Its calls run on the async client's
    /// runtime, which must be running.
    ///
    /// No thread is started. Dropping this client waits for nothing.
    ///
    /// # Examples
    ///
    /// An async service whose computations run on threads of their own:
    ///
    /// ```no_run
    /// # use distlock::blocking;
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let blocking = blocking::Client::over(client.clone());
    /// let worker = std::thread::spawn(move || blocking.reentrant("orders:42").lock()?.unlock());
    /// # drop(worker);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn over(client: crate::Client) -> Self {
        Self { inner: client, _thread: None }
    }

    /// Returns the async client: for its options and counts, and for calls by [`block_on`](Self::block_on).
    ///
    /// A clone of it, and locks and guards that it creates, do not keep the thread running. When the last blocking
    /// handle is dropped, their locks are released and their calls return [`Error::Closed`] or [`Error::RuntimeGone`].
    #[must_use]
    pub const fn as_async(&self) -> &crate::Client {
        &self.inner
    }

    /// Waits for a call of the async API.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: this thread runs a tokio runtime, or is inside `futures::executor`. The call is dropped.
    /// - The errors of the call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(client: distlock::blocking::Client) -> distlock::Result<()> {
    /// let fair = client.as_async().fair("orders:42");
    /// println!("{} wait", client.block_on(fair.queue_len())?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn block_on<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        check_thread()?;
        executor::block_on(call)
    }

    /// Returns a new owner, for re-entry by [`Acquire::owner`](crate::Acquire::owner). A thread is no owner: without a
    /// given owner, each acquire has a fresh one.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.inner.owner()
    }

    /// Pings every server. See [`crate::Client::ping`].
    ///
    /// # Errors
    ///
    /// As for [`crate::Client::ping`].
    pub fn ping(&self) -> Result<Duration> {
        self.block_on(self.inner.ping())
    }

    /// Ends all waiting calls with [`Error::Closed`], waits for guards, and releases the rest. See
    /// [`crate::Client::shutdown`].
    ///
    /// # Errors
    ///
    /// As for [`crate::Client::shutdown`].
    pub fn shutdown(&self, within: Duration) -> Result<()> {
        self.block_on(self.inner.shutdown(within))
    }

    /// The runtime of the client's tasks.
    pub(super) fn home(&self) -> &Home {
        self.inner.engine().home()
    }
}

/// # Locks and other objects
impl Client {
    /// Returns a blocking lock over an async lock: a multi lock, a RedLock, a striped lock, or a lock with options.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # fn example(client: distlock::blocking::Client) -> distlock::Result<()> {
    /// let both = client.wrap(Arc::new(client.as_async().multi(["from", "to"])));
    /// let guard = both.lock()?;
    /// # guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wrap(&self, lock: Arc<dyn DistLock>) -> Lock {
        Lock::new(lock, self)
    }

    /// Returns a lock whose flavour is chosen at run time.
    #[must_use]
    pub fn lock(&self, flavour: Flavour, name: &str) -> Lock {
        self.wrap(self.inner.lock(flavour, name))
    }

    /// Returns a [reentrant lock](mod@crate::reentrant).
    #[must_use]
    pub fn reentrant(&self, name: &str) -> Lock {
        self.lock(Flavour::Reentrant, name)
    }

    /// Returns a [fair lock](mod@crate::fair).
    #[must_use]
    pub fn fair(&self, name: &str) -> Lock {
        self.lock(Flavour::Fair, name)
    }

    /// Returns a [read-write lock](mod@crate::rwlock).
    #[must_use]
    pub fn rw(&self, name: &str) -> RwLock {
        RwLock::new(self.inner.rw(name), self)
    }

    /// Returns a [fenced lock](mod@crate::fenced).
    #[must_use]
    pub fn fenced(&self, name: &str) -> Lock {
        self.lock(Flavour::Fenced, name)
    }

    /// Returns a [spin lock](mod@crate::spin).
    #[must_use]
    pub fn spin(&self, name: &str) -> Lock {
        self.lock(Flavour::Spin, name)
    }

    /// Returns a [plain lock](mod@crate::plain).
    #[must_use]
    pub fn plain(&self, name: &str) -> Lock {
        self.lock(Flavour::Plain, name)
    }

    /// Returns the [permits](mod@crate::permits) of this name.
    #[must_use]
    pub fn permits(&self, name: &str) -> Permits {
        Permits::new(self.inner.permits(name), self)
    }

    /// Returns the [semaphore](mod@crate::semaphore) of this name.
    #[must_use]
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name), self)
    }

    /// Returns the [latch](mod@crate::latch) of this name.
    #[must_use]
    pub fn latch(&self, name: &str) -> Latch {
        Latch::new(self.inner.latch(name), self)
    }

    /// Returns the [barrier](mod@crate::barrier) of this name for `n` parties.
    #[must_use]
    pub fn barrier(&self, name: &str, n: u32) -> Barrier {
        Barrier::new(self.inner.barrier(name, n), self)
    }
}

/// The thread that runs a client's tasks. The drop ends the thread.
#[derive(Debug)]
struct RuntimeThread {
    /// Dropping the sender tells the thread to end.
    open: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        drop(self.open.take());
        // A runtime must not wait. It may be the client's own: then the thread would wait for itself.
        if let Some(thread) = self.thread.take().filter(|_| Handle::try_current().is_err()) {
            // An error means that the thread has panicked, which the panic hook has reported.
            let _ = thread.join();
        }
    }
}

/// Connects, and runs the client's tasks until the last handle is dropped and the clean-up has ended.
fn run(
    connecting: impl Future<Output = Result<crate::Client>>,
    connected: &mpsc::Sender<Result<crate::Client>>,
    dropped: oneshot::Receiver<()>,
) {
    // `send` cannot fail, because `start` waits for the message.
    let runtime = match Builder::new_current_thread().thread_name(THREAD).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(connected.send(Err(no_thread(&error)))),
    };
    runtime.block_on(async {
        let client = match connecting.await {
            Ok(client) => client,
            Err(error) => return drop(connected.send(Err(error))),
        };
        drop(connected.send(Ok(client.clone())));
        // Completes with an error when the sender is dropped.
        let _ = dropped.await;
        // No blocking guard is left. An error means that the time was too short, or that the user shut the client down.
        let _ = client.shutdown(Duration::ZERO).await;
    });
    // A callback of `on_lost` may still run. It ends by itself.
    runtime.shutdown_background();
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::config(format!("the thread of a blocking client cannot be started: {error}"))
}

/// Refuses a thread that runs async tasks.
fn check_thread() -> Result<()> {
    if Handle::try_current().is_ok() || executor::enter().is_err() {
        return Err(Error::config(
            "a blocking call on a thread of an async runtime would stop other tasks: use the async API there, or make \
             the call on a thread of its own (std::thread::spawn, not spawn_blocking)",
        ));
    }
    Ok(())
}
