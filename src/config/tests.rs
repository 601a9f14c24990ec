use super::*;

#[test]
fn the_defaults_are_redissons() {
    let options = Options::default();
    assert!(options.validate().is_ok());
    assert_eq!(options.watchdog, Duration::from_secs(30));
    assert_eq!(options.watchdog_batch, 100);
    assert_eq!(options.command_timeout, Duration::from_secs(3));
    assert_eq!(options.retry_attempts, 4);
    assert_eq!(options.java_fair_wait, Duration::from_secs(300));
}

#[test]
fn a_wait_of_java_that_cannot_be_is_refused() {
    for java_fair_wait in [Duration::ZERO, Duration::MAX] {
        let refused = Options { java_fair_wait, ..Options::default() }.validate();
        assert!(matches!(&refused, Err(Error::Config { what }) if what.contains("Java's wait")), "{refused:?}");
    }
}

#[test]
fn acknowledgement_by_nobody_or_in_no_time_is_refused() {
    let options = |acks, ack_timeout| Options { acks, ack_timeout, ..Options::default() };
    let second = Duration::from_secs(1);
    for odd in [options(Acks::AtLeast(0), second), options(Acks::All, Duration::ZERO)] {
        assert!(matches!(odd.validate(), Err(Error::Config { .. })), "{odd:?}");
    }
    for acks in [Acks::Off, Acks::Redisson, Acks::AtLeast(1), Acks::All] {
        let options = options(acks, Duration::from_secs(3600));
        assert!(options.validate().is_ok());
        // Together with the server's answer, a third of the watchdog.
        assert_eq!(options.acknowledged_within() + options.command_timeout, options.watchdog / 3);
    }
    let short = Options { watchdog: 3 * second, command_timeout: second, ..options(Acks::All, second) };
    assert_eq!(short.acknowledged_within(), second / 2, "a little is left in any case");
    assert_eq!(Options::default().acknowledged_within(), second);
}

#[test]
fn a_watchdog_too_short_for_the_timeouts_is_refused_with_a_reason() {
    let options = Options { watchdog: Duration::from_secs(2), ..Options::default() };
    let Err(Error::Config { what }) = options.validate() else { panic!("accepted") };
    assert!(what.contains("too short for the command timeout") && what.contains("at least 9s"), "{what}");
    // Redisson issue 2269: a watchdog of 30 ms.
    let options = Options { watchdog: Duration::from_millis(30), ..Options::default() };
    assert!(options.validate().is_err());
}

#[test]
fn leases_that_redis_would_misread_are_refused() {
    let (short, long) = (Duration::from_micros(2_999), LONGEST_LEASE + Duration::from_nanos(1));
    for lease in [Duration::ZERO, Duration::from_micros(999), short, long, Duration::MAX] {
        assert!(check_lease(lease).is_err(), "{lease:?}");
    }
    for lease in [SHORTEST_LEASE, LONGEST_LEASE] {
        assert!(check_lease(lease).is_ok(), "{lease:?}");
    }
    assert_eq!(millis(Duration::from_micros(1500)), 2);
    assert_eq!(millis(Duration::MAX), i64::MAX);
}

#[test]
fn times_without_an_end_are_ten_years() {
    let span = Duration::MAX;
    let options = Options {
        connect_timeout: span,
        retry_delay: (span, span),
        subscribe_timeout: span,
        subscription_linger: span,
        poll_cap: span,
        ping_interval: span,
        handoff_time: span,
        hold_back: span,
        scan_interval: span,
        ack_timeout: span,
        ..Options::default()
    };
    let said = format!("{:?}", options.checked().unwrap());
    assert!(!said.contains(&format!("{span:?}")), "{said}");
    assert!(said.contains(&format!("scan_interval: {LONGEST_LEASE:?}")), "{said}");
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
    let options = Options { watchdog: Duration::from_secs(2), ..Options::default() };
    let refused = options.validate().unwrap_err().to_string();
    assert!(refused.contains("at most 666ms"), "{refused}");
}
