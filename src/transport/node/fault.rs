//! Converts fred's errors into faults of their commands.

use std::error::Error as StdError;
use std::sync::Arc;

use fred::error::{Error, ErrorKind};

use crate::error::passing::without_arguments;
use crate::transport::{Fault, FaultKind};
use distlock_wire::tls::{Meaning, explain};

/// Message for an error of fred. Errors about TLS and about `HELLO` have fixed texts.
pub(super) fn told(error: &Error) -> String {
    let said = || match of_system(error.details()) {
        text if refuses_hello(text) => WITHOUT_HELLO.to_owned(),
        text => without_arguments(text).to_owned(),
    };
    trouble_of_tls(error).map_or_else(said, |meaning| meaning.text)
}

/// fred's error as the source of an error of this crate. `None` if its text may repeat the password.
pub(super) fn source(error: Error) -> Option<Arc<dyn StdError + Send + Sync>> {
    let text = error.details();
    let may_repeat = refuses_hello(text) || without_arguments(text).len() < text.len();
    (!may_repeat).then(|| Arc::new(error) as Arc<_>)
}

/// Replaces the server's text, which repeats the arguments of `HELLO`, including the password.
const WITHOUT_HELLO: &str = "the server does not accept HELLO 3, with which fred begins each connection; connections of this crate's own do \
                             without (use_fred = false in code or in a file)";

/// True if the server, or a proxy in front of it, does not support `HELLO`. fred would retry forever.
pub(super) fn refuses_hello(text: &str) -> bool {
    let is_unknown = || text.starts_with("ERR unknown command") && text.to_ascii_lowercase().contains("hello");
    text.starts_with("NOPROTO") || is_unknown()
}

/// Extracts the message from an error of the operating system or of Rust's library, which fred formats by its `Debug`.
/// Other texts are returned unchanged.
fn of_system(details: &str) -> &str {
    let forms = [("Os { ", "message: \""), ("Custom { ", "error: \"")];
    let message = forms.iter().find_map(|(form, field)| details.strip_prefix(form)?.split_once(field));
    message.and_then(|(_, message)| message.strip_suffix("\" }")).unwrap_or(details)
}

pub(super) fn trouble_of_tls(error: &Error) -> Option<Meaning> {
    match error.kind() {
        ErrorKind::IO => explain(error.details()),
        #[cfg(any(feature = "rustls", feature = "rustls-ring", feature = "native-tls"))]
        ErrorKind::Tls => explain(error.details()),
        _ => None,
    }
}

pub(super) fn fault(error: Error) -> Fault {
    let text = error.details();
    let code = text.split(' ').next().unwrap_or_default();
    let is_code = code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    // Before Redis 7, an error that a script caught and returned has no code. It begins with the place in the script.
    let refused = is_code || code == "@user_script:";
    let kind = match error.kind() {
        ErrorKind::Timeout => FaultKind::TimedOut,
        _ if matches!(code, "MOVED" | "ASK" | "TRYAGAIN") => FaultKind::Elsewhere,
        // After a single CLUSTERDOWN, fred closes the connection and fails all commands in flight with that text, even
        // commands that were carried out.
        ErrorKind::Cluster => FaultKind::Lost,
        _ if code == "CLUSTERDOWN" => FaultKind::Lost,
        // fred reports the server's own WRONGTYPE as the first of these kinds.
        ErrorKind::InvalidArgument | ErrorKind::InvalidCommand | ErrorKind::Config if refused => FaultKind::Refused,
        ErrorKind::Config | ErrorKind::Backpressure | ErrorKind::InvalidArgument | ErrorKind::InvalidCommand => {
            FaultKind::NotSent
        }
        ErrorKind::Auth => FaultKind::Refused,
        _ if text.contains("Failed to route") => FaultKind::NotSent,
        ErrorKind::IO | ErrorKind::Canceled | ErrorKind::Routing | ErrorKind::Protocol => FaultKind::Lost,
        _ if refused => FaultKind::Refused,
        _ => FaultKind::Lost,
    };
    Fault { kind, message: told(&error), source: source(error), server: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_hello_does_not_repeat_the_password() {
        for text in [
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 's3cret' ",
            "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `app`, `s3cret`, ",
            "NOPROTO s3cret",
            "ERR unknown command 'AUTH', with args beginning with: 'app' 's3cret' ",
        ] {
            let fault = fault(Error::new(ErrorKind::Unknown, text));
            assert!(fault.source.is_none() && !fault.message.contains("s3cret"), "{fault:?}");
        }
        assert!(fault(Error::new(ErrorKind::IO, "reset")).source.is_some());
    }

    #[test]
    fn system_errors_are_shown_by_their_message() {
        let (system, library) = (std::io::Error::from_raw_os_error(1), std::io::Error::other("no such host"));
        for (error, text) in [(system, "Operation not permitted"), (library, "no such host")] {
            let fault = fault(Error::from(error));
            assert_eq!((fault.kind, &*fault.message), (FaultKind::Lost, text));
        }
    }

    #[test]
    fn errors_are_distinguished_by_whether_the_command_may_have_run() {
        for (error, text, expected) in [
            (ErrorKind::Cluster, "MOVED 12182 10.0.0.7:6379", FaultKind::Elsewhere),
            (ErrorKind::Cluster, "ASK 12182 10.0.0.7:6379", FaultKind::Elsewhere),
            (ErrorKind::Unknown, "TRYAGAIN Multiple keys request during rehashing of slot", FaultKind::Elsewhere),
            (ErrorKind::InvalidArgument, "WRONGTYPE Operation against a key", FaultKind::Refused),
            (ErrorKind::Auth, "NOAUTH Authentication required.", FaultKind::Refused),
            (ErrorKind::Unknown, "CROSSSLOT Keys in request don't hash to the same slot", FaultKind::Refused),
            (
                ErrorKind::Unknown,
                "ERR Script attempted to access a non local key in a cluster node",
                FaultKind::Refused,
            ),
            (
                ErrorKind::Unknown,
                "@user_script: 530: The user executing the script can't run this command or subcommand",
                FaultKind::Refused,
            ),
            (ErrorKind::InvalidArgument, "a key is no text", FaultKind::NotSent),
            (ErrorKind::Unknown, "Failed to route command.", FaultKind::NotSent),
            // Errors of fred's own.
            (ErrorKind::Cluster, "CLUSTERDOWN The cluster is down", FaultKind::Lost),
            (ErrorKind::Cluster, "Failed to find cluster hash slot owner.", FaultKind::Lost),
            (ErrorKind::Unknown, "CLUSTERDOWN Hash slot not served", FaultKind::Lost),
            (ErrorKind::IO, "Connection reset by peer", FaultKind::Lost),
            (ErrorKind::Canceled, "Canceled.", FaultKind::Lost),
            (ErrorKind::Timeout, "Request timed out.", FaultKind::TimedOut),
        ] {
            let fault = fault(Error::new(error, text));
            let in_doubt = matches!(expected, FaultKind::Lost | FaultKind::TimedOut);
            assert_eq!((fault.kind, fault.in_doubt()), (expected, in_doubt), "{text}");
            // Redirects are read from the message.
            assert!(expected != FaultKind::Elsewhere || fault.message == text, "{text}: {fault:?}");
        }
    }
}
