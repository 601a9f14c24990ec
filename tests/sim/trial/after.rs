//! Checks after the call of a case.

use super::{Case, Fault, bound};
use crate::cases::{Op, Others, Subject};
use crate::fleet::Fleet;
use crate::made::{NAME, ROUND_TRIP, TIMEOUT, WATCHDOG};
use crate::prelude::*;

/// Checks the result of the call, and returns its guard.
pub fn returned_guard(
    case: &Case,
    outcome: Option<distlock::Result<Option<Guard>>>,
    told: &str,
) -> Result<Option<Guard>, String> {
    if let (Some(Err(error)), Fault::None, false) = (&outcome, &case.fault, matches!(case.op, Op::RunLost | Op::Lost)) {
        return Err(format!("failed without a fault: {error}"));
    }
    let given = outcome.and_then(Result::ok).flatten();
    if given.as_ref().is_some_and(|guard| !guard.is_held()) {
        return Err(format!("M2: not held when it is given: {told}"));
    }
    Ok(given)
}

/// Checks for a while that the servers keep the subject's holds.
pub async fn check_holds(case: &Case, fleet: &Fleet, subject: &Subject) -> Result<(), String> {
    if case.scene.is_watched() {
        for _ in 0..if subject.held.is_empty() || case.fault.forgets() { 0 } else { 12 } {
            subject.held.iter().try_for_each(|guard| case.made.has(fleet, guard))?;
            sleep(ms(2)).await;
        }
    } else if !subject.held.is_empty() && case.op != Op::Shutdown {
        // M4: after a while, the server counts exactly the subject's remaining holds.
        sleep(bound(case)).await;
        check_counts(case, &fleet.servers[0], subject)?;
    }
    Ok(())
}

/// W1: all other tasks get the lock too.
pub async fn wait_for_others(
    case: &Case,
    fleet: &Fleet,
    others: Others,
    dropped: Instant,
    told: &str,
) -> Result<(), String> {
    let more = if case.scene.is_watched() { ms(1500) } else { ms(0) };
    let patience = dropped.max(Instant::now()) + 3 * bound(case) + more;
    for other in others.tasks {
        match timeout_at(patience, other).await {
            Ok(Ok(Ok(()))) => {}
            // The obstacle's lease may have ended meanwhile.
            Ok(Ok(Err(Error::Lost { .. } | Error::NotHeld { .. } | Error::ReleasePending { .. })))
                if !matches!(case.fault, Fault::None) => {}
            Ok(odd) => return Err(format!("another task: {odd:?}; the call: {told}")),
            Err(_) => return Err(format!("another task still waits; the call: {told}; {}", fleet.left_over())),
        }
    }
    Ok(())
}

/// Waits until nothing is left, checks again, and acquires the lock.
pub async fn check_free(case: &Case, fleet: &Fleet) -> Result<(), String> {
    fleet.settled(bound(case)).await?;
    look_again(case, fleet).await?;
    match case.made.lock(fleet, 2).lock_for(ms(50)).await {
        Ok(Some(guard)) => drop(guard.unlock().await),
        odd => return Err(format!("the next acquire: {odd:?}")),
    }
    Ok(())
}

/// Shuts the clients down. Nothing may be in flight afterwards.
pub async fn shut_down(op: Op, fleet: &Fleet) -> Result<(), String> {
    for party in fleet.clients.iter().flatten() {
        match party.client.shutdown(ms(1000)).await {
            Ok(()) => {}
            Err(Error::Closed) if op == Op::Shutdown => {}
            Err(error) => return Err(format!("shutdown: {error}")),
        }
        let busy = party.busy();
        if !busy.is_empty() {
            return Err(format!("after the shutdown: {busy}"));
        }
    }
    Ok(())
}

/// Unlocks the guards if the number of polls is even, else drops them.
pub async fn give_back(case: &Case, subject: &mut Subject) -> Result<(), String> {
    for guard in subject.held.drain(..).rev() {
        if case.polls.is_multiple_of(2) {
            let held = guard.is_held();
            let released = timeout(ms(10_000), guard.unlock()).await.map_err(|_| "unlock hangs".to_owned())?;
            if held && matches!(case.fault, Fault::None) && released.is_err() && case.op != Op::ForceUnlock {
                return Err(format!("unlock: {released:?}"));
            }
        }
    }
    drop(subject.other.take());
    if matches!(case.op, Op::Release | Op::ReleaseInner) && case.polls == 0 {
        let _ = subject.lock.release(&subject.owner).await;
    }
    Ok(())
}

/// A late copy of the command may still arrive, and the second look must find its effect. Only the lease ends effects
/// that no client can know: a copy of an answered command, and one more hold of a shared owner.
async fn look_again(case: &Case, fleet: &Fleet) -> Result<(), String> {
    if matches!(case.fault, Fault::None) {
        return Ok(());
    }
    let unseen = case.op.is_shared() || format!("{:?}", case.fault).contains("Duplicate");
    sleep(2 * TIMEOUT + 2 * ROUND_TRIP + if unseen { WATCHDOG } else { ms(0) }).await;
    let mut left = fleet.left_over();
    // The command that the fault hits may be a check of a passed-on fair lock or of a member, which is still running.
    if (case.made.has_queues() || case.scene.is_watched()) && !left.contains("key") {
        left = fleet.settled(2 * TIMEOUT).await.err().unwrap_or_default();
    }
    if left.is_empty() { Ok(()) } else { Err(format!("left after the second look: {left}")) }
}

/// M4: the server counts the holds of the subject.
fn check_counts(case: &Case, server: &SimServer, subject: &Subject) -> Result<(), String> {
    for guard in subject.held.iter().filter(|guard| guard.is_held() && !case.op.is_shared()) {
        let half = if case.op.is_downgrade() { Flavour::Read } else { case.made.flavour() };
        let has = count(server, half, NAME, &text(guard.owner()));
        let same = || subject.held.iter().filter(|other| other.owner() == guard.owner());
        // If a lease has ended locally, its key may or may not have expired.
        let (least, most) = (same().filter(|other| other.is_held()).count() as u64, same().count() as u64);
        // The count is too high if a copy of an acquire arrived after the correction, or if the server refused the
        // correction. The last release still frees the lock.
        let fault = format!("{:?}", case.fault);
        let over = ["Duplicate", "DelayBy(230ms)", "OOM"].iter().any(|late| fault.contains(late));
        if has < least || (has > most && !over) {
            return Err(format!("M4: the server has a count of {has} for {most} guards, {least} of them held"));
        }
    }
    Ok(())
}
