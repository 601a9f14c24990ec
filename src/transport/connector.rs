//! Connecting to the servers of a cluster: all by the same login and options, or as a simulation has it.

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
}

/// Makes connections to the servers of a cluster, by their addresses. [`Client::over_cluster`](crate::Client::over_cluster) makes a
/// client of it.
pub trait Connector: Send + Sync + fmt::Debug {
    /// Connects to the server at `host:port`.
    ///
    /// *Errors*: for [`Purpose::Seed`], where the server cannot be reached; for the others only where it never can be.
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>>;
}

/// Connects as a client was told to.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    /// The scheme of one server's URL: `redis` or `rediss`.
    pub(crate) scheme: &'static str,
    pub(crate) username: Option<Secret>,
    pub(crate) password: Option<Secret>,
    /// Asked before each login, whose answer comes instead of both.
    pub(crate) credentials: Option<Provider>,
    pub(crate) tls: Option<Tls>,
    pub(crate) options: Options,
    /// Where servers are reached that call themselves otherwise.
    pub(crate) address_map: Arc<HashMap<String, String>>,
    pub(crate) direct: bool,
}

impl Connector for Dial {
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>> {
        let address = self.address_map.get(address).map_or(address, String::as_str);
        let endpoint = Endpoint {
            url: Secret(format!("{}://{address}", self.scheme)),
            username: self.username.clone(),
            password: self.password.clone(),
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
            database: None,
        };
        let mut options = self.options.clone();
        if purpose != (Purpose::Names { sharded: true }) && purpose != (Purpose::Names { sharded: false }) {
            options.pool_size = 1;
        }
        // The word that lets a command in is used up by one that the server does not know by its hash.
        options.script_cache &= purpose != Purpose::Asking;
        let (lazily, sharded) = (purpose != Purpose::Seed, purpose == Purpose::Names { sharded: true });
        let direct = self.direct;
        Box::pin(async move {
            if direct && let Some(target) = endpoint.direct()? {
                let transport = Direct::connect(target, &options, lazily, sharded).await?;
                return Ok(Arc::new(transport) as Arc<dyn Transport>);
            }
            Ok(Arc::new(Node::connect(&endpoint, &options, lazily, sharded).await?) as Arc<dyn Transport>)
        })
    }
}
