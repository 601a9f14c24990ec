//! Subscriptions to the channels of names, and the command that publishes on these channels.

use std::sync::Weak;

use bytes::Bytes;

use super::member::MemberListener;
use super::{Servers, Topology};
use crate::names::LockName;
use crate::transport::Fault;

impl Topology {
    /// Subscribes to the channel of a name, as [`Transport::subscribe`] does.
    pub(crate) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                self.fixed_member(members, name).transport().subscribe(name.channel.clone()).await
            }
            Servers::Cluster(cluster) => cluster.subscribe(name).await,
            Servers::Primary(primary) => primary.subscribe(name).await,
        }
    }

    pub(crate) async fn unsubscribe(&self, name: &LockName) {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                self.fixed_member(members, name).transport().unsubscribe(name.channel.clone()).await;
            }
            Servers::Cluster(cluster) => cluster.unsubscribe(name).await,
            Servers::Primary(primary) => primary.unsubscribe(name).await,
        }
    }

    /// Sets the listener for messages and connection events. Called once, before the first subscription.
    pub(crate) fn listen(&self, listener: &Weak<dyn MemberListener>) {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                for member in &**members {
                    member.listen(Weak::clone(listener));
                }
            }
            Servers::Cluster(cluster) => cluster.listen(listener),
            Servers::Primary(primary) => primary.listen(listener),
        }
    }

    /// Returns the command by which scripts publish on the channel of a name.
    pub(crate) fn publish(&self) -> Bytes {
        match &self.servers {
            Servers::Cluster(cluster) if cluster.is_sharded() => Bytes::from_static(b"SPUBLISH"),
            _ => Bytes::from_static(b"PUBLISH"),
        }
    }

    /// False once there has been no connection for messages to the name's server for a while.
    pub(crate) fn hears(&self, name: &LockName) -> bool {
        !self.member(name).is_deaf()
    }
}
