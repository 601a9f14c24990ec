//! How a request makes its attempts: the hold it asks for, its admission, and its time limit.

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

    /// [`Self::target`] for a given owner and a hold of this number.
    pub(in crate::engine::acquire) fn target_of(&self, hold: Arc<Hold>, number: u64) -> Arc<Target> {
        // Other acquires may wait as this owner. A nonce that begins with `!` makes the waiter confirm a grant by a
        // command, so that the server counts each hold.
        let nonce = match self.engine.hold_id(&self.owner, number) {
            HoldId::Listed(id) => Bytes::from([b"!", &id[..]].concat()),
            _ => Bytes::new(),
        };
        Target::reserve(&self.engine, hold, number, nonce)
    }

    /// Waits until a first attempt may be made ([`super::admission`]). If the server is silent, this wait ends after
    /// one command timeout. The attempt is then made without admission, and fails. If the server is only slow, the
    /// attempt keeps its place in the crowd.
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

    /// Makes one attempt. It is completed even if the caller is dropped.
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
    /// An attempt that is cut off continues in the background, and is undone. If the server answers other commands and
    /// another holder was seen, the acquire ends as a wait that ran out. Otherwise, and after a single attempt (a wait
    /// of zero), the acquire fails.
    pub(in crate::engine::acquire) async fn bounded(&self, attempt: Finished<Attempted>) -> Result<Tried, Failed> {
        // Without a limit, the transport's command timeout ends the attempt. The same goes for a single attempt of a
        // fresh owner, which queues behind no other command of that owner.
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
