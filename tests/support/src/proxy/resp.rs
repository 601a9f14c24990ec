//! Finds the end of RESP2 and RESP3 frames, by lengths only.

/// The bytes are not RESP (for example TLS).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotResp;

/// The meaning of a server's frame for the waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The reply to one request.
    Plain,
    /// The reply to one request, an error.
    Error,
    /// The confirmation of a subscribe or unsubscribe command for one channel.
    Confirm,
    /// A message, which is no reply.
    Push,
}

/// The length of the server's first frame in `buf`, if it is complete.
pub(super) fn reply_len(buf: &[u8]) -> Result<Option<usize>, NotResp> {
    let mut pos = 0;
    // Number of values still expected. An aggregate adds its members.
    let mut need: u64 = 1;
    while need > 0 {
        let Some(&kind) = buf.get(pos) else {
            return Ok(None);
        };
        if !b"+-:_#,($!=*~>%|".contains(&kind) {
            return Err(NotResp);
        }
        let Some(end) = line_end(buf, pos) else {
            return Ok(None);
        };
        let text = &buf[pos + 1..end - 2];
        pos = end;
        need -= 1;
        match kind {
            b'$' | b'!' | b'=' => {
                if let Some(len) = length(text)? {
                    pos = usize::try_from(len).map_err(|_| NotResp)? + pos + 2;
                }
            }
            b'*' | b'~' | b'>' => need += length(text)?.unwrap_or(0),
            b'%' => need += 2 * length(text)?.unwrap_or(0),
            // An attribute precedes its value.
            b'|' => need += 2 * length(text)?.unwrap_or(0) + 1,
            _ => {}
        }
        if pos > buf.len() {
            return Ok(None);
        }
    }
    Ok(Some(pos))
}

/// The length of the first request in `buf`, if it is complete: an array or an inline line.
pub(super) fn request_len(buf: &[u8]) -> Result<Option<usize>, NotResp> {
    match buf.first() {
        None => Ok(None),
        Some(b'*') => reply_len(buf),
        Some(b'\r' | b'\n' | b' '..=b'~') => Ok(buf.iter().position(|&b| b == b'\n').map(|n| n + 1)),
        Some(_) => Err(NotResp),
    }
}

/// The words of a request, or of a flat array or push of strings.
pub(super) fn words(frame: &[u8]) -> Vec<&[u8]> {
    if !matches!(frame.first(), Some(b'*' | b'>')) {
        return frame.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect();
    }
    let mut words = Vec::new();
    let mut pos = line_end(frame, 0).unwrap_or(frame.len());
    while pos < frame.len() {
        let Ok(Some(len)) = reply_len(&frame[pos..]) else {
            break;
        };
        let value = &frame[pos..pos + len];
        if let (b'$', Some(start)) = (value[0], line_end(value, 0)) {
            words.push(value.get(start..len - 2).unwrap_or_default());
        } else {
            words.push(&value[1..len - 2]);
        }
        pos += len;
    }
    words
}

/// Whether the replies of a command are confirmations, one for each channel.
pub(super) fn is_subscription(command: &str) -> bool {
    matches!(command, "SUBSCRIBE" | "UNSUBSCRIBE" | "PSUBSCRIBE" | "PUNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE")
}

/// Classifies a frame of the server. In RESP2, the replies and messages of a `subscriber` are arrays.
pub(super) fn reply(frame: &[u8], resp2_subscriber: bool) -> Reply {
    match frame.first() {
        Some(b'-' | b'!') => Reply::Error,
        Some(b'>') => match first_word(frame) {
            word if is_subscription(&word) => Reply::Confirm,
            _ => Reply::Push,
        },
        Some(b'*') if resp2_subscriber => match first_word(frame).as_str() {
            "MESSAGE" | "PMESSAGE" | "SMESSAGE" => Reply::Push,
            word if is_subscription(word) => Reply::Confirm,
            _ => Reply::Plain,
        },
        _ => Reply::Plain,
    }
}

/// The first word of an array or push of strings, in capitals.
pub(super) fn first_word(frame: &[u8]) -> String {
    let start = line_end(frame, 0).unwrap_or(frame.len());
    let rest = &frame[start..];
    match (rest.first(), line_end(rest, 0)) {
        (Some(b'$'), Some(start)) => {
            let word = rest[start..].split(|&b| b == b'\r').next();
            String::from_utf8_lossy(word.unwrap_or_default()).to_ascii_uppercase()
        }
        _ => String::new(),
    }
}

/// The end of the line that starts at `pos`, including its CR LF.
fn line_end(buf: &[u8], pos: usize) -> Option<usize> {
    let line = buf.get(pos..)?;
    Some(pos + line.windows(2).position(|two| two == b"\r\n")? + 2)
}

/// A length; `None` for null (−1).
fn length(text: &[u8]) -> Result<Option<u64>, NotResp> {
    let text = std::str::from_utf8(text).map_err(|_| NotResp)?;
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(n @ 0..=0x7fff_ffff) => Ok(Some(n.unsigned_abs())),
        _ => Err(NotResp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-12\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$4\r\n\r\n*9\r\n",
        b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(12345678901234567890\r\n",
        b"!5\r\nERR a\r\n",
        b"=5\r\ntxt:a\r\n",
        b"~2\r\n+a\r\n+b\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n%1\r\n+x\r\n_\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        b"|1\r\n+ttl\r\n:3\r\n*2\r\n:1\r\n:2\r\n",
    ];

    #[test]
    fn frame_length_is_found_only_when_frame_is_complete() {
        let stream = FRAMES.concat();
        let mut pos = 0;
        for frame in FRAMES {
            for cut in 0..frame.len() {
                assert_eq!(reply_len(&frame[..cut]), Ok(None), "{frame:?} cut at {cut}");
            }
            assert_eq!(reply_len(&stream[pos..]), Ok(Some(frame.len())));
            pos += frame.len();
        }
    }

    #[test]
    fn bytes_other_than_resp_are_refused() {
        for bytes in [&b"\x16\x03\x01"[..], b"*x\r\n", b"$-2\r\n", b"*1\r\nPING\r\n"] {
            assert_eq!(reply_len(bytes), Err(NotResp), "{bytes:?}");
        }
        assert_eq!(request_len(b"\x16\x03\x01"), Err(NotResp));
    }

    #[test]
    fn requests_are_measured_and_split_into_words() {
        assert_eq!(request_len(b"PING a\r\nPING"), Ok(Some(8)));
        assert_eq!(words(b"PING a\r\n"), [&b"PING"[..], b"a"]);
        let get = b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n*1\r\n";
        assert_eq!(request_len(get), Ok(Some(get.len())));
        assert_eq!(words(get), [&b"GET"[..], b"\r\n*1"]);
        assert!(words(b"\r\n").is_empty() && words(b"*0\r\n").is_empty());
    }

    #[test]
    fn reply_kinds_are_distinguished() {
        let confirm = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n";
        assert_eq!(reply(confirm, true), Reply::Confirm);
        assert_eq!(reply(message, true), Reply::Push);
        assert_eq!(reply(message, false), Reply::Plain);
        let pong = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        assert_eq!(reply(pong, true), Reply::Plain);
        let push = b">3\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n:0\r\n";
        assert_eq!(reply(push, false), Reply::Confirm);
        assert_eq!(reply(b">1\r\n+x\r\n", false), Reply::Push);
        assert_eq!(reply(b"!1\r\nx\r\n", false), Reply::Error);
    }
}
