//! How a request makes its attempts: which hold to acquire, admission, and the time limit.

use std::sync::Arc;

use bytes::Bytes;

use super::{Attempt, Attempted, Failed, Manner, Tried};
use crate::engine::acquire::Request;
use crate::engine::acquire::admission::Admitted;
use crate::engine::hold::{Hold, Target};
use crate::engine::protocol::HoldId;
use crate::engine::wait::GRACE;
use crate::runtime::reaper::Finished;

impl Request {
    pub(in crate::engine::acquire) fn target(&self) -> Arc<Target> {
        let hold = Hold::new(Arc::clone(&self.protocol), self.owner.clone());
        if self.fresh {
            let Some(_) = self.protocol.queue() else { return Target::fresh(&self.engine, hold) };
            let mut nonce = format!("{:016x}", self.engine.topology.world().random()).into_bytes();
            if let HoldId::Listed(id) = self.engine.hold_id(&self.owner, self.number) {
                nonce.extend([b"=", &id[..]].concat());
            }
            return Target::fresh_by(&self.engine, hold, self.number, Bytes::from(nonce));
        }
        self.target_of(hold, self.number)
    }

    /// A target in the table of holds ([`Target::reserve`]), for the hold with this number.
    pub(in crate::engine::acquire) fn target_of(&self, hold: Arc<Hold>, number: u64) -> Arc<Target> {
        // Other acquires may wait as this owner, and the server must count each hold. So the nonce begins with `!`: the
        // waiter then confirms a grant by a command (`lua/fair/queue.lua`).
        let nonce = match self.engine.hold_id(&self.owner, number) {
            HoldId::Listed(id) => Bytes::from([b"!", &id[..]].concat()),
            _ => Bytes::new(),
        };
        Target::reserve(&self.engine, hold, number, nonce)
    }

    /// Waits until a first attempt may be made (`acquire/admission.rs`). If the server is silent, returns None after
    /// one command timeout: the attempt is made without admission, and fails. If the server is only slow, the attempt
    /// keeps its place among the name's attempts.
    pub(in crate::engine::acquire) async fn admitted(&self) -> Result<Option<Admitted>, Failed> {
        let (engine, name) = (&self.engine, self.protocol.name());
        let mut is_first = true;
        let within = || {
            let goes_on = std::mem::take(&mut is_first)
                || !self.deadline.is_over()
                    && engine.check_open().is_ok()
                    && !engine.topology.is_silent(name, engine.now());
            goes_on.then(|| self.deadline.at_most(engine.options.command_timeout))
        };
        let admitted = engine.attempts.admit(name, within).await;
        if admitted.is_none() && self.deadline.is_over() {
            return Err(Box::pin(self.cut_off()).await);
        }
        Ok(admitted)
    }

    /// Makes one attempt, which is completed even if the caller is dropped.
    pub(in crate::engine::acquire) fn attempt(
        &self,
        target: &Arc<Target>,
        doubted: bool,
        manner: Manner,
        admitted: Option<Admitted>,
    ) -> Finished<Attempted> {
        let attempt = Attempt {
            target: Arc::clone(target),
            lease: self.lease,
            delay: self.delay,
            inbox: self.inbox.clone(),
            not_reentrant: self.not_reentrant,
            fenced: self.protocol.nature().fenced,
            // A fresh owner has no hold from another acquire. A changed number means that this acquire had an earlier
            // hold.
            first: self.holds_nothing && target.number == self.number,
            fresh: self.fresh,
            used_again: self.fresh && self.number > 0,
            doubted,
            _admitted: admitted,
            manner: Manner { looks: manner.looks || doubted, ..manner },
        };
        Finished::at_home(&self.engine.reaper, attempt.make())
    }

    /// Waits for an attempt until shortly after the end of the wait, or for a command timeout if the wait is zero.
    ///
    /// An attempt that is cut off continues in the background, and is undone. A single attempt (a wait of zero) then
    /// fails. For a wait, `Attempts::note_failure` decides whether the acquire fails or the wait ran out.
    pub(in crate::engine::acquire) async fn bounded(&self, attempt: Finished<Attempted>) -> Result<Tried, Failed> {
        // The transport's command timeout ends the attempt if the wait has no limit. It also ends a single attempt of a
        // fresh owner, which no earlier command of the owner delays.
        if self.deadline.left().is_none() || (self.deadline.is_once() && self.fresh) {
            return attempt.await.outcome;
        }
        // Boxed to keep a waiter small.
        Box::pin(self.bounded_by_deadline(attempt)).await
    }

    async fn bounded_by_deadline(&self, mut attempt: Finished<Attempted>) -> Result<Tried, Failed> {
        if let Some(tried) = self.deadline.answered(self.engine.options.command_timeout, &mut attempt).await {
            return tried.outcome;
        }
        tokio::select! {
            biased;
            tried = &mut attempt => tried.outcome,
            failed = self.cut_off() => Err(failed),
        }
    }

    /// The failure of an attempt that was not answered before the wait ended.
    async fn cut_off(&self) -> Failed {
        let name = self.protocol.name();
        let silent = self.deadline.finds_silent(GRACE, |at| self.engine.topology.is_silent(name, at)).await;
        Failed { would_repeat: true, cut_off: !silent, ..self.engine.topology.missing(name).into() }
    }
}
