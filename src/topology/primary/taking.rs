//! Makes another server the primary.
//!
//! 1. The client opens the connections that it will use for names. Until the server answers, it is the *candidate*.
//! 2. The server proves itself: its own `ROLE` says that it is a primary.
//! 3. The server becomes the current primary. Subscriptions are restored there, and holds are confirmed.
//! 4. The old primary is closed once it has answered all commands, it is silent, or [`FAREWELL`] has passed.

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

/// Time that a server has to connect and to report its role.
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
    /// Builds a member for the server at an address, which may become the primary. `None` if it can never be
    /// connected to.
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

    /// Makes the server at an address the primary, if it says that it is one. Returns true if it is the primary now.
    /// `asked` is the candidate so far.
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
            // Done after `current` has changed. A concurrent `Primary::listen` finds the new member there.
            member.listen(Weak::clone(listener));
        }
        if self.is_closed() {
            // `close` ran meanwhile, and has not seen the new member.
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
        // The holds are confirmed. Only the new primary can say that a lock is not held.
        self.notify(|listener| listener.reconnected(member.id()));
        true
    }

    /// Asks a server whether it is a primary.
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

    /// Makes a member the current primary. Returns the old one.
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
            // In a replicated setup the URL may name fewer servers than there are. The count never falls.
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

    /// Drops the candidate, because there is no doubt any more.
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
