//! C1 of RedLocks, multi locks and fenced locks: every await point, and every fault at every one.

use std::time::Duration;

use distlock_sim::Mishap;

use super::trial::{Case, Fault, Op, Scene, run};
use crate::rig::{ms, virtually};
use crate::trial::{Break, When};

/// With `FULL` set every fault is tried at every command to every server and at every poll; without, those that differ,
/// each with some six of the polls, others each time.
fn full() -> bool {
    std::env::var_os("FULL").is_some()
}

fn mishaps() -> Vec<Vec<Mishap>> {
    let some = [
        vec![Mishap::LoseReply],
        vec![Mishap::SwallowRequest],
        vec![Mishap::SwallowReply],
        // Carried out after the client has given it up.
        vec![Mishap::DelayBy(ms(230))],
    ];
    let more = [
        vec![Mishap::LoseRequest],
        vec![Mishap::NotSent],
        vec![Mishap::DuplicateRequest],
        vec![Mishap::DelayBy(ms(30))],
        vec![Mishap::DelayBy(ms(60)), Mishap::LoseReply],
        vec![Mishap::DuplicateRequest, Mishap::LoseReply],
        vec![Mishap::Refuse("OOM command not allowed when used memory > 'maxmemory'.".into())],
        vec![Mishap::Refuse("LOADING Redis is loading the dataset in memory".into())],
    ];
    some.into_iter().chain(more.into_iter().filter(|_| full())).collect()
}

fn breaks() -> Vec<Break> {
    let some = [Break::Freeze(ms(300)), Break::Jump(ms(700))];
    let more = [
        Break::Restart(true),
        Break::Restart(false),
        Break::HangUp,
        Break::Partition(ms(50)),
        Break::Partition(ms(300)),
        Break::Stall(ms(300)),
    ];
    some.into_iter().chain(more.into_iter().filter(|_| full())).collect()
}

struct Tally {
    cases: u64,
    deepest: usize,
    turn: usize,
    stride: usize,
    calm: Duration,
    rough: Duration,
    failures: Vec<String>,
}

impl Tally {
    /// Every k and both ends of it, with one fault. How many polls it takes to the end, and commands, at the most.
    async fn every_poll(&mut self, op: Op, scene: Scene, fault: Fault) -> (usize, Vec<u64>) {
        let mut sent = vec![0; scene.servers()];
        let some = !full() && !matches!(fault, Fault::None);
        if some {
            self.turn = (self.turn + 1) % self.stride;
        }
        for polls in (if some { self.turn } else { 0 }..300).step_by(if some { self.stride } else { 1 }) {
            for when in if some { [When::AtOnce].as_slice() } else { &[When::AtOnce, When::Woken] } {
                let when = *when;
                if polls == 0 && when == When::Woken {
                    continue;
                }
                let case = Case { op, scene, fault: fault.clone(), polls, when };
                crate::trace::mute(std::env::var("CASE").is_ok_and(|text| !format!("{case:?}").contains(&text)));
                crate::trace::say(|| format!("{case:?}"));
                self.cases += 1;
                match run(&case).await {
                    Ok(seen) => {
                        let took = if matches!(fault, Fault::None) { &mut self.calm } else { &mut self.rough };
                        *took = seen.took.max(*took);
                        self.deepest = self.deepest.max(polls);
                        sent.iter_mut().zip(seen.sent).for_each(|(most, sent)| *most = sent.max(*most));
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
        (300, sent)
    }
}

fn enumerate(scene: Scene, ops: &'static [Op]) {
    let mut tally = virtually(async move || {
        let (calm, rough) = (Duration::ZERO, Duration::ZERO);
        let mut tally = Tally { cases: 0, deepest: 0, turn: 0, stride: 1, calm, rough, failures: Vec::new() };
        for op in ops {
            let (polls, sent) = tally.every_poll(*op, scene, Fault::None).await;
            tally.stride = 1 + polls / 6;
            if *op != ops[0] && !full() {
                continue;
            }
            // The first is the one that is waited at; the last stands for the others.
            let servers = 0..scene.servers();
            let some = servers.filter(|n| full() || *n == 0 || n + 1 == scene.servers());
            for server in some.collect::<Vec<_>>() {
                for number in 0..sent[server] {
                    for mishaps in mishaps() {
                        tally.every_poll(*op, scene, Fault::Command(server, number, mishaps)).await;
                    }
                }
                for poll in 0..polls {
                    for what in breaks() {
                        tally.every_poll(*op, scene, Fault::Break(server, poll, what)).await;
                    }
                }
            }
        }
        tally
    });
    println!(
        "C1 {scene:?}: {} cases, up to {} await points, clean within {:?} without and {:?} with a fault",
        tally.cases, tally.deepest, tally.calm, tally.rough
    );
    let n = tally.failures.len();
    tally.failures.truncate(8);
    assert!(n == 0, "{n} failures, the first of them:\n{}", tally.failures.join("\n"));
    assert!(tally.cases >= 50 && tally.deepest >= 2, "that was not all: {} cases", tally.cases);
}

macro_rules! each {
    ($($test:ident: $scene:ident [$($op:ident),*];)*) => {
        $(#[test] fn $test() { enumerate(Scene::$scene, &[$(Op::$op),*]); })*
    };
}

each! {
    c1_red_lock: Red [Lock, TryLock, LockLeased, Unlock, Extend];
    c1_red_lock_behind_a_holder: RedBehind [Lock, LockFor, TryLock, Unlock];
    c1_red_lock_with_two_servers_away: RedAway [Lock, LockFor, TryLock];
    c1_red_lock_in_a_queue: RedFair [Lock, LockFor];
    c1_multi_lock_by_one_script: Batch [Lock, TryLock, LockLeased, Unlock, Extend];
    c1_multi_lock_over_two_servers: Mixed [Lock, TryLock, LockLeased, Unlock, Extend];
    c1_multi_lock_behind_a_holder: BatchBehind [Lock, LockFor, TryLock, LockLeased];
    c1_multi_lock_of_all_kinds_behind_a_holder: MixedBehind [Lock, LockFor, LockLeased];
    c1_fenced_lock: Fenced [Lock, LockLeased, Unlock];
    c1_fenced_lock_behind_a_holder: FencedBehind [Lock, LockFor, Unlock];
}
