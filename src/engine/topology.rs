//! Which server a name lives on. One node a primary, so that a dead one stalls only its own slots; so far there is one.

use std::sync::Arc;

use super::names::LockName;
use super::transport::{Moment, Transport};

/// The servers of a client.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    node: Arc<dyn Transport>,
}

impl Topology {
    /// One server for every name.
    pub(crate) fn single(node: Arc<dyn Transport>) -> Self {
        Self { node }
    }

    /// The server of a name.
    pub(crate) fn node(&self, _name: &LockName) -> &Arc<dyn Transport> {
        &self.node
    }

    /// Every server.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<dyn Transport>> {
        std::iter::once(&self.node)
    }

    /// Now, on the clock of deadlines. All nodes of a client share it.
    pub(crate) fn now(&self) -> Moment {
        self.node.now()
    }

    /// A random number, for jitter.
    pub(crate) fn random(&self) -> u64 {
        self.node.random()
    }
}
