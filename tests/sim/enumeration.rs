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
    /// How many faults were tried.
    turn: usize,
}

impl Tally {
    fn new(flavour: Flavour, prefer: Prefer) -> Self {
        let (calm, rough) = (Duration::ZERO, Duration::ZERO);
        Self { flavour, prefer, cases: 0, failures: Vec::new(), calm, rough, deepest: 0, turn: 0 }
    }

    /// Every k and both ends of it, with one fault; with a fault, and without `FULL`, one end of each k, of every other one
    /// for other flavours than the reentrant one: of the next fault the others. How many polls it takes to the end, and
    /// commands, at the most.
    async fn every_poll(&mut self, op: Op, scene: Scene, fault: Fault) -> (usize, u64) {
        let mut sent = 0;
        let all = matches!(fault, Fault::None) || std::env::var_os("FULL").is_some();
        let stride = if all || self.flavour == Flavour::Reentrant { 1 } else { 2 };
        self.turn += 1;
        let turn = self.turn;
        for polls in (turn % stride..200).step_by(stride) {
            let ends = [When::AtOnce, When::Woken];
            let one = (polls + turn) / stride % 2;
            for when in if all { ends.to_vec() } else { vec![ends[one]] } {
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

/// Every poll of these calls where nothing goes wrong.
pub fn without_faults(flavour: Flavour, ops: &'static [Op]) {
    let failures = virtually(async move || {
        let mut tally = Tally::new(flavour, Prefer::Readers);
        for (op, scene) in ops.iter().flat_map(|op| [(*op, Scene::Alone), (*op, Scene::Contended)]) {
            tally.every_poll(op, scene, Fault::None).await;
        }
        tally.failures
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn enumerate(flavour: Flavour, prefer: Prefer, ops: &'static [Op]) {
    let mut tally = virtually(async move || {
        let mut tally = Tally::new(flavour, prefer);
        let scenes: &[Scene] = match (flavour, prefer) {
            (Flavour::Read, Prefer::Writers) => &[Scene::HeldBack],
            _ => &[Scene::Alone, Scene::Contended, Scene::Behind, Scene::Local],
        };
        for op in ops {
            let before = tally.cases;
            for scene in scenes {
                tally.every_fault(*op, *scene).await;
            }
            assert!(tally.cases - before >= 50, "{op:?}: {} cases, that was not all", tally.cases - before);
        }
        tally
    });
    println!(
        "C1 {flavour} {prefer:?}: {} cases, up to {} await points, clean within {:?} without and {:?} with a fault",
        tally.cases, tally.deepest, tally.calm, tally.rough
    );
    let n = tally.failures.len();
    tally.failures.truncate(12);
    assert!(n == 0, "{n} failures, the first of them:\n{}", tally.failures.join("\n"));
    assert!(tally.deepest >= 1, "no call was dropped half-way");
}

macro_rules! each {
    ($($test:ident: $flavour:ident $prefer:ident [$($op:ident)*];)*) => {
        $(#[test] fn $test() { enumerate(Flavour::$flavour, Prefer::$prefer, &[$(Op::$op),*]); })*
    };
}

each! {
    reentrant_acquires: Reentrant Readers [Lock TryLock LockFor LockLeased First FirstShared Again AgainShared AgainLeased Scope];
    reentrant_releases: Reentrant Readers [Unlock UnlockLeased UnlockInner ForceUnlock Release ReleaseInner Shutdown];
    reentrant_others: Reentrant Readers
        [Extend ExtendShort State IsLocked RemainingTtl HoldCount IsHeldBy Run RunLost Lost Expiring RenewNow];
    fair_acquires: Fair Readers [Lock TryLock LockFor LockLeased First FirstShared Again AgainShared AgainLeased Scope];
    fair_releases: Fair Readers [Unlock UnlockLeased UnlockInner ForceUnlock Release ReleaseInner Shutdown];
    fair_others: Fair Readers
        [Extend ExtendShort State IsLocked RemainingTtl HoldCount IsHeldBy Run RunLost Lost Expiring RenewNow];
    read: Read Readers [
        Lock TryLock LockLeased FirstShared Again AgainShared AgainLeased Under Unlock UnlockLeased UnlockInner ExtendShort
        State ForceUnlock Release ReleaseInner RunLost Shutdown RenewNow
    ];
    read_held_back: Read Writers [Lock LockFor First];
    write: Write Readers [
        Lock LockLeased Again AgainLeased Upgrade Downgrade DowngradeLeased Unlock UnlockInner ExtendShort ForceUnlock
        Release Shutdown
    ];
    write_first: Write Writers [Lock TryLock LockFor First FirstShared AgainShared Downgrade];
    fenced: Fenced Readers [Again AgainShared Shutdown];
    spin: Spin Readers [Lock Unlock];
    plain: Plain Readers [
        Lock TryLock LockFor LockLeased First FirstShared Scope Unlock UnlockLeased Extend ExtendShort State ForceUnlock
        Release RunLost Shutdown RenewNow
    ];
}
