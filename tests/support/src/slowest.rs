//! Which commands of a test run took the servers longest. Each server writes down at its end what its `SLOWLOG` has, to a file
//! that many processes append to; whoever reads it knows the scripts by name.
//!
//! What the log has is the time on the clock: a server that had to wait for a processor took so much longer.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Where the file is; nothing is written down without it.
pub const FILE: &str = "DISTLOCK_SLOWEST";

/// What a server is started with: from so many µs on, the last so many.
pub(crate) const OPTIONS: [&str; 4] = ["--slowlog-log-slower-than", "500", "--slowlog-max-len", "512"];

pub(crate) const ASK: &str = "SLOWLOG GET 512\r\nQUIT\r\n";

/// So many of each command are written down for a server, the longest.
const EACH: usize = 3;

/// One command that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The process id of its server.
    pub server: u32,
    /// When, in s.
    pub at: u64,
    /// For how long, in µs.
    pub micros: u64,
    /// Its first word, in lower case.
    pub command: String,
    /// Its second word: of a script its hash, or the beginning of its text. As far as it is printable.
    pub about: String,
}

pub(crate) fn file() -> Option<PathBuf> {
    std::env::var_os(FILE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Appends what a server says of its longest commands.
pub(crate) fn note(file: &Path, server: u32, reply: &[u8]) {
    let mut all = read_log(server, reply);
    all.sort_by_key(|slow| std::cmp::Reverse(slow.micros));
    let mut text = String::new();
    for (n, slow) in all.iter().enumerate() {
        let is_same = |other: &&Slow| (&other.command, &other.about) == (&slow.command, &slow.about);
        if all[..n].iter().filter(is_same).count() < EACH {
            let Slow { server, at, micros, command, about } = slow;
            let _ = writeln!(text, "{server}\t{at}\t{micros}\t{command}\t{about}");
        }
    }
    // One write, so that lines of several processes do not mix. What is not told is no failure.
    let _ = File::options().create(true).append(true).open(file).and_then(|mut file| file.write_all(text.as_bytes()));
}

/// What a file has.
pub fn read(text: &str) -> Vec<Slow> {
    let line = |line: &str| {
        let [server, at, micros, command, about] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        Some(Slow {
            server: server.parse().ok()?,
            at: at.parse().ok()?,
            micros: micros.parse().ok()?,
            command: command.to_owned(),
            about: about.to_owned(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// A part of a reply, as far as `SLOWLOG GET` needs it.
enum Part<'a> {
    Number(u64),
    Text(&'a [u8]),
    List(Vec<Part<'a>>),
    Other,
}

/// The first reply that is here in full, and what stands behind it.
fn part(bytes: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (line, mut rest) = (&bytes[1..end], &bytes[end + 2..]);
    let number = std::str::from_utf8(line).ok().and_then(|line| line.parse::<u64>().ok());
    Some(match (bytes[0], number) {
        (b':', Some(n)) => (Part::Number(n), rest),
        (b'$', Some(n)) => {
            let n = usize::try_from(n).ok()?;
            (Part::Text(rest.get(..n)?), rest.get(n + 2..)?)
        }
        (b'*', Some(n)) => {
            let mut parts = Vec::new();
            for _ in 0..n {
                let (one, behind) = part(rest)?;
                parts.push(one);
                rest = behind;
            }
            (Part::List(parts), rest)
        }
        _ => (Part::Other, rest),
    })
}

/// The entries of `SLOWLOG GET`, which may stand behind answers to other commands.
fn read_log(server: u32, mut reply: &[u8]) -> Vec<Slow> {
    let mut all = Vec::new();
    while !reply.is_empty()
        && let Some((answer, rest)) = part(reply)
    {
        reply = rest;
        let Part::List(entries) = answer else { continue };
        for entry in entries {
            let Part::List(fields) = entry else { continue };
            let [_, Part::Number(at), Part::Number(micros), Part::List(words), ..] = fields.as_slice() else {
                continue;
            };
            let word = |n: usize| match words.get(n) {
                Some(Part::Text(text)) => {
                    let text = String::from_utf8_lossy(text);
                    text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect()
                }
                _ => String::new(),
            };
            let command = word(0).to_lowercase();
            all.push(Slow { server, at: *at, micros: *micros, command, about: word(1) });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read_and_kept() {
        let reply = b"+OK\r\n*2\r\n\
            *4\r\n:1\r\n:1700000000\r\n:1500\r\n*2\r\n$7\r\nEVALSHA\r\n$3\r\nabc\r\n\
            *6\r\n:0\r\n:1700000001\r\n:900\r\n*1\r\n$8\r\nFLUSHALL\r\n$2\r\na\t\r\n$0\r\n\r\n+OK\r\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        note(file.path(), 7, reply);
        note(file.path(), 8, b"-NOAUTH Authentication required.\r\n+OK\r\n");
        let kept = read(&std::fs::read_to_string(file.path()).unwrap());
        let slow = |at, micros, command: &str, about: &str| Slow {
            server: 7,
            at,
            micros,
            command: command.to_owned(),
            about: about.to_owned(),
        };
        assert_eq!(kept, [slow(1_700_000_000, 1_500, "evalsha", "abc"), slow(1_700_000_001, 900, "flushall", "")]);
    }
}
