//! A few fixed seeds of everything, for `./x quick`: seconds instead of minutes.

use crate::cases::Op;
use crate::cluster::random::{Trouble, run_all};
use crate::counters::plan::Harm;
use crate::counters::{latches, permits, semaphores};
use crate::enumeration::without_faults;
use crate::prelude::*;
use crate::sequences::plan::{Kind, Theme};
use crate::sequences::trial::run_seeds;
use crate::{random, weather};

#[test]
fn random_runs_in_calm_and_storm_violate_no_rule() {
    for flavour in EXCLUSIVE {
        random::run_all(flavour, weather::Kind::Calm, 0..1);
        random::run_all(flavour, weather::Kind::Storm, 0..1);
    }
}

#[test]
fn calls_dropped_at_every_await_point_violate_no_rule() {
    for flavour in EXCLUSIVE {
        without_faults(flavour, &[Op::Lock, Op::LockFor, Op::Unlock]);
    }
}

#[test]
fn short_sequences_of_every_lock_kind_violate_no_rule() {
    use Kind::*;
    let kinds = [Reentrant, Fair, Pair, Rw, Fenced, Spin, Plain, Multi, Red, RedPlain];
    for (kind, theme) in pairs(kinds, [Theme::ALONE, Theme::LATE_SHARED, Theme::STORM]) {
        run_seeds(kind, theme, 0..4);
    }
}

#[test]
fn slot_moves_and_primary_failures_violate_no_rule() {
    run_all(Trouble::Moves, 0..1);
    run_all(Trouble::All, 0..1);
}

#[test]
fn permits_semaphores_and_latches_violate_no_rule() {
    for harm in [Harm::None, Harm::Storm] {
        permits::run_all(harm, false, 0..2);
        semaphores::run_all(harm, 0..2);
        latches::run_all(harm, 0..2);
    }
    permits::run_all(Harm::Kills, false, 0..2);
}
