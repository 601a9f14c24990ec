//! The programs, each with all rules in force and with one rule switched off.

use super::rules::{Op, Play, Switch};
use super::search::search;

const fn acquire(slot: u8, lease: u8) -> Op {
    Op::Acquire { slot, lease }
}

const fn release(slot: u8) -> Op {
    Op::Release { slot }
}

const fn extend(slot: u8, lease: u8) -> Op {
    Op::Extend { slot, lease }
}

/// Asserts that the search finds no violation with all rules. Each pair in `broken` is a rule, and the violation that
/// the search must find without this rule.
fn holds(ticks: u8, programs: [&[Op]; 3], broken: &[(Switch, &str)]) {
    let programs = programs.map(<[Op]>::to_vec);
    let play = |switch| Play { programs: programs.clone(), ticks, switch };
    match search(&play(Switch::All)) {
        Ok(states) => println!("{states} states"),
        Err(found) => panic!("{}:\n  {}", found.wrong, found.path.join("\n  ")),
    }
    for (switch, words) in broken {
        match search(&play(*switch)) {
            Ok(states) => panic!("{switch:?} is not found out in {states} states"),
            Err(found) => {
                println!("{switch:?}: {}:\n  {}", found.wrong, found.path.join("\n  "));
                assert!(found.wrong.contains(words), "{switch:?} breaks something else: {}", found.wrong);
            }
        }
    }
}

#[test]
fn release_removes_own_hold_and_acquire_counts_once() {
    let broken = [
        (Switch::ReleaseAny, "the server does not have it"),
        (Switch::CountAgain, "the count is 2"),
        (Switch::CountFromReply, "the server until"),
    ];
    holds(2, [&[acquire(0, 2), release(0)], &[acquire(0, 2)], &[acquire(0, 2)]], &broken);
}

#[test]
fn released_hold_does_not_come_back() {
    let broken = [(Switch::AcquireLate, "there again")];
    holds(3, [&[acquire(0, 2), release(0)], &[], &[acquire(0, 1)]], &broken);
}

#[test]
fn lease_lasts_as_last_extend_promised() {
    let broken =
        [Switch::ExtendLate, Switch::ExtendAtOnce, Switch::ExtendTwice].map(|switch| (switch, "the server until"));
    holds(5, [&[acquire(0, 4), extend(0, 3), extend(0, 4)], &[], &[acquire(0, 2)]], &broken);
}

#[test]
fn extend_beside_other_holders_is_recorded() {
    let broken = [(Switch::ExtendUnnoted, "the server until")];
    let programs: [&[Op]; 3] = [&[acquire(0, 4), extend(0, 3), extend(0, 4)], &[acquire(0, 2), release(0)], &[]];
    holds(2, programs, &broken);
}

#[test]
fn lease_lasts_as_long_as_any_client_was_promised() {
    let broken = [(Switch::ExtendOthers, "the server until")];
    holds(2, [&[acquire(0, 2), extend(0, 1)], &[acquire(0, 3)], &[]], &broken);
    let broken = [(Switch::ExtendByNumber, "the server until")];
    holds(1, [&[acquire(0, 2), acquire(1, 2), extend(0, 1), release(1)], &[acquire(0, 3)], &[]], &broken);
}

#[test]
fn release_does_not_shorten_lease() {
    let broken = [(Switch::ReleaseByNumber, "the server until")];
    holds(1, [&[acquire(0, 2), acquire(1, 3), release(0)], &[acquire(0, 3)], &[]], &broken);
    let broken = [(Switch::ReleaseShortens, "the server until")];
    holds(1, [&[acquire(0, 2), acquire(1, 2), release(1), extend(0, 3)], &[], &[]], &broken);
}

#[test]
fn forced_release_has_no_effect_after_its_last_moment() {
    let broken = [(Switch::ForceLate, "the server does not have it")];
    holds(3, [&[acquire(0, 4)], &[Op::Force], &[acquire(0, 2)]], &broken);
}

#[test]
fn reentry_beside_lost_hold_is_reported() {
    let broken = [(Switch::NoWitness, "came in again beside")];
    holds(2, [&[acquire(0, 3), acquire(1, 3)], &[Op::Force], &[]], &broken);
}

/// The search visits several million states, so this test runs only on request, in an optimised build.
#[test]
#[ignore = "takes minutes: cargo test --release -p distlock-models -- --ignored"]
fn combined_programs_violate_no_rule() {
    let programs: [&[Op]; 3] =
        [&[acquire(0, 2), acquire(1, 3), release(0)], &[acquire(0, 2), release(0)], &[acquire(0, 2)]];
    holds(3, programs, &[(Switch::ReleaseAny, "the server does not have it")]);
}
