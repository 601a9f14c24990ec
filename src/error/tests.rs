use super::passing::PASSING;
use super::*;

const PAGE: &str = include_str!("../../docs/errors.md");

fn connection(outcome_unknown: bool) -> Error {
    Error::Connection { message: "x".to_owned(), outcome_unknown, source: None }
}

fn server(text: &str) -> Error {
    Error::Server { message: text.to_owned() }
}

/// An error for each row of the page, with the name of the row.
fn rows() -> Vec<(&'static str, Error)> {
    let name = || Arc::from("a");
    let no_quorum = |why| Error::NoQuorum { name: name(), granted: 1, needed: 2, why: Arc::new(why) };
    vec![
        ("Closed", Error::Closed),
        ("RuntimeGone", Error::RuntimeGone),
        ("Config", Error::config("x")),
        ("Connection, nothing was sent", connection(false)),
        ("Connection, in doubt", connection(true)),
        ("Lost", Error::Lost { name: name(), why: Lost::Gone }),
        ("NotHeld", Error::NotHeld { name: name(), why: NotHeld::Never }),
        ("ReleasePending", Error::ReleasePending { name: name(), why: Arc::new(connection(true)) }),
        ("Server, passing", server("LOADING x")),
        ("Server, other", server("NOPERM x")),
        ("Timeout, Connect", Error::Timeout { step: Step::Connect }),
        ("Timeout, Command", Error::Timeout { step: Step::Command }),
        ("Timeout, Shutdown", Error::Timeout { step: Step::Shutdown }),
        ("WouldDeadlock", Error::WouldDeadlock { name: name(), why: Deadlock::Upgrade }),
        ("NoQuorum, the cause passes", no_quorum(connection(true))),
        ("NoQuorum, the cause stays", no_quorum(server("NOPERM x"))),
        ("Replicas", Error::Replicas { got: 0, wanted: 1 }),
        ("Unsupported", Error::Unsupported { what: "x".to_owned() }),
        ("WrongType", Error::WrongType { name: name(), message: "x".to_owned() }),
    ]
}

/// The match is exhaustive as a reminder: a new kind has to be added here and to the page.
const fn kind(error: &Error) -> &'static str {
    match error {
        Error::Closed => "Closed",
        Error::RuntimeGone => "RuntimeGone",
        Error::Config { .. } => "Config",
        Error::Connection { .. } => "Connection",
        Error::Lost { .. } => "Lost",
        Error::NotHeld { .. } => "NotHeld",
        Error::ReleasePending { .. } => "ReleasePending",
        Error::Server { .. } => "Server",
        Error::Timeout { .. } => "Timeout",
        Error::WouldDeadlock { .. } => "WouldDeadlock",
        Error::NoQuorum { .. } => "NoQuorum",
        Error::Replicas { .. } => "Replicas",
        Error::Unsupported { .. } => "Unsupported",
        Error::WrongType { .. } => "WrongType",
    }
}

/// The first three cells of each row of the page that describes a kind: its name, retryable, in doubt.
fn told() -> Vec<(String, [String; 2])> {
    let row = |line: &str| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [name, retryable, unknown, ..] = cells.as_slice() else { return None };
        Some((name.clone(), [retryable.clone(), unknown.clone()]))
    };
    PAGE.lines().filter_map(row).filter(|(_, [retryable, _])| ["yes", "no"].contains(&&**retryable)).collect()
}

#[test]
fn errors_page_agrees_with_is_retryable_and_outcome_unknown() {
    let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let expected: Vec<_> = rows()
        .into_iter()
        .map(|(name, error)| {
            assert!(name.starts_with(kind(&error)), "{name}");
            (name.to_owned(), [word(error.is_retryable()), word(error.outcome_unknown())])
        })
        .collect();
    assert_eq!(told(), expected);
}

#[test]
fn errors_page_lists_every_answer_that_passes() {
    let line = PAGE.lines().find_map(|line| line.strip_prefix("Answers that pass:")).unwrap();
    let listed: Vec<_> = line.split('`').skip(1).step_by(2).collect();
    assert_eq!(listed, PASSING.iter().map(|row| row.begins).collect::<Vec<_>>());
}

#[test]
fn error_texts_say_what_happens_after_the_failed_step() {
    for (error, part) in [
        (connection(true), "in the background an acquire is undone, and a release is repeated"),
        (Error::Timeout { step: Step::Connect }, "nothing was sent"),
        (Error::Timeout { step: Step::Shutdown }, "ends with its lease"),
    ] {
        let text = error.to_string();
        assert!(text.contains(part) && !text.contains("being undone"), "{text}");
    }
    assert!(!connection(false).to_string().contains("carried out"));
}
