//! The guard of one lock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Acquire;
use crate::config::{check_lease, millis};
use crate::engine::Handle;
use crate::engine::acquire;
use crate::engine::clock::{self, Refusals};
use crate::engine::hold::{Grant, lease_until, valid_until};
use crate::engine::ledger::{Book, Cap, End, Entry as _};
use crate::engine::protocol::Renewed;
use crate::engine::release;
use crate::engine::renewal::at_places;
use crate::engine::replies::TOO_LATE;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::runtime::home::Home;
use crate::runtime::reaper::{Finished, Reaper};
use crate::state::Released;
use crate::transport::Reply;
use crate::world::{Moment, nanos};

/// A share in a hold, and in the client that keeps it.
pub(crate) struct Single {
    grant: Grant,
    handle: Arc<Handle>,
}

impl Single {
    pub(super) const fn new(grant: Grant, handle: Arc<Handle>) -> Self {
        Self { grant, handle }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.grant.hold.name().plain
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.grant.hold.owner
    }

    pub(super) fn reaper(&self) -> Reaper {
        self.grant.engine.reaper.clone()
    }

    pub(super) const fn token(&self) -> Option<u64> {
        self.grant.number
    }

    pub(super) fn is_held(&self) -> bool {
        self.grant.until().is_some()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.grant.until().map_or(Duration::ZERO, |until| until.since(self.grant.engine.now()))
    }

    /// The runtime of the client.
    pub(super) fn home(&self) -> &Home {
        self.grant.engine.home()
    }

    /// Done when the hold has ended, or only `early` of its lease is left.
    pub(super) fn watch(
        &self,
        early: impl Fn(Duration) -> Duration + Send + 'static,
    ) -> impl Future<Output = Error> + Send + 'static {
        let (hold, level) = (Arc::clone(&self.grant.hold), self.grant.level);
        let clock = self.grant.engine.topology.clone();
        async move {
            loop {
                let changed = hold.changed.notified();
                let (end, outlook, now) = {
                    let book = hold.book();
                    // Whoever hears of a longer lease later finds it over: what is told is final.
                    (book.end_of(level), book.outlook(level), clock.now())
                };
                if let Some(end) = end {
                    return hold.lost(end);
                }
                let Some((until, lease)) = outlook else {
                    // Released.
                    drop(clock);
                    return std::future::pending().await;
                };
                let due = Moment::from_nanos(until) - early(Duration::from_nanos(lease));
                let left = due.since(now);
                if left.is_zero() {
                    return hold.lost(End::Expired);
                }
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep(left) => {}
                }
            }
        }
    }

    pub(super) fn why_lost(&self) -> Error {
        let end = self.grant.hold.book().end_of(self.grant.level);
        self.grant.hold.lost(end.unwrap_or(End::Expired))
    }

    /// Extends the lease. Goes on once it has begun; what it ends with still has to be held.
    pub(super) fn extend(&self, lease: Duration) -> Result<impl Future<Output = Result<()>> + Send + 'static> {
        check_lease(lease)?;
        if !self.is_held() {
            return Err(self.why_lost());
        }
        let engine = Arc::clone(&self.grant.engine);
        let (hold, level) = (Arc::clone(&self.grant.hold), self.grant.level);
        let reaper = engine.reaper.clone();
        Ok(Finished::new(&reaper, async move {
            let _order = hold.order.lock().await;
            let cut_until = Moment::from_nanos(hold.book().cut_until());
            // One before it may come in late, and shorten the lease behind this one.
            engine.after(cut_until).await;
            let why_ended = |book: &Book| hold.lost(book.end_of(level).unwrap_or(End::Expired));
            let number = {
                let book = hold.book();
                let held = book.until(level).is_some_and(|until| engine.now().as_nanos() < until);
                book.number(level).filter(|_| held).ok_or_else(|| why_ended(&book))?
            };
            let renewal = hold.protocol.nature().renewal;
            let mut refusals = Refusals::default();
            let uncap = |before| {
                let mut book = hold.book();
                book.uncapped(engine.now().as_nanos(), level, before);
            };
            let (sent, before, reply, numbers) = loop {
                let (others, all, kept, numbers) = {
                    let book = hold.book();
                    let until = |nanos| Moment::from_nanos(nanos);
                    // This one first: the answer tells by it.
                    let numbers: Vec<u64> =
                        [number].into_iter().chain(book.holds().filter(|other| *other != number)).collect();
                    (
                        until(book.until_others(level)),
                        until(book.until_in_server()),
                        book.is_watched_without(level),
                        numbers,
                    )
                };
                let sent = engine.now();
                let armed = lease.max(lease_until(sent, others));
                let cap = Cap { until: valid_until(sent, lease).as_nanos(), lease: nanos(lease) };
                // Without a reply the lease may be the shorter of both.
                let shortens = hold.book().lease(level).is_some() || lease < engine.options.watchdog;
                let before = hold.book().capped(level, if shortens { cap } else { Cap::NONE });
                // Whoever waits for its end must not count on the longer one.
                hold.changed.notify_waiters();
                // Negative: exactly so, be it shorter than before. Not where the watchdog keeps it for another guard: a
                // renewal that is under way may have promised that one more.
                let now_left = lease_until(sent, all);
                let shorter = armed < now_left + now_left / 50 + Duration::from_millis(5);
                // Where every hold has a lease of its own, the lock's may be longer than any of them.
                let cuts = !kept && (shorter || hold.protocol.nature().leases_apart);
                let asked = (sent + armed).as_nanos();
                let (armed, last_ms, holds) = if cuts {
                    let n = hold.book().next_cut();
                    let last_ms = engine.clock.last(sent, engine.options.command_timeout);
                    (-millis(armed), last_ms, engine.hold_ids_cut(&hold.owner, &numbers, n))
                } else {
                    (millis(armed), 0, engine.hold_ids(&hold.owner, &numbers))
                };
                let each = Renewed { name: hold.name(), owner: &hold.owner, holds, extend: true };
                let call = renewal.call(armed, last_ms, std::iter::once(each));
                let reply = engine.topology.run(hold.name(), call).await;
                let reply = reply.map_err(|fault| {
                    if fault.in_doubt() {
                        let mut book = hold.book();
                        book.note_unseen(asked);
                        if cuts {
                            // A late copy may shorten the lease while this hold is there.
                            book.may_be_cut(clock::over(sent, engine.options.command_timeout).as_nanos());
                        }
                    } else {
                        uncap(before);
                    }
                    Error::from_fault(&fault, &hold.name().plain)
                })?;
                match &reply {
                    Reply::List(parts) if matches!(parts.as_slice(), [Reply::Int(TOO_LATE), Reply::Int(_)]) => {
                        // Not carried out: the server's clock was not known, or stepped.
                        uncap(before);
                        if let [_, Reply::Int(at)] = parts.as_slice() {
                            refusals.add(&engine.clock, *at, engine.now())?;
                        }
                    }
                    _ => break (sent, before, reply, numbers),
                }
            };
            let until = valid_until(sent, lease).as_nanos();
            // Other holds of this owner here may be gone.
            let gone: Vec<u64> = match &reply {
                Reply::List(entries) => match entries.as_slice() {
                    [Reply::List(gone)] => at_places(&numbers, gone),
                    [Reply::Int(0)] => numbers.clone(),
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            };
            if !gone.is_empty() {
                engine.gone(&hold, &gone);
            }
            if gone.contains(&number) {
                return Err(hold.lost(End::Gone));
            }
            match &reply {
                Reply::List(entries) if matches!(entries.as_slice(), [Reply::Int(1) | Reply::List(_)]) => {
                    let mut book = hold.book();
                    let in_time = book.extended(engine.now().as_nanos(), level, nanos(lease), until);
                    let extended = if in_time { Ok(()) } else { Err(why_ended(&book)) };
                    drop(book);
                    hold.changed.notify_waiters();
                    extended
                }
                other => {
                    uncap(before);
                    let refused = match other {
                        Reply::List(entries) => entries.first(),
                        _ => None,
                    };
                    Err(match refused {
                        Some(Reply::Text(reason)) => {
                            Error::Server { message: String::from_utf8_lossy(reason).into_owned() }
                        }
                        _ => Error::odd_reply(renewal.script.name, other),
                    })
                }
            }
        }))
    }

    /// Releases it.
    pub(super) fn unlock(self) -> impl Future<Output = Result<Released>> + Send + 'static {
        let Self { grant, handle } = self;
        async move {
            let released = release::unlock(grant).await;
            drop(handle);
            released
        }
    }

    /// As [`Guard::downgrade`](crate::Guard::downgrade).
    pub(super) async fn downgrade(self) -> Result<Self> {
        let Some(weaker) = self.grant.hold.protocol.halves().and_then(|halves| halves.weaker()) else {
            let what = format!(
                "the lock {:?} is held as {}: only a write lock can be downgraded",
                self.name(),
                self.grant.hold.protocol.flavour()
            );
            return Err(Error::Unsupported { what });
        };
        let Some(until) = self.grant.until() else { return Err(self.why_lost()) };
        let engine = Arc::clone(&self.grant.engine);
        let explicit = self.grant.hold.book().lease(self.grant.level).is_some();
        self.owner().reveal();
        let how = Acquire::new().owner(self.owner()).wait(Duration::ZERO);
        let how = if explicit { how.lease(lease_until(engine.now(), until)) } else { how };
        // Who writes may always read: it is refused only to one who does not write any more.
        let grant = match acquire::acquire(&engine, &weaker, how).await {
            Ok(Some(grant)) => grant,
            Err(error) if self.is_held() => return Err(error),
            _ => return Err(self.why_lost()),
        };
        let reading = Self::new(grant, Arc::clone(&self.handle));
        // It must have been held for writing until the reading began: nobody else wrote in between.
        if self.grant.until().is_none() {
            return Err(self.why_lost());
        }
        match self.unlock().await {
            // The rest of it goes on in the background.
            Ok(_) => {}
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error),
        }
        // Giving the other back may have taken longer than this one lasts.
        if reading.is_held() { Ok(reading) } else { Err(reading.why_lost()) }
    }

    /// As [`Guard::into_owner`](crate::Guard::into_owner).
    pub(super) fn into_owner(mut self) -> Owner {
        let Grant { engine, hold, level, .. } = &self.grant;
        let (engine, hold, level) = (Arc::clone(engine), Arc::clone(hold), *level);
        let owner = hold.owner.clone();
        owner.reveal();
        if self.grant.take() {
            let mut book = hold.book();
            let Some(number) = book.close(level).filter(|_| book.end().is_none()) else {
                // Whoever ended it cleans up.
                return owner;
            };
            let tenure = book.tenure();
            let none_left = book.counted_down(tenure);
            let doubted = book.undoubt(number);
            drop(book);
            if number > 0 {
                release::disown(&engine, &hold, number, doubted);
            }
            if none_left {
                engine.holds.released(&hold.key(), &hold);
                engine.registry.forget(&hold);
            }
        }
        owner
    }
}
