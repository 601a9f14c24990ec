//! The models, each with the real table and with a broken one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::thread;

use crate::broken::{Broken, LetGo, NoReserve, Sound, Stale, TwoLooks, TwoSteps};
use crate::client::{Holds, Real, World};
use crate::ledger::Entry as _;

/// Runs a model in every order of its threads' steps with at most `preemptions` preemptions.
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Asserts that a model of something broken fails, with these words.
pub(crate) fn finds_out(words: &str, model: impl Fn() + Sync + Send + 'static) {
    let outcome = catch_unwind(AssertUnwindSafe(|| explore(3, model)));
    let panic = outcome.expect_err("the model does not see what is broken");
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    assert!(text.is_some_and(|text| text.contains(words)), "failed for another reason: {text:?}");
}

/// Two tasks acquire and release as one owner during a round of the watchdog.
fn two_tasks_of_an_owner<T: Holds + Send + Sync + 'static>() {
    let world = World::<T>::new();
    let other = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let guard = world.acquire();
            world.assert_held(&guard);
            world.release(guard);
        })
    };
    let watchdog = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.renew())
    };
    let guard = world.acquire();
    world.assert_held(&guard);
    world.release(guard);
    other.join().unwrap();
    watchdog.join().unwrap();
    world.assert_empty();
}

#[test]
fn two_tasks_of_an_owner_hold_what_is_registered() {
    explore(2, two_tasks_of_an_owner::<Real>);
}

#[test]
fn a_reservation_let_go_too_early_is_found_out() {
    finds_out("held, but", two_tasks_of_an_owner::<LetGo>);
}

/// A task acquires again while another task of the same owner waits for the end of the first hold.
fn in_turns<T: Holds + Send + Sync + 'static>() {
    let world = World::<T>::new();
    let guard = world.acquire();
    let other = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let guard = world.acquire();
            world.assert_held(&guard);
            world.release(guard);
        })
    };
    world.release(guard);
    let guard = world.acquire();
    world.assert_held(&guard);
    world.release(guard);
    other.join().unwrap();
    world.assert_empty();
}

#[test]
fn a_caller_that_gives_up_leaves_those_who_are_under_way_alone() {
    explore(2, || {
        let world = World::<Real>::new();
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let guard = world.acquire();
                world.assert_held(&guard);
                world.release(guard);
            })
        };
        let passer_by = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.go(&world.come()))
        };
        let guard = world.acquire();
        world.assert_held(&guard);
        world.release(guard);
        other.join().unwrap();
        passer_by.join().unwrap();
        world.assert_empty();
    });
}

#[test]
fn a_hold_that_has_left_the_table_is_not_taken_up_again() {
    explore(3, || {
        let world = World::<Real>::new();
        let guard = world.acquire_fresh();
        let hold = Arc::clone(&guard.hold);
        world.release(guard);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let guard = world.acquire();
                world.assert_held(&guard);
                world.release(guard);
            })
        };
        let guard = world.acquire_with(&hold);
        world.assert_held(&guard);
        world.release(guard);
        other.join().unwrap();
        world.assert_empty();
    });
}

#[test]
fn tasks_of_an_owner_take_turns() {
    explore(3, in_turns::<Real>);
    explore(3, in_turns::<Broken<Sound>>);
}

#[test]
fn a_release_that_takes_the_hold_from_under_an_attempt_is_found_out() {
    finds_out("held, but", in_turns::<Broken<NoReserve>>);
}

/// A lock is acquired, released and acquired again during a round of the watchdog. A late answer about the first hold
/// must not apply to the second.
fn again_and_again<T: Holds + Send + Sync + 'static>() {
    let world = World::<T>::new();
    // Another acquire of the same owner waits all the time, so the hold stays in the table.
    let waiting = world.come();
    let guard = world.acquire();
    let watchdog = {
        let (world, holds) = (Arc::clone(&world), world.watched());
        thread::spawn(move || world.renew_these(holds))
    };
    world.release(guard);
    let guard = world.acquire();
    world.assert_held(&guard);
    watchdog.join().unwrap();
    world.assert_held(&guard);
    world.release(guard);
    world.go(&waiting);
    world.assert_empty();
}

#[test]
fn a_late_answer_never_ends_a_newer_hold() {
    explore(4, again_and_again::<Real>);
}

#[test]
fn answers_taken_for_ones_about_the_present_are_found_out() {
    finds_out("lost, although nobody took it", again_and_again::<Stale>);
}

/// A hold is registered while another acquire of the same owner starts and is cancelled.
fn beside_one_who_gives_up<T: Holds + Send + Sync + 'static>(given: bool) {
    let world = World::<T>::new();
    let other = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.go(&world.come()))
    };
    let watchdog = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.renew())
    };
    let guard = if given { world.acquire() } else { world.acquire_fresh() };
    world.assert_held(&guard);
    world.release(guard);
    other.join().unwrap();
    watchdog.join().unwrap();
    world.assert_empty();
}

#[test]
fn a_caller_that_gives_up_takes_nothing_with_it() {
    explore(3, || beside_one_who_gives_up::<Real>(true));
}

#[test]
fn a_registration_in_two_steps_is_found_out() {
    // Without a flaw the second implementation is sound, so the flaw causes the failure below.
    explore(3, || beside_one_who_gives_up::<Broken<Sound>>(true));
    finds_out("held, but not registered", || beside_one_who_gives_up::<Broken<TwoSteps>>(false));
}

#[test]
fn a_clean_up_in_two_steps_is_found_out() {
    finds_out("held, but not registered", || beside_one_who_gives_up::<Broken<TwoLooks>>(true));
}

#[test]
fn a_hold_that_is_handed_over_stays_registered() {
    explore(4, || {
        let world = World::<Real>::new();
        let guard = world.acquire_fresh();
        let watchdog = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.renew();
                world.renew();
            })
        };
        let guard = World::<Real>::hand_over(guard);
        world.assert_held(&guard);
        world.release(guard);
        watchdog.join().unwrap();
        world.assert_empty();
    });
}

#[test]
fn a_hold_that_has_ended_stays_so_and_leaves_the_table() {
    explore(3, || {
        let world = World::<Real>::new();
        let guard = world.acquire();
        let watchdog = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.renew();
                world.renew();
            })
        };
        let clock = {
            let world = Arc::clone(&world);
            let hold = Arc::clone(&guard.hold);
            thread::spawn(move || {
                world.expire(&hold);
                assert!(hold.book().end().is_some());
            })
        };
        let seen_lost = !world.is_held(&guard);
        // The owner re-enters its hold, or gets a new hold if the first has ended.
        let again = world.acquire();
        assert!(!(seen_lost && world.is_held(&guard)), "revived");
        world.release(again);
        world.release(guard);
        watchdog.join().unwrap();
        clock.join().unwrap();
        world.assert_empty();
    });
}

#[test]
fn a_theft_is_noticed_and_leaves_nothing() {
    explore(4, || {
        let world = World::<Real>::new();
        let guard = world.acquire();
        let thief = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.steal())
        };
        let watchdog = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.renew())
        };
        let seen_lost = !world.is_held(&guard);
        thief.join().unwrap();
        watchdog.join().unwrap();
        assert!(!(seen_lost && world.is_held(&guard)), "revived");
        // The next round notices the theft for certain.
        world.renew();
        assert!(!world.is_held(&guard), "not noticed");
        world.release(guard);
        world.assert_empty();
    });
}
