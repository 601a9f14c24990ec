//! The clean-up after doubt: acquires that may have happened unseen, queue entries and marks that were given up, holds that
//! ended.

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

/// Undoes an acquire that may have been carried out: releases its hold, and removes its queue entry. `doubted`: a copy of the acquire may
/// still arrive later. `lease`: the explicit lease that the acquire asked for.
pub(crate) fn undo(target: Arc<Target>, doubted: bool, lease: Option<Duration>) {
    let reaper = target.engine.reaper.clone();
    reaper.finish(Box::pin(async move {
        let Target { engine, hold, .. } = &*target;
        // A crowd may leave all at once. After a command timeout it is undone all the same.
        let _admitted = engine.undos.admit(hold.name(), once(engine.options.command_timeout)).await;
        let order = hold.in_order().await;
        let (held, lease_left) = {
            let book = hold.book();
            (book.holds().any(|number| number == target.number), lease_left(engine, hold, &book))
        };
        if held && target.number == 0 {
            // The lock was acquired after all: the copy is looked for when the hold ends.
            hold.book().doubt(target.number);
            return;
        }
        // Also where the lease is shorter: an acquire that has no last moment may run late, and its lease begins then.
        let until = engine.now() + engine.options.watchdog.max(lease_left.span()).max(lease.unwrap_or_default());
        let undone = undo_once(&target, lease_left, until).await;
        tracing::debug!(lock.name = %hold.name().as_written, ?undone, doubted, "undid an acquire");
        if matches!(undone, Ok(Release::Free(1..))) {
            engine.queues.check_after_first_lease(&hold.protocol, engine.now());
        }
        notify_waiters(engine, &hold.protocol, 0);
        drop(order);
        if doubted {
            look_again(engine, hold, target.number, &target.nonce);
        }
    }));
}

/// Sends the undoing of an acquire. A mark has no nonce: where the same owner waits again here, its mark stays. That of a
/// waiter of another client's goes, and is set again when that one asks next.
async fn undo_once(target: &Arc<Target>, lease_left: LeaseLeft, until: Moment) -> Result<Release> {
    let Target { engine, hold, nonce, .. } = &**target;
    let id = target.id();
    let call = |_: &ServerClock| {
        let waiter = (!engine.queues.is_marked_by_another(target)).then_some(nonce);
        let publish = engine.topology.publish();
        let giving =
            Giving { owner: &hold.owner, hold: &id, lease_left, mine: Bytes::new(), last_ms: 0, publish, waiter };
        hold.protocol.release(&giving)
    };
    send_release(engine, &hold.protocol, false, until, call, |_| false).await.outcome
}

/// True when a waiter leaves something in Redis, so that it may have to be undone although it was never granted the lock.
pub(crate) fn waits_in_redis(protocol: &Arc<dyn Protocol>) -> bool {
    protocol.queue().is_some() || protocol.nature().marks
}

/// Looks a second time, after a command's longest life, whether a late copy of the acquire of this hold took the lock once
/// more, or joined its queue for the waiter of this nonce.
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
        // Nothing was held in the meantime, and by now the owner may have another hold. The hold that has ended must not come
        // back into the table: whoever waits as this owner would find it again and again.
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
        tracing::trace!(lock.name = %hold.name().as_written, ?found, "looked again for a late acquire");
    }));
}

/// Holds, by their numbers, ended by the local clock or by closing: the server may have them still, and is relieved of them.
pub(crate) fn give_back_ended(engine: &Arc<Engine>, hold: &Arc<Hold>, end: End, lost: Vec<u64>, tenure: u32) {
    let (engine, hold) = (Arc::clone(engine), Arc::clone(hold));
    let reaper = engine.reaper.clone();
    reaper.finish(Box::pin(async move {
        let _order = hold.in_order().await;
        for number in lost {
            // A hold that is gone needs no command.
            let mine = (end != End::Gone).then_some(number);
            let (lease_left, in_server, mut owed) = {
                let mut book = hold.book();
                (lease_left(&engine, &hold, &book), Moment::from_nanos(book.until_in_server()), book.owed())
            };
            if mine.is_some() || !owed.is_empty() {
                let over = (engine.now() + engine.options.watchdog).max(in_server);
                let id = engine.hold_id_with(&hold.owner, &owed, mine);
                let relieved = send(&engine, &hold, &id, lease_left, latest(over, &owed), false).await.outcome;
                tracing::debug!(lock.name = %hold.name().as_written, ?relieved, "gave back a hold that had ended");
                if relieved.is_err() {
                    owed.extend(mine.map(|number| (number, over.as_nanos())));
                    hold.book().owe(owed);
                }
            }
            let mut book = hold.book();
            book.counted_down(tenure);
            let doubted = book.undoubt(number);
            drop(book);
            if doubted {
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
