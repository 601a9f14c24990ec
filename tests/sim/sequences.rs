//! Very many short random sequences over one or three simulated servers: two or three clients, owners that several of
//! them act as, commands that are lost, doubled, or come in up to a minute late, forged messages, runtimes that end.
//!
//! At every moment every guard that says that it is held must be so for as long as it says (M1, M2, M4), whoever else
//! gives something back; and when all is given back, and all that was late has come in, nothing is left. What goes wrong
//! is told by what it breaks: one of these, or `own`: a hold ends by its own release, its lease or a force, and by nothing that
//! is done about another one; `once`: each hold is counted once, and nothing stays counted that was given back; `late`: what
//! comes in late has no effect.
//!
//! `SEEDS=n` tries so many a test, `FROM=n` begins there, `SEED=n` replays one. A failure prints the fewest steps that still fail; with
//! `TRACE=1` every command. What is printed as `Looks` is how many looks compared something.
//!
//! A million of them, optimised: `SEEDS=13000 cargo test --release --test sim sequences`.

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

use plan::{Kind, Theme};
use trial::run;

/// The tests of a flavour of locks: what it is tried with, and how many sequences of that.
macro_rules! themes {
    ($($flavour:ident: $kind:ident, $number:literal, [$($test:ident: $theme:ident;)*];)*) => {
        $(mod $flavour {
            use super::{Kind, Theme, run};

            $(#[test] fn $test() { run(Kind::$kind, Theme::$theme, $number); })*
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
