//! The server an example runs against: the one of `REDIS_URL` if that is set, else a private one that ends with the
//! example.

use distlock_support::RedisServer;

/// A server, for as long as this lives.
pub struct Server {
    /// Where it listens.
    pub url: String,
    /// Put before every key, so that nothing of a given server's is touched.
    pub prefix: String,
    _private: Option<RedisServer>,
}

/// Starts a server, unless one is given.
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
