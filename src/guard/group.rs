//! The guards of a group lock's members, and how many of them must be held.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable, BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Guard, Member};
use crate::config::check_lease;
use crate::error::{Error, Lost, Result};
use crate::owner::Owner;
use crate::runtime::reaper::Reaper;
use crate::state::Released;

/// Member guards that count as one lock while at least `needed` of them are held. Dropping the group releases each
/// member in the background.
///
/// Any two sets of `needed` members must have a member in common. Then no other owner can hold enough members while
/// this group counts as held. Once fewer than `needed` members are held, the group stays lost, and no further guard
/// joins. The remaining guards are released at once, because renewing them would only block others.
pub(crate) struct Held {
    name: Arc<str>,
    owner: Owner,
    needed: usize,
    /// Total number of members.
    size: usize,
    inside: Mutex<Inside>,
    /// Notified when a guard joins, and when the group is lost.
    changed: Arc<Notify>,
    /// Ends the task that waits for the loss.
    watch: AbortHandle,
}

#[derive(Default)]
struct Inside {
    /// None after a loss, a release, or [`Held::give_up`].
    guards: Option<Vec<Guard>>,
    lost: Option<Loss>,
}

#[derive(Clone)]
struct Loss {
    why: Error,
    /// The members at the time of the loss, all marked as not held.
    members: Vec<Member>,
}

impl Held {
    pub(crate) fn new(name: Arc<str>, owner: Owner, needed: usize, size: usize, guards: Vec<Guard>) -> Arc<Self> {
        let reaper = guards.iter().find_map(Guard::reaper);
        let inside = Mutex::new(Inside { guards: Some(guards), lost: None });
        let (watch, end) = AbortHandle::new_pair();
        let held = Arc::new(Self { name, owner, needed, size, inside, changed: Arc::default(), watch });
        let weak = Arc::downgrade(&held);
        let mut loss = held.watch(|_| Duration::ZERO).boxed();
        let job = async move {
            loop {
                let why = loss.await;
                let Some(held) = weak.upgrade() else { return };
                if let Some(freed) = held.lose(why) {
                    drop(held);
                    return freed.await;
                }
                if !held.is_held() {
                    return;
                }
                // A guard has joined in the meantime, so enough guards are held again.
                loss = held.watch(|_| Duration::ZERO).boxed();
            }
        };
        let job = Abortable::new(job, end).map(drop);
        // The job runs on the client's runtime, because the caller's runtime may end earlier.
        match reaper {
            Some(reaper) => reaper.finish_uncounted(Box::pin(job)),
            None => drop(tokio::spawn(job)),
        }
        held
    }

    /// If too few members are held, marks the group as lost and releases the rest. The future completes when these
    /// releases have ended.
    fn lose(&self, why: Error) -> Option<BoxFuture<'static, ()>> {
        let mut inside = self.inside.lock();
        let guards = inside.guards.take_if(|guards| !self.counts(guards))?;
        let members =
            guards.iter().flat_map(Guard::members).map(|member| Member { is_held: false, ..member }).collect();
        // Expired guards are dropped, and so released in the background, because their servers may be unreachable.
        let (left, over): (Vec<_>, Vec<_>) = guards.into_iter().partition(Guard::is_held);
        let freed = futures::future::join_all(left.into_iter().map(Guard::unlocking)).map(drop).boxed();
        inside.lost = Some(Loss { why, members });
        drop(inside);
        // Watchers are notified before the guards are dropped, because the watch of a released guard never completes.
        self.changed.notify_waiters();
        drop(over);
        Some(freed)
    }

    pub(crate) fn reaper(&self) -> Option<Reaper> {
        self.inside.lock().guards.iter().flatten().find_map(Guard::reaper)
    }

    fn lost(&self) -> Option<Loss> {
        self.inside.lock().lost.clone()
    }

    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) const fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn is_held(&self) -> bool {
        self.inside.lock().guards.as_ref().is_some_and(|guards| self.counts(guards))
    }

    fn counts(&self, guards: &[Guard]) -> bool {
        guards.iter().filter(|guard| guard.is_held()).count() >= self.needed
    }

    fn each<T>(&self, say: impl Fn(&Guard) -> T) -> Vec<T> {
        self.inside.lock().guards.iter().flatten().map(say).collect()
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        if let Some(lost) = self.lost() {
            return lost.members;
        }
        self.each(Guard::members).into_iter().flatten().collect()
    }

    /// Returns for how long at least `needed` members stay held.
    pub(crate) fn remaining(&self) -> Duration {
        let mut each = self.each(Guard::remaining);
        each.sort_unstable_by(|a, b| b.cmp(a));
        each.get(self.needed - 1).copied().unwrap_or_default()
    }

    /// Adds the guard of a member that was granted later. If the group is lost or released, drops the guard.
    pub(crate) fn join(&self, guard: Guard) {
        let mut inside = self.inside.lock();
        if let Some(guards) = inside.guards.as_mut().filter(|guards| self.counts(guards)) {
            guards.push(guard);
            drop(inside);
            // The mutex is released first, because a waker may call back into this group.
            self.changed.notify_waiters();
        }
    }

    /// Completes once fewer than `needed` members have more than `early(lease)` of their leases left.
    pub(crate) fn watch(
        self: &Arc<Self>,
        early: impl Fn(Duration) -> Duration + Copy + Send + Sync + 'static,
    ) -> impl Future<Output = Error> + Send + 'static {
        let each = move |held: &Self| -> Option<FuturesUnordered<BoxFuture<'static, Error>>> {
            Some(held.inside.lock().guards.as_ref()?.iter().map(|guard| guard.watch(early).boxed()).collect())
        };
        let mut watches = each(self).unwrap_or_default();
        let (weak, changed) = (Arc::downgrade(self), Arc::clone(&self.changed));
        let (name, needed) = (Arc::clone(&self.name), self.needed);
        async move {
            let mut last = Error::Lost { name: Arc::clone(&name), why: Lost::Expired };
            loop {
                let mut news = std::pin::pin!(changed.notified());
                news.as_mut().enable();
                // Guards may have joined meanwhile, so the watches of all guards are collected again. After a release
                // there are no guards, and the old watches never complete.
                if let Some(held) = weak.upgrade() {
                    if let Some(lost) = held.lost() {
                        return lost.why;
                    }
                    if let Some(news) = each(&held) {
                        watches = news;
                    }
                }
                let mut left = watches.len();
                loop {
                    if left < needed {
                        return renamed(last, &name);
                    }
                    tokio::select! {
                        biased;
                        // A guard that joins counts before a loss at the same moment.
                        () = &mut news => break,
                        Some(error) = watches.next() => {
                            left -= 1;
                            last = error;
                        }
                    }
                }
            }
        }
    }

    /// Completes when the holder of a member was asked to finish. Members that join later are not watched.
    pub(crate) fn revoked(&self) -> BoxFuture<'static, ()> {
        let each = self.each(|guard| guard.revoked().boxed());
        if each.is_empty() {
            return futures::future::pending().boxed();
        }
        futures::future::select_all(each).map(drop).boxed()
    }

    pub(crate) fn why_lost(&self) -> Error {
        if let Some(lost) = self.lost() {
            return lost.why;
        }
        let lost = self.each(|guard| (!guard.is_held()).then(|| guard.why_lost())).into_iter().flatten().next();
        renamed(lost.unwrap_or(Error::Lost { name: Arc::clone(&self.name), why: Lost::Expired }), &self.name)
    }

    /// Extends the leases of all members. At least `needed` extensions must succeed.
    pub(crate) fn extend(&self, lease: Duration) -> BoxFuture<'static, Result<()>> {
        if let Err(error) = check_lease(lease) {
            return Box::pin(std::future::ready(Err(error)));
        }
        if !self.is_held() {
            return Box::pin(std::future::ready(Err(self.why_lost())));
        }
        let all: FuturesUnordered<_> = self.each(|guard| guard.extending(lease)).into_iter().collect();
        let (needed, name) = (self.needed, Arc::clone(&self.name));
        Box::pin(async move { enough(all, needed, false).await.map(drop).map_err(|error| renamed(error, &name)) })
    }

    /// Releases all members, whatever the result of each. Completes when `needed` releases are confirmed.
    pub(crate) fn unlock(&self) -> BoxFuture<'static, Result<Released>> {
        self.watch.abort();
        let lost = (!self.is_held()).then(|| self.why_lost());
        let (guards, known) = {
            let mut inside = self.inside.lock();
            (inside.guards.take().into_iter().flatten(), inside.lost.clone())
        };
        if let Some(lost) = known.map(|known| known.why).or(lost) {
            // Dropped guards are released in the background.
            drop(guards);
            return Box::pin(std::future::ready(Err(lost)));
        }
        let all: FuturesUnordered<_> = guards.map(Guard::unlocking).collect();
        let (needed, size, name) = (self.needed, self.size, Arc::clone(&self.name));
        Box::pin(async move {
            let each = enough(all, needed, false).await.map_err(|error| renamed(error, &name))?;
            Ok(released(&each, size, needed))
        })
    }

    /// Releases the held members and waits for the releases, so that the next attempt of the same acquire finds these
    /// members free.
    pub(crate) async fn release_grants(&self) {
        self.watch.abort();
        let guards = self.inside.lock().guards.take().into_iter().flatten();
        let all = guards.filter(Guard::is_held).map(Guard::unlocking);
        drop(futures::future::join_all(all.collect::<Vec<_>>()).await);
    }

    /// Ends the guards without a release.
    pub(crate) fn give_up(&self) -> Owner {
        self.owner.reveal();
        self.watch.abort();
        let guards = self.inside.lock().guards.take();
        for guard in guards.into_iter().flatten() {
            drop(guard.into_owner());
        }
        self.owner.clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Result of releasing a group of `size` members that counts as held while `needed` members are held. `Free` if fewer
/// than `needed` members can still be held. Otherwise `StillHeld` with the smallest count among the members that are
/// still held.
pub(crate) fn released(each: &[Released], size: usize, needed: usize) -> Released {
    let left = each.iter().filter_map(|released| match released {
        Released::StillHeld(left) => Some(*left),
        Released::Free => None,
    });
    let (least, held) = left.fold((u32::MAX, 0), |(least, held), left| (least.min(left), held + 1));
    if each.len() - held > size - needed { Released::Free } else { Released::StillHeld(least) }
}

/// Runs requests until `enough` of them have succeeded, or with `all` until every request has ended. Returns the
/// results in the order of arrival. Drops the requests that are still pending; commands already begun are completed in
/// the background. If too few requests succeed, returns the first `Lost` error, else the first `NotHeld` error, else
/// the first error.
pub(crate) async fn enough<T>(
    mut work: FuturesUnordered<BoxFuture<'static, Result<T>>>,
    enough: usize,
    all: bool,
) -> Result<Vec<T>> {
    let (mut done, mut failed) = (Vec::new(), None);
    while all || done.len() < enough {
        match work.next().await {
            Some(Ok(output)) => done.push(output),
            Some(Err(error)) => {
                let telling = |error: &Error| match error {
                    Error::Lost { .. } => 2,
                    Error::NotHeld { .. } => 1,
                    _ => 0,
                };
                if failed.as_ref().is_none_or(|known| telling(known) < telling(&error)) {
                    failed = Some(error);
                }
            }
            None if done.len() >= enough => break,
            None => return Err(failed.unwrap_or(Error::Closed)),
        }
    }
    Ok(done)
}

/// Converts a member's error into an error of the group.
pub(crate) fn renamed(error: Error, name: &Arc<str>) -> Error {
    let name = Arc::clone(name);
    match error {
        Error::Lost { why, .. } => Error::Lost { name, why },
        Error::NotHeld { why, .. } => Error::NotHeld { name, why },
        Error::ReleasePending { why, .. } => Error::ReleasePending { name, why },
        error => error,
    }
}
