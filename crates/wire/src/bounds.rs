//! Finds the end of the reply at the head of a buffer, without recursion and without reading a byte twice. So the
//! parser sees only complete replies, limited in size, depth and number of parts, whatever a server sends.

use std::fmt;

/// Maximum length of a reply. The list of a lock with a million holders is shorter.
const LONGEST: usize = 64 << 20;

/// Maximum number of parts of a reply.
const PARTS: usize = 4 << 20;

/// Maximum depth of lists within lists.
const DEPTH: usize = 16;

/// Maximum length of a line: a status, an error, a number.
const LINE: usize = 64 << 10;

/// Input that is no reply, or too large a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbage(pub(super) &'static str);

impl fmt::Display for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server has sent something that is no reply: {}", self.0)
    }
}

impl std::error::Error for Garbage {}

/// Progress of the scan.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    at: usize,
    /// Position up to which the end of the line at `at` was searched.
    looked: usize,
    parts: usize,
    /// Number of missing parts of each open list, the outermost first.
    open: Vec<usize>,
    /// True after a null that only RESP2 has.
    pub(super) is_resp2: bool,
}

impl Bounds {
    /// Returns the length of the first reply in `input`, once the reply is complete.
    pub(super) fn of(&mut self, input: &[u8]) -> Result<Option<usize>, Garbage> {
        loop {
            let Some(line) = self.line(input)? else { return Ok(None) };
            let (kind, text) = line.split_first().ok_or(Garbage("an empty line"))?;
            let mut end = self.at + line.len() + 2;
            let mut ends_part = true;
            match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
                b'$' | b'=' | b'!' => match length(text)? {
                    None if *kind == b'$' => self.is_resp2 = true,
                    None => return Err(Garbage("a length below zero")),
                    Some(length) => {
                        // A long text is refused by its announced length, before its bytes arrive.
                        if length > LONGEST - self.at.min(LONGEST) {
                            return Err(Garbage("a reply that is too long"));
                        }
                        let close = end + length;
                        if input.len() < close + 2 {
                            return Ok(None);
                        }
                        if input[close..close + 2] != *b"\r\n" {
                            return Err(Garbage("a text without an end"));
                        }
                        end = close + 2;
                    }
                },
                b'*' | b'~' | b'>' | b'%' => match length(text)? {
                    None if *kind == b'*' => self.is_resp2 = true,
                    None => return Err(Garbage("a length below zero")),
                    Some(0) => {}
                    Some(count) => {
                        let count = if *kind == b'%' { count.saturating_mul(2) } else { count };
                        if count > PARTS || self.open.len() == DEPTH {
                            return Err(Garbage("too many parts, or too deep"));
                        }
                        self.open.push(count);
                        ends_part = false;
                    }
                },
                _ => return Err(Garbage("an unknown kind of part")),
            }
            (self.at, self.looked) = (end, end);
            self.parts += 1;
            if self.parts > PARTS || self.at > LONGEST {
                return Err(Garbage("a reply that is too long"));
            }
            if ends_part && self.part_ends() {
                return Ok(Some(self.at));
            }
        }
    }

    /// Counts an ended part, and the lists that end with it. Returns true at the end of the reply.
    fn part_ends(&mut self) -> bool {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }

    /// Returns the line at `at`, without its line end.
    fn line<'a>(&mut self, input: &'a [u8]) -> Result<Option<&'a [u8]>, Garbage> {
        let from = self.looked.max(self.at);
        let found = input.get(from..).unwrap_or_default().iter().position(|byte| *byte == b'\n').map(|n| from + n);
        match found {
            Some(end) if end > self.at && input[end - 1] == b'\r' => Ok(Some(&input[self.at..end - 1])),
            Some(_) => Err(Garbage("a line without a proper end")),
            None if input.len().saturating_sub(self.at) > LINE => Err(Garbage("a line that is too long")),
            None => {
                self.looked = input.len();
                Ok(None)
            }
        }
    }
}

/// Parses a length. Returns `None` for -1.
fn length(text: &[u8]) -> Result<Option<usize>, Garbage> {
    if text == b"-1" {
        return Ok(None);
    }
    if text.is_empty() || text.len() > 10 || !text.iter().all(u8::is_ascii_digit) {
        return Err(Garbage("a length that is no number"));
    }
    Ok(Some(text.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_reply_is_found_wherever_the_bytes_are_cut() {
        for reply in [
            "_\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "+\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nb\n\r\n",
            "*2\r\n*1\r\n:1\r\n*0\r\n",
            "*3\r\n*0\r\n*-1\r\n$1\r\nx\r\n",
            "%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n#t\r\n",
            "=7\r\ntxt:abc\r\n",
        ] {
            let with_more = format!("{reply}:7\r\n");
            let mut bounds = Bounds::default();
            for n in 0..reply.len() {
                assert_eq!(bounds.of(&with_more.as_bytes()[..n]), Ok(None), "{reply:?} at {n}");
            }
            assert_eq!(bounds.of(with_more.as_bytes()), Ok(Some(reply.len())), "{reply:?}");
            assert_eq!(Bounds::default().of(with_more.as_bytes()), Ok(Some(reply.len())), "{reply:?}");
        }
    }

    #[test]
    fn malformed_or_huge_replies_are_refused_before_they_arrive() {
        let deep = "*1\r\n".repeat(100_000);
        let line = format!("+{}", "x".repeat(100_000));
        for odd in [
            "\r\n",
            "\n",
            "HTTP/1.1 400\r\n",
            "@x\r\n",
            "$x\r\n",
            "$-2\r\n",
            "$99999999999999999999\r\n",
            "$9999999999\r\n",
            "*1000000000\r\n",
            "%9999999999\r\n",
            ":1\n",
            "$1\r\nab\r\n",
            ">-1\r\n",
            "$?\r\n",
            "*?\r\n",
            "|1\r\n+a\r\n+b\r\n",
            &deep,
            &line,
        ] {
            assert!(Bounds::default().of(odd.as_bytes()).is_err(), "{:?}", &odd[..odd.len().min(30)]);
        }
        // Many small lists.
        let wide = format!("*16\r\n{}", "*1\r\n".repeat(14));
        assert_eq!(Bounds::default().of(wide.as_bytes()), Ok(None));
    }
}
