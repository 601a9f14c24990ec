//! YAML as a tree whose nodes know their places in the text. The size of the tree is bounded, and features that
//! Redisson's files do not need are refused.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput, Tag};

use crate::Error;
use crate::variables::Filled;

/// The longest text, in bytes. A file with all of Redisson's options and comments has a tenth of that.
pub(crate) const LONGEST: usize = 256 * 1024;

/// The deepest nesting of maps and lists. Redisson's files nest three levels.
const DEEPEST: usize = 16;

const MOST: usize = 5_000;

/// A value with its place, in characters of the text.
pub(crate) struct Node {
    pub(crate) at: Range<usize>,
    /// The tag's name, such as `org.redisson.codec.Kryo5Codec` for `!<org.redisson.codec.Kryo5Codec>`.
    pub(crate) tag: Option<String>,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    /// The text. True if the scalar is plain: no quotes, and no `|` or `>` block.
    Scalar(String, bool),
    List(Vec<Node>),
    Map(Vec<Pair>),
}

pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) at: Range<usize>,
    pub(crate) value: Node,
}

/// Reads the only document of a text.
pub(crate) fn read(filled: &Filled<'_>) -> Result<Node, Error> {
    let mut reader = Reader { filled, parser: Parser::new_from_str(&filled.text), end: 0, nodes: 0 };
    reader.next()?; // the start of the text
    if let (Event::StreamEnd, at) = reader.next()? {
        return reader.refuse(at, "there is nothing in it");
    }
    let root = reader.node(0)?;
    reader.next()?; // the end of the document
    match (root, reader.next()?) {
        (Some(root), (Event::StreamEnd, _)) => Ok(root),
        (_, (_, at)) => reader.refuse(at, "a second document begins here"),
    }
}

struct Reader<'a> {
    filled: &'a Filled<'a>,
    parser: Parser<'a, StrInput<'a>>,
    /// End of the last event.
    end: usize,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn refuse<T>(&self, at: usize, what: impl Into<String>) -> Result<T, Error> {
        Err(self.filled.error(at, what))
    }

    /// The next event and its place.
    fn next(&mut self) -> Result<(Event<'a>, usize), Error> {
        match self.parser.next() {
            Some(Ok((event, span))) => {
                self.end = span.end.index();
                Ok((event, span.start.index()))
            }
            // The parser's messages are safe to repeat, except for one character of the text, which may belong to a
            // password.
            Some(Err(error)) => {
                let what = error.info().split(": `").next().unwrap_or_default();
                self.refuse(error.marker().index(), format!("this is no YAML: {what}"))
            }
            None => self.refuse(0, "the text ends too early"),
        }
    }

    /// The next value of a list, or the next key or value of a map. None at the end of the list or the map.
    fn node(&mut self, depth: usize) -> Result<Option<Node>, Error> {
        let (event, at) = self.next()?;
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            return Ok(None);
        }
        self.nodes += 1;
        if self.nodes > MOST {
            return self.refuse(at, format!("there are more than {MOST} values"));
        }
        if depth > DEEPEST {
            return self.refuse(at, format!("maps and lists go deeper than {DEEPEST}"));
        }
        let (tag, kind) = match event {
            Event::Scalar(text, style, _, tag) => (tag, Kind::Scalar(text.into_owned(), style == ScalarStyle::Plain)),
            Event::SequenceStart(.., tag) => {
                let mut list = Vec::new();
                while let Some(node) = self.node(depth + 1)? {
                    list.push(node);
                }
                (tag, Kind::List(list))
            }
            Event::MappingStart(.., tag) => {
                let mut pairs: Vec<Pair> = Vec::new();
                while let Some(Node { at: key_at, kind, .. }) = self.node(depth + 1)? {
                    let Kind::Scalar(key, _) = kind else { return self.refuse(at, "a key is a map or a list") };
                    if key == "<<" {
                        let what = "maps are not merged here (`<<`): write out what is merged";
                        return self.refuse(key_at.start, what);
                    }
                    if pairs.iter().any(|pair| pair.key == key) {
                        return self.refuse(key_at.start, "this key occurs twice in the same map");
                    }
                    let Some(value) = self.node(depth + 1)? else { return self.refuse(at, "a value is missing") };
                    pairs.push(Pair { key, at: key_at, value });
                }
                (tag, Kind::Map(pairs))
            }
            Event::Alias(..) => return self.refuse(at, "aliases (`*name`) are not read here: write out what is meant"),
            _ => return self.refuse(at, "a value is missing"),
        };
        // `!<a.b.C>`, `!a.b.C` and `!!a.b.C` name the same class.
        let name = |tag: &Tag| {
            let tag = format!("{}{}", tag.handle, tag.suffix);
            tag.trim_start_matches('!').trim_start_matches("tag:yaml.org,2002:").to_owned()
        };
        Ok(Some(Node { at: at..self.end, tag: tag.map(|tag| name(&tag)), kind }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reads a text without variables.
    pub(crate) fn tree(text: &str) -> Result<Node, Error> {
        read(&Filled::new(text, usize::MAX, &|_| None))
    }

    fn fault(text: &str) -> (usize, String) {
        match tree(text) {
            Err(Error::At { line, what, .. }) => (line, what),
            _ => panic!("read: {text:.40}"),
        }
    }

    #[test]
    fn tags_and_places_are_read() {
        let root = tree("a: !<org.x.Y> {}\nb:\n- !org.x.Z {c: ä}\n- !!int 3\n").unwrap();
        let Kind::Map(pairs) = &root.kind else { panic!("no map") };
        assert_eq!(pairs[0].value.tag.as_deref(), Some("org.x.Y"));
        assert_eq!((pairs[1].key.as_str(), pairs[1].at.clone()), ("b", 17..18));
        let Kind::List(list) = &pairs[1].value.kind else { panic!("no list") };
        assert_eq!(list[0].tag.as_deref(), Some("org.x.Z"));
        assert_eq!(list[1].tag.as_deref(), Some("int"));
    }

    #[test]
    fn refused_text_reports_line_of_fault() {
        for (text, line, what) in [
            ("", 1, "nothing"),
            ("a: 1\nb: 2\na: 3\n", 3, "twice"),
            ("a: &x 1\nb: *x\n", 2, "aliases"),
            ("a:\n  <<: {b: 1}\n", 2, "merged"),
            ("a:\n\tb: 1\n", 2, "no YAML"),
            ("a: [1, 2\nb: 3\n", 2, "no YAML"),
            ("a: 1\n---\nb: 2\n", 2, "second document"),
            ("{a: 1}: 2\n", 1, "a key is"),
            ("a: 'x\n", 1, "no YAML"),
        ] {
            let (at, why) = fault(text);
            assert!(at == line && why.contains(what), "{text}: line {at}, {why}");
        }
    }

    #[test]
    fn hostile_texts_are_refused() {
        for text in
            ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(60_000), format!("[{}]", "1,".repeat(60_000))]
        {
            assert!(tree(&text).is_err());
        }
        // Each line would have three times the values of the line before. Refused at the first alias, in line 2.
        let mut bomb = String::from("a0: &a0 [x,x]\n");
        for n in 1..30 {
            bomb += &format!("a{n}: &a{n} [*a{0},*a{0},*a{0}]\n", n - 1);
        }
        assert_eq!(fault(&bomb).0, 2);
    }
}
