//! The deadline of a wait: the remaining time, the grace time after it, and silent servers.

use tokio::time::{Instant, advance, sleep};

use super::{client, done, ms};
use crate::engine::wait::{Deadline, GRACE};
use crate::runtime::standstill::within;

#[tokio::test(start_paused = true)]
async fn wait_ends_on_time_and_replies_count_during_grace() {
    let (client, fake) = client(|_| ());
    let engine = client.engine();
    let new = |wait, before| Deadline::new(engine.topology.world(), wait, before);
    let (limited, endless, once) = (new(Some(ms(100)), ms(30)), new(None, ms(0)), new(Some(ms(0)), ms(0)));
    let began = engine.now();
    assert_eq!((limited.began(), limited.waited_before(), once.began()), (began, ms(30), began));
    assert!(once.is_once() && once.is_over() && !limited.is_once() && !endless.is_once());
    sleep(ms(40)).await;
    assert_eq!((limited.elapsed(), limited.waited(), endless.waited()), (ms(40), ms(70), ms(40)));
    assert!(!limited.is_over() && !endless.is_over());
    assert_eq!((limited.left(), limited.at_most(ms(50)), limited.at_most(ms(70))), (Some(ms(60)), ms(50), ms(60)));
    assert_eq!((endless.left(), endless.at_most(ms(50)), once.left()), (None, ms(50), Some(ms(0))));
    assert_eq!((limited.left_to_answer(), endless.left_to_answer()), (Some(ms(60) + GRACE), None));
    // A single attempt (a wait of zero) may take a whole command timeout.
    let within = |deadline: &Deadline| deadline.left_to_answer_within(ms(500));
    assert_eq!(
        (within(&limited), within(&endless), within(&once)),
        (Some(ms(60) + GRACE), None, Some(ms(460) + GRACE))
    );
    assert_eq!((limited.judged_at(), endless.judged_at()), (engine.now(), engine.now()));
    assert_eq!(once.judged_at(), began + GRACE);
    sleep(ms(60)).await;
    assert!(limited.is_over() && !endless.is_over());
    // The remaining time is never zero, because zero would mean a single attempt.
    assert!(limited.left().is_some_and(|left| !left.is_zero() && left < ms(1)));
    sleep(ms(1000)).await;
    assert!(limited.left().is_some_and(|left| !left.is_zero() && left < ms(1)));
    assert_eq!((limited.left_to_answer(), within(&once)), (Some(ms(0)), Some(ms(0))));
    assert_eq!((limited.judged_at(), endless.judged_at()), (began + ms(100) + GRACE, engine.now()));
    done(client, &fake).await;
}

/// After a suspend of this process or its machine, unread replies may be in the socket.
#[tokio::test(start_paused = true)]
async fn standstill_adds_limited_time_to_read_replies() {
    // The columns are the duration of the work, the duration of the suspend, and the expected output.
    let table = [
        (ms(99), ms(0), Some(ms(99))),
        (ms(101), ms(0), None),
        (ms(130), ms(120), None),
        (ms(130), ms(126), Some(ms(130))),
        (ms(180), ms(126), Some(ms(180))),
        (ms(190), ms(126), None),
    ];
    for (takes, stands_still, told) in table {
        let began = Instant::now();
        let reading = tokio::spawn(within(ms(100), async move {
            sleep(takes).await;
            began.elapsed()
        }));
        tokio::task::yield_now().await;
        advance(stands_still).await;
        assert_eq!(reading.await.unwrap(), told, "{takes:?}, {stands_still:?}");
    }
}

/// A server counts as silent only if two checks agree, the second after unread replies were read. Both checks refer to
/// the end of the wait.
#[tokio::test(start_paused = true)]
async fn server_is_silent_only_if_second_check_agrees() {
    let (client, fake) = client(|_| ());
    let engine = client.engine();
    for (overdue, takes) in [(ms(0), GRACE), (ms(24), GRACE), (ms(25), ms(60)), (ms(5000), ms(60))] {
        // The command timeout of this single attempt has passed.
        let once = Deadline::new(engine.topology.world(), Some(ms(0)), ms(0));
        for silent in [&[false][..], &[true, false], &[true, true]] {
            let deadline = Deadline::new(engine.topology.world(), Some(ms(100)), ms(0));
            let began = engine.now();
            advance(ms(100) + overdue).await;
            let (looks, end) = (std::cell::RefCell::new(Vec::new()), Instant::now());
            let found = deadline
                .finds_silent(deadline.reading(), |at| {
                    looks.borrow_mut().push(at);
                    silent[looks.borrow().len() - 1]
                })
                .await;
            let at = began + ms(100) + overdue.min(GRACE);
            assert_eq!((found, looks.into_inner()), (silent == [true, true], vec![at; silent.len()]), "{overdue:?}");
            assert_eq!(end.elapsed(), if silent[0] { takes } else { ms(0) }, "{overdue:?}");
            let end = Instant::now();
            assert!(once.finds_silent(GRACE, |_| true).await && end.elapsed() == ms(0));
        }
    }
    done(client, &fake).await;
}
