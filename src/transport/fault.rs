//! Faults of a transport as errors of this crate.

use std::sync::Arc;

use super::{Fault, FaultKind};
use crate::error::passing::inside;
use crate::error::{Error, Step};

impl Error {
    /// Returns the error for a command about the lock `name`.
    pub(crate) fn of_fault(fault: &Fault, name: &Arc<str>) -> Self {
        let error = match fault.kind {
            FaultKind::Closed => Self::Closed,
            FaultKind::RuntimeGone => Self::RuntimeGone,
            FaultKind::TimedOut => Self::timeout(Step::Command),
            FaultKind::Unacknowledged { got, wanted } => Self::replicas(got, wanted),
            FaultKind::NotSent | FaultKind::Lost => {
                Self::connection(&*fault.message, fault.in_doubt(), fault.source.clone())
            }
            FaultKind::Refused if inside(&fault.message).starts_with("WRONGTYPE") => {
                Self::WrongType { name: Arc::clone(name), message: inside(&fault.message).to_owned(), found: None }
            }
            FaultKind::Elsewhere if fault.message.starts_with("MOVED") => {
                Self::server(format!("{}: this server is one of a cluster; connect by redis-cluster://", fault.message))
            }
            FaultKind::Refused | FaultKind::Elsewhere => Self::server(inside(&fault.message)),
        };
        error.about(name).at(fault.server.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVED_AWAY: &str =
        "ERR Script attempted to access a non local key in a cluster node script: f_, on @user_script:1.";

    #[test]
    fn passing_refusals_are_retryable() {
        let refused = |text: &str| Error::of_fault(&Fault::new(FaultKind::Refused, text), &Arc::from("x"));
        for text in ["MISCONF Redis is configured", "OOM command", "READONLY You can't", "TRYAGAIN x", MOVED_AWAY] {
            assert!(refused(text).is_retryable(), "{text}");
        }
        for text in ["NOAUTH x", "NOPERM x", "ERR x", "NOBUSY"] {
            assert!(!refused(text).is_retryable(), "{text}");
        }
        let old = "ERR Error running script (call to f_c0): @user_script:604: WRONGTYPE Operation against a key";
        for text in ["WRONGTYPE Operation", old] {
            assert!(matches!(refused(text), Error::WrongType { .. }), "{text}");
        }
        assert!(matches!(refused("ERR a thing: WRONGTYPE"), Error::Server { .. }));
        // Callers do not see the script's hash and line number.
        let new = "WRONGTYPE Operation against a key script: 1d2f0b, on @user_script:12.";
        for text in ["WRONGTYPE Operation against a key", old, new] {
            let Error::WrongType { message, .. } = refused(text) else { panic!("{text}") };
            assert_eq!(message, "WRONGTYPE Operation against a key");
        }
        let oom = refused("OOM command not allowed script: 1d2f0b, on @user_script:12.");
        assert!(matches!(&oom, Error::Server { message, .. } if message == "OOM command not allowed"), "{oom}");
        let oom = refused("ERR Error running script (call to f_c0): @user_script:6: @user_script: 6: -OOM not allowed");
        assert!(matches!(&oom, Error::Server { message, .. } if message == "OOM not allowed"), "{oom}");
        let elsewhere = |text: &str| Error::of_fault(&Fault::new(FaultKind::Elsewhere, text), &Arc::from("x"));
        assert!(elsewhere("TRYAGAIN Multiple keys").is_retryable());
        // With one server there is no other server to ask.
        assert!(!elsewhere("MOVED 1 a:1").is_retryable() && !elsewhere("ASK 1 a:1").is_retryable());
    }

    #[test]
    fn error_says_whether_the_outcome_is_unknown() {
        let of = |kind| Error::of_fault(&Fault::new(kind, "x"), &Arc::from("x")).outcome_unknown();
        let unacknowledged = FaultKind::Unacknowledged { got: 0, wanted: 1 };
        assert!([FaultKind::Lost, FaultKind::TimedOut, FaultKind::RuntimeGone, unacknowledged].into_iter().all(of));
        let known = [FaultKind::NotSent, FaultKind::Refused, FaultKind::Elsewhere, FaultKind::Closed];
        assert!(!known.into_iter().any(of));
    }
}
