//! The server of an example: given by `REDIS_URL`, or else a private server that ends with the example.

use distlock_support::RedisServer;

/// A server. A private one stops when this is dropped.
pub struct Server {
    pub url: String,
    /// The prefix of every key, so that the example touches no other data on a given server.
    pub prefix: String,
    _private: Option<RedisServer>,
}

/// Starts a private server unless `REDIS_URL` names one.
pub fn start_unless_given() -> Server {
    let prefix = format!("distlock-example:{}:", std::process::id());
    match std::env::var("REDIS_URL") {
        Ok(url) => Server { url, prefix, _private: None },
        Err(_) => {
            let server = RedisServer::start();
            Server { url: server.url(), prefix, _private: Some(server) }
        }
    }
}
