//! The clean-up after doubt: acquires that may have happened unseen, places and marks that were given up, holds that ended.

use std::sync::Arc;

use super::{freed, repeat, rest, rest_of_others, send, span, tell};
use crate::engine::Engine;
use crate::engine::hold::{Hold, Target};
use crate::engine::ledger::{End, Entry as _};
use crate::engine::protocol::{Count, Protocol, Release, Rest};
use crate::engine::transport::Moment;
use crate::error::Result;

/// Undoes an acquire that may have happened unseen: brings the owner's count back to what it was, and gives up its place in
/// the queue. `doubted`: a copy of the acquire may come in later still.
pub(crate) fn undo(target: Arc<Target>, doubted: bool) {
    let reaper = target.engine.reaper.clone();
    reaper.finish(Box::pin(async move {
        // A hold that has ended leaves the table. Its owner may hold the lock anew, and that is not to be undone.
        let ended = target.hold.book().is_closed() && target.hold.owner.is_known();
        let target = if ended {
            Target::reserve(&target.engine, Hold::new(Arc::clone(&target.hold.protocol), target.hold.owner.clone()))
        } else {
            target
        };
        let Target { engine, hold, .. } = &*target;
        let order = hold.order.lock().await;
        let (count, rest) = {
            let book = hold.book();
            (book.count(), rest(engine, hold, &book))
        };
        let until = engine.now() + engine.options.watchdog.max(span(rest.lease));
        let undone = undo_to(engine, hold, count, rest, until).await;
        tracing::debug!(lock.name = %hold.name().plain, ?undone, doubted, "undid an acquire");
        if matches!(undone, Ok(Release::Free(1..))) {
            engine.queues.look_after(&hold.protocol, engine.now());
        }
        tell(engine, &hold.protocol, 0);
        drop(order);
        if count > 0 && doubted {
            // It has come in anew meanwhile: the copy is looked for when that ends.
            hold.book().doubt();
        }
        if count == 0 && doubted {
            look_again(engine, hold);
        }
    }));
}

/// Sends the undoing of an acquire, which leaves `count` holds.
async fn undo_to(engine: &Arc<Engine>, hold: &Hold, count: u32, rest: Rest, until: Moment) -> Result<Release> {
    // In a queue, others may have changed what a shared owner holds; its place is to be given up all the same.
    let left = (!hold.owner.is_shared() || !waits_in_redis(&hold.protocol)).then_some(count);
    let call = || hold.protocol.undo(&hold.owner, rest, left);
    Ok(repeat(engine, &hold.protocol, until, true, count == 0, call).await?.release)
}

/// True when one who waits stands in Redis, so that it may have to be undone although it may have got nothing.
pub(crate) fn waits_in_redis(protocol: &Arc<dyn Protocol>) -> bool {
    protocol.queue().is_some() || protocol.marks()
}

/// Looks a second time, after a command's longest life, whether a late copy of an acquire took the lock once more.
pub(super) fn look_again(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if hold.owner.is_shared() {
        return;
    }
    let (engine, hold) = (Arc::clone(engine), Arc::clone(hold));
    let reaper = engine.reaper.clone();
    reaper.finish_at_last(Box::pin(async move {
        let mut closing = engine.closing();
        tokio::select! {
            biased;
            () = tokio::time::sleep(engine.options.command_timeout) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
        // Nothing is held meanwhile, and by now the owner may have another hold. One that has ended must not come back:
        // whoever waits as this owner would find it again and again.
        let target = Target::reserve(&engine, Hold::new(Arc::clone(&hold.protocol), hold.owner.clone()));
        let Target { engine, hold, .. } = &*target;
        let _order = hold.order.lock().await;
        if hold.book().count() == 0 {
            let until = engine.now();
            let found = undo_to(engine, hold, 0, rest_of_others(engine), until).await;
            tracing::trace!(lock.name = %hold.name().plain, ?found, "looked again for a late acquire");
        }
    }));
}

/// A hold ended by the local clock: the server may have it still, and is relieved of it.
pub(crate) fn relieve(engine: &Arc<Engine>, hold: &Arc<Hold>, end: End) {
    let (engine, hold) = (Arc::clone(engine), Arc::clone(hold));
    let reaper = engine.reaper.clone();
    reaper.finish(Box::pin(async move {
        let _order = hold.order.lock().await;
        let count = hold.book().count();
        // Of an owner that others may act as, only what is certainly ours is given back.
        let (change, times) = match (hold.owner.is_shared(), end) {
            (_, End::Gone) | (true, End::Expired) => (Count::ByOne, 0),
            (true, End::Closed) => (Count::ByOne, count),
            (false, _) => (Count::Exactly(0), count.min(1)),
        };
        for _ in 0..times {
            let until = engine.now() + engine.options.watchdog;
            let sent = send(&engine, &hold.protocol, &hold.owner, rest_of_others(&engine), change, until).await;
            let relieved = sent.map(|sent| sent.release);
            tracing::debug!(lock.name = %hold.name().plain, ?relieved, "gave back a hold that had ended");
            if !matches!(relieved, Ok(Release::Left(_))) {
                break;
            }
        }
        let doubted = hold.book().doubted();
        freed(&engine, &hold, doubted, 0);
    }));
}
