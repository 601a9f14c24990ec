//! The entries of a book (the record of one hold) besides its guards: last renewal, late commands, owed releases.

use crate::engine::ledger::{Book, Cap, End};

#[test]
fn last_renewal_is_latest_sent_whatever_the_reply_order() {
    let mut book = Book::default();
    book.open(0, 1, None, 20, 120);
    book.open(0, 2, None, 10, 110);
    assert_eq!((book.renewed_at(), book.watched(), book.watched_for()), (20, 120, 100));
    // An explicit lease is not a renewal by the watchdog.
    book.open(0, 3, Some(500), 50, 550);
    assert_eq!(book.renewed_at(), 20);
    assert!(book.renewed(60, 40, 140) && book.renewed(60, 30, 130));
    assert_eq!((book.renewed_at(), book.watched()), (40, 140));
    for sent in [60, 50] {
        book.rearmed(70, sent, |lease| sent + lease, 100);
        assert_eq!((book.renewed_at(), book.watched()), (60, 160));
    }
}

#[test]
fn book_keeps_the_latest_time_of_late_commands() {
    let mut book = Book::default();
    book.open(0, 1, Some(100), 0, 100);
    assert_eq!((book.cut_until(), book.until_in_server()), (0, 100));
    for until in [300, 200] {
        book.may_be_cut(until);
        book.note_unseen(until + 50);
        assert_eq!((book.cut_until(), book.until_in_server()), (300, 350));
    }
    book.open(0, 2, Some(900), 0, 900);
    assert_eq!((book.until_in_server(), book.until_all()), (900, 900));
    assert_eq!((book.next_cut(), book.next_cut(), book.next_cut()), (1, 2, 3));
}

#[test]
fn book_returns_each_doubted_owed_or_given_up_hold_once() {
    let mut book = Book::default();
    assert!(!book.doubted() && !book.undoubt(1));
    [1, 2, 1, 3].into_iter().for_each(|hold| book.doubt(hold));
    assert!(book.doubted() && book.undoubt(2) && !book.undoubt(2));
    assert_eq!(book.doubts(), [1, 3]);
    assert!(!book.doubted() && book.doubts().is_empty());
    book.owe([(4, 40), (5, 50)]);
    book.owe([(6, 60)]);
    assert_eq!((book.owed(), book.owed()), (vec![(4, 40), (5, 50), (6, 60)], vec![]));
    [7, 8, 9].into_iter().for_each(|hold| book.give_up(hold));
    assert!(book.remove_given_up(8) && !book.remove_given_up(8));
    assert_eq!([book.given_up(), book.given_up(), book.given_up()], [Some(9), Some(7), None]);
}

#[test]
fn guard_counts_on_the_lease_that_ends_first() {
    let mut book = Book::default();
    let watched = book.open(0, 1, None, 10, 110);
    let leased = book.open(0, 2, Some(500), 10, 510);
    assert_eq!((book.until_and_lease(watched), book.until_and_lease(leased)), (Some((110, 100)), Some((510, 500))));
    assert_eq!((book.number(leased), book.number(99), book.until_and_lease(99)), (Some(2), None, None));
    assert!(book.lasts(509) && !book.lasts(510));
    assert!(book.is_watched_without(leased) && !book.is_watched_without(watched));
    let before = book.capped(leased, Cap { until: 60, lease: 50 });
    assert_eq!((book.until_and_lease(leased), before), (Some((60, 50)), Cap::NONE));
    // A later cap changes nothing.
    let capped = book.capped(leased, Cap { until: 70, lease: 60 });
    assert_eq!((book.until_and_lease(leased), capped.until), (Some((60, 50)), 60));
    assert_eq!(book.until_all(), 510, "the server may have it for as long as that");
    book.uncapped(60, leased, before);
    assert_eq!(book.until_and_lease(leased), Some((60, 50)), "over by then");
    book.uncapped(59, leased, before);
    assert_eq!(book.until_and_lease(leased), Some((510, 500)));
    assert!(book.finish(End::Gone));
    assert!(!book.lasts(0) && !book.is_watched_without(leased) && book.until_and_lease(watched).is_none());
}

/// The watchdog renews two guards. The lease of the first had ended before the second was opened, so the first stays
/// ended.
#[test]
fn ended_lease_stays_ended_when_watchdog_renews_another_guard() {
    let mut book = Book::default();
    let first = book.open(0, 1, None, 0, 100);
    let capped = book.open(0, 2, None, 0, 100);
    book.capped(capped, Cap { until: 80, lease: 70 });
    let third = book.open(100, 3, None, 90, 190);
    assert_eq!([first, capped, third].map(|id| book.until(id)), [Some(100), Some(80), Some(190)]);
    assert_eq!(book.lose_over(100), [1, 2]);
    assert_eq!([first, capped, third].map(|id| book.until(id)), [None, None, Some(190)]);
    // The reply of a release that renewed the lease arrives exactly at the end of the lease.
    let mut book = Book::default();
    let guards = [book.open(0, 1, None, 0, 100), book.open(0, 2, Some(100), 0, 100)];
    book.rearmed(100, 90, |lease| 90 + lease, 100);
    assert_eq!(guards.map(|id| book.until(id)), [Some(100); 2], "over");
    book.rearmed(99, 90, |lease| 90 + lease, 100);
    assert_eq!(guards.map(|id| book.until(id)), [Some(190); 2], "in time");
    let mut book = Book::default();
    let first = book.open(0, 1, None, 0, 100);
    let second = book.open(99, 2, None, 90, 190);
    assert_eq!((book.until(first), book.until(second)), (Some(190), Some(190)), "in time");
}
