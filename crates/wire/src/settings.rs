//! Limits and options of the connections to one server.

use std::time::Duration;

/// Limits and options of the connections to one server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of connections for commands.
    pub pool_size: usize,
    /// Time limit for connecting, with the login.
    pub connect_timeout: Duration,
    /// Time limit of a command, from its first poll to its reply.
    pub command_timeout: Duration,
    /// Time limit for the confirmation of a subscription.
    pub subscribe_timeout: Duration,
    /// Interval between the checks of the connection for messages.
    pub ping_interval: Duration,
    /// Time without a connection for messages after which [`Listener::deaf`](crate::Listener::deaf) is called.
    pub deaf_after: Duration,
    /// TCP's own limit for bytes without an acknowledgement (`TCP_USER_TIMEOUT`).
    pub user_timeout: Duration,
    /// Name of the connections at the server (`CLIENT SETNAME`). Empty for none.
    pub client_name: String,
    /// True to send scripts by their hashes. The source follows if the server does not know a hash.
    pub script_cache: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool_size: 1,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(3),
            subscribe_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(30),
            deaf_after: Duration::from_secs(3),
            user_timeout: Duration::from_secs(10),
            client_name: String::new(),
            script_cache: true,
        }
    }
}
