//! Holds without guards: guards that leave their hold to the owner, and releases by owner.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::aftermath::notify_waiters;
use super::doubt::look_again;
use super::send::{in_time, lease_left, lease_left_to_others, send, until_answered};
use crate::engine::Engine;
use crate::engine::hold::{Grant, Hold, Target};
use crate::engine::ledger::Entry as _;
use crate::engine::protocol::{Giving, HoldId, MUST_CONFIRM, PASSED, Protocol, Release};
use crate::error::{Error, NotHeld, Result};
use crate::owner::Owner;
use crate::runtime::reaper::Finished;
use crate::state::Released;
use crate::topology::ServerClock;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

static DISOWN: Script = Script::new(
    "common/disown",
    concat!(include_str!("../../../lua/common/holds.lua"), include_str!("../../../lua/common/disown.lua")),
);

/// Removes a guard but leaves its hold to the owner. The lease is no longer renewed.
pub(crate) fn give_up(mut grant: Grant) -> Owner {
    let (engine, hold, level) = (Arc::clone(&grant.engine), Arc::clone(&grant.hold), grant.level);
    let owner = hold.owner.clone();
    owner.reveal();
    if !grant.take() {
        return owner;
    }
    let (number, none_left, doubted) = {
        let mut book = hold.book();
        let Some(number) = book.close(level).filter(|_| book.end().is_none()) else {
            // The code that ended the hold cleans up.
            return owner;
        };
        let tenure = book.tenure();
        (number, book.counted_down(tenure), book.undoubt(number))
    };
    engine.guard_left();
    if number > 0 {
        disown(&engine, &hold, number, doubted);
    }
    if none_left {
        engine.holds.released(&hold.key(), &hold);
        engine.registry.forget(&hold);
    }
    owner
}

/// Marks a hold in Redis as a hold without a guard. A release by owner then releases this hold before any hold of a
/// guard. `doubted`: a late copy of the hold's acquire may still arrive.
fn disown(engine: &Arc<Engine>, hold: &Arc<Hold>, number: u64, doubted: bool) {
    let HoldId::Listed(id) = engine.hold_id(&hold.owner, number) else { return };
    if !hold.protocol.nature().reentrant {
        // Redis lists no holds of such a lock: the owner has no other hold that could be confused with this one.
        if doubted {
            look_again(engine, hold, number, &Bytes::new());
        }
        return;
    }
    // Noted at once, so that a later release by owner releases this hold first.
    hold.book().give_up(number);
    let target = Target::reserve(engine, Arc::clone(hold), number, Bytes::new());
    engine.reaper.finish(Box::pin(async move {
        let Target { engine, hold, .. } = &*target;
        let _order = hold.in_order().await;
        let look = || {
            if doubted {
                // The mark changes the hold's id, so `look_again` finds only a copy of the acquire that arrived after
                // the hold's release.
                look_again(engine, hold, number, &Bytes::new());
            }
        };
        if !hold.book().remove_given_up(number) {
            // A release by owner has taken the hold already.
            return look();
        }
        let until = engine.now() + engine.options.watchdog;
        let words =
            vec![Arg::Text(hold.name().key.clone()), Arg::Text(hold.protocol.field(&hold.owner)), Arg::Text(id)];
        let call = |_: &ServerClock| Call { script: &DISOWN, keys: 1, words: words.clone() };
        let (reply, _) = until_answered(engine, hold.name(), false, until, call, |_| false).await;
        look();
        if let Err(fault) = reply {
            // A release by owner may release another hold first.
            tracing::debug!(lock.name = %hold.name().as_written, ?fault, "a hold without a guard stays listed");
        }
    }));
}

/// Number of times that a release by owner looks for a hold without a guard, because the mark of such a hold may still
/// be in flight. The last time, the release takes any hold.
const LOOKS: u32 = 8;

/// Number of retries after another client has released the named hold first.
const RACES: u32 = 16;

/// Releases one hold of an owner, preferably one without a guard.
pub(crate) async fn by_owner(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>, owner: &Owner) -> Result<Released> {
    engine.check(protocol.name())?;
    let (engine, protocol, owner) = (Arc::clone(engine), Arc::clone(protocol), owner.clone());
    owner.reveal();
    let reaper = engine.reaper.clone();
    Finished::new(&reaper, async move {
        let fresh = Hold::new(Arc::clone(&protocol), owner.clone());
        let target = Target::reserve(&engine, fresh, 0, Bytes::new());
        let (mut looks, mut races) = (0, 0);
        loop {
            let release = {
                let _order = target.hold.in_order().await;
                release_any_hold(&target, looks + 1 < LOOKS).await?
            };
            match release {
                // Sleeps without the order, so that the mark can be sent meanwhile.
                Release::Which(_) => {
                    looks += 1;
                    tokio::time::sleep(Duration::from_millis(2 << looks)).await;
                }
                // Another client was faster: asks for any other hold.
                Release::NotThere(_) if races < RACES => races += 1,
                release => return conclude(&target, release),
            }
        }
    })
    .await
}

/// Releases a hold of an owner: a hold without a guard, else the hold without an id in Redis, else the newest hold. If
/// `choosy`, the newest hold is named ([`Release::Which`]) but not released.
async fn release_any_hold(target: &Target, choosy: bool) -> Result<Release> {
    let Target { engine, hold, .. } = target;
    let given_up = hold.book().given_up();
    if let Some(number) = given_up {
        // This hold lost its guard, but is not marked in Redis yet.
        let sent = release_named_hold(target, &engine.hold_id(&hold.owner, number)).await;
        if sent.is_err() {
            hold.book().give_up(number);
        }
        return sent.map(|release| match release {
            // The hold ended with its lease: the caller asks for any other hold.
            Release::NotHeld(_) => Release::NotThere(0),
            release => release,
        });
    }
    let lease_left = lease_left_to_others(engine);
    let call = |last_ms| {
        let (mine, publish) = (Bytes::new(), engine.topology.publish());
        hold.protocol.release(&Giving {
            owner: &hold.owner,
            hold: &HoldId::Any,
            lease_left,
            mine,
            last_ms,
            publish,
            waiter: None,
        })
    };
    let too_late = |release: &Release| match release {
        Release::TooLate(at) => Some(*at),
        _ => None,
    };
    let release = in_time(engine, hold.name(), call, |reply| hold.protocol.released(reply), too_late).await?;
    let Release::Which(id) = release else {
        if !matches!(release, Release::NotHeld(_) | Release::NotThere(_)) {
            // A guard of this client may have relied on the unlisted hold.
            engine.released_elsewhere(&hold.protocol, &hold.owner, |_| vec![0]);
        }
        return Ok(release);
    };
    if choosy && !id.starts_with(b"+") {
        return Ok(Release::Which(id));
    }
    let release = release_named_hold(target, &HoldId::Listed(id.clone())).await?;
    if !matches!(release, Release::NotThere(_)) {
        if !hold.protocol.nature().reentrant {
            // The hold was the owner's only hold, whatever its id.
            engine.released_elsewhere(&hold.protocol, &hold.owner, |hold| hold.numbers());
        } else if let Some(number) = engine.number_of(&id) {
            engine.released_elsewhere(&hold.protocol, &hold.owner, |_| vec![number]);
        }
    }
    Ok(release)
}

/// Releases the owner's hold with this id. A repeat changes nothing.
async fn release_named_hold(target: &Target, id: &HoldId) -> Result<Release> {
    let Target { engine, hold, .. } = target;
    let lease_left = {
        let book = hold.book();
        if book.count() == 0 { lease_left_to_others(engine) } else { lease_left(engine, hold, &book) }
    };
    send(engine, hold, id, lease_left, engine.now() + engine.patience(), false).await.outcome
}

/// Converts the answer to the caller's result, and notifies waiters.
fn conclude(target: &Target, release: Release) -> Result<Released> {
    let Target { engine, hold, .. } = target;
    let name = Arc::clone(&hold.name().as_written);
    match release {
        Release::Free(_) | Release::Unannounced(_) => {
            notify_waiters(engine, &hold.protocol, 0);
            let passed = match release {
                Release::Free(0) => PASSED,
                Release::Free(passed) => passed.into(),
                _ => MUST_CONFIRM,
            };
            engine.queues.check_passed(&hold.protocol, passed, engine.now());
            Ok(Released::Free)
        }
        Release::Others => Ok(Released::Free),
        Release::Left(left) => Ok(Released::StillHeld(left)),
        Release::NotHeld(holder) => {
            let why = holder.map_or(NotHeld::Never, |owner| NotHeld::HeldBy { owner });
            Err(Error::NotHeld { name, why })
        }
        Release::NotThere(_) => Err(Error::NotHeld { name, why: NotHeld::Never }),
        odd @ (Release::TooLate(_) | Release::Which(_)) => Err(Error::odd_reply("release", &odd)),
    }
}
