//! The reason why none of several servers could be used.

use std::time::Duration;

use super::address::Address;
use crate::error::Error;

/// Extra time to wait for the error of a connection attempt, which reports its reason only when its own time is up.
pub(super) const SAYS_WHY: Duration = Duration::from_millis(100);

/// The most informative of several errors: an error that a server replied counts for more than a server that is away.
#[derive(Debug, Default)]
pub(super) struct Reason(Option<Error>);

impl Reason {
    pub(super) fn note(&mut self, error: Error) {
        if !matches!(self.0, Some(Error::Server { .. } | Error::Config { .. } | Error::Unsupported { .. })) {
            self.0 = Some(error);
        }
    }

    pub(super) fn or(self, otherwise: Error) -> Error {
        self.0.unwrap_or(otherwise)
    }
}

/// Error for a server that does not tell `what`, for which `command` is needed.
pub(super) fn untold(address: &Address, what: &str, command: &str, why: &str) -> Error {
    if why.starts_with("NOPERM") || why.contains("unknown command") {
        return Error::server(format!("{address} does not tell {what}, for which {command} is needed: {why}"));
    }
    away(address, why)
}

pub(super) fn away(server: &impl std::fmt::Display, why: &str) -> Error {
    Error::connection(format!("{server}: {why}"), false, None)
}

/// Adds the server's name to the reason why it cannot be reached, unless the reason has it already.
pub(super) fn unreachable(server: &impl std::fmt::Display, error: Error) -> Error {
    match error {
        Error::Connection { message, outcome_unknown, source, origin } => {
            // Errors of connections may already begin with the server's address.
            let server = server.to_string();
            let address = server.rsplit(' ').next().unwrap_or_default();
            let why = message.strip_prefix(address).and_then(|why| why.strip_prefix(": ")).unwrap_or(&message);
            let named = format!("{server}: {why}");
            Error::Connection { message: named, outcome_unknown, source, origin }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_once() {
        for said in ["10.0.0.1:6379: refused", "refused"] {
            let error = Error::connection(said, false, None);
            let told = unreachable(&"the sentinel 10.0.0.1:6379", error).to_string();
            assert!(told.ends_with("the sentinel 10.0.0.1:6379: refused"), "{told}");
        }
    }

    #[test]
    fn what_a_server_has_said_counts_for_more_than_that_somebody_is_away() {
        let (said, gone) = (|| Error::server("NOPERM"), || away(&"a:1", "refused"));
        for order in [[said(), gone()], [gone(), said()]] {
            let mut reason = Reason::default();
            order.into_iter().for_each(|error| reason.note(error));
            assert!(matches!(reason.or(Error::Closed), Error::Server { .. }));
        }
        assert!(matches!(Reason::default().or(Error::Closed), Error::Closed));
    }
}
