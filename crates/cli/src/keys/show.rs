//! Text for people.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use crate::exit::Failure;

/// Text without characters that control the terminal or reorder the line: a name must not change the screen.
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        let reorders =
            matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if letter.is_control() || reorders { shown.extend(letter.escape_default()) } else { shown.push(letter) }
    }
    shown
}

/// A time in ms, short: `250ms`, `29.9s`, `4m10s`, `3h05m`, `2d04h`; `none` without an end.
pub fn lasts(ms: Option<i64>) -> String {
    let Some(ms) = ms else { return "none".to_owned() };
    let (s, m, h) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
    match ms {
        ..1_000 => format!("{}ms", ms.max(0)),
        1_000..60_000 => format!("{s}.{}s", ms / 100 % 10),
        60_000..3_600_000 => format!("{m}m{:02}s", s % 60),
        3_600_000..86_400_000 => format!("{h}h{:02}m", m % 60),
        _ => format!("{}d{:02}h", h / 24, h % 24),
    }
}

/// `1 waiter`, `2 waiters`.
pub fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// True if stdout is a terminal, and `NO_COLOR` is not set.
pub fn is_coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Bold, if output is [coloured](is_coloured).
pub fn bold(text: &str) -> String {
    if is_coloured() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// Writes to stdout. Returns false once nobody reads any more, as behind `| head`.
///
/// # Errors
///
/// [`Failure::System`] for other errors, such as a full disk.
pub fn print(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let table = [
            (-5, "0ms"),
            (250, "250ms"),
            (29_950, "29.9s"),
            (250_000, "4m10s"),
            (11_100_000, "3h05m"),
            (187_200_000, "2d04h"),
        ];
        for (ms, expected) in table {
            assert_eq!(lasts(Some(ms)), expected);
        }
        assert_eq!(lasts(None), "none");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(safe("a\x1b[31mé\n"), "a\\u{1b}[31mé\\n");
        assert_eq!(safe("a\u{202e}b\u{2069}"), "a\\u{202e}b\\u{2069}");
    }

    #[test]
    fn counts_have_a_plural() {
        assert_eq!((count(1, "waiter"), count(2, "waiter")), ("1 waiter".into(), "2 waiters".into()));
    }
}
