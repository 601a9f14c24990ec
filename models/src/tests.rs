//! The models, each with the real table and with a broken one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::thread;

use crate::broken::{Broken, LetGo, NoReserve, Sound, Stale, TwoLooks, TwoSteps};
use crate::client::{Holds, Real, World};
use crate::ledger::Entry as _;

/// Runs a model in every order of its threads' steps that has at most `preemptions` preemptions.
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Asserts that this broken model fails, with these words.
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
fn holds_of_two_tasks_of_owner_are_registered() {
    explore(2, two_tasks_of_an_owner::<Real>);
}

#[test]
fn model_detects_reservation_released_too_early() {
    finds_out("held, but", two_tasks_of_an_owner::<LetGo>);
}

/// A second task of the owner waits until the first hold has ended. Meanwhile the first task acquires again.
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
fn cancelled_acquire_does_not_affect_concurrent_acquires() {
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
fn hold_removed_from_table_is_not_reused() {
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
fn owner_reacquires_while_its_other_task_acquires() {
    explore(3, in_turns::<Real>);
    explore(3, in_turns::<Broken<Sound>>);
}

#[test]
fn model_detects_release_that_removes_hold_of_pending_attempt() {
    finds_out("held, but", in_turns::<Broken<NoReserve>>);
}

/// A lock is acquired, released and acquired again during a round of the watchdog. A late answer about the first hold
/// must not apply to the second.
fn again_and_again<T: Holds + Send + Sync + 'static>() {
    let world = World::<T>::new();
    // A second acquire of the same owner is in flight all the time, so the hold stays in the table.
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
fn late_reply_does_not_end_newer_hold() {
    explore(4, again_and_again::<Real>);
}

#[test]
fn model_detects_stale_replies_applied_to_newer_hold() {
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
fn cancelled_acquire_does_not_remove_hold_of_same_owner() {
    explore(3, || beside_one_who_gives_up::<Real>(true));
}

#[test]
fn model_detects_registration_in_two_steps() {
    // Without a flaw the second implementation passes, so only the flaw causes the failures below.
    explore(3, || beside_one_who_gives_up::<Broken<Sound>>(true));
    finds_out("held, but not registered", || beside_one_who_gives_up::<Broken<TwoSteps>>(false));
}

#[test]
fn model_detects_clean_up_in_two_steps() {
    finds_out("held, but not registered", || beside_one_who_gives_up::<Broken<TwoLooks>>(true));
}

#[test]
fn handed_over_hold_stays_registered() {
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
fn ended_hold_stays_ended_and_leaves_table() {
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
        // The owner re-enters its hold. If the hold has ended, the owner gets a new one.
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
fn renewal_notices_stolen_hold_and_table_is_emptied() {
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
        // The next round must notice the deleted key.
        world.renew();
        assert!(!world.is_held(&guard), "not noticed");
        world.release(guard);
        world.assert_empty();
    });
}
