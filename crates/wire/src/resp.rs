//! Encodes commands, and decodes replies of RESP2 and RESP3.

use std::collections::HashMap;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use redis_protocol::{resp2, resp3};
use resp2::types::RangeFrame as Old;
use resp3::types::RangeFrame as New;
use tokio::io::AsyncReadExt as _;

use super::bounds::{Bounds, Garbage};
use super::link::Reader;
use crate::{Arg, Call, Reply};

/// A reply, or the text of the server's error.
pub(super) type Answer = Result<Reply, String>;

#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// The reply to the next command.
    Reply(Answer),
    /// A push of RESP3: a message, or the confirmation of a subscription.
    Push(Answer),
}

/// Initial size of the buffer for replies.
const ROOM: usize = 4 << 10;
/// A buffer that has held more than this is released once it is empty.
const MOST_KEPT: usize = 64 << 10;

/// Received bytes, and how far they were scanned.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: BytesMut,
    bounds: Bounds,
    /// Maximum number of bytes held since the buffer was created.
    longest: usize,
}

impl Input {
    /// Returns the buffer to read into, with free space.
    fn room(&mut self) -> &mut BytesMut {
        self.longest = self.longest.max(self.bytes.len());
        if self.bytes.is_empty() && self.longest > MOST_KEPT {
            (self.bytes, self.longest) = (BytesMut::new(), 0);
        }
        // A long reply doubles the buffer each time, so that it is not moved for each received piece.
        let more = if self.bytes.len() < ROOM / 2 { ROOM - self.bytes.len() } else { self.bytes.len() };
        self.bytes.reserve(more);
        &mut self.bytes
    }

    /// Receives more bytes. The end of the stream is an error.
    ///
    /// # Cancel safety
    ///
    /// No received byte is lost if the future is dropped.
    pub(super) async fn receive(&mut self, reader: &mut Reader) -> io::Result<()> {
        match reader.read_buf(self.room()).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// True if the bytes are not the beginning of a reply.
    pub(super) fn is_foreign(&self) -> bool {
        self.bytes.first().is_some_and(|byte| !b"+-:$*_#,!=(%~|>".contains(byte))
    }

    /// Returns the next complete reply or push.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, Garbage> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let Some(length) = self.bounds.of(&self.bytes)? else { return Ok(None) };
        let incoming = incoming(&self.bytes[..length], self.bounds.is_resp2)?;
        self.bytes.advance(length);
        self.bounds = Bounds::default();
        Ok(Some(incoming))
    }
}

fn incoming(bytes: &[u8], is_resp2: bool) -> Result<Incoming, Garbage> {
    const ODD: Garbage = Garbage("it cannot be read");
    // The most frequent replies need no parser.
    match bytes {
        b"_\r\n" | b"$-1\r\n" | b"*-1\r\n" => return Ok(Incoming::Reply(Ok(Reply::Nil))),
        b"+OK\r\n" => return Ok(Incoming::Reply(Ok(Reply::Text(Bytes::from_static(b"OK"))))),
        _ => {}
    }
    if is_resp2 {
        let (frame, _) = resp2::decode::decode_range(bytes).map_err(|_| ODD)?.ok_or(ODD)?;
        return Ok(Incoming::Reply(old(frame, bytes)));
    }
    let (frame, _) = resp3::decode::complete::decode_range(bytes).map_err(|_| ODD)?.ok_or(ODD)?;
    Ok(match frame {
        New::Push { data, .. } => Incoming::Push(list(data, |frame| new(frame, bytes))),
        frame => Incoming::Reply(new(frame, bytes)),
    })
}

/// Reads a list. If an element is an error, the result is that error.
fn list<T>(parts: Vec<T>, read: impl Fn(T) -> Answer) -> Answer {
    parts.into_iter().map(read).collect::<Result<_, _>>().map(Reply::List)
}

/// Copies a text, so that a small reply does not keep the whole buffer in memory.
fn text(bytes: &[u8], (from, to): (usize, usize)) -> Bytes {
    Bytes::copy_from_slice(bytes.get(from..to).unwrap_or_default())
}

const LONGEST_ERROR: usize = 4 << 10;

fn error(bytes: &[u8], (from, to): (usize, usize)) -> String {
    String::from_utf8_lossy(&text(bytes, (from, to.min(from + LONGEST_ERROR)))).into_owned()
}

fn old(frame: Old, bytes: &[u8]) -> Answer {
    Ok(match frame {
        Old::Null => Reply::Nil,
        Old::Integer(int) => Reply::Int(int),
        Old::SimpleString(range) | Old::BulkString(range) => Reply::Text(text(bytes, range)),
        Old::Error(range) => return Err(error(bytes, range)),
        Old::Array(parts) => return list(parts, |part| old(part, bytes)),
    })
}

fn new(frame: New, bytes: &[u8]) -> Answer {
    let pairs = |map: HashMap<New, New>| map.into_iter().flat_map(|(key, value)| [key, value]).collect::<Vec<_>>();
    Ok(match frame {
        New::Null => Reply::Nil,
        New::Number { data, .. } => Reply::Int(data),
        New::Boolean { data, .. } => Reply::Int(i64::from(data)),
        New::Double { data, .. } => Reply::Text(Bytes::from(data.to_string())),
        New::BlobString { data, .. }
        | New::SimpleString { data, .. }
        | New::BigNumber { data, .. }
        | New::VerbatimString { data, .. } => Reply::Text(text(bytes, data)),
        New::SimpleError { data, .. } | New::BlobError { data, .. } => return Err(error(bytes, data)),
        New::Array { data, .. } | New::Push { data, .. } => return list(data, |part| new(part, bytes)),
        New::Set { data, .. } => return list(data.into_iter().collect(), |part| new(part, bytes)),
        New::Map { data, .. } => return list(pairs(data), |part| new(part, bytes)),
        _ => return Err("ERR the reply is of a kind that nobody has asked for".to_owned()),
    })
}

pub(super) fn write_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    write_head(out, b'*', words.len());
    for word in words {
        write_word(out, word);
    }
}

/// How a call names its script. A plain command (`Script::command`) sends no script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    Hash,
    Source,
}

impl Naming {
    pub(super) const fn first(script_cache: bool) -> Self {
        if script_cache { Self::Hash } else { Self::Source }
    }

    /// True for the answer of a server that does not know the script by its hash.
    pub(super) fn is_unknown(self, answer: &Answer) -> bool {
        self == Self::Hash && answer.as_ref().is_err_and(|error| error.starts_with("NOSCRIPT"))
    }
}

pub(super) fn write_call(out: &mut Vec<u8>, call: &Call, naming: Naming) {
    let (command, script) = match (call.script.command, naming) {
        (Some(command), _) => (command, None),
        (None, Naming::Hash) => ("EVALSHA", Some(call.script.sha())),
        (None, Naming::Source) => ("EVAL", Some(Bytes::from_static(call.script.source.as_bytes()))),
    };
    write_head(out, b'*', call.words.len() + if script.is_some() { 3 } else { 1 });
    write_word(out, command.as_bytes());
    if let Some(script) = script {
        write_word(out, &script);
        write_word(out, itoa::Buffer::new().format(call.keys).as_bytes());
    }
    for word in &call.words {
        match word {
            Arg::Text(text) => write_word(out, text),
            Arg::Int(int) => write_word(out, itoa::Buffer::new().format(*int).as_bytes()),
        }
    }
}

fn write_head(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_word(out: &mut Vec<u8>, word: &[u8]) {
    write_head(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Script;

    fn read(bytes: &[u8]) -> Result<Vec<Incoming>, Garbage> {
        let (mut input, mut all) = (Input::default(), Vec::new());
        // Byte by byte: replies arrive in pieces of any size.
        for byte in bytes {
            input.room().extend_from_slice(&[*byte]);
            while let Some(incoming) = input.next()? {
                all.push(incoming);
            }
        }
        Ok(all)
    }

    #[test]
    fn replies_of_both_versions_are_read() {
        let text = |text: &'static str| Reply::Text(Bytes::from_static(text.as_bytes()));
        for (bytes, expected) in [
            ("_\r\n", Reply::Nil),
            ("$-1\r\n", Reply::Nil),
            ("+OK\r\n", text("OK")),
            ("+\r\n", text("")),
            (":-3\r\n", Reply::Int(-3)),
            ("$3\r\na\r\n\r\n", text("a\r\n")),
            ("*2\r\n:1\r\n$-1\r\n", Reply::List(vec![Reply::Int(1), Reply::Nil])),
            ("*2\r\n:1\r\n_\r\n", Reply::List(vec![Reply::Int(1), Reply::Nil])),
            ("*1\r\n*1\r\n$1\r\nx\r\n", Reply::List(vec![Reply::List(vec![text("x")])])),
            ("%1\r\n+a\r\n:1\r\n", Reply::List(vec![text("a"), Reply::Int(1)])),
            ("#t\r\n", Reply::Int(1)),
            (",3.5\r\n", text("3.5")),
            ("=7\r\ntxt:abc\r\n", text("abc")),
        ] {
            assert_eq!(read(bytes.as_bytes()), Ok(vec![Incoming::Reply(Ok(expected))]), "{bytes:?}");
        }
        for (bytes, error) in [("-ERR x\r\n", "ERR x"), ("!5\r\nERR y\r\n", "ERR y"), ("*1\r\n-ERR z\r\n", "ERR z")] {
            assert_eq!(read(bytes.as_bytes()), Ok(vec![Incoming::Reply(Err(error.to_owned()))]), "{bytes:?}");
        }
        let push = Incoming::Push(Ok(Reply::List(vec![text("message"), text("c"), text("0")])));
        let (one, five) = (Incoming::Reply(Ok(Reply::Int(1))), Incoming::Reply(Ok(Reply::Int(5))));
        assert_eq!(read(b":1\r\n>3\r\n+message\r\n$1\r\nc\r\n$1\r\n0\r\n:5\r\n"), Ok(vec![one, push, five]));
        for odd in [":x\r\n", ",x\r\n", "#x\r\n", "HELLO 3\r\n", "=2\r\nab\r\n"] {
            assert!(read(odd.as_bytes()).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn command_is_a_list_of_texts() {
        static SCRIPT: Script = Script::new("x", "return 1");
        static COMMAND: Script = Script::bare("x", "SET");
        let words = vec![Arg::Text(Bytes::from_static(b"k\r\n")), Arg::Int(-7)];
        let call = |script| Call { script, keys: 1, words: words.clone() };
        let text = |script, naming| {
            let mut out = Vec::new();
            write_call(&mut out, &call(script), naming);
            String::from_utf8(out).unwrap()
        };
        let (rest, sha) = ("$3\r\nk\r\n\r\n$2\r\n-7\r\n", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        let by_hash = format!("*5\r\n$7\r\nEVALSHA\r\n$40\r\n{sha}\r\n$1\r\n1\r\n{rest}");
        assert_eq!(text(&SCRIPT, Naming::Hash), by_hash);
        let by_source = format!("*5\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n{rest}");
        assert_eq!(text(&SCRIPT, Naming::Source), by_source);
        assert_eq!(text(&COMMAND, Naming::Hash), format!("*3\r\n$3\r\nSET\r\n{rest}"));
    }

    #[test]
    fn buffer_shrinks_after_a_long_reply() {
        let mut input = Input::default();
        input.room().extend_from_slice(format!("$1000000\r\n{}\r\n", "x".repeat(1_000_000)).as_bytes());
        input.room();
        assert!(matches!(input.next(), Ok(Some(Incoming::Reply(Ok(Reply::Text(_)))))));
        assert!(input.room().capacity() <= ROOM);
    }
}
