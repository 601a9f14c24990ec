use super::*;
use crate::error::Error;

#[test]
fn defaults_match_redisson() {
    let options = Options::default();
    assert!(options.validate().is_ok());
    assert_eq!(options.watchdog, Duration::from_secs(30));
    assert_eq!(options.watchdog_batch, 100);
    assert_eq!(options.command_timeout, Duration::from_secs(3));
    assert_eq!(options.retry_attempts, 4);
    assert_eq!(options.java_fair_wait, Duration::from_secs(300));
}

#[test]
fn zero_acks_or_zero_ack_timeout_is_refused() {
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
fn milliseconds_for_the_server_are_rounded_up() {
    assert_eq!(millis(Duration::from_micros(1500)), 2);
    assert_eq!(millis(Duration::MAX), i64::MAX);
}
