//! How another server takes the place of the primary: it is asked by the connections that it will be used by, and proves itself.

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

/// How long a server may take to connect and to say what part it has.
const PROVES_WITHIN: Duration = Duration::from_secs(1);

/// A server that was asked whether it is the primary, and has not said yet.
pub(super) type Candidate = Option<(Address, Arc<Member>)>;

/// How it is known that a server is the primary.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// It was told so, by sentinels at this epoch.
    Told(u64),
    /// It was found.
    Found,
}

impl Primary {
    /// A member for the server at an address, which may become the primary. None where it can never be connected to.
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

    /// Has the server at an address take the place, if it says that it is a primary. True where it has the place now. `how`: how it is
    /// known; `asked`: whoever was asked for that last.
    pub(super) async fn take_over(&self, address: &Address, how: Known, asked: &mut Candidate) -> bool {
        let known = match asked.take() {
            Some((at, member)) if at == *address => Some(member),
            other => {
                leave(other);
                self.candidate(address).await
            }
        };
        let Some(member) = known else { return false };
        let limit = match how {
            Known::Told(_) => PROVES_WITHIN,
            // It is asked again with the next look, and nobody else in between.
            Known::Found => PROVES_WITHIN / 10,
        };
        match within(limit, member.run(&*self.world, role())).await {
            Some(Ok(reply)) if Role::of(&reply).is_primary() && !self.is_closed() => {}
            Some(Err(fault)) if !self.is_closed() && fault.kind != FaultKind::Refused => {
                tracing::debug!(%address, error = fault.message, "a server of the set does not say what part it has");
                *asked = Some((address.clone(), member));
                return false;
            }
            // It may take longer to connect to, and goes on doing so.
            None if !self.is_closed() => {
                *asked = Some((address.clone(), member));
                return false;
            }
            _ => {
                member.close(FAREWELL).await;
                return false;
            }
        }
        let (epoch, is_early) = match how {
            Known::Told(epoch) => (epoch, false),
            Known::Found => (self.current.read().epoch, true),
        };
        let (old, old_address) = {
            let mut current = self.current.write();
            {
                // The one of before will be its replica, if it comes back.
                let mut replicas = self.replicas.write();
                replicas.insert(current.address.clone());
                replicas.remove(address);
                // By other names, perhaps, where nobody lists them.
                let seen = current.member.acknowledgement().known();
                let least = if self.kind == TopologyKind::Replicated { seen } else { 0 };
                member.acknowledgement().knows_of(replicas.len().max(least));
            }
            let generation = current.generation + 1;
            let new = Current {
                member: Arc::clone(&member),
                address: address.clone(),
                epoch,
                generation,
                since: Instant::now(),
                is_early,
                is_away: false,
            };
            let old = std::mem::replace(&mut *current, new);
            (old.member, old.address)
        };
        if let Some(listener) = self.listener.get() {
            // Behind the change: whoever is told of a listener after that finds this one.
            member.listen(Weak::clone(listener));
        }
        if self.is_closed() {
            // It was closed meanwhile, and does not know of this one.
            member.close(FAREWELL).await;
        }
        tracing::info!(from = %old_address, to = %address, "another server is the primary now");
        let world = Arc::clone(&self.world);
        // Nobody waits for it; it ends with the runtime.
        tokio::spawn(async move {
            old.answers(&*world, FAREWELL).await;
            old.leave();
            old.close(FAREWELL).await;
        });
        self.suspicion.changed();
        self.follow(&member);
        // What is held is confirmed: only the new primary can say that it is not.
        self.notify(|listener| listener.reconnected(member.id()));
        true
    }

    /// Nothing is doubted any more: whoever was asked is left.
    pub(super) fn leave_candidate(&self) {
        if let Ok(mut asked) = self.taking.try_lock() {
            leave(asked.take());
        }
    }
}

/// Ends the connections to whoever was asked.
fn leave(asked: Candidate) {
    if let Some((_, member)) = asked {
        // Nobody waits for it; it ends with the runtime.
        tokio::spawn(async move { member.close(FAREWELL).await });
    }
}
