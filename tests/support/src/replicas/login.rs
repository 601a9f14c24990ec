//! Logins of servers and sentinels.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// A user with a password. `None` is the default user.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Login {
    /// `user:password@` for a URL.
    pub(crate) fn userinfo(&self) -> String {
        let escaped = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        format!("{}:{}@", escaped(self.user.as_deref().unwrap_or_default()), escaped(&self.password))
    }

    /// Lines of configuration that admit only this user.
    pub(crate) fn config(&self) -> String {
        match &self.user {
            Some(user) => format!("user default off\nuser {user} on >{} ~* &* +@all\n", self.password),
            None => format!("requirepass {}\n", self.password),
        }
    }
}
