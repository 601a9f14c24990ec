//! Many short random sequences over one or three simulated servers, with two or three clients. Several clients may use
//! one owner. Commands are lost, duplicated, or up to a minute late. Messages are forged, and runtimes end.
//!
//! At any time, a guard that reports held must be held for as long as it says (M1, M2, M4), whatever other holds are
//! released. After all releases and late commands, nothing is left. A failure names the broken rule: `M1`, `M2`, `M4`,
//! or
//!
//! - `own`: a hold ends only by its own release, by the end of its lease or by a force. No command about another hold
//!   ends it.
//! - `once`: each hold is counted once, and nothing stays counted after its release.
//! - `late`: a late command has no effect.
//!
//! `SEEDS=n` sets the number of sequences for each test, `FROM=n` the first seed, and `SEED=n` replays one seed. A
//! failure prints the fewest steps that still fail. `TRACE=1` prints every command. `Looks` in the output counts the
//! looks that compared something.

mod given;
mod guards;
mod late;
mod look;
mod nemesis;
mod owners;
pub mod plan;
mod play;
mod scene;
mod state;
pub mod trial;

use crate::rig::seeds;
use plan::{Kind, Theme};
use trial::run_seeds;

/// Tests of one flavour: the lock's kind, the number of sequences, and one test for each theme.
macro_rules! themes {
    ($($flavour:ident: $kind:ident, $number:literal, [$($test:ident: $theme:ident;)*];)*) => {
        $(mod $flavour {
            use super::*;

            $(#[test] fn $test() { run_seeds(Kind::$kind, Theme::$theme, seeds($number)); })*
        })*
    };
}

macro_rules! flavours {
    ($($flavour:ident: $kind:ident, $number:literal;)*) => {
        themes! {
            $($flavour: $kind, $number, [
                owners_of_one_client: ALONE;
                owners_of_many_clients: SHARED;
                owners_that_become_shared: BECOMING;
                owners_that_are_lent: LENT;
                releases_by_owner: BY_OWNER;
                late_releases_by_owner: BY_OWNER_LATE;
                late_commands_and_force: FORCED;
                late_commands: LATE;
                late_commands_of_shared_owners: LATE_SHARED;
                forged_messages: FORGED;
                breaks: BROKEN;
                everything: STORM;
            ];)*
        }
    };
}

flavours! {
    reentrant: Reentrant, 60;
    fair: Fair, 70;
    fair_pair: Pair, 40;
    rw: Rw, 60;
    fenced: Fenced, 30;
    spin: Spin, 20;
    plain: Plain, 40;
    multi: Multi, 50;
    red: Red, 30;
    red_plain: RedPlain, 20;
}
