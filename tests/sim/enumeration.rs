//! C1: polls every public async function k times and drops it, for every k. The caller is alone, contends with another
//! client, or waits behind a task of its own client. Every fault hits every command and every await point. Nothing may
//! be left, and other clients must get the lock. RedLocks, multi locks and fenced locks run over several servers.

use crate::cases::{Op, Scene};
use crate::made::Made;
use crate::prelude::*;
use crate::trial::{Break, Case, Fault, Seen, When, run};

const MISHAPS: [&[Mishap]; 11] = [
    &[Mishap::LoseReply],
    &[Mishap::SwallowRequest],
    &[Mishap::SwallowReply],
    // The command runs after the client has timed out.
    &[Mishap::DelayBy(ms(230))],
    &[Mishap::LoseRequest],
    &[Mishap::NotSent],
    &[Mishap::DuplicateRequest],
    &[Mishap::DelayBy(ms(30))],
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
    Break::Freeze(ms(300)),
    Break::Jump(ms(700)),
    Break::Restart(true),
    Break::Restart(false),
    Break::HangUp,
    Break::Partition(ms(50)),
    Break::Partition(ms(300)),
    Break::Stall(ms(300)),
];
/// Without `FULL`, watched scenes try only this many of the first `MISHAPS` and `BREAKS`.
const FEW: (usize, usize) = (4, 2);

struct Tally {
    made: Made,
    prefer: Prefer,
    cases: u64,
    failures: Vec<String>,
    deepest: usize,
    turn: usize,
    /// Step between the numbers of polls that are tried with a fault. Successive faults start at different offsets.
    stride: usize,
}

impl Tally {
    fn new(made: Made, prefer: Prefer) -> Self {
        Self { made, prefer, cases: 0, failures: Vec::new(), deepest: 0, turn: 0, stride: 1 }
    }

    /// Runs one case. With `CASE` set, only cases whose text contains it are traced; a failure prints that text.
    async fn case(&mut self, case: Case) -> Option<Seen> {
        crate::trace::mute(std::env::var("CASE").is_ok_and(|text| !format!("{case:?}").contains(&text)));
        crate::trace::say(|| format!("{case:?}"));
        self.cases += 1;
        match run(&case).await {
            Ok(seen) => {
                self.deepest = self.deepest.max(case.polls);
                Some(seen)
            }
            Err(why) => {
                self.failures.push(format!("{case:?}: {why}"));
                None
            }
        }
    }

    /// Tries every number of polls and both drop times (`When`) with one fault. With a fault and without `FULL`, skips
    /// numbers by `stride` and tries one drop time each. Returns the number of polls that completes the call, and the
    /// most commands that a case sent to each server.
    async fn every_poll(&mut self, op: Op, scene: Scene, fault: Fault) -> (usize, Vec<u64>) {
        let mut sent = vec![0; self.made.servers()];
        let all = matches!(fault, Fault::None) || full();
        let stride = if all { 1 } else { self.stride };
        self.turn += 1;
        let turn = self.turn;
        for polls in (turn % stride..300).step_by(stride) {
            let ends = [When::AtOnce, When::Woken];
            // A call without a poll has no waker, so it is dropped at once.
            let one = if polls == 0 { 0 } else { (polls + turn) / stride % 2 };
            for when in if all && polls > 0 { ends.to_vec() } else { vec![ends[one]] } {
                let Self { made, prefer, .. } = *self;
                // After a failure, the remaining numbers of polls would fail in the same way.
                let case = Case { made, prefer, op, scene, fault: fault.clone(), polls, when };
                let Some(seen) = self.case(case).await else { return (polls, sent) };
                sent.iter_mut().zip(seen.sent).for_each(|(most, sent)| *most = sent.max(*most));
                if seen.complete {
                    return (polls, sent);
                }
            }
        }
        self.failures.push(format!("{op:?} {scene:?} {fault:?}: no end"));
        (300, sent)
    }

    /// Tries every number of polls without a fault and, if `faults` is set, with every fault.
    async fn every_fault(&mut self, op: Op, scene: Scene, faults: bool) {
        let (polls, sent) = self.every_poll(op, scene, Fault::None).await;
        if !faults {
            return;
        }
        let (mut mishaps, mut breaks): (Vec<_>, _) = (MISHAPS.map(<[_]>::to_vec).into(), BREAKS.to_vec());
        mishaps.extend(REFUSALS.map(|text| vec![Mishap::Refuse(text.into())]));
        if scene.is_watched() {
            self.stride = 1 + polls / 6;
            if !full() {
                mishaps.truncate(FEW.0);
                breaks.truncate(FEW.1);
            }
        }
        // Without `FULL`, only the first server, where the lock waits, and the last server get faults.
        for server in (0..sent.len()).filter(|n| full() || *n == 0 || n + 1 == sent.len()) {
            for (number, mishaps) in pairs(0..sent[server], mishaps.clone()) {
                self.every_poll(op, scene, Fault::Command(server, number, mishaps)).await;
            }
            for (poll, what) in pairs(0..polls, breaks.clone()) {
                self.every_poll(op, scene, Fault::Break(server, poll, what)).await;
            }
        }
    }
}

pub fn without_faults(flavour: Flavour, ops: &'static [Op]) {
    let failures = virtually(async move || {
        let mut tally = Tally::new(Made::One(flavour), Prefer::Readers);
        for (op, scene) in pairs(ops.iter().copied(), [Scene::Alone, Scene::Contended]) {
            tally.every_poll(op, scene, Fault::None).await;
        }
        tally.failures
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn enumerate(made: Made, prefer: Prefer, scenes: &'static [Scene], ops: &'static [Op]) {
    let mut tally = virtually(async move || {
        let mut tally = Tally::new(made, prefer);
        // Other flavours than the reentrant one try every second number of polls. They skip faults in the scenes with
        // a local holder or waiter, where most calls behave as in the contended scene.
        let is_first = made == Made::One(Flavour::Reentrant);
        tally.stride = if is_first { 1 } else { 2 };
        for op in ops {
            let before = tally.cases;
            for scene in scenes {
                let faults = match scene {
                    Scene::Behind | Scene::Local => is_first && op.faults_in(*scene),
                    scene if scene.is_watched() => *op == ops[0] || full(),
                    scene => op.faults_in(*scene),
                };
                tally.every_fault(*op, *scene, faults).await;
            }
            let cases = tally.cases - before;
            assert!(cases >= 50 || scenes[0].is_watched(), "{op:?}: {cases} cases, that was not all");
        }
        tally
    });
    println!("C1 {made:?} {prefer:?} {scenes:?}: {} cases, up to {} await points", tally.cases, tally.deepest);
    let n = tally.failures.len();
    tally.failures.truncate(12);
    assert!(n == 0, "{n} failures, the first of them:\n{}", tally.failures.join("\n"));
    assert!(tally.cases >= 50 && tally.deepest >= if scenes[0].is_watched() { 2 } else { 1 }, "that was not all");
}

macro_rules! each_call {
    ($($test:ident: $made:ident $(($flavour:ident))? $prefer:ident $($scene:ident)+ [$($op:ident)*];)*) => {
        $(#[test] fn $test() {
            let made = Made::$made $((Flavour::$flavour))?;
            enumerate(made, Prefer::$prefer, &[$(Scene::$scene),+], &[$(Op::$op),*]);
        })*
    };
}

each_call! {
    reentrant_acquires: One(Reentrant) Readers Alone Contended Behind Local
        [Lock TryLock LockFor LockLeased First FirstShared Again AgainShared AgainLeased Scope];
    reentrant_releases: One(Reentrant) Readers Alone Contended Behind Local
        [Unlock UnlockLeased UnlockInner ForceUnlock Release ReleaseInner Shutdown];
    reentrant_others: One(Reentrant) Readers Alone Contended Behind Local
        [Extend ExtendShort State IsLocked RemainingTtl HoldCount IsHeldBy Run RunLost Lost Expiring RenewNow];
    fair_acquires: One(Fair) Readers Alone Contended Behind Local
        [Lock TryLock LockFor LockLeased First FirstShared Again AgainShared AgainLeased Scope];
    fair_releases: One(Fair) Readers Alone Contended Behind Local
        [Unlock UnlockLeased UnlockInner ForceUnlock Release ReleaseInner Shutdown];
    fair_others: One(Fair) Readers Alone Contended Behind Local
        [Extend ExtendShort State IsLocked RemainingTtl HoldCount IsHeldBy Run RunLost Lost Expiring RenewNow];
    read: One(Read) Readers Alone Contended Behind Local [
        Lock TryLock LockLeased FirstShared Again AgainShared AgainLeased Under Unlock UnlockLeased UnlockInner ExtendShort
        State ForceUnlock Release ReleaseInner RunLost Shutdown RenewNow
    ];
    read_held_back: One(Read) Writers HeldBack [Lock LockFor First];
    write: One(Write) Readers Alone Contended Behind Local [
        Lock LockLeased Again AgainLeased Upgrade Downgrade DowngradeLeased Unlock UnlockInner ExtendShort ForceUnlock
        Release Shutdown
    ];
    write_first: One(Write) Writers Alone Contended Behind Local [Lock TryLock LockFor First FirstShared AgainShared Downgrade];
    fenced: One(Fenced) Readers Alone Contended Behind Local [Again AgainShared Shutdown];
    spin: One(Spin) Readers Alone Contended Behind Local [Lock Unlock];
    plain: One(Plain) Readers Alone Contended Behind Local [
        Lock TryLock LockFor LockLeased First FirstShared Scope Unlock UnlockLeased Extend ExtendShort State ForceUnlock
        Release RunLost Shutdown RenewNow
    ];
    c1_red_lock: Red(Reentrant) Readers Free [Lock TryLock LockLeased Unlock Extend];
    c1_red_lock_behind_a_holder: Red(Reentrant) Readers Obstacle [Lock LockFor TryLock Unlock];
    c1_red_lock_with_two_servers_away: Red(Reentrant) Readers Away [Lock LockFor TryLock];
    c1_red_lock_in_a_queue: Red(Fair) Readers Obstacle [Lock LockFor];
    c1_multi_lock_by_one_script: Batch Readers Free [Lock TryLock LockLeased Unlock Extend];
    c1_multi_lock_over_two_servers: Mixed Readers Free [Lock TryLock LockLeased Unlock Extend];
    c1_multi_lock_behind_a_holder: Batch Readers Obstacle [Lock LockFor TryLock LockLeased];
    c1_multi_lock_of_all_kinds_behind_a_holder: Mixed Readers Obstacle [Lock LockFor LockLeased];
    c1_fenced_lock: One(Fenced) Readers Free [Lock LockLeased Unlock];
    c1_fenced_lock_behind_a_holder: One(Fenced) Readers Obstacle [Lock LockFor Unlock];
}
