//! Reports of replies as a server sends them.

use fred::types::Value;

use super::asks::{Answers, What};
use super::parse::{add_line, report, set_covers};
use super::report::{Half, Report, Waiter};

const OURS: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab";
const JAVAS: &str = "71b96ce8-2746-4c3a-9d0e-0123456789ab";

fn words(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| Value::from(*word)).collect())
}

/// Replies about a key of this type at 1000 s of the server's time.
fn answers(kind: &str, ttl: i64) -> Answers {
    let answers = Answers::default().with(What::Time, words(&["1000", "0"]));
    answers.with(What::Type, Value::from(kind)).with(What::Ttl, Value::Integer(ttl))
}

fn fields(fields: &[&str]) -> Value {
    Value::Array(vec![Value::from("0"), words(fields)])
}

fn of_hash(pairs: &[&str]) -> Answers {
    answers("hash", 30_000).with(What::Fields, fields(pairs))
}

fn flavour(report: &Report) -> (Option<&'static str>, bool) {
    (report.flavour, report.held)
}

#[test]
fn missing_key_is_not_held() {
    assert_eq!(flavour(&report(&answers("none", -2))), (None, false));
    let counter = answers("none", -2).with(What::Counter, Value::from("7"));
    assert_eq!(flavour(&report(&counter)), (Some("fenced"), false));
    assert_eq!(report(&counter).fencing_counter, Some(7));
}

#[test]
fn hash_with_an_owner_is_a_lock_with_its_holds() {
    let (owner, list) = (format!("{OURS}:7"), format!("{OURS}:7:holds"));
    let replies = of_hash(&[&owner, "3", &list, ",0123456789ab.1~2,+0123456789ab.2"]);
    let found = report(&replies);
    assert_eq!((flavour(&found), found.ttl), ((Some("reentrant"), true), Some(30_000)));
    assert_eq!(found.holders.len(), 1);
    assert_eq!((&found.holders[0].owner, found.holders[0].holds), (&owner, 3));
    assert_eq!(found.holders[0].ids, ["0123456789ab.1", "+0123456789ab.2"]);
    let fenced = report(&replies.with(What::Counter, Value::from("9")));
    assert_eq!((fenced.flavour, fenced.fencing_counter), (Some("reentrant or fenced"), Some(9)));
}

#[test]
fn hash_of_another_program_is_no_lock() {
    let owner = format!("{OURS}:7");
    for pairs in [["a", "1"], [owner.as_str(), "x"], [OURS, "1"]] {
        let found = report(&of_hash(&pairs));
        assert_eq!((flavour(&found), found.foreign.as_deref()), ((None, false), Some("hash")), "{pairs:?}");
    }
}

#[test]
fn holder_is_unknown_if_the_value_of_the_key_may_not_be_read() {
    for (kind, what) in [("hash", What::Fields), ("hash", What::Mode), ("string", What::Text), ("string", What::Ttl)] {
        assert!(answers(kind, 30_000).without(what).undecided().is_some(), "{kind} {what:?}");
    }
    for (kind, what) in [("hash", What::Counter), ("string", What::LeaseCount), ("none", What::Barrier)] {
        assert!(answers(kind, -1).without(what).undecided().is_none(), "{kind} {what:?}");
    }
}

#[test]
fn queue_has_positions_and_deadlines_by_the_servers_clock() {
    let (holder, java, ours) = (format!("{OURS}:1"), format!("{JAVAS}:2"), format!("{OURS}:3"));
    let found = report(
        &of_hash(&[&holder, "1"])
            .with(What::QueueLength, Value::Integer(5))
            .with(What::Queue, words(&[&java, &ours, "x"]))
            .with(What::Deadlines, words(&[&ours, "1004500.25", &java, "999000"])),
    );
    let expected = [(java, Some(-1_000)), (ours, Some(4_500)), ("x".to_owned(), None)];
    assert_eq!(found.queue, expected.map(|(owner, left)| Waiter { owner, left }));
    assert_eq!((flavour(&found), found.more_waiters), ((Some("fair"), true), 2));
    assert_eq!(found.json()["queue"][0]["position"], 1);
    assert_eq!(found.json()["queue"][0]["language"], "java");
}

#[test]
fn read_write_lock_is_held_while_one_reader_lives() {
    let (one, two) = (format!("{JAVAS}:1"), format!("{OURS}:2"));
    let replies = of_hash(&["mode", "read", &one, "1", &two, "2"]).with(What::Mode, Value::from("read"));
    let mut found = report(&replies);
    assert_eq!((found.flavour, found.half()), (Some("read-write"), Some(Half::Read)));
    set_covers(&mut found, [(0, -2), (1, 9_000), (1, -2)]);
    assert_eq!((found.holders[0].ttl, found.holders[1].ttl, found.held), (Some(0), Some(9_000), true));
    let mut dead = report(&replies);
    set_covers(&mut dead, [(0, -2), (1, -2)]);
    assert!(!dead.held);
}

#[test]
fn writer_that_also_reads_has_two_entries() {
    let (owner, write) = (format!("{OURS}:1"), format!("{OURS}:1:write"));
    let mark = words(&[JAVAS, "1002000"]);
    let replies = of_hash(&["mode", "write", &owner, "1", &write, "2"]).with(What::Mode, Value::from("write"));
    let found = report(&replies.with(What::Marks, mark));
    let entries = found.holders.iter().map(|holder| (holder.owner.as_str(), holder.half, holder.holds));
    let owner = owner.as_str();
    assert_eq!(entries.collect::<Vec<_>>(), [(owner, Some(Half::Read), 1), (owner, Some(Half::Write), 2)]);
    assert_eq!((found.half(), found.waiting_writers[0].left), (Some(Half::Write), Some(2_000)));
}

#[test]
fn strings_are_plain_locks_permits_or_numbers() {
    let text = |text: &str, ttl| answers("string", ttl).with(What::Text, Value::from(text));
    let plain = report(&text(&format!("{OURS}:7/0123456789ab.1"), 500));
    assert_eq!((plain.flavour, plain.holders[0].owner.as_str()), (Some("plain"), format!("{OURS}:7").as_str()));
    assert_eq!(plain.holders[0].ids, ["0123456789ab.1"]);
    assert_eq!(report(&text("of another library", 500)).holders[0].owner, "of another library");
    assert_eq!(flavour(&report(&text("no lease", -1))), (None, false));
    let number = report(&text("-3", -1));
    assert_eq!((flavour(&number), number.number), ((Some("number"), true), Some(-3)));
}

#[test]
fn expired_permits_count_as_free() {
    let replies = answers("string", -1).with(What::Text, Value::from("5")).with(What::LeaseCount, Value::Integer(3));
    let leases = words(&["expired", "1000000", "held", "1000750", "endless", "922337203685477"]);
    let owner = format!("{OURS}:4");
    let replies = replies
        .with(What::Leases, leases)
        .with(What::Line, fields(&[&owner, "1"]))
        .with(What::LineTtl, Value::Integer(800))
        .with(What::LineLength, Value::Integer(0));
    let mut found = report(&replies);
    add_line(&replies, &mut found);
    let permits = found.permits.clone().expect("permits");
    assert_eq!((permits.total, permits.free, permits.held), (8, 6, 2));
    assert_eq!(permits.holders.iter().map(|(_, left)| *left).collect::<Vec<_>>(), [Some(750), None]);
    assert_eq!(found.queue, [Waiter { owner, left: Some(800) }]);
    assert_eq!(found.json()["permits"]["holders"][1]["ttl_ms"], serde_json::Value::Null);
}

#[test]
fn barrier_has_its_parties_and_rounds() {
    let owner = format!("{OURS}:1");
    let found = report(
        &answers("none", -2)
            .with(What::Barrier, words(&["105", "100", "3", ",102,104"]))
            .with(What::PartyCount, Value::Integer(1))
            .with(What::Parties, words(&[&owner, "1030000"])),
    );
    assert_eq!(flavour(&found), (Some("barrier"), true));
    let barrier = found.barrier.expect("a barrier");
    assert_eq!((barrier.parties, barrier.finished, barrier.broken, barrier.more), (Some(3), 5, 2, 0));
    assert_eq!(barrier.arrived, [Waiter { owner, left: Some(30_000) }]);
}
