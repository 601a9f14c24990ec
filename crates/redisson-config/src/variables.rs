//! Replaces `${NAME}` and `${NAME:-default}` as Redisson does: in the text, before the text is read as YAML.

use std::ops::Range;

use crate::Error;

/// A text whose variables are replaced. Places are counted in characters.
#[derive(Default)]
pub(crate) struct Filled<'a> {
    given: &'a str,
    pub(crate) text: String,
    /// Maps places of the new text to the given text.
    pieces: Vec<Piece>,
    /// References without a value, which stay in the text: the place of each in the new text, and the error for an
    /// option that contains the reference.
    unfilled: Vec<(usize, String)>,
    /// Length so far, in characters: `at` of the new text, `from` of the given text.
    at: usize,
    from: usize,
}

/// A part of the new text, with its start in the new text (`at`) and in the given text (`from`).
struct Piece {
    at: usize,
    from: usize,
    is_copy: bool,
}

impl<'a> Filled<'a> {
    /// Replaces the variables that `value` knows. Stops once the new text is longer than `longest` bytes.
    pub(crate) fn new(given: &'a str, longest: usize, value: &dyn Fn(&str) -> Option<String>) -> Self {
        let (mut filled, mut rest) = (Self { given, ..Self::default() }, given);
        while let Some(start) = rest.find("${")
            && filled.text.len() <= longest
        {
            filled.push(&rest[..start], None);
            let (length, reference) = reference(&rest[start..]);
            let (source, behind) = rest[start..].split_at(length);
            let put = reference.and_then(|(name, default)| {
                // Redisson does not read a reference with an empty default.
                let put = value(name).or(default.map(str::to_owned)).filter(|_| default != Some(""));
                if put.is_none() {
                    filled.unfilled.push((filled.at, without_value(name, default)));
                }
                put
            });
            filled.push(source, put.as_deref());
            rest = behind;
        }
        filled.push(rest, None);
        filled
    }

    /// Appends `value` in place of `source`, or `source` itself if there is no value.
    fn push(&mut self, source: &str, value: Option<&str>) {
        self.pieces.push(Piece { at: self.at, from: self.from, is_copy: value.is_none() });
        let text = value.unwrap_or(source);
        self.text.push_str(text);
        self.at += text.chars().count();
        self.from += source.chars().count();
    }

    /// Line and column in the given text, from 1, of the character at `at` in the new text.
    pub(crate) fn place(&self, at: usize) -> (usize, usize) {
        // The first piece begins at 0.
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.at <= at) - 1];
        let origin = piece.from + if piece.is_copy { at - piece.at } else { 0 };
        let (mut line, mut column) = (1, 1);
        for c in self.given.chars().take(origin) {
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        (line, column)
    }

    /// Refuses the text because of the character at `at` in the new text.
    pub(crate) fn error(&self, at: usize, what: impl Into<String>) -> Error {
        let (line, column) = self.place(at);
        Error::At { line, column, what: what.into() }
    }

    /// Returns the error of the first reference without a value in this range.
    pub(crate) fn unfilled(&self, within: &Range<usize>) -> Option<&str> {
        self.unfilled.iter().find(|(at, _)| within.contains(at)).map(|(_, why)| why.as_str())
    }
}

fn without_value(name: &str, default: Option<&str>) -> String {
    match default {
        None => format!("the variable {name} is not set, and has no default: ${{{name}:-default}}"),
        Some(_) => format!(
            "Redisson does not read ${{{name}:-}}, a reference with an empty default: use ${{{name}}}, or give a default"
        ),
    }
}

/// Parses the reference at the start of `text`, which begins with `${`. Returns the reference's length, name and
/// default. If Redisson reads no reference here, returns the number of bytes to skip. A name has letters, digits, `_`
/// and `.`. A default ends at the first `}` on its line. Nothing else may stand between name and default.
fn reference(text: &str) -> (usize, Option<(&str, Option<&str>)>) {
    let inside = &text[2..];
    let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(inside.len());
    let (name, behind) = inside.split_at(end);
    let length = 2 + end;
    if !name.is_empty() && behind.starts_with('}') {
        return (length + 1, Some((name, None)));
    }
    let Some(default) = behind.strip_prefix(":-").filter(|_| !name.is_empty()) else { return (length, None) };
    let end = default.find(['}', '\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).unwrap_or(default.len());
    let length = length + 2 + end;
    if default[end..].starts_with('}') {
        return (length + 1, Some((name, Some(&default[..end]))));
    }
    // The default does not end on its line, so this is no reference.
    (length, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Filled<'_> {
        Filled::new(text, usize::MAX, &|name| match name {
            "H" => Some("hh".to_owned()),
            "EMPTY" => Some(String::new()),
            "nested" => Some("${H}".to_owned()),
            _ => None,
        })
    }

    /// Redisson 3.52 and 4.7 do the same (`tests/config/oracle.rs` checks that).
    #[test]
    fn variables_and_defaults_are_substituted() {
        for (text, filled) in [
            ("redis://${H}:${P:-6379}", "redis://hh:6379"),
            ("${EMPTY:-def}|${EMPTY}", "|"),
            ("$H $${H} ${NOPE}", "$H $hh ${NOPE}"),
            (
                "${H:localhost} ${ H } ${H-x} ${:-d} ${A B:-d} ${x-y:-d}",
                "${H:localhost} ${ H } ${H-x} ${:-d} ${A B:-d} ${x-y:-d}",
            ),
            ("${NOPE:-a:b-c} ${NOPE:--x} ${a.b:-d}", "a:b-c -x d"),
            ("${NOPE:-${H}} ${NOPE:-a}b}", "${H} ab}"),
            ("${NOPE:-a\nb} ${H", "${NOPE:-a\nb} ${H"),
            ("${nested}", "${H}"),
        ] {
            assert_eq!(fill(text).text, filled, "{text}");
        }
    }

    #[test]
    fn places_refer_to_original_text() {
        let filled = fill("ä${H}b${NOPE}c");
        assert_eq!(filled.text, "ähhb${NOPE}c");
        let places: Vec<_> = (0..5).map(|at| filled.place(at)).collect();
        assert_eq!(places, [(1, 1), (1, 2), (1, 2), (1, 6), (1, 7)]);
        assert_eq!(filled.place(filled.text.chars().count() - 1), (1, 14));
        assert!(filled.unfilled(&(0..11)).is_some_and(|why| why.contains("NOPE is not set")));
        assert!(filled.unfilled(&(0..4)).is_none() && filled.unfilled(&(5..11)).is_none());
        let empty = fill("\n${H:-}");
        assert!(
            empty.text == "\n${H:-}" && empty.unfilled(&(1..6)).is_some_and(|why| why.contains("an empty default"))
        );
        assert_eq!(empty.place(3), (2, 3));
    }
}
