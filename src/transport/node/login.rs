//! fred's login. The credentials are fixed, or queried before each login. fred sends them as an inline command.

use std::pin::Pin;
use std::time::Duration;

use fred::error::{Error, ErrorKind};
use fred::types::config::{CredentialProvider, Server};

use crate::config::Provider;

#[derive(Debug)]
pub(super) struct Login {
    pub(super) provider: Provider,
    /// Time limit for connecting.
    pub(super) within: Duration,
}

type Words = (Option<String>, Option<String>);

impl CredentialProvider for Login {
    // The signature that the macro `async_trait` would generate.
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
            // fred retries after an error of the kind `Unknown`.
            let credentials =
                self.provider.ask(self.within).await.map_err(|why| Error::new(ErrorKind::Unknown, why))?;
            let username = credentials.username.map(|username| word(&username.0));
            Ok((username, Some(word(&credentials.password.0))))
        })
    }
}

/// Quotes a word for an inline command if needed, because fred sends the login as an inline command.
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
