//! The login of a new connection: `HELLO` with RESP3, or `AUTH` for older servers, and the database.

use std::io;

use super::Opened;
use super::trouble::{Hope, Trouble, refused};
use crate::Secret;
use crate::call::FOREIGN;
use crate::resp::{Answer, Incoming, write_words};

impl Opened {
    pub(super) async fn log_in(
        &mut self,
        (user, password): (Option<&Secret>, Option<&Secret>),
        database: u8,
        name: &str,
    ) -> Result<(), Trouble> {
        let login: Option<(&[u8], &[u8])> = match (user, password) {
            (user, Some(password)) => Some((user.map_or(b"default", |user| user.0.as_bytes()), password.0.as_bytes())),
            (Some(user), None) => Some((user.0.as_bytes(), b"")),
            (None, None) => None,
        };
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some((user, password)) = login {
            hello.extend([b"AUTH", user, password]);
        }
        if !name.is_empty() {
            hello.extend([b"SETNAME", name.as_bytes()]);
        }
        match self.ask(&hello).await? {
            Ok(_) => {}
            Err(error) if is_unknown(&error) => {
                // The server is older than Redis 6, or is a proxy. The login continues with RESP2.
                if let Some((_, password)) = login {
                    let mut auth: Vec<&[u8]> = vec![b"AUTH"];
                    auth.extend(user.map(|user| user.0.as_bytes()));
                    auth.push(password);
                    self.ask(&auth).await?.map_err(refused)?;
                }
                if !name.is_empty() {
                    // The name is only for operators, so a refusal is ignored.
                    let _ = self.ask(&[b"CLIENT", b"SETNAME", name.as_bytes()]).await?;
                }
                // Checks that the server accepts commands: it may require a login.
                self.ask(&[b"PING"]).await?.map_err(refused)?;
            }
            Err(error) => return Err(refused(error)),
        }
        if database != 0 {
            self.ask(&[b"SELECT", database.to_string().as_bytes()]).await?.map_err(refused)?;
        }
        Ok(())
    }

    /// Sends a command and waits for its reply. No other command is in flight.
    async fn ask(&mut self, words: &[&[u8]]) -> Result<Answer, Trouble> {
        let mut out = Vec::new();
        write_words(&mut out, words);
        let written = self.writer.write_all(&out).await;
        // A failed write is reported only if there is no reply: the server may have said why it closed the connection.
        loop {
            if self.input.is_foreign() {
                return Err(Trouble { hope: Hope::None, ..Trouble::new(FOREIGN) });
            }
            match self.input.next()? {
                Some(Incoming::Reply(answer)) => return Ok(answer),
                Some(Incoming::Push(_)) => {}
                None => match self.input.receive(&mut self.reader).await {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(written.err().unwrap_or(error).into());
                    }
                    received => received?,
                },
            }
        }
    }
}

fn is_unknown(error: &str) -> bool {
    ["ERR unknown", "NOPROTO", "ERR unsupported", "unsupported", "ERR Protocol version"]
        .iter()
        .any(|text| error.starts_with(text))
}
