//! Runs the steps.

use super::nemesis::{breaks, forge, trouble};
use super::owners::{by_owner, into_owner, lend};
use super::plan::{Act, Faults, Kind, Sharing, Step};
use super::scene::{FORCE_MAY_LAST, Scene};
use super::state::{Held, Spot, State};
use crate::prelude::*;

pub type Beside = JoinSet<()>;

pub async fn step(scene: &Arc<Scene>, beside: &mut Beside, step: Step) {
    let mut dice = Numbers::lane(step.seed, 1);
    let pick = |scene: &Scene, dice: &mut Numbers| {
        let state = scene.state.lock();
        let n = state.held.len() as u64;
        (n > 0).then(|| *state.held.keys().nth(dice.below(n) as usize).unwrap())
    };
    match step.act {
        Act::Acquire => acquire(scene, beside, &mut dice, None).await,
        Act::Pause => {}
        Act::ByOwner => by_owner(scene, &mut dice).await,
        Act::Force => force(scene, beside, &mut dice).await,
        Act::Forge => forge(scene, beside, &mut dice),
        Act::Break => breaks(scene, beside, &mut dice),
        Act::Runtime => {}
        Act::GiveBack => {
            let Some(id) = pick(scene, &mut dice) else { return };
            give_back(scene, beside, &mut dice, id).await;
        }
        Act::Extend => {
            let Some(id) = pick(scene, &mut dice) else { return };
            let beside_it = scene.another_of(id).filter(|_| scene.theme.faults == Faults::Late && dice.once_in(2));
            extend(scene, beside, &mut dice, id).await;
            if let Some(other) = beside_it.filter(|other| scene.state.lock().held.contains_key(other)) {
                // The extend did not shorten the lease because of this other hold. After its release, a late copy of
                // the extend might shorten the lease.
                give_back(scene, beside, &mut dice, other).await;
            }
        }
        Act::IntoOwner => {
            let Some(id) = pick(scene, &mut dice) else { return };
            into_owner(scene, id);
            if dice.once_in(3) {
                // The mark that the hold has no guard may not have reached every server.
                by_owner(scene, &mut dice).await;
            }
        }
        Act::Lend => {
            let Some(id) = pick(scene, &mut dice) else { return };
            let given = lend(scene, id);
            acquire(scene, beside, &mut dice, Some(given)).await;
        }
        Act::Downgrade => {
            let Some(id) = pick(scene, &mut dice) else { return };
            downgrade(scene, &mut dice, id).await;
        }
    }
    scene.look("after a step");
    scene.look_exactly();
    scene.look_late();
    pause(scene, &mut dice, step.act == Act::Pause).await;
}

/// Lets time pass, and checks the rules.
async fn pause(scene: &Scene, dice: &mut Numbers, long: bool) {
    // Most pauses are short here, because races need steps that overlap.
    let dense = scene.theme.sharing == Sharing::Becoming && dice.below(4) > 0;
    let next = scene.next_copy();
    if next.is_some_and(|at| at - Instant::now() < scene.timeout) && dice.once_in(2) {
        // Returns at once, so that more steps run before the copy arrives.
        return;
    }
    let copy = next.filter(|_| scene.theme.faults == Faults::Late && dice.once_in(3));
    let span = match dice.below(if long { 20 } else { 24 }) {
        // Sleeps until the copy has arrived.
        _ if copy.is_some() => copy.unwrap_or_else(Instant::now) - Instant::now() + ms(2),
        _ if dense && !long => dice.between(0, 5),
        0 if scene.theme.faults != Faults::None || scene.theme.forged => dice.between(5_000, 62_000),
        0..3 => dice.between(500, 4_000),
        3..9 => dice.between(20, 600),
        _ if long => dice.between(20, 900),
        9..17 => dice.between(0, 12),
        _ => return,
    };
    scene.say(|| format!("pause of {span:?}"));
    let end = Instant::now() + span;
    for left in (0..3).rev() {
        let until = end - span / 3 * left;
        // Looks right after each late copy, because its effect may soon disappear.
        while let Some(at) = scene.next_copy().map(|at| at + ms(1)).filter(|at| *at < until) {
            sleep_until(at).await;
            scene.look("behind a late copy");
            scene.look_late();
        }
        sleep_until(until).await;
        scene.look("in a pause");
    }
    scene.look_late();
}

fn spot(scene: &Scene, dice: &mut Numbers) -> Spot {
    let party = dice.below(scene.clients as u64) as usize;
    let lock = dice.below(scene.locks() as u64) as usize;
    Spot { party, lock, reads: scene.kind == Kind::Rw && dice.below(5) < 3 }
}

fn lease(scene: &Scene, dice: &mut Numbers) -> Duration {
    // Holds get longer leases, so that a late command finds a holder.
    let longer = if scene.theme.faults == Faults::Late { 2 } else { 0 };
    let lease = match dice.below(8) {
        n if n <= longer => dice.between(1_000, 60_000),
        1..4 => dice.between(300, 1_500),
        _ => dice.between(15, 300),
    };
    let mut state = scene.state.lock();
    state.longest = state.longest.max(lease);
    lease
}

async fn acquire(scene: &Arc<Scene>, beside: &mut Beside, dice: &mut Numbers, given: Option<usize>) {
    let mut spot = spot(scene, dice);
    let mut how = Acquire::new();
    let n = scene.state.lock().given.len();
    let given = given.or_else(|| (!dice.once_in(3)).then(|| dice.below(n as u64) as usize));
    if let Some(given) = given {
        let given = &mut scene.state.lock().given[given];
        spot.party = given.party(spot.party);
        how = how.owner(&given.at(spot.party));
    }
    if scene.theme.leases && dice.once_in(3) {
        how = how.lease(lease(scene, dice));
    }
    let waits = dice.below(if scene.theme.forged { 4 } else { 2 }) > 0;
    how = how.wait(if waits { dice.between(1, 900) } else { Duration::ZERO });
    let cancel = (scene.theme.cancel && dice.once_in(5)).then(|| dice.between(0, 90));
    trouble(scene, dice, spot.party);
    let who = given.map(|n| scene.state.lock().given[n].text());
    scene.say(|| format!("acquire {spot:?} as {who:?}: {how:?}, dropped after {cancel:?}"));
    let likely = if scene.theme.sharing == Sharing::Becoming { 1 } else { 4 };
    let (scene, given, began) = (Arc::clone(scene), given.is_some(), Instant::now());
    let busy = scene.busy();
    let work = async move {
        let _busy = busy;
        let lock = scene.lock(spot);
        let acquiring = lock.acquire(how);
        let acquired = match cancel {
            Some(after) => timeout(after, acquiring).await.unwrap_or(Ok(None)),
            None => acquiring.await,
        };
        match acquired {
            Ok(Some(guard)) => drop(scene.enter(spot, guard, given, began)),
            // An acquire in doubt is undone, and a second look follows.
            Err(error @ (Error::Timeout { .. } | Error::Connection { .. })) => {
                scene.say(|| format!("not acquired {spot:?}: {error}"));
            }
            busy_or_failed => {
                scene.say(|| format!("not acquired {spot:?}: {busy_or_failed:?}"));
                scene.gives_back();
            }
        }
    };
    if waits && dice.below(4) > 0 || dice.once_in(likely) {
        beside.spawn(work);
    } else {
        work.await;
    }
}

async fn give_back(scene: &Arc<Scene>, beside: &mut Beside, dice: &mut Numbers, id: usize) {
    let held = scene.take(id);
    scene.gives_back();
    trouble(scene, dice, held.spot.party);
    if !held.guard.is_held() {
        // The rest of the hold may stay in Redis until the lock is free.
        scene.leave_behind(&held, Instant::now());
    }
    let how = dice.below(if scene.theme.cancel { 5 } else { 4 });
    scene.say(|| format!("{id} given back, by way {how}: {:?}", held.guard));
    let within = match how {
        0 => return drop(held.guard),
        4 => dice.between(0, 8),
        _ => ms(60_000),
    };
    let (shown, busy) = (Arc::clone(scene), scene.busy());
    let work = async move {
        let _busy = busy;
        let result = timeout(within, held.guard.unlock()).await;
        shown.say(|| format!("{id} unlocked: {result:?}"));
    };
    if how == 1 || scene.theme.sharing == Sharing::Becoming && how == 2 { drop(beside.spawn(work)) } else { work.await }
}

async fn extend(scene: &Arc<Scene>, beside: &mut Beside, dice: &mut Numbers, id: usize) {
    let mut held = scene.take(id);
    let lease = lease(scene, dice);
    let within = if scene.theme.cancel && dice.once_in(5) { dice.between(0, 8) } else { ms(60_000) };
    trouble(scene, dice, held.spot.party);
    scene.say(|| format!("{id} extended by {lease:?}, dropped after {within:?}"));
    // A copy of the first extend may be in flight.
    let again = (scene.theme.faults == Faults::Late && dice.once_in(3)).then(|| self::lease(scene, dice));
    let (shown, busy) = (Arc::clone(scene), scene.busy());
    let work = async move {
        let _busy = busy;
        let mut result = timeout(within, held.guard.extend(lease)).await;
        shown.say(|| format!("{id} extended: {result:?}"));
        if let Some(again) = again.filter(|_| held.guard.is_held()) {
            result = Ok(held.guard.extend(again).await);
            shown.say(|| format!("{id} extended by {again:?}: {result:?}"));
        }
        held.may_be_cut = !matches!(result, Ok(Ok(())));
        shown.put(id, held);
    };
    if dice.once_in(4) { drop(beside.spawn(work)) } else { work.await }
}

async fn downgrade(scene: &Arc<Scene>, dice: &mut Numbers, id: usize) {
    if scene.state.lock().held[&id].spot.reads {
        return;
    }
    let held = scene.take(id);
    trouble(scene, dice, held.spot.party);
    let _busy = scene.busy();
    scene.gives_back();
    let (spot, given) = (Spot { reads: true, ..held.spot }, !held.who.contains('#'));
    let began = Instant::now();
    let result = held.guard.downgrade().await;
    scene.say(|| format!("{id} downgraded: {result:?}"));
    match result {
        Ok(guard) => {
            scene.enter(spot, guard, given, began);
        }
        // A failed downgrade may have acquired the read hold and released it again.
        Err(_) => scene.gives_back(),
    }
}

async fn force(scene: &Arc<Scene>, beside: &mut Beside, dice: &mut Numbers) {
    let spot = spot(scene, dice);
    trouble(scene, dice, spot.party);
    scene.say(|| format!("{spot:?} is forced open"));
    scene.begin_force(spot);
    scene.gives_back();
    // The guards that existed before the force was sent.
    let is_same = |held: &Held| held.spot.lock == spot.lock && held.spot.reads == spot.reads;
    let ids = |state: &State| state.held.iter().filter(|(_, held)| is_same(held)).map(|(id, _)| *id).collect();
    let before: Vec<usize> = ids(&scene.state.lock());
    let (busy, began) = (scene.busy(), Instant::now());
    let result = scene.lock(spot).force_unlock().await;
    scene.say(|| format!("{spot:?} was forced open: {result:?}"));
    let in_time_for = scene.in_time_for();
    let lasts = if result.is_err() { FORCE_MAY_LAST.min(in_time_for * 2) } else { ms(1_000).min(in_time_for) };
    scene.end_force(spot, Instant::now() + lasts);
    drop(busy);
    if matches!(result, Ok(true)) {
        scene.note_forced(&before, began);
    }
    // The owner of the ended hold acquires again, at its own client and at others.
    let owner = before.first().and_then(|id| Some(scene.state.lock().held.get(id)?.owner.clone()));
    let given = owner.and_then(|owner| scene.state.lock().given.iter().position(|given| given.text() == owner));
    for _ in 0..given.map_or(0, |_| dice.below(3)) {
        acquire(scene, beside, dice, given).await;
    }
}

impl Scene {
    /// Marks a step as running until this is dropped.
    pub fn busy(self: &Arc<Self>) -> impl Drop + use<> {
        struct Busy(Arc<Scene>);
        impl Drop for Busy {
            fn drop(&mut self) {
                self.0.state.lock().busy -= 1;
            }
        }
        self.state.lock().busy += 1;
        Busy(Arc::clone(self))
    }

    /// Records that something may still happen within `span` from now.
    pub fn quiet_after(&self, span: Duration) {
        let mut state = self.state.lock();
        state.quiet = state.quiet.max(Some(Instant::now() + span));
    }
}
