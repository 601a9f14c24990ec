//! YAML as a tree whose nodes know their places. Its size is bounded, and features that Redisson's files do not need
//! are refused.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

/// The longest text, in bytes. A file with all of Redisson's options and comments has a tenth of that.
pub(super) const LONGEST: usize = 256 * 1024;

/// The deepest nesting of maps and lists. Redisson's files nest three levels.
const DEEPEST: usize = 16;

const MOST: usize = 5_000;

/// A value with its place, in characters of the text.
pub(super) struct Node {
    pub(super) at: Range<usize>,
    /// The class between the brackets, as in `!<org.redisson.codec.Kryo5Codec>`.
    pub(super) tag: Option<String>,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// `is_plain`: without quotes.
    Scalar {
        text: String,
        is_plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Pair>),
}

pub(super) struct Pair {
    pub(super) key: String,
    pub(super) at: Range<usize>,
    pub(super) value: Node,
}

/// Why and where a text is refused.
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

/// Reads the only document of a text.
pub(super) fn read(text: &str) -> Result<Node, Fault> {
    let mut reader = Reader { parser: Parser::new_from_str(text), nodes: 0 };
    loop {
        match reader.next()? {
            (Event::DocumentStart(..), _) => break,
            (Event::StreamEnd, at) => return Err(Fault::new(at.start, "there is nothing in it")),
            _ => {}
        }
    }
    let (event, at) = reader.next()?;
    let root = reader.node(event, at, 0)?;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(..), at) => return Err(Fault::new(at.start, "a second document begins here")),
            _ => {}
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Range<usize>), Fault> {
        match self.parser.next() {
            Some(Ok((event, span))) => Ok((event, places(span))),
            // The parser's messages are safe to repeat, except for one character of the text, which may belong to a
            // password.
            Some(Err(error)) => {
                let what = error.info().split(": `").next().unwrap_or_default();
                Err(Fault::new(error.marker().index(), format!("this is no YAML: {what}")))
            }
            None => Err(Fault::new(0, "the text ends too early")),
        }
    }

    fn node(&mut self, event: Event<'a>, at: Range<usize>, depth: usize) -> Result<Node, Fault> {
        self.nodes += 1;
        if self.nodes > MOST {
            return Err(Fault::new(at.start, format!("there are more than {MOST} values")));
        }
        if depth > DEEPEST {
            return Err(Fault::new(at.start, format!("maps and lists go deeper than {DEEPEST}")));
        }
        let start = at.start;
        match event {
            Event::Scalar(text, style, _, tag) => {
                let kind = Kind::Scalar { text: text.into_owned(), is_plain: style == ScalarStyle::Plain };
                Ok(Node { at, tag: tag.map(|tag| name(&tag)), kind })
            }
            Event::SequenceStart(.., tag) => {
                let mut list = Vec::new();
                loop {
                    let (event, at) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        let (tag, kind) = (tag.map(|tag| name(&tag)), Kind::List(list));
                        return Ok(Node { at: start..at.end, tag, kind });
                    }
                    list.push(self.node(event, at, depth + 1)?);
                }
            }
            Event::MappingStart(.., tag) => {
                let mut pairs: Vec<Pair> = Vec::new();
                loop {
                    let (event, at) = self.next()?;
                    if matches!(event, Event::MappingEnd) {
                        let (tag, kind) = (tag.map(|tag| name(&tag)), Kind::Map(pairs));
                        return Ok(Node { at: start..at.end, tag, kind });
                    }
                    let Node { at, kind: Kind::Scalar { text: key, .. }, .. } = self.node(event, at, depth + 1)? else {
                        return Err(Fault::new(start, "a key is a map or a list"));
                    };
                    if key == "<<" {
                        return Err(Fault::new(at.start, "maps are not merged here (`<<`): write out what is merged"));
                    }
                    if pairs.iter().any(|pair| pair.key == key) {
                        return Err(Fault::new(at.start, "this key occurs twice in the same map"));
                    }
                    let (event, value_at) = self.next()?;
                    let value = self.node(event, value_at, depth + 1)?;
                    pairs.push(Pair { key, at, value });
                }
            }
            Event::Alias(..) => Err(Fault::new(start, "aliases (`*name`) are not read here: write out what is meant")),
            _ => Err(Fault::new(start, "a value is missing")),
        }
    }
}

fn places(span: Span) -> Range<usize> {
    span.start.index()..span.end.index()
}

/// `!<a.b.C>`, `!a.b.C` and `!!a.b.C` name the same class.
fn name(tag: &Tag) -> String {
    let tag = format!("{}{}", tag.handle, tag.suffix);
    tag.trim_start_matches('!').trim_start_matches("tag:yaml.org,2002:").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (usize, String) {
        let Err(fault) = read(text) else { panic!("read: {text:.40}") };
        (text.chars().take(fault.at).filter(|c| *c == '\n').count() + 1, fault.what)
    }

    #[test]
    fn tags_and_places_are_read() {
        let root = read("a: !<org.x.Y> {}\nb:\n- !org.x.Z {c: ä}\n- !!int 3\n")
            .unwrap_or_else(|fault| panic!("{}", fault.what));
        let Kind::Map(pairs) = &root.kind else { panic!("no map") };
        assert_eq!(pairs[0].value.tag.as_deref(), Some("org.x.Y"));
        assert_eq!((pairs[1].key.as_str(), pairs[1].at.clone()), ("b", 17..18));
        let Kind::List(list) = &pairs[1].value.kind else { panic!("no list") };
        assert_eq!(list[0].tag.as_deref(), Some("org.x.Z"));
        assert_eq!(list[1].tag.as_deref(), Some("int"));
    }

    #[test]
    fn what_is_no_tree_of_ours_is_refused_where_it_stands() {
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
    fn hostile_texts_end_soon() {
        for text in
            ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(60_000), format!("[{}]", "1,".repeat(60_000))]
        {
            assert!(read(&text).is_err());
        }
        // Ten times ten times ten values, and so on: refused at the first alias.
        let mut bomb = String::from("a0: &a0 [x,x]\n");
        for n in 1..30 {
            bomb += &format!("a{n}: &a{n} [*a{0},*a{0},*a{0}]\n", n - 1);
        }
        assert_eq!(fault(&bomb).0, 2);
    }
}
