//! Connections to sentinels, and to servers that may become the primary. They are opened in the background.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Error;
use crate::runtime::standstill::within;
use crate::topology::address::Address;
use crate::transport::connector::{Connector, Purpose};
use crate::transport::{Call, FaultKind, Listener, Reply, Transport};

/// Pause before a failed connection attempt is repeated.
const AGAIN: Duration = Duration::from_secs(1);

type MakeListener = Box<dyn Fn(&Address) -> Arc<dyn Listener> + Send + Sync>;

/// Connections to servers other than the primary.
#[derive(Clone)]
pub(super) struct Witnesses(Arc<Shared>);

struct Shared {
    connector: Arc<dyn Connector>,
    purpose: Purpose,
    /// Builds the listener for the events of each server. `None` for servers without events.
    listener: Option<MakeListener>,
    /// The channels on which these events are announced.
    events: &'static [&'static str],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: BTreeMap<Address, Connection>,
    /// The listener of each server. It is kept here because connections hold it weakly.
    ears: BTreeMap<Address, Arc<dyn Listener>>,
    is_closed: bool,
}

enum Connection {
    Connecting,
    Failed(Instant),
    Standing(Arc<dyn Transport>),
}

impl Witnesses {
    pub(super) fn new(connector: Arc<dyn Connector>, purpose: Purpose) -> Self {
        Self(Arc::new(Shared { connector, purpose, listener: None, events: &[], state: Mutex::default() }))
    }

    /// Like `new`, for servers that announce events.
    pub(super) fn heard(
        connector: Arc<dyn Connector>,
        purpose: Purpose,
        listener: impl Fn(&Address) -> Arc<dyn Listener> + Send + Sync + 'static,
        events: &'static [&'static str],
    ) -> Self {
        let listener: Option<MakeListener> = Some(Box::new(listener));
        Self(Arc::new(Shared { connector, purpose, listener, events, state: Mutex::default() }))
    }

    /// Connects to a server, unless a connection exists, is being opened, or has failed less than [`AGAIN`] ago.
    ///
    /// Returns `None` if no connection was made for one of these reasons, or if the connection was dropped meanwhile.
    ///
    /// # Errors
    ///
    /// The reason why the server cannot be reached.
    pub(super) async fn connect(&self, address: &Address) -> Option<Result<Arc<dyn Transport>, Error>> {
        {
            let mut state = self.0.state.lock();
            let is_due = match state.known.get(address) {
                None => true,
                Some(Connection::Failed(at)) => at.elapsed() >= AGAIN,
                Some(Connection::Connecting | Connection::Standing(_)) => false,
            };
            if state.is_closed || !is_due {
                return None;
            }
            state.known.insert(address.clone(), Connection::Connecting);
        }
        let outcome = self.0.connector.connect(&address.to_string(), self.0.purpose).await;
        let listener = self.0.listener.as_ref().map(|listener| listener(address));
        if let (Ok(transport), Some(listener)) = (&outcome, &listener) {
            transport.listen(Arc::downgrade(listener));
            for event in self.0.events {
                let (subscribing, address) =
                    (transport.subscribe(Bytes::from_static(event.as_bytes())), address.clone());
                // Not awaited: queries report anything that was announced before the subscription.
                tokio::spawn(async move {
                    if let Err(fault) = subscribing.await
                        && fault.kind == FaultKind::Refused
                    {
                        let error = fault.message;
                        tracing::warn!(%address, event, error, "a sentinel sends no events: it is polled");
                    }
                });
            }
        }
        let is_kept = {
            let mut state = self.0.state.lock();
            // Meanwhile the server may have been dropped, and added again with another connection. The first
            // connection that is up is kept.
            let is_awaited = matches!(state.known.get(address), Some(Connection::Connecting));
            let is_wanted = !state.is_closed && is_awaited;
            if is_wanted {
                let now = match &outcome {
                    Ok(transport) => Connection::Standing(Arc::clone(transport)),
                    Err(_) => Connection::Failed(Instant::now()),
                };
                state.known.insert(address.clone(), now);
                state.ears.extend(listener.map(|listener| (address.clone(), listener)));
            }
            is_wanted
        };
        match outcome {
            Ok(transport) if !is_kept => {
                transport.close(AGAIN).await;
                None
            }
            outcome => Some(outcome),
        }
    }

    /// Connects to these servers in the background, and closes the connections to all others.
    pub(super) fn keep(&self, addresses: &[Address]) {
        for address in addresses {
            let (this, address) = (self.clone(), address.clone());
            tokio::spawn(async move { this.connect(&address).await.and_then(Result::ok) });
        }
        let left: Vec<Connection> = {
            let mut state = self.0.state.lock();
            state.ears.retain(|address, _| addresses.contains(address));
            state.known.extract_if(.., |address, _| !addresses.contains(address)).map(|(_, left)| left).collect()
        };
        for connection in left {
            if let Connection::Standing(transport) = connection {
                tokio::spawn(async move { transport.close(AGAIN).await });
            }
        }
    }

    /// Closes the connection to a server. The next `keep` opens a new connection.
    pub(super) fn leave(&self, address: &Address) {
        if let Some(Connection::Standing(transport)) = self.0.state.lock().known.remove(address) {
            tokio::spawn(async move { transport.close(AGAIN).await });
        }
    }

    /// Returns the servers that are connected.
    pub(super) fn standing(&self) -> Vec<(Address, Arc<dyn Transport>)> {
        let state = self.0.state.lock();
        let standing = state.known.iter().filter_map(|(address, connection)| match connection {
            Connection::Standing(transport) => Some((address.clone(), Arc::clone(transport))),
            Connection::Connecting | Connection::Failed(_) => None,
        });
        standing.collect()
    }

    /// True if the server has no connection yet, and no attempt has failed.
    pub(super) fn is_connecting(&self, address: &Address) -> bool {
        matches!(self.0.state.lock().known.get(address), None | Some(Connection::Connecting))
    }

    /// Returns the addresses of all servers, connected or not.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.0.state.lock().known.keys().cloned().collect()
    }

    pub(super) async fn close(&self, within: Duration) {
        let known = {
            let mut state = self.0.state.lock();
            state.is_closed = true;
            state.ears.clear();
            std::mem::take(&mut state.known)
        };
        let closing = known.into_values().filter_map(|connection| match connection {
            Connection::Standing(transport) => Some(transport.close(within)),
            Connection::Connecting | Connection::Failed(_) => None,
        });
        futures::future::join_all(closing).await;
    }
}

/// Returns a server's reply, if it arrives within this time.
pub(super) async fn ask(transport: &dyn Transport, call: Call, limit: Duration) -> Result<Reply, String> {
    match within(limit, transport.run(call)).await {
        Some(outcome) => outcome.map_err(|fault| fault.message),
        None => Err(format!("no answer within {limit:?}")),
    }
}
