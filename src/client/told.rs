//! The settings of a builder as text, for tests.

use super::Builder;
use crate::config::{Options, Secret};
use crate::transport::endpoint::Endpoint;

impl Builder {
    pub(crate) const fn in_force(&self) -> &Options {
        &self.options
    }

    /// The URL, then the login, the database and the login for sentinels, where they are set.
    pub(crate) fn told(&self) -> String {
        let login = |username: &Option<Secret>, password: &Option<Secret>| match (username, password) {
            (None, None) => String::new(),
            (username, password) => {
                let word = |word: &Option<Secret>| word.as_ref().map_or("", |word| word.0.as_str()).to_owned();
                format!(" {}:{}", word(username), word(password))
            }
        };
        let Endpoint { url, username, password, database, .. } = &self.target;
        let database = database.map(|database| format!(" /{database}")).unwrap_or_default();
        let of_sentinels = login(&self.sentinel_login.username, &self.sentinel_login.password);
        format!("{}{}{database}{of_sentinels}", url.0, login(username, password))
    }
}
