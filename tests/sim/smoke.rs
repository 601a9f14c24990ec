//! A few fixed seeds of everything, for `./x quick`: seconds instead of minutes.

use crate::cases::Op;
use crate::cluster::random::{Trouble, run_all};
use crate::enumeration::without_faults;
use crate::prelude::*;
use crate::sequences::plan::{Kind, Theme};
use crate::sequences::trial::run_seeds;
use crate::{random, weather};

#[test]
fn locks_in_calm_weather_and_in_a_storm() {
    for flavour in EXCLUSIVE {
        random::run_all(flavour, weather::Kind::Calm, 0..1);
        random::run_all(flavour, weather::Kind::Storm, 0..1);
    }
}

#[test]
fn calls_that_are_dropped_at_every_await_point() {
    for flavour in EXCLUSIVE {
        without_faults(flavour, &[Op::Lock, Op::LockFor, Op::Unlock]);
    }
}

#[test]
fn short_sequences_of_every_kind_of_lock() {
    for kind in Kind::ALL {
        for theme in [Theme::ALONE, Theme::LATE_SHARED, Theme::STORM] {
            run_seeds(kind, theme, 0..4);
        }
    }
}

#[test]
fn clusters_whose_slots_move_and_whose_primaries_die() {
    run_all(Trouble::Moves, 0..1);
    run_all(Trouble::All, 0..1);
}
