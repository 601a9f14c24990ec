use super::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Moment {
    Moment::from_nanos((1_000 + ms) * MS)
}

fn given(receivers: u32, listens: bool) -> ReleaseInfo {
    ReleaseInfo { receivers, listens, wanted: false, courtesy: Courtesy::ByMessage }
}

fn left(turns: &Turns, ms: u64) -> Option<u128> {
    turns.way(at(ms)).map(|(left, _)| left.as_millis())
}

#[test]
fn way_waits_for_one_release_per_other_receiver() {
    // `early`: the message of the process's own release arrives before the reply.
    for early in [true, false] {
        let mut turns = Turns::default();
        turns.release_begins(true, at(0));
        assert_eq!(left(&turns, 1), Some(9), "a message must not be answered before the reply says whose it is");
        if early {
            assert!(!turns.heard(None, at(0)));
        }
        assert!(!turns.released(given(3, true), false, at(1)));
        if !early {
            assert!(!turns.heard(None, at(1)));
        }
        assert_eq!(left(&turns, 3), Some(8));
        assert!(!turns.heard(None, at(4)), "one of two");
        assert_eq!((left(&turns, 13), left(&turns, 14)), (Some(1), None), "each has its time");
        assert!(turns.heard(None, at(20)), "the second");
        assert_eq!(left(&turns, 20), None);
        assert!(!turns.is_giving_way());
    }
}

#[test]
fn release_without_other_receivers_or_courtesy_starts_no_way() {
    for given in
        [given(0, false), given(0, true), given(1, true), ReleaseInfo { courtesy: Courtesy::None, ..given(9, true) }]
    {
        let mut turns = Turns::default();
        turns.release_begins(true, at(0));
        assert!(turns.released(given, false, at(1)), "{given:?}");
        assert_eq!(left(&turns, 1), None, "{given:?}");
    }
}

#[test]
fn unused_ways_become_rare() {
    let (mut turns, mut ways) = (Turns::default(), 0);
    for round in 0..1_000 {
        turns.release_begins(true, at(round * 20));
        turns.released(given(1, false), false, at(round * 20));
        ways += u32::from(turns.is_giving_way());
        turns.acquired(at(round * 20 + 10));
    }
    assert!((7..=7 + 20_000 / 640).contains(&ways), "{ways} of 1000");
    // After a message from another process, each release starts a way again.
    assert!(!turns.released(given(1, false), false, at(30_000)));
    assert!(turns.heard(None, at(30_001)));
    assert!(!turns.released(given(1, false), false, at(30_002)));
}

/// Two processes take turns, and two more subscribers only listen.
#[test]
fn way_stops_waiting_for_receivers_that_only_listen() {
    let (mut turns, mut idle) = (Turns::default(), 0);
    let mut ms = 0;
    for _ in 0..1_000 {
        turns.release_begins(true, at(ms));
        assert!(!turns.released(given(4, true), false, at(ms)), "the other one is let go first");
        assert!(!turns.heard(None, at(ms)), "its own message");
        ms += 1;
        if !turns.heard(None, at(ms)) {
            assert_eq!(left(&turns, ms), Some(10));
            (idle, ms) = (idle + 1, ms + 10);
            assert_eq!(left(&turns, ms), None);
        }
        turns.acquired(at(ms));
    }
    assert!((7..=12).contains(&idle), "{idle} of 1000");
    // A third process subscribes.
    turns.release_begins(true, at(ms));
    assert!(!turns.released(given(5, true), false, at(ms)));
    let heard = [ms, ms + 1, ms + 2].map(|ms| turns.heard(None, at(ms)));
    assert_eq!(heard, [false, false, true]);
}

/// A process that took a turn last time may be slow, so it gets more time than an unknown one.
#[test]
fn process_that_used_its_last_turn_gets_twice_the_time() {
    let mut turns = Turns::default();
    for (now, way) in [(0, 10), (100, 20), (102, 20)] {
        turns.release_begins(true, at(now));
        assert!(!turns.released(given(2, false), false, at(now)));
        assert_eq!(left(&turns, now), Some(way), "at {now}");
        if now < 102 {
            turns.heard(None, at(now));
            turns.acquired(at(now));
        }
    }
}

#[test]
fn way_ends_despite_endless_messages() {
    let mut turns = Turns::default();
    turns.released(given(1_000, false), false, at(0));
    for ms in (0..200).step_by(5) {
        assert!(!turns.heard(None, at(ms)));
        assert!(left(&turns, ms).is_some(), "{ms}");
    }
    assert_eq!(left(&turns, 200), None);
}

#[test]
fn new_name_starts_no_way_if_receivers_of_other_names_did_not_compete() {
    let mut turns = Turns::default();
    assert!(turns.released(given(1, false), true, at(0)));
    assert!(turns.released(given(1, false), true, at(639)));
    assert!(!turns.released(given(1, false), true, at(640)));
    assert!(!Turns::default().released(given(1, false), false, at(0)));
}

#[test]
fn turn_is_short_beside_other_processes_and_full_alone() {
    let most = Duration::from_millis(50);
    let mut turns = Turns::default();
    assert_eq!(turns.turn(most), most);
    turns.released(given(1, false), false, at(0));
    assert_eq!(turns.turn(most), SHARED_TURN);
    turns.released(given(1, true), false, at(0));
    assert_eq!(turns.turn(most), most);
}

/// If the lock cannot be handed over, a process with waiting tasks continues its turn for a while.
#[test]
fn turn_continues_for_limited_time_while_tasks_wait() {
    let wanted = ReleaseInfo { wanted: true, ..given(2, true) };
    let mut turns = Turns::default();
    turns.acquired(at(0));
    for (ms, goes_on) in [(2, true), (11, true), (12, false)] {
        turns.release_begins(false, at(ms));
        assert_eq!(turns.way(at(ms)).is_none(), goes_on, "{ms}: the next one may ask before the reply");
        assert_eq!(turns.released(wanted, false, at(ms)), goes_on, "{ms}");
    }
    let heard = [13, 13].map(|ms| turns.heard(None, at(ms)));
    assert_eq!(heard, [false, true]);
    turns.acquired(at(30));
    turns.release_begins(true, at(31));
    assert!(!turns.released(wanted, false, at(31)), "handed over for as long as it may be");
}

#[test]
fn process_yields_to_pollers_seen_recently() {
    let looking = ReleaseInfo { courtesy: Courtesy::ByPolling(Duration::from_millis(2)), ..given(0, false) };
    let mut turns = Turns::default();
    assert!(turns.released(looking, false, at(0)), "nobody was seen");
    turns.note_other_holder(at(0));
    assert!(!turns.released(looking, false, at(999)));
    assert_eq!((left(&turns, 999), left(&turns, 1_001)), (Some(1), None), "less than the 2 ms that it was told");
    turns.acquired(at(1_001));
    assert!(turns.released(looking, false, at(1_002)), "that is long ago");
}

#[test]
fn window_opens_only_for_races_with_java() {
    let mut turns = Turns::default();
    assert_eq!(turns.window(true, at(0)), None, "no client of Java was seen");
    turns.note_java(at(0));
    assert_eq!(turns.window(true, at(1)), Some(WINDOW), "after a message");
    assert_eq!(turns.window(false, at(1)), None, "a first attempt enters at once");
    assert!(turns.released(ReleaseInfo { courtesy: Courtesy::ByWindow, ..given(3, true) }, false, at(2)));
    assert_eq!(turns.window(false, at(2)), Some(WINDOW), "right after a release of this process");
    assert_eq!(turns.window(false, at(3)), None);
    assert_eq!(turns.window(true, at(4_999)), Some(WINDOW));
    assert_eq!(turns.window(true, at(5_000)), None, "Java was seen too long ago");
}

#[test]
fn ways_for_unseen_java_waiters_begin_at_the_same_times() {
    let beside = |receivers| ReleaseInfo { courtesy: Courtesy::ByWindow, ..given(receivers, true) };
    // A release and its message every 20 ms, for ten periods. Returns when ways began.
    let ways = |offset: u64, receivers, java: bool| {
        let mut turns = Turns::default();
        let mut began = Vec::new();
        for n in (offset..offset + 6_400).step_by(20) {
            if java {
                turns.note_java(at(n));
            }
            turns.released(beside(receivers), false, at(n));
            let time = turns.needs_time().then(|| 640_000 + i64::try_from(n).unwrap());
            assert!(!turns.heard(time, at(n)));
            if left(&turns, n) == Some(10) {
                began.push(n / 640);
                assert!(!turns.released(beside(receivers), false, at(n + 1)), "the reply after the message");
                assert_eq!(left(&turns, n + 10), None);
            }
        }
        began
    };
    assert_eq!(ways(0, 1, false), [0; 0], "nobody else listens");
    assert_eq!(ways(0, 2, true), [0; 0], "Java is known");
    assert_eq!(ways(0, 2, false), (1..10).collect::<Vec<_>>());
    assert_eq!(ways(13, 3, false), (1..10).collect::<Vec<_>>(), "another process, at the same times");
    let mut turns = Turns::default();
    for n in (0..64_000).step_by(700) {
        turns.released(beside(2), false, at(n));
        turns.heard(Some(640_000 + i64::try_from(n).unwrap()), at(n));
        assert_eq!(left(&turns, n), None, "messages are rare");
    }
}
