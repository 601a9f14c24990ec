//! Clean-up after doubt: unanswered acquires, abandoned queue entries and marks, holds that ended without a release.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::aftermath::{lock_is_free, notify_waiters};
use super::latest;
use super::send::{lease_left, lease_left_to_others, send, send_release};
use crate::engine::Engine;
use crate::engine::acquire::admission::once;
use crate::engine::clock::harmless_from;
use crate::engine::hold::{Hold, Target};
use crate::engine::ledger::{End, Entry as _};
use crate::engine::protocol::{Giving, LeaseLeft, Protocol, Release};
use crate::error::Result;
use crate::topology::ServerClock;
use crate::world::Moment;

/// Undoes an acquire that may have run: releases its hold and removes its queue entry. `doubted`: a late copy of the
/// acquire may still arrive. `lease`: the lease that the acquire has set.
pub(crate) fn undo(target: Arc<Target>, doubted: bool, lease: Option<Duration>) {
    let reaper = target.engine.reaper.clone();
    reaper.finish(Box::pin(async move {
        let Target { engine, hold, .. } = &*target;
        // Many waiters may give up at once, so undos are limited. After a command timeout, the undo starts anyway.
        let _admitted = engine.undos.admit(hold.name(), once(engine.options.command_timeout)).await;
        let order = hold.in_order().await;
        let (held, lease_left) = {
            let book = hold.book();
            (book.holds().any(|number| number == target.number), lease_left(engine, hold, &book))
        };
        if held && target.number == 0 {
            // The lock was acquired after all. When that hold ends, its release looks for the late copy.
            hold.book().doubt(target.number);
            return;
        }
        // The undo is retried for at least the watchdog's lease, even if the acquire's lease is shorter: an acquire
        // without a last moment may run late, and its lease starts then.
        let until = engine.now() + engine.options.watchdog.max(lease_left.span()).max(lease.unwrap_or_default());
        let undone = undo_once(&target, lease_left, until).await;
        tracing::debug!(lock.name = %hold.name().as_written, ?undone, doubted, "undid an acquire");
        if let Ok(Release::Free(passed @ 1..)) = undone {
            engine.queues.check_passed(&hold.protocol, passed.into(), engine.now());
        }
        notify_waiters(engine, &hold.protocol, 0);
        drop(order);
        if doubted {
            look_again(engine, hold, target.number, &target.nonce);
        }
    }));
}

/// Sends the undo of an acquire. A mark names an owner, not a waiter. So the mark stays if another waiter of this
/// client waits as the same owner. If a waiter of another client waits as this owner, the mark is removed, and set
/// again by that waiter's next attempt.
async fn undo_once(target: &Arc<Target>, lease_left: LeaseLeft, until: Moment) -> Result<Release> {
    let Target { engine, hold, nonce, .. } = &**target;
    let id = target.id();
    let call = |_: &ServerClock| {
        let waiter = (!engine.queues.is_awaited_by_another(target)).then_some(nonce);
        let publish = engine.topology.publish();
        let giving =
            Giving { owner: &hold.owner, hold: &id, lease_left, mine: Bytes::new(), last_ms: 0, publish, waiter };
        hold.protocol.release(&giving)
    };
    send_release(engine, &hold.protocol, false, until, call, |_| false).await.outcome
}

/// True if a waiter leaves a queue entry or a mark in Redis. Then even a waiter that was never granted the lock may
/// need an undo.
pub(crate) fn waits_in_redis(protocol: &Arc<dyn Protocol>) -> bool {
    protocol.queue().is_some() || protocol.nature().marks
}

/// Sends another undo once no late copy of the acquire can run any more. It undoes a copy that took the lock again, or
/// joined the queue under this nonce.
pub(super) fn look_again(engine: &Arc<Engine>, hold: &Arc<Hold>, number: u64, nonce: &Bytes) {
    let (engine, hold, nonce) = (Arc::clone(engine), Arc::clone(hold), nonce.clone());
    let reaper = engine.reaper.clone();
    reaper.finish_by_closing(Box::pin(async move {
        let mut ended = engine.ended();
        let harmless_in = harmless_from(engine.now(), engine.options.command_timeout).since(engine.now());
        tokio::select! {
            biased;
            () = tokio::time::sleep(harmless_in) => {}
            _ = ended.wait_for(|ended| *ended) => {}
        }
        // Uses the table's present entry, or a new one. The ended hold must not return to the table: a task that waits
        // as this owner would find the ended hold again and again.
        let fresh = Hold::new(Arc::clone(&hold.protocol), hold.owner.clone());
        let target = Target::reserve(&engine, fresh, number, nonce);
        let Target { engine, hold, .. } = &*target;
        let _order = hold.in_order().await;
        let lease_left = {
            let book = hold.book();
            if number == 0 && book.count() > 0 {
                return;
            }
            if book.count() == 0 { lease_left_to_others(engine) } else { lease_left(engine, hold, &book) }
        };
        let until = engine.now();
        let found = undo_once(&target, lease_left, until).await;
        tracing::trace!(lock.name = %hold.name().as_written, ?found, "checked again for a late acquire");
    }));
}

/// Cleans up after holds that ended without a release. Releases them on the server, unless the server reported them
/// gone. Also releases holds whose earlier releases failed. `stays_closed`: unless the owner has acquired again, these
/// holds are left to their lease, because of the lock delay.
pub(crate) fn release_ended(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    end: End,
    lost: Vec<u64>,
    tenure: u32,
    stays_closed: bool,
) {
    let (engine, hold) = (Arc::clone(engine), Arc::clone(hold));
    let reaper = engine.reaper.clone();
    reaper.finish(Box::pin(async move {
        let _order = hold.in_order().await;
        // The owner may have acquired again since.
        let stays_closed = stays_closed && hold.book().stays_closed(engine.now().as_nanos());
        for number in lost {
            // If one permit of a hold is gone, the others may still be there.
            let is_there = end != End::Gone || hold.protocol.nature().is_counted();
            let mine = (is_there && !stays_closed).then_some(number);
            let (lease_left, in_server, mut owed) = {
                let mut book = hold.book();
                (lease_left(&engine, &hold, &book), Moment::from_nanos(book.until_in_server()), book.owed())
            };
            if mine.is_some() || !owed.is_empty() {
                let over = (engine.now() + engine.options.watchdog).max(in_server);
                let id = engine.hold_id_with(&hold.owner, &owed, mine);
                let relieved = send(&engine, &hold, &id, lease_left, latest(over, &owed), false).await.outcome;
                tracing::debug!(lock.name = %hold.name().as_written, ?relieved, "released a hold that had ended");
                if relieved.is_err() {
                    owed.extend(mine.map(|number| (number, over.as_nanos())));
                    hold.book().owe(owed);
                }
            }
            let mut book = hold.book();
            book.counted_down(tenure);
            let doubted = book.undoubt(number);
            drop(book);
            // If the name stays closed, a late copy of the acquire may only keep it closed for longer.
            if doubted && !stays_closed {
                look_again(&engine, &hold, number, &Bytes::new());
            }
        }
        let over = {
            let book = hold.book();
            book.count() == 0 || book.end() == Some(End::Gone)
        };
        if over {
            lock_is_free(&engine, &hold, 0);
        } else {
            notify_waiters(&engine, &hold.protocol, 0);
        }
    }));
}
