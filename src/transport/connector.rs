//! Connecting to several servers: all by the same login and options, or as a simulation has it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::Transport;
use super::direct::Direct;
use super::node::Node;
use super::node::connect::Endpoint;
use crate::config::{Options, Provider, Secret, Tls};
use crate::error::Result;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To find out what there is: done when it stands.
    Seed,
    /// Commands and messages of the names that live there: done at once, and it comes to stand when it can.
    Names {
        /// Channels are a slot's own.
        sharded: bool,
    },
    /// Commands that each go behind an `ASKING`, one after the other: done at once, as for names. What is sent first arrives first.
    Asking,
    /// Questions about the server, now and then: done when it stands.
    Watch,
    /// Commands and messages of a sentinel, by the login for those: done when it stands.
    Sentinel,
}

/// Makes connections to servers that belong together, by their addresses. [`Client::over_cluster`](crate::Client::over_cluster) makes a
/// client of it.
pub trait Connector: Send + Sync + fmt::Debug {
    /// Connects to the server at `host:port`.
    ///
    /// *Errors*: for [`Purpose::Seed`], [`Purpose::Watch`] and [`Purpose::Sentinel`], where the server cannot be reached; for the
    /// others only where it never can be.
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>>;
}

/// As whom to connect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<Secret>,
    pub(crate) password: Option<Secret>,
    /// Asked before each login, whose answer comes instead of both.
    pub(crate) credentials: Option<Provider>,
}

/// Connects as a client was told to.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    /// The scheme of one server's URL: `redis` or `rediss`.
    pub(crate) scheme: &'static str,
    pub(crate) login: Login,
    pub(crate) database: Option<u8>,
    pub(crate) tls: Option<Tls>,
    /// As whom to connect to sentinels.
    pub(crate) sentinel_login: Login,
    /// How sentinels speak TLS.
    pub(crate) sentinel_tls: Option<Tls>,
    pub(crate) options: Options,
    /// Where servers are reached that call themselves otherwise.
    pub(crate) address_map: Arc<HashMap<String, String>>,
    pub(crate) direct: bool,
}

impl Connector for Dial {
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>> {
        let address = self.address_map.get(address).map_or(address, String::as_str);
        let is_sentinel = purpose == Purpose::Sentinel;
        let login = if is_sentinel { &self.sentinel_login } else { &self.login }.clone();
        let endpoint = Endpoint {
            url: Secret(format!("{}://{address}", self.scheme)),
            username: login.username,
            password: login.password,
            credentials: login.credentials,
            tls: if is_sentinel { &self.sentinel_tls } else { &self.tls }.clone(),
            database: self.database.filter(|_| !is_sentinel),
        };
        let mut options = self.options.clone();
        let is_of_names = matches!(purpose, Purpose::Names { .. });
        if !is_of_names {
            options.pool_size = 1;
        }
        // The word that lets a command in is used up by one that the server does not know by its hash.
        options.script_cache &= purpose != Purpose::Asking;
        let lazily = is_of_names || purpose == Purpose::Asking;
        let sharded = purpose == Purpose::Names { sharded: true };
        // Those of ours cost less, and get along with sentinels, which know but some commands.
        let direct = self.direct || matches!(purpose, Purpose::Watch | Purpose::Sentinel);
        Box::pin(async move {
            if direct && let Some(target) = endpoint.direct()? {
                let transport = match purpose {
                    Purpose::Watch => Direct::for_commands(target, &options).await?,
                    _ => Direct::connect(target, &options, lazily, sharded).await?,
                };
                return Ok(Arc::new(transport) as Arc<dyn Transport>);
            }
            Ok(Arc::new(Node::connect(&endpoint, &options, lazily, sharded).await?) as Arc<dyn Transport>)
        })
    }
}
