//! Makes another server the primary.
//!
//! 1. The client connects to the server. Until the server answers, it is the *candidate*.
//! 2. The server itself reports in its reply to `ROLE` that it is a primary.
//! 3. The server becomes the current primary. The client restores its subscriptions and renews its holds there.
//! 4. The client leaves the old primary once that server has answered all commands or is silent, or [`FAREWELL`] has
//!    passed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{Current, FAREWELL, Primary, connect};
use crate::runtime::standstill::within;
use crate::topology::address::Address;
use crate::topology::info::TopologyKind;
use crate::topology::member::{Member, MemberId, Subscriber};
use crate::topology::role::{Role, role};
use crate::transport::FaultKind;

/// Time limit for connecting to a server and for its answer to `ROLE`.
const PROVES_WITHIN: Duration = Duration::from_secs(1);

/// A server that was asked whether it is the primary, and has not answered yet.
pub(super) type Candidate = Option<(Address, Arc<Member>)>;

/// How the client learned that a server is the primary.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// Sentinels named the server, at this epoch.
    Told(u64),
    /// The server was found by its history or its role.
    Found,
}

/// Result of a query for a server's role.
enum Proof {
    Primary,
    /// No answer yet.
    Later,
    /// The server is no primary, or the client is closed.
    None,
}

impl Primary {
    /// Builds a member for the server at an address. `None` if no retry can connect to that server.
    async fn candidate(&self, address: &Address) -> Option<Arc<Member>> {
        let connected = connect(&self.settings, &*self.connector, address).await;
        let transport = connected
            .inspect_err(|error| tracing::warn!(%address, %error, "a server of the set cannot be connected to"))
            .ok()?;
        let id = MemberId::new(self.next.fetch_add(1, Ordering::Relaxed));
        let member = Member::new(id, transport, self.settings.acks);
        let subscriber: Weak<dyn Subscriber> = Weak::<Self>::clone(&self.this);
        member.report_ends(subscriber);
        Some(member)
    }

    /// Makes the server at an address the primary, if that server reports that it is a primary. Returns true if it has
    /// become the primary. `asked` is the candidate so far.
    pub(super) async fn take_over(&self, address: &Address, how: Known, asked: &mut Candidate) -> bool {
        let known = match asked.take() {
            Some((at, member)) if at == *address => Some(member),
            other => {
                leave(other);
                self.candidate(address).await
            }
        };
        let Some(member) = known else { return false };
        match self.proof(&member, address, how).await {
            Proof::Primary => {}
            Proof::Later => {
                *asked = Some((address.clone(), member));
                return false;
            }
            Proof::None => {
                member.close(FAREWELL).await;
                return false;
            }
        }
        let Current { member: old, address: old_address, .. } = self.replace_by(&member, address, how);
        if let Some(listener) = self.listener.get() {
            // Set after `current` has changed, so that a concurrent `Primary::listen` finds the new member.
            member.listen(Weak::clone(listener));
        }
        if self.is_closed() {
            // `close` ran meanwhile, and may not have seen the new member.
            member.close(FAREWELL).await;
        }
        tracing::info!(from = %old_address, to = %address, "another server is the primary now");
        let world = Arc::clone(&self.world);
        // Not awaited. The task ends with the runtime.
        tokio::spawn(async move {
            old.answers(&*world, FAREWELL).await;
            old.leave();
            old.close(FAREWELL).await;
        });
        self.suspicion.changed();
        self.follow(&member);
        // The listener renews the holds, because only the new primary knows which of them still exist.
        self.notify(|listener| listener.reconnected(member.id()));
        true
    }

    async fn proof(&self, member: &Member, address: &Address, how: Known) -> Proof {
        let limit = match how {
            Known::Told(_) => PROVES_WITHIN,
            // Short, because no other server can be checked meanwhile, and the next look queries this server again.
            Known::Found => PROVES_WITHIN / 10,
        };
        match within(limit, member.run(&*self.world, role())).await {
            _ if self.is_closed() => Proof::None,
            Some(Ok(reply)) if Role::of(&reply).is_primary() => Proof::Primary,
            Some(Err(fault)) if fault.kind != FaultKind::Refused => {
                tracing::debug!(%address, error = fault.message, "a server of the set does not report its role");
                Proof::Later
            }
            Some(_) => Proof::None,
            // The connection is kept, because it may still come up.
            None => Proof::Later,
        }
    }

    /// Returns the old primary.
    fn replace_by(&self, member: &Arc<Member>, address: &Address, how: Known) -> Current {
        let mut current = self.current.write();
        let (epoch, is_early) = match how {
            Known::Told(epoch) => (epoch, false),
            Known::Found => (current.epoch, true),
        };
        {
            // The old primary becomes a replica if it comes back.
            let mut replicas = self.replicas.write();
            replicas.insert(current.address.clone());
            replicas.remove(address);
            // In a replicated setup, the count never falls, because the URL may name fewer servers than there are.
            let seen = current.member.acknowledgement().known();
            let least = if self.kind == TopologyKind::Replicated { seen } else { 0 };
            member.acknowledgement().knows_of(replicas.len().max(least));
        }
        let new = Current {
            member: Arc::clone(member),
            address: address.clone(),
            epoch,
            generation: current.generation + 1,
            since: Instant::now(),
            is_early,
            is_away: false,
        };
        std::mem::replace(&mut *current, new)
    }

    /// Drops the candidate. Called when there is no doubt about the current primary any more.
    pub(super) fn leave_candidate(&self) {
        if let Ok(mut asked) = self.taking.try_lock() {
            leave(asked.take());
        }
    }
}

fn leave(asked: Candidate) {
    if let Some((_, member)) = asked {
        tokio::spawn(async move { member.close(FAREWELL).await });
    }
}
