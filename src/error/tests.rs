use super::passing::PASSING;
use super::*;

const PAGE: &str = include_str!("../../docs/errors.md");

/// The page's text for an error that depends on its cause.
const AS_ITS_CAUSE: &str = "as its cause";

fn connection(outcome_unknown: bool) -> Error {
    Error::connection("x", outcome_unknown, None)
}

fn server(text: &str) -> Error {
    Error::server(text)
}

fn no_quorum(why: Error) -> Error {
    Error::NoQuorum { name: Arc::from("a"), granted: 1, needed: 2, why: Arc::new(why) }
}

/// For each row of the page: the row's name and an example error.
fn rows() -> Vec<(&'static str, Error)> {
    let name = || Arc::from("a");
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
        ("Timeout, Connect", Error::timeout(Step::Connect)),
        ("Timeout, Command", Error::timeout(Step::Command)),
        ("Timeout, Shutdown", Error::timeout(Step::Shutdown)),
        ("WouldDeadlock", Error::WouldDeadlock { name: name(), why: Deadlock::Upgrade }),
        ("NoQuorum", no_quorum(server("NOPERM x"))),
        ("Replicas", Error::replicas(0, 1)),
        ("Broken", Error::Broken { name: name() }),
        ("Unsupported", Error::Unsupported { what: "x".to_owned() }),
        ("WrongType", Error::WrongType { name: name(), message: "x".to_owned(), found: None }),
    ]
}

/// The match is exhaustive as a reminder: add a new kind here and to the page.
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
        Error::Broken { .. } => "Broken",
        Error::Unsupported { .. } => "Unsupported",
        Error::WrongType { .. } => "WrongType",
    }
}

/// The first three cells (name, retryable, in doubt) of each row of the page that describes a kind.
fn told() -> Vec<(String, [String; 2])> {
    let row = |line: &str| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [name, retryable, unknown, ..] = cells.as_slice() else { return None };
        Some((name.clone(), [retryable.clone(), unknown.clone()]))
    };
    PAGE.lines()
        .filter_map(row)
        .filter(|(_, [retryable, _])| ["yes", "no", AS_ITS_CAUSE].contains(&&**retryable))
        .collect()
}

#[test]
fn errors_page_agrees_with_is_retryable_and_outcome_unknown() {
    let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let expected: Vec<_> = rows()
        .into_iter()
        .map(|(name, error)| {
            assert!(name.starts_with(kind(&error)), "{name}");
            let answers = match error {
                Error::NoQuorum { .. } => [AS_ITS_CAUSE; 2].map(str::to_owned),
                error => [word(error.is_retryable()), word(error.outcome_unknown())],
            };
            (name.to_owned(), answers)
        })
        .collect();
    assert_eq!(told(), expected);
}

#[test]
fn no_quorum_is_retryable_and_in_doubt_if_its_cause_is() {
    for (_, cause) in rows() {
        let error = no_quorum(cause.clone());
        assert_eq!(error.is_retryable(), cause.is_retryable(), "{cause:?}");
        assert_eq!(error.outcome_unknown(), cause.outcome_unknown(), "{cause:?}");
    }
}

/// The first cells of the table of `docs/faults.md`, *Refusals that pass*, and a line of the page.
#[test]
fn errors_page_and_faults_page_list_every_refusal_that_passes() {
    let (_, table) = include_str!("../../docs/faults.md").split_once("## Refusals that pass").unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let line = PAGE.lines().find_map(|line| line.strip_prefix("Answers that pass:")).unwrap();
    let words = line.split('`').skip(1).step_by(2).collect();
    let listed: [Vec<_>; 2] = [cells, words];
    for listed in listed {
        assert_eq!(listed, PASSING.iter().map(|row| row.begins).collect::<Vec<_>>());
    }
}

/// `tests/faults/passing.rs` provokes some refusals at a real server, and has a fake server send the others.
#[test]
fn fault_tests_cover_every_refusal_that_passes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/passing.rs");
    let source = std::fs::read_to_string(path).unwrap();
    let texts = |list: &str| -> Vec<String> {
        let (_, rest) = source.split_once(&format!("const {list}: ")).unwrap();
        let (_, rest) = rest.split_once("= [").unwrap();
        let (inside, _) = rest.split_once("];").unwrap();
        inside.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let tested: Vec<_> = ["REAL", "FAKE"].into_iter().flat_map(texts).collect();
    let mut begins: Vec<_> =
        tested.iter().map(|text| Passing::of(text).map_or("an error that does not pass", |row| row.begins)).collect();
    let mut expected: Vec<_> = PASSING.iter().map(|row| row.begins).collect();
    begins.sort_unstable();
    expected.sort_unstable();
    assert_eq!(begins, expected);
}

#[test]
fn error_texts_describe_consequences_of_failed_step() {
    for (error, part) in [
        (connection(true), "in the background an acquire is undone, and a release is retried"),
        (Error::timeout(Step::Connect), "nothing was sent"),
        (Error::timeout(Step::Shutdown), "ends with its lease"),
    ] {
        let text = error.to_string();
        assert!(text.contains(part) && !text.contains("being undone"), "{text}");
    }
    assert!(!connection(false).to_string().contains("carried out"));
}

#[test]
fn pending_release_text_mentions_background_retry_once() {
    let pending = |why| Error::ReleasePending { name: Arc::from("a"), why: Arc::new(why) }.to_string();
    for (why, cause) in [
        (connection(true), "no answer from the server: x"),
        (Error::timeout(Step::Command), "no answer in time while waiting for the reply to a command"),
        (server("MISCONF x"), "the server refused: MISCONF x"),
    ] {
        let expected = format!(
            "the release of the lock \"a\" is not confirmed ({cause}); it is retried in the background until the lease is over"
        );
        assert_eq!(pending(why), expected);
    }
}

#[test]
fn error_texts_name_the_lock_and_the_server() {
    let origin = |error: Error| error.about(&Arc::from("orders")).at(Some(&Arc::from("10.0.0.5:6379")));
    for (error, start) in [
        (connection(false), "the lock \"orders\": no answer from the server 10.0.0.5:6379: x"),
        (
            Error::connection("10.0.0.5:6379: refused", true, None),
            "the lock \"orders\": no answer from the server: 10.0.0.5:6379: refused (the command may",
        ),
        (server("OOM x"), "the lock \"orders\": the server 10.0.0.5:6379 refused: OOM x"),
        (
            Error::timeout(Step::Command),
            "the lock \"orders\": no answer in time from 10.0.0.5:6379 while waiting for the reply to a command: it may",
        ),
        (Error::replicas(0, 1), "the lock \"orders\": 0 replicas of 10.0.0.5:6379 have it in time, and 1 have to"),
    ] {
        let error = origin(error);
        let names = error.origin().map(|origin| (origin.lock(), origin.server()));
        assert_eq!(names, Some((Some("orders"), Some("10.0.0.5:6379"))), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(start), "{text}");
        // The first lock and server stay, so the error of a group names the member's.
        assert_eq!(error.about(&Arc::from("b")).at(Some(&Arc::from("b:1"))).to_string(), text);
    }
    let why = Arc::new(origin(Error::timeout(Step::Command)));
    let text = Error::ReleasePending { name: Arc::from("orders"), why }.to_string();
    assert_eq!(text.matches("orders").count(), 1, "{text}");
    assert!(text.contains("no answer in time from 10.0.0.5:6379"), "{text}");
}
