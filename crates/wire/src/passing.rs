//! Refusals that pass: after such an error, the server may accept the same command later.
//!
//! Redirects, and errors about keys of another server, are not in this list.

/// One kind of refusal.
#[derive(Debug)]
pub struct Passing {
    /// Start of the error's text: its code, or `ERR` and the words after it.
    pub begins: &'static str,
    /// Why the server refuses.
    pub cause: Cause,
    /// True if the server is a replica: a new connection may lead to the primary.
    pub is_replica: bool,
}

/// Why the server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The server, or its cluster, serves no commands at the moment.
    Down,
    /// The server accepts no writes: it is a replica, or it has too few replicas.
    Demoted,
    /// The keys are in two places: their slot is being moved.
    Slot,
    /// The server has no room: disk, memory, connections.
    Full,
}

const fn row(begins: &'static str, cause: Cause) -> Passing {
    Passing { begins, cause, is_replica: false }
}

const fn replica(begins: &'static str, cause: Cause) -> Passing {
    Passing { begins, cause, is_replica: true }
}

/// All refusals that pass.
pub static PASSING: [Passing; 10] = [
    row("LOADING", Cause::Down),
    row("BUSY", Cause::Down),
    row("CLUSTERDOWN", Cause::Down),
    replica("MASTERDOWN", Cause::Down),
    replica("READONLY", Cause::Demoted),
    row("NOREPLICAS", Cause::Demoted),
    row("TRYAGAIN", Cause::Slot),
    row("MISCONF", Cause::Full),
    row("OOM", Cause::Full),
    row("ERR max number of clients", Cause::Full),
];

impl Passing {
    /// Returns the row for an error's text, or `None` for an error that does not pass.
    pub fn of(text: &str) -> Option<&'static Self> {
        let text = inside(text);
        let begins =
            |row: &&Self| text.strip_prefix(row.begins).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        PASSING.iter().find(begins)
    }
}

/// Removes the script's hash and line number from the error of a command inside a script. Redis 6.2 adds them as a
/// prefix, and Redis 7 as a suffix.
pub fn inside(text: &str) -> &str {
    let text = match text.rsplit_once(" script: ") {
        Some((said, place)) if place.contains("@user_script") => said,
        _ => text,
    };
    let call = text.strip_prefix("ERR Error running script (call to ").and_then(|call| call.split_once("): "));
    let mut rest = call.map_or(text, |(_, rest)| rest);
    while let Some(place) = rest.strip_prefix("@user_script:") {
        let after = place.trim_start().trim_start_matches(|digit: char| digit.is_ascii_digit());
        match after.strip_prefix(": ") {
            Some(after) => rest = after,
            None => break,
        }
    }
    if rest.len() == text.len() { text } else { rest.strip_prefix('-').unwrap_or(rest) }
}

/// Returns the error of an unknown command without the arguments that servers append.
pub fn without_arguments(text: &str) -> &str {
    text.split_once(", with args beginning with").map_or(text, |(said, _)| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_removes_the_hash_and_line_of_a_script() {
        let call = "ERR Error running script (call to f_1d2f0b): @user_script:5: ";
        for said in ["OOM command not allowed", "WRONGTYPE Operation", "ERR no such key", "ERR a thing: WRONGTYPE x"] {
            for text in [
                said.to_owned(),
                // Redis 6.2, and Redis 6.2 errors that the script caught.
                format!("{call}{said}"),
                format!("{call}@user_script: 5: -{said}"),
                format!("@user_script: 5: {said}"),
                // Redis 7, Valkey, and Valkey 9.1.
                format!("{said} script: 1d2f0b, on @user_script:12."),
                format!("{said} script: on @user_script:12."),
            ] {
                assert_eq!(inside(&text), said, "{text}");
            }
        }
        for text in ["", "-OOM", "ERR x script: y", "ERR Error running script (call to f_x", "@user_script:x: OOM"] {
            assert_eq!(inside(text), text);
        }
    }

    #[test]
    fn passing_refusal_is_found_by_its_whole_code_also_in_a_script() {
        for row in &PASSING {
            let code = row.begins;
            for text in [
                code.to_owned(),
                format!("{code} and why"),
                format!("ERR Error running script (call to f_c0): @user_script:5: @user_script: 5: -{code} and why"),
            ] {
                assert_eq!(Passing::of(&text).map(|row| row.begins), Some(code), "{text}");
            }
        }
        for text in ["NOBUSY", "BUSYKEY Target key", "OOMPH", "ERR x", "NOAUTH x", "ERR a thing: OOM x", ""] {
            assert!(Passing::of(text).is_none(), "{text}");
        }
    }
}
