//! Leader election: of n processes, one leads. When the leader resigns, dies or is cut off, another process follows.
//!
//! 1. Each process has a [`Candidate`] of the same name. [`Candidate::next`] waits for the
//!    [fenced lock](mod@crate::fenced) of this name. The holder is the leader for one [`Term`].
//! 2. A term has an *epoch*, the lock's fencing token. Epochs grow from term to term.
//! 3. The new leader announces itself with its *payload*, such as its address. An [`Observer`] reads the current
//!    [`Leader`] and waits for changes. An observer need not be a candidate.
//! 4. The watchdog renews the term while its `Term` lives. After a loss, call `next` again.
//!
//! # Two leaders
//!
//! A leader that pauses for longer than its lease may act after the next leader has begun. It learns of its end by its
//! local clock ([`Term::is_leader`], [`Term::lost`], [`Term::run`]), before the lease at the server ends. A write that
//! was sent just before the end may still arrive late. So send the epoch with each write, and let the storage refuse a
//! write with a smaller epoch than the largest that it has seen ([the check](mod@crate::fenced#the-check)).
//!
//! # When does a term end?
//!
//! | event | what the leader notices | the next leader begins |
//! |---|---|---|
//! | [`Term::resign`], or the `Term` is dropped | | at once |
//! | the process dies | | when the lease ends: after 30 s at most (the [watchdog](crate::Builder::watchdog)'s lease) |
//! | the process is frozen or cut off | `lost` completes, by its own clock | when the lease ends |
//! | [`force_unlock`](crate::DistLock::force_unlock) of the lock | `lost` completes at the next renewal | at once |
//! | [`Client::shutdown`] | after `within`, `lost` completes with [`Error::Closed`] | when the term ends |
//!
//! # How stale is an observer?
//!
//! A message reports each leader that announces itself, and each change of a payload. No message reports an end without
//! a new leader, or a holder of the fenced lock that is no candidate, such as a Java process. [`Observer::changed`]
//! finds these changes, and changes whose message was lost, at its next query. It queries every
//! [`poll_cap`](crate::Options::poll_cap) (5 s), or every third of the watchdog's lease if that is shorter. A dead
//! leader is reported until its lease ends.
//!
//! Epoch and payload are written together and read together. So an observer never gets the payload of one leader with
//! the epoch of another.
//!
//! # Wire format
//!
//! The lock is Redisson's `RFencedLock`, so a Java process with a fenced lock of the same name takes part. An
//! announcement is the field `leader:holds` in the lock's hash: `<epoch>:<number of the write>:<payload>`. The field
//! ends with the hash. Redisson does not read it. The message is `0` on `distlock_leader:{<name>}`.

use std::sync::Arc;

use bytes::Bytes;

use crate::acquire::Acquire;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::fenced::FencedLock;
use crate::names::LockName;

mod observer;
mod term;

pub use observer::{Leader, Observer};
pub use term::Term;

/// The longest payload, in bytes. It is short, because each query of an observer transfers the payload.
const LONGEST: usize = 4096;

/// # Leader election
impl Client {
    /// Returns a candidate of the election of this name.
    ///
    /// # Cost
    ///
    /// None. An impossible name is refused by [`Candidate::next`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::Error;
    /// # async fn serve(_: u64) {}
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let candidate = client.lead("reports").payload("http://10.0.0.5:8080");
    /// loop {
    ///     let term = match candidate.next().await {
    ///         Ok(term) => term, // this process leads
    ///         Err(Error::Closed) => return Ok(()), // shutdown
    ///         Err(error) if error.is_retryable() => continue, // after about 20 s of retries
    ///         Err(error) => return Err(error),
    ///     };
    ///     match term.run(serve(term.epoch())).await {
    ///         Ok(()) => term.resign().await?,
    ///         Err(lost) => eprintln!("{lost}"), // `serve` was stopped
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn lead(&self, name: &str) -> Candidate {
        let leader = LockName::of_leader(&self.options().name_prefix, name);
        Candidate { lock: self.fenced(name), name: leader, payload: Bytes::new() }
    }

    /// Returns an observer of the election of this name.
    ///
    /// # Cost
    ///
    /// None. An impossible name is refused by the first call that sends a command.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let mut observer = client.observe("reports");
    /// loop {
    ///     match observer.changed().await? {
    ///         Some(leader) => println!("epoch {}: {:?}", leader.epoch, leader.text()),
    ///         None => println!("nobody leads"),
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn observe(&self, name: &str) -> Observer {
        Observer::new(self, LockName::of_leader(&self.options().name_prefix, name))
    }
}

/// A process that wants to lead. The [module](self) describes elections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Candidate {
    lock: FencedLock,
    /// The lock's name, with the observers' channel.
    name: Arc<LockName>,
    payload: Bytes,
}

impl Candidate {
    /// Sets the payload of each term of this candidate, such as the address of this process. At most 4096 bytes.
    /// Defaults to none.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Bytes::from(payload.into());
        self
    }

    /// Returns the name of the election, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Waits until this candidate leads, and returns its term. Call it again after the term has ended.
    ///
    /// # Cost
    ///
    /// An acquire of the fenced lock: one command if nobody leads. Then one command, which announces the leader.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point; nothing is left behind. A term that had begun is resigned in the background.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: the payload is too long.
    /// - The errors of [`DistLock::lock`](crate::DistLock::lock), also if the announcement fails. After an error this
    ///   candidate does not lead.
    pub async fn next(&self) -> Result<Term> {
        check_length(&self.payload)?;
        loop {
            // An inner lock ignores the owner of an `Owner::scope`. So each term has an owner of its own.
            let how = Acquire { is_inner: true, ..Acquire::new() };
            let guard = self.lock.acquire(how).await?.ok_or(Error::Closed)?;
            let term = Term::begin(self.lock.client(), &self.name, guard)?;
            match term.announce(self.payload.clone()).await {
                // The term ended before it was announced.
                Err(Error::Lost { .. }) => {}
                announced => {
                    announced?;
                    tracing::info!(lock.name = self.name(), epoch = term.epoch(), "this client leads");
                    return Ok(term);
                }
            }
        }
    }

    /// Returns an observer of this election.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer::new(self.lock.client(), Arc::clone(&self.name))
    }
}

fn check_length(payload: &[u8]) -> Result<()> {
    if payload.len() > LONGEST {
        let length = payload.len();
        return Err(Error::config(format!(
            "a leader's payload has {length} bytes; at most {LONGEST} are allowed: use an address, or a key of the data"
        )));
    }
    Ok(())
}
