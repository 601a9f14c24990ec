//! The guide's row of an event lists the fields of that event.

use std::collections::BTreeSet;

use super::{rows, sources};

/// Fields that the guide explains for all events together.
const GENERAL: [&str; 7] = ["lock.name", "error", "cause", "reason", "fault", "why", "left_out"];

/// The arguments of a macro call. `text` begins behind the call's opening parenthesis.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    let mut all = vec![String::new()];
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        all.last_mut().unwrap().push(c);
    }
    all.into_iter().map(|argument| argument.trim().to_owned()).filter(|argument| !argument.is_empty()).collect()
}

/// Removes the line breaks that a `\` at the end of a line takes out of a text.
fn joined(text: &str) -> String {
    text.split("\\\n").map(str::trim_start).collect()
}

/// The message of an event, and its fields except for those in [`GENERAL`].
fn event(call: &str) -> (String, BTreeSet<String>) {
    let arguments = arguments(call);
    let (texts, fields): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.starts_with('"'));
    let name = |field: &&String| field.split('=').next().unwrap().trim().trim_start_matches(['?', '%']).to_owned();
    let fields = fields.iter().map(name).filter(|field| !GENERAL.contains(&field.as_str())).collect();
    (texts.into_iter().map(|text| joined(text)).collect(), fields)
}

/// True if this is the row of the message: two dots in the row stand for omitted text.
fn is_row_of(row: &[&str], message: &str) -> bool {
    row[1].trim_matches('`').split("..").all(|part| message.contains(part.trim_matches([',', ' '])))
}

fn fields_of(row: &[&str]) -> BTreeSet<String> {
    let fields = row[2].split(',').map(|field| field.trim().trim_matches('`'));
    fields.filter(|field| !field.is_empty()).map(str::to_owned).collect()
}

#[test]
fn row_of_each_event_lists_its_fields() {
    let (sources, mut count) = (sources(), 0);
    for level in ["warn", "info", "debug", "trace"] {
        let (rows, start) = (rows(&format!("| {level} |")), format!("tracing::{level}!("));
        for call in sources.iter().flat_map(|source| source.split(&start).skip(1)) {
            let (message, fields) = event(call);
            let listed: Vec<_> = rows.iter().filter(|row| is_row_of(row, &message)).map(|row| fields_of(row)).collect();
            assert!(listed.contains(&fields), "{message} has the fields {fields:?}, and the guide lists {listed:?}");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} events were found");
}

/// The red control: what the parser reads from a call.
#[test]
fn fields_of_a_call_are_read() {
    let call = "lock.name = %name(a, b), ?end, owner, %error, \"lost (again), \\\n      for good\"); more(\"x\", y)";
    let (message, fields) = event(call);
    assert_eq!(message, "\"lost (again), for good\"");
    assert_eq!(fields, BTreeSet::from(["end", "owner"].map(str::to_owned)));
}
