//! How fred logs in: by words that it puts on a line of their own, the same each time or asked for before each login.

use std::pin::Pin;
use std::time::Duration;

use fred::error::{Error, ErrorKind};
use fred::types::config::{CredentialProvider, Server};

use crate::config::Provider;

/// A provider of credentials, as fred asks one.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) provider: Provider,
    /// How long connecting may take.
    pub(super) within: Duration,
}

type Words = (Option<String>, Option<String>);

impl CredentialProvider for Login {
    // As the macro `async_trait` writes it.
    fn fetch<'a, 'b, 'c>(
        &'a self,
        _server: Option<&'b Server>,
    ) -> Pin<Box<dyn Future<Output = Result<Words, Error>> + Send + 'c>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(async move {
            // Of a kind after which fred goes on trying.
            let credentials =
                self.provider.ask(self.within).await.map_err(|why| Error::new(ErrorKind::Unknown, why))?;
            let username = credentials.username.map(|username| word(&username.0));
            Ok((username, Some(word(&credentials.password.0))))
        })
    }
}

/// A word as the server reads it on a line of its own: fred sends the login that way. Quoted where it must be.
pub(super) fn word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\') || !byte.is_ascii();
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 8);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char if char.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(char))),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
