//! The reason why none of several servers could be used.

use std::time::Duration;

use super::address::Address;
use crate::error::Error;

/// Extra time to wait for the error of a connection attempt. The attempt reports its reason only at the end of its own
/// time limit.
pub(super) const SAYS_WHY: Duration = Duration::from_millis(100);

/// The most informative of several errors. An error that a server replied outranks the error for an unreachable server.
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

/// Error for a server that does not report `what`, which `command` queries.
pub(super) fn untold(address: &Address, what: &str, command: &str, why: &str) -> Error {
    if why.starts_with("NOPERM") || why.contains("unknown command") {
        return Error::server(format!("{address} does not tell {what}, for which {command} is needed: {why}"));
    }
    away(address, why)
}

pub(super) fn away(server: &impl std::fmt::Display, why: &str) -> Error {
    Error::connection(format!("{server}: {why}"), false, None)
}

/// Adds the server's name to the reason why the server is unreachable, unless the reason contains the name already.
pub(super) fn unreachable(server: &impl std::fmt::Display, error: Error) -> Error {
    match error {
        Error::Connection { message, outcome_unknown, source, origin } => {
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
    fn unreachable_error_names_server_once() {
        for said in ["10.0.0.1:6379: refused", "refused"] {
            let error = Error::connection(said, false, None);
            let told = unreachable(&"the sentinel 10.0.0.1:6379", error).to_string();
            assert!(told.ends_with("the sentinel 10.0.0.1:6379: refused"), "{told}");
        }
    }

    #[test]
    fn server_error_outranks_unreachable_server() {
        let (said, gone) = (|| Error::server("NOPERM"), || away(&"a:1", "refused"));
        for order in [[said(), gone()], [gone(), said()]] {
            let mut reason = Reason::default();
            order.into_iter().for_each(|error| reason.note(error));
            assert!(matches!(reason.or(Error::Closed), Error::Server { .. }));
        }
        assert!(matches!(Reason::default().or(Error::Closed), Error::Closed));
    }
}
