use super::*;

#[test]
fn zero_or_maximal_java_fair_wait_is_refused() {
    for java_fair_wait in [Duration::ZERO, Duration::MAX] {
        let refused = Options { java_fair_wait, ..Options::default() }.validate();
        assert!(matches!(&refused, Err(Error::Config { what }) if what.contains("Java's wait")), "{refused:?}");
    }
}

#[test]
fn watchdog_too_short_for_timeouts_is_refused_with_reason() {
    let options = Options { watchdog: Duration::from_secs(2), ..Options::default() };
    let Err(Error::Config { what }) = options.validate() else { panic!("accepted") };
    for part in ["too short for the command timeout", "at least 9s", "at most 666ms"] {
        assert!(what.contains(part), "{part}: {what}");
    }
    // Redisson issue 2269: a watchdog of 30 ms.
    let options = Options { watchdog: Duration::from_millis(30), ..Options::default() };
    assert!(options.validate().is_err());
}

#[test]
fn lease_out_of_bounds_is_refused() {
    let (short, long) = (Duration::from_micros(2_999), LONGEST_LEASE + Duration::from_nanos(1));
    for lease in [Duration::ZERO, Duration::from_micros(999), short, long, Duration::MAX] {
        assert!(check_lease(lease).is_err(), "{lease:?}");
    }
    for lease in [SHORTEST_LEASE, LONGEST_LEASE] {
        assert!(check_lease(lease).is_ok(), "{lease:?}");
    }
}

#[test]
fn lock_delay_is_at_most_a_day() {
    let day = Duration::from_secs(24 * 3600);
    assert!(check_lock_delay(Duration::ZERO).is_ok() && check_lock_delay(day).is_ok());
    for delay in [day + Duration::from_nanos(1), Duration::MAX] {
        let refused = check_lock_delay(delay);
        assert!(matches!(&refused, Err(Error::Config { what }) if what.contains("the lock delay")), "{refused:?}");
    }
}

#[test]
fn maximal_durations_are_capped() {
    let span = Duration::MAX;
    let options = Options {
        connect_timeout: span,
        retry_delay: (span, span),
        subscribe_timeout: span,
        subscription_linger: span,
        poll_cap: span,
        ping_interval: span,
        local_handoff_time: span,
        max_reader_delay: span,
        scan_interval: Some(span),
        ack_timeout: span,
        ..Options::default()
    };
    let said = format!("{:?}", options.checked().unwrap());
    assert!(!said.contains(&format!("{span:?}")), "{said}");
    assert!(said.contains(&format!("scan_interval: Some({LONGEST_LEASE:?})")), "{said}");
}

#[test]
fn error_messages_show_durations_in_whole_milliseconds() {
    for (span, text) in [
        (Duration::from_secs(2) / 3, "666ms"),
        (Duration::from_millis(1_500), "1.5s"),
        (Duration::from_micros(3), "3µs"),
        (LONGEST_LEASE, "10 years"),
        (Duration::ZERO, "0ns"),
    ] {
        assert_eq!(shown(span), text);
    }
}
