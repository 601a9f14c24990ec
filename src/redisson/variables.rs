//! Replaces `${NAME}` and `${NAME:-default}` as Redisson does: in the text, before it is read as YAML.

use std::ops::Range;

/// A text whose variables are replaced. Places are counted in characters.
pub(super) struct Filled {
    pub(super) text: String,
    /// Maps places of the new text to the given text. Each piece was copied, or is the value of a variable.
    pieces: Vec<Piece>,
    /// References without a value. They stay in the text unchanged.
    unfilled: Vec<Unfilled>,
}

struct Piece {
    at: usize,
    from: usize,
    is_copy: bool,
}

/// A reference without a value.
pub(super) struct Unfilled {
    at: Range<usize>,
    pub(super) name: String,
    /// `${NAME:-}`, which Redisson does not read as a reference.
    pub(super) is_default_empty: bool,
}

impl Filled {
    /// Replaces the variables that `value` knows. Stops once the new text is longer than `longest` bytes.
    pub(super) fn new(text: &str, longest: usize, value: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut filled = Self { text: String::with_capacity(text.len()), pieces: Vec::new(), unfilled: Vec::new() };
        let (mut rest, mut from, mut at) = (text, 0, 0);
        while let Some(start) = rest.find("${") {
            if filled.text.len() > longest {
                return filled;
            }
            filled.push(&rest[..start], &mut at, from, true);
            from += rest[..start].chars().count();
            rest = &rest[start..];
            let (length, put) = match Reference::read(rest) {
                Err(length) => (length, None),
                Ok(reference) => {
                    let put = value(reference.name).or_else(|| reference.default.map(str::to_owned));
                    if put.is_none() || reference.is_default_empty {
                        let long = rest[..reference.length].chars().count();
                        let (name, is_default_empty) = (reference.name.to_owned(), reference.is_default_empty);
                        filled.unfilled.push(Unfilled { at: at..at + long, name, is_default_empty });
                    }
                    (reference.length, put.filter(|_| !reference.is_default_empty))
                }
            };
            let (put, is_copy) = put.as_deref().map_or((&rest[..length], true), |put| (put, false));
            filled.push(put, &mut at, from, is_copy);
            from += rest[..length].chars().count();
            rest = &rest[length..];
        }
        filled.push(rest, &mut at, from, true);
        filled
    }

    fn push(&mut self, text: &str, at: &mut usize, from: usize, is_copy: bool) {
        self.pieces.push(Piece { at: *at, from, is_copy });
        self.text.push_str(text);
        *at += text.chars().count();
    }

    /// The place in the given text of what is at `at` in the new text.
    pub(super) fn origin(&self, at: usize) -> usize {
        let piece = self.pieces.partition_point(|piece| piece.at <= at).checked_sub(1).map(|n| &self.pieces[n]);
        piece.map_or(at, |piece| piece.from + if piece.is_copy { at - piece.at } else { 0 })
    }

    /// The first reference without a value in this range.
    pub(super) fn unfilled(&self, within: &Range<usize>) -> Option<&Unfilled> {
        self.unfilled.iter().find(|unfilled| unfilled.at.start >= within.start && unfilled.at.start < within.end)
    }
}

struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
    is_default_empty: bool,
    length: usize,
}

impl<'a> Reference<'a> {
    /// Parses a reference at the start of `text`, which begins with `${`. If Redisson would not read it as a
    /// reference, returns the length that contains no reference. A name has letters, digits, `_` and `.`; a default
    /// ends at the first `}` of its line; nothing else may come in between.
    fn read(text: &'a str) -> Result<Self, usize> {
        let inside = &text[2..];
        let long = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        let (name, behind) = inside.split_at(long.unwrap_or(inside.len()));
        if name.is_empty() {
            return Err(2);
        }
        let long = name.len();
        if behind.starts_with('}') {
            return Ok(Self { name, default: None, is_default_empty: false, length: long + 3 });
        }
        let default = behind.strip_prefix(":-").ok_or(long + 2)?;
        let end = default.find(['}', '\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).unwrap_or(default.len());
        let length = long + end + 4;
        if !default[end..].starts_with('}') {
            // No reference ends on this line.
            return Err(length);
        }
        Ok(Self { name, default: Some(&default[..end]), is_default_empty: end == 0, length: length + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Filled {
        Filled::new(text, usize::MAX, &|name| match name {
            "H" => Some("hh".to_owned()),
            "EMPTY" => Some(String::new()),
            "nested" => Some("${H}".to_owned()),
            _ => None,
        })
    }

    /// Redisson 3.52 and 4.7 do the same (`tests/config/oracle.rs` checks that).
    #[test]
    fn values_and_defaults_are_put_in_place() {
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
    fn places_are_those_of_the_text_as_it_was_written() {
        let filled = fill("ä${H}b${NOPE}c");
        assert_eq!(filled.text, "ähhb${NOPE}c");
        let origins: Vec<_> = (0..5).map(|at| filled.origin(at)).collect();
        assert_eq!(origins, [0, 1, 1, 5, 6]);
        assert_eq!(filled.origin(filled.text.chars().count() - 1), 13);
        assert_eq!(filled.unfilled(&(0..11)).map(|unfilled| unfilled.name.as_str()), Some("NOPE"));
        assert!(filled.unfilled(&(0..4)).is_none() && filled.unfilled(&(5..11)).is_none());
        let empty = fill("${H:-}");
        assert!(empty.text == "${H:-}" && empty.unfilled(&(0..6)).is_some_and(|unfilled| unfilled.is_default_empty));
    }
}
