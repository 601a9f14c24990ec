//! Records the outcome of a renewal, for one hold at a time.

use std::sync::Arc;

use bytes::Bytes;

use super::Round;
use super::plan::Due;
use crate::engine::Engine;
use crate::engine::hold::{Hold, valid_until};
use crate::engine::ledger::Entry as _;
use crate::transport::Reply;
use crate::world::Moment;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server has the owner's holds, except the `gone` ones, which were released elsewhere. `revoked`: the holder
    /// was asked to finish.
    Renewed { gone: Vec<u64>, revoked: bool },
    /// The server has none of the holds. `wrong_type`: the lock's key is not a lock any more.
    Lost { wrong_type: bool },
    /// The renewal is not counted, and is retried soon.
    Unanswered(Cause),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The whole command failed.
    Failed(Arc<str>),
    /// The server refused to renew this hold.
    Refused(String),
    /// The lock has moved to another server. The reply of the old server proves nothing.
    Moved,
}

/// State of one hold when a renewal was sent. The reply is about this state, even if holds were released and acquired
/// since.
pub(super) struct Asked {
    sent: Moment,
    tenure: u32,
    pub(super) watched: bool,
    numbers: Vec<u64>,
    /// True if the command names no hold ids: the owner has one hold and will never have another.
    only: bool,
}

impl Asked {
    pub(super) fn of(Due { hold, only_confirms, .. }: &Due, sent: Moment) -> Self {
        let book = hold.book();
        let numbers: Vec<u64> = book.holds().collect();
        let only = !hold.owner.is_known() && numbers.iter().all(|number| *number == 0);
        Self { sent, tenure: book.tenure(), watched: !only_confirms && book.is_watched(), numbers, only }
    }

    pub(super) fn ids(&self, engine: &Engine, hold: &Hold) -> Bytes {
        if self.only { Bytes::new() } else { engine.hold_ids(&hold.owner, &self.numbers) }
    }

    pub(super) fn read(&self, entry: Reply) -> Outcome {
        match entry {
            Reply::Int(1) => Outcome::Renewed { gone: Vec::new(), revoked: false },
            Reply::List(ref gone) => {
                Outcome::Renewed { gone: at_positions(&self.numbers, gone), revoked: is_revoked(&entry) }
            }
            Reply::Int(0) => Outcome::Lost { wrong_type: false },
            Reply::Text(text) if text.starts_with(b"WRONGTYPE") => Outcome::Lost { wrong_type: true },
            Reply::Text(text) => Outcome::Unanswered(Cause::Refused(String::from_utf8_lossy(&text).into_owned())),
            odd => Outcome::Unanswered(Cause::Refused(format!("{odd:?}"))),
        }
    }

    /// Records the outcome: moves the deadline, ends lost holds and notifies their guards, or requests a retry.
    pub(super) fn settle(&self, engine: &Arc<Engine>, hold: &Arc<Hold>, outcome: Outcome) -> Round {
        match outcome {
            Outcome::Renewed { gone, revoked } => {
                let lost = if gone.is_empty() { 0 } else { self.lose(engine, hold, &gone) };
                if revoked {
                    hold.revoke(self.tenure);
                }
                let mut round = self.extend(engine, hold);
                round.lost += lost;
                round
            }
            // The explicit lease has ended by the local clock too, so this is no loss.
            Outcome::Lost { wrong_type: false } if !self.watched && !hold.book().lasts(engine.now().as_nanos()) => {
                Round::default()
            }
            Outcome::Lost { wrong_type: false } => Round::lost(self.lose(engine, hold, &self.numbers)),
            Outcome::Lost { wrong_type: true } => Round::lost(engine.refuted(hold, self.tenure)),
            Outcome::Unanswered(Cause::Failed(cause)) => Round::failed(cause),
            Outcome::Unanswered(Cause::Refused(cause)) => {
                if let Some(left_out) = engine.warnings.due("refused renewal", &cause) {
                    let name = &hold.name().as_written;
                    tracing::warn!(lock.name = %name, %cause, left_out, "the server refused to renew this lock");
                }
                Round::failed(cause)
            }
            Outcome::Unanswered(Cause::Moved) => {
                engine.kick.renew_at(engine.topology.placement(hold.name()).member);
                Round::failed("the lock has moved to another server")
            }
        }
    }

    /// Records that the server has the hold. Moves the deadline of a watched hold.
    fn extend(&self, engine: &Arc<Engine>, hold: &Arc<Hold>) -> Round {
        let mut book = hold.book();
        book.confirm(self.sent.as_nanos());
        let now = engine.now().as_nanos();
        // No deadline moves if the command extended no lease, or if no watched guard is left.
        if !self.watched || !book.is_watched() {
            return Round::default();
        }
        let until = valid_until(engine.counted(self.sent), engine.options.watchdog).as_nanos();
        if until <= now {
            return Round::failed("the reply took longer than the lease");
        }
        let in_time = book.renewed(now, self.sent.as_nanos(), until);
        drop(book);
        if !in_time {
            return Round::lost(engine.expire(hold));
        }
        hold.changed.notify_waiters();
        Round { renewed: 1, ..Round::default() }
    }

    /// Ends these holds, unless the owner's tenure has changed since. Returns the number of guards that lost their
    /// hold.
    fn lose(&self, engine: &Arc<Engine>, hold: &Arc<Hold>, gone: &[u64]) -> usize {
        // Unlocked at once, because `lose_holds` locks the book again.
        let tenure = hold.book().tenure();
        if tenure == self.tenure { engine.lose_holds(hold, gone) } else { 0 }
    }
}

/// True if this entry of the reply to a renewal reports that the holder was asked to finish: the position 0.
pub(crate) fn is_revoked(entry: &Reply) -> bool {
    matches!(entry, Reply::List(positions) if positions.contains(&Reply::Int(0)))
}

/// The elements of `numbers` at these positions, counted from 1. The reply to a renewal names gone holds by position.
pub(crate) fn at_positions(numbers: &[u64], positions: &[Reply]) -> Vec<u64> {
    let at = |position: &Reply| match position {
        Reply::Int(position) => numbers.get(usize::try_from(*position).ok()?.checked_sub(1)?).copied(),
        _ => None,
    };
    positions.iter().filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_entry_is_read_as_renewed_lost_or_unanswered() {
        let asked =
            Asked { sent: Moment::from_nanos(0), tenure: 1, watched: true, numbers: vec![7, 8, 9], only: false };
        let text = |text: &'static str| Reply::Text(Bytes::from_static(text.as_bytes()));
        let list = |positions: &[i64]| Reply::List(positions.iter().copied().map(Reply::Int).collect());
        let renewed = |gone: &[u64]| Outcome::Renewed { gone: gone.to_vec(), revoked: false };
        let revoked = |gone: &[u64]| Outcome::Renewed { gone: gone.to_vec(), revoked: true };
        let refused = |cause: &str| Outcome::Unanswered(Cause::Refused(cause.to_owned()));
        for (entry, expected) in [
            (Reply::Int(1), renewed(&[])),
            (list(&[3, 1]), renewed(&[9, 7])),
            (list(&[4, -1]), renewed(&[])),
            (list(&[0]), revoked(&[])),
            (list(&[2, 0]), revoked(&[8])),
            (Reply::Int(0), Outcome::Lost { wrong_type: false }),
            (text("WRONGTYPE Operation"), Outcome::Lost { wrong_type: true }),
            (text("OOM"), refused("OOM")),
            (Reply::Int(7), refused("Int(7)")),
            (Reply::Nil, refused("Nil")),
        ] {
            assert_eq!(asked.read(entry.clone()), expected, "{entry:?}");
        }
    }
}
