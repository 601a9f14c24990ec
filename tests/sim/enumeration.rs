//! C1: every public async function, polled k times and dropped, for every k; alone, contended, behind a local waiter, and
//! with every fault at every command and at every await point. Nothing may be left, nobody else may be stopped.

use std::time::Duration;

use distlock::{Flavour, Prefer};
use distlock_sim::Mishap;

use crate::cases::{Op, Scene};
use crate::rig::{ms, virtually};
use crate::trial::{Break, Case, Fault, When, run};

/// What goes wrong with one command of the subject's client.
const MISHAPS: [&[Mishap]; 11] = [
    &[Mishap::LoseRequest],
    &[Mishap::LoseReply],
    &[Mishap::SwallowRequest],
    &[Mishap::SwallowReply],
    &[Mishap::NotSent],
    &[Mishap::DuplicateRequest],
    &[Mishap::DelayBy(ms(30))],
    // Carried out after the client has given it up.
    &[Mishap::DelayBy(ms(230))],
    &[Mishap::DelayBy(ms(60)), Mishap::LoseReply],
    &[Mishap::DuplicateRequest, Mishap::LoseReply],
    &[Mishap::SwallowReply, Mishap::DuplicateRequest],
];
const REFUSALS: [&str; 3] = [
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "LOADING Redis is loading the dataset in memory",
    "OOM command not allowed when used memory > 'maxmemory'.",
];
const BREAKS: [Break; 8] = [
    Break::Restart(true),
    Break::Restart(false),
    Break::HangUp,
    Break::Partition(ms(50)),
    Break::Partition(ms(300)),
    Break::Stall(ms(300)),
    Break::Freeze(ms(300)),
    Break::Jump(ms(700)),
];

/// With `CASE` set, only those that have it in their text are traced: a failure prints it.
fn wanted(case: &Case) -> bool {
    std::env::var("CASE").map_or(true, |text| format!("{case:?}").contains(&text))
}

/// What the cases of one function brought.
struct Tally {
    flavour: Flavour,
    prefer: Prefer,
    cases: u64,
    failures: Vec<String>,
    /// The longest clean-up without a fault, and with one.
    calm: Duration,
    rough: Duration,
    deepest: usize,
}

impl Tally {
    fn new(flavour: Flavour, prefer: Prefer) -> Self {
        let (calm, rough) = (Duration::ZERO, Duration::ZERO);
        Self { flavour, prefer, cases: 0, failures: Vec::new(), calm, rough, deepest: 0 }
    }

    /// Every k and both ends of it, with one fault. How many polls it takes to the end, and commands, at the most.
    async fn every_poll(&mut self, op: Op, scene: Scene, fault: Fault) -> (usize, u64) {
        let mut sent = 0;
        for polls in 0..200 {
            for when in [When::AtOnce, When::Woken] {
                if polls == 0 && when == When::Woken {
                    continue;
                }
                let Self { flavour, prefer, .. } = *self;
                let case = Case { flavour, prefer, op, scene, fault: fault.clone(), polls, when };
                crate::trace::mute(!wanted(&case));
                crate::trace::say(|| format!("{case:?}"));
                self.cases += 1;
                match run(&case).await {
                    Ok(seen) => {
                        let took = if matches!(fault, Fault::None) { &mut self.calm } else { &mut self.rough };
                        *took = seen.took.max(*took);
                        self.deepest = self.deepest.max(polls);
                        sent = sent.max(seen.sent);
                        if seen.complete {
                            return (polls, sent);
                        }
                    }
                    Err(why) => {
                        self.failures.push(format!("{case:?}: {why}"));
                        // The rest would say the same.
                        return (polls, sent);
                    }
                }
            }
        }
        self.failures.push(format!("{op:?} {scene:?} {fault:?}: no end"));
        (200, sent)
    }

    async fn every_fault(&mut self, op: Op, scene: Scene) {
        let (polls, sent) = self.every_poll(op, scene, Fault::None).await;
        // Behind others and among its own, most do what they do in the contended scene.
        let same = self.flavour != Flavour::Reentrant && matches!(scene, Scene::Behind | Scene::Local);
        if !op.faults_in(scene) || same {
            return;
        }
        let refusals = REFUSALS.map(|text| vec![Mishap::Refuse(text.into())]);
        for number in 0..sent {
            for mishaps in MISHAPS.iter().map(|mishaps| mishaps.to_vec()).chain(refusals.clone()) {
                self.every_poll(op, scene, Fault::Command(number, mishaps)).await;
            }
        }
        for poll in 0..polls {
            for what in BREAKS {
                self.every_poll(op, scene, Fault::Break(poll, what)).await;
            }
        }
    }
}

fn enumerate(flavour: Flavour, prefer: Prefer, op: Op) {
    let mut tally = virtually(async move || {
        let mut tally = Tally::new(flavour, prefer);
        let scenes: &[Scene] = match (flavour, prefer) {
            (Flavour::Read, Prefer::Writers) => &[Scene::HeldBack],
            _ => &[Scene::Alone, Scene::Contended, Scene::Behind, Scene::Local],
        };
        for scene in scenes {
            tally.every_fault(op, *scene).await;
        }
        tally
    });
    println!(
        "C1 {flavour} {prefer:?} {op:?}: {} cases, up to {} await points, clean within {:?} without and {:?} with a fault",
        tally.cases, tally.deepest, tally.calm, tally.rough
    );
    let n = tally.failures.len();
    tally.failures.truncate(12);
    assert!(n == 0, "{n} failures, the first of them:\n{}", tally.failures.join("\n"));
    assert!(tally.cases >= 100 && tally.deepest >= 1, "that was not all");
}

macro_rules! each {
    ($($module:ident $flavour:ident $prefer:ident { $($test:ident: $op:ident;)* })*) => {
        $(mod $module {
            use super::{Flavour, Op, Prefer, enumerate};

            $(#[test] fn $test() { enumerate(Flavour::$flavour, Prefer::$prefer, Op::$op); })*
        })*
    };
}

macro_rules! all {
    ($($module:ident $flavour:ident;)*) => {
        each! {
            $($module $flavour Readers {
                c1_lock: Lock;
                c1_try_lock: TryLock;
                c1_lock_for: LockFor;
                c1_lock_leased: LockLeased;
                c1_acquire_as_an_owner: First;
                c1_acquire_as_a_shared_owner: FirstShared;
                c1_acquire_again: Again;
                c1_acquire_again_as_a_shared_owner: AgainShared;
                c1_acquire_again_leased: AgainLeased;
                c1_scope: Scope;
                c1_unlock: Unlock;
                c1_unlock_leased: UnlockLeased;
                c1_unlock_one_of_two: UnlockInner;
                c1_extend: Extend;
                c1_extend_to_less: ExtendShort;
                c1_state: State;
                c1_is_locked: IsLocked;
                c1_remaining_ttl: RemainingTtl;
                c1_hold_count: HoldCount;
                c1_is_held_by: IsHeldBy;
                c1_force_unlock: ForceUnlock;
                c1_release: Release;
                c1_release_one_of_two: ReleaseInner;
                c1_run: Run;
                c1_run_of_work_that_outlasts_the_lease: RunLost;
                c1_lost: Lost;
                c1_expiring: Expiring;
                c1_shutdown: Shutdown;
                c1_renew_now: RenewNow;
            })*
        }
    };
}

all! {
    reentrant Reentrant;
    fair Fair;
}

each! {
    read Read Readers {
        c1_lock: Lock;
        c1_try_lock: TryLock;
        c1_lock_leased: LockLeased;
        c1_acquire_as_a_shared_owner: FirstShared;
        c1_acquire_again: Again;
        c1_acquire_again_as_a_shared_owner: AgainShared;
        c1_acquire_again_leased: AgainLeased;
        c1_acquire_while_writing: Under;
        c1_unlock: Unlock;
        c1_unlock_leased: UnlockLeased;
        c1_unlock_one_of_two: UnlockInner;
        c1_extend_to_less: ExtendShort;
        c1_state: State;
        c1_force_unlock: ForceUnlock;
        c1_release: Release;
        c1_release_one_of_two: ReleaseInner;
        c1_run_of_work_that_outlasts_the_lease: RunLost;
        c1_shutdown: Shutdown;
        c1_renew_now: RenewNow;
    }
    read_held_back Read Writers {
        c1_lock: Lock;
        c1_lock_for: LockFor;
        c1_acquire_as_an_owner: First;
    }
    write Write Readers {
        c1_lock: Lock;
        c1_lock_leased: LockLeased;
        c1_acquire_again: Again;
        c1_acquire_again_leased: AgainLeased;
        c1_acquire_while_reading: Upgrade;
        c1_downgrade: Downgrade;
        c1_downgrade_leased: DowngradeLeased;
        c1_unlock: Unlock;
        c1_unlock_one_of_two: UnlockInner;
        c1_extend_to_less: ExtendShort;
        c1_force_unlock: ForceUnlock;
        c1_release: Release;
        c1_shutdown: Shutdown;
    }
    write_first Write Writers {
        c1_lock: Lock;
        c1_try_lock: TryLock;
        c1_lock_for: LockFor;
        c1_acquire_as_an_owner: First;
        c1_acquire_as_a_shared_owner: FirstShared;
        c1_acquire_again_as_a_shared_owner: AgainShared;
        c1_downgrade: Downgrade;
    }
    fenced Fenced Readers {
        c1_acquire_again: Again;
        c1_acquire_again_as_a_shared_owner: AgainShared;
        c1_shutdown: Shutdown;
    }
    spin Spin Readers {
        c1_lock: Lock;
        c1_unlock: Unlock;
    }
    plain Plain Readers {
        c1_lock: Lock;
        c1_try_lock: TryLock;
        c1_lock_for: LockFor;
        c1_lock_leased: LockLeased;
        c1_acquire_as_an_owner: First;
        c1_acquire_as_a_shared_owner: FirstShared;
        c1_scope: Scope;
        c1_unlock: Unlock;
        c1_unlock_leased: UnlockLeased;
        c1_extend: Extend;
        c1_extend_to_less: ExtendShort;
        c1_state: State;
        c1_force_unlock: ForceUnlock;
        c1_release: Release;
        c1_run_of_work_that_outlasts_the_lease: RunLost;
        c1_shutdown: Shutdown;
        c1_renew_now: RenewNow;
    }
}
