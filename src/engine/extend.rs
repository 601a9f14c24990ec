//! An extension of one guard's lease: one command, repeated if it arrived too late or the name moved meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crate::config::millis;
use crate::engine::Engine;
use crate::engine::clock::{Refusals, harmless_from};
use crate::engine::hold::{Hold, lease_until, valid_until};
use crate::engine::ledger::{Book, Cap, End, Entry as _};
use crate::engine::protocol::Renewed;
use crate::engine::renewal::{at_positions, is_revoked};
use crate::engine::replies::too_late;
use crate::error::{Error, Result};
use crate::topology::{Answered, MemberClock, Placement, ServerClock};
use crate::transport::Reply;
use crate::world::{Moment, nanos};

/// Sets the lease of one guard to `lease` from now.
pub(crate) struct Extension {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) level: u32,
    pub(crate) lease: Duration,
}

/// Maximum number of moves of a name during one extension.
const MOVES: u32 = 3;

struct Asked {
    placement: Placement,
    clock: MemberClock,
    /// The holds that the command named, the guard's first. The reply refers to them by position.
    numbers: Vec<u64>,
    sent: Moment,
    /// Latest end of the lease that this command sets on that server.
    armed_until: Moment,
    /// The guard's [`Cap`] before the command was sent.
    before: Cap,
    reply: Reply,
}

impl Extension {
    pub(crate) async fn make(self) -> Result<()> {
        let _order = self.hold.in_order().await;
        let cut_until = Moment::from_nanos(self.hold.book().cut_until());
        // Before `cut_until`, an earlier command may still arrive and shorten the lease that this extension sets.
        self.engine.after(cut_until).await;
        let number = {
            let book = self.hold.book();
            let held = book.until(self.level).is_some_and(|until| self.engine.now().as_nanos() < until);
            book.number(self.level).filter(|_| held).ok_or_else(|| self.why_ended(&book))?
        };
        let mut refusals = Refusals::default();
        let mut moves = 0;
        let asked = loop {
            let asked = self.ask_once(number).await?;
            if let Some(at) = too_late(&asked.reply) {
                // The command did nothing: the server's clock was unknown or had jumped.
                self.uncap(asked.before);
                refusals.add(&asked.clock, at, self.engine.now())?;
            } else if self.engine.topology.placement(self.hold.name()) == asked.placement {
                break asked;
            } else {
                // A reply about a name that has moved is ignored: the server may have lost the name before it replied.
                // The command's effect may have moved with the name, so the guard keeps counting on the shorter lease.
                self.hold.book().note_unseen(asked.armed_until.as_nanos());
                moves += 1;
                if moves > MOVES {
                    return Err(Error::moved());
                }
            }
        };
        let gone = asked.read_gone();
        if !gone.is_empty() {
            self.engine.lose_holds(&self.hold, &gone);
        }
        if gone.contains(&number) {
            return Err(self.hold.lost(End::Gone));
        }
        self.book_answer(&asked)
    }

    fn why_ended(&self, book: &Book) -> Error {
        self.hold.lost(book.end_of(self.level).unwrap_or(End::Expired))
    }

    /// Restores the guard's cap, because the command did nothing.
    fn uncap(&self, before: Cap) {
        self.hold.book().uncapped(self.engine.now().as_nanos(), self.level, before);
    }

    /// Sends the command. From then on, the guard counts on the shorter of its old and new leases.
    async fn ask_once(&self, number: u64) -> Result<Asked> {
        let &Self { ref engine, ref hold, level, lease } = self;
        let (others, all, delay, kept, numbers) = {
            let book = hold.book();
            let numbers: Vec<u64> = [number].into_iter().chain(book.holds().filter(|other| *other != number)).collect();
            let (others, all) = (book.until_others(level), book.until_in_server());
            let (others, all) = (Moment::from_nanos(others), Moment::from_nanos(all));
            (others, all, book.delay(), book.is_watched_without(level), numbers)
        };
        let sent = engine.now();
        let armed = lease.max(lease_until(sent, others)) + delay;
        let cap = Cap { until: valid_until(sent, lease).as_nanos(), lease: nanos(lease) };
        // Without a reply, either lease may apply. So if the new lease may be shorter, the guard's deadline is capped.
        let shortens = hold.book().lease(level).is_some() || lease < engine.options.watchdog;
        let before = hold.book().capped(level, if shortens { cap } else { Cap::NONE });
        // Tasks that watch the guard must not count on the longer lease.
        hold.changed.notify_waiters();
        // A negative argument (`cuts`) sets the lease even if the current lease is longer. It is not used while the
        // watchdog renews the lock for another guard, because a renewal in flight may have promised that guard a longer
        // lease.
        let now_left = lease_until(sent, all);
        let notes_cuts = hold.protocol.nature().renewal.notes_cuts;
        // The lease on the server may be longer than known here by this much. If the server does not note numbered
        // commands (`notes_cuts`), a late copy would do harm, so a lease that is only this much longer is kept.
        let unknown = if notes_cuts { now_left / 50 + Duration::from_millis(5) } else { Duration::ZERO };
        let shorter = armed < now_left + unknown;
        // If every hold has its own lease, the lock's lease may be longer than the leases of all holds.
        let cuts = !kept && (shorter || hold.protocol.nature().leases_apart);
        let armed_until = sent + armed;
        let (armed, holds) = if cuts {
            let n = hold.book().next_cut();
            (-millis(armed), engine.hold_ids_cut(&hold.owner, &numbers, n))
        } else {
            (millis(armed), engine.hold_ids(&hold.owner, &numbers))
        };
        let call = |clock: &ServerClock| {
            let last_ms = if cuts { clock.last(sent, engine.options.command_timeout) } else { 0 };
            let (name, owner, permits) = (hold.name(), &hold.owner, hold.protocol.permits());
            let each = Renewed { name, owner, permits, holds: holds.clone(), extend: true };
            hold.protocol.nature().renewal.call(armed, last_ms, std::iter::once(each))
        };
        let answered = engine.topology.run_timed(hold.name(), call).await;
        let Answered { reply, placement, clock } = answered.map_err(|fault| {
            if fault.in_doubt() {
                let mut book = hold.book();
                book.note_unseen(armed_until.as_nanos());
                if cuts {
                    // While this hold exists, a late copy may shorten the lease.
                    book.may_be_cut(harmless_from(sent, engine.options.command_timeout).as_nanos());
                }
            } else {
                self.uncap(before);
            }
            Error::of_fault(&fault, &hold.name().as_written)
        })?;
        if cuts && !notes_cuts {
            // A late copy would shorten a lease that was set meanwhile. So no lease is set until the command's last
            // moment.
            hold.book().may_be_cut(harmless_from(sent, engine.options.command_timeout).as_nanos());
        }
        Ok(Asked { placement, clock, numbers, sent, armed_until, before, reply })
    }

    /// Records the reply in the book. Called if the guard's hold exists.
    fn book_answer(&self, asked: &Asked) -> Result<()> {
        let refused = match &asked.reply {
            Reply::List(entries) => match entries.as_slice() {
                [renewed @ (Reply::Int(1) | Reply::List(_))] => {
                    if is_revoked(renewed) {
                        let tenure = self.hold.book().tenure();
                        self.hold.revoke(tenure);
                    }
                    let until = valid_until(asked.sent, self.lease).as_nanos();
                    let mut book = self.hold.book();
                    let in_time = book.extended(self.engine.now().as_nanos(), self.level, nanos(self.lease), until);
                    let extended = if in_time {
                        Ok(())
                    } else {
                        // The server keeps the hold until `armed_until`, so its release must be retried until then.
                        book.note_unseen(asked.armed_until.as_nanos());
                        Err(self.why_ended(&book))
                    };
                    drop(book);
                    self.hold.changed.notify_waiters();
                    return extended;
                }
                entries => entries.first(),
            },
            _ => None,
        };
        self.uncap(asked.before);
        let error = match refused {
            Some(Reply::Text(reason)) => Error::server(String::from_utf8_lossy(reason)),
            _ => Error::odd_reply(self.hold.protocol.nature().renewal.script.name, &asked.reply),
        };
        Err(error.about(&self.hold.name().as_written))
    }
}

impl Asked {
    fn read_gone(&self) -> Vec<u64> {
        let Reply::List(entries) = &self.reply else { return Vec::new() };
        match entries.as_slice() {
            [Reply::List(gone)] => at_positions(&self.numbers, gone),
            [Reply::Int(0)] => self.numbers.clone(),
            _ => Vec::new(),
        }
    }
}
