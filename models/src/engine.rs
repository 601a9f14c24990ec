//! The engine's part of the model: the real registry and channels, and small stand-ins for their neighbours.

#[path = "../../src/engine/channels.rs"]
pub(crate) mod channels;
#[path = "../../src/engine/registry/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the models use a part of it")]
pub(crate) mod registry;

pub(crate) use crate::sync;

pub(crate) mod hold {
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use super::registry::Courtesy;
    use crate::names::LockName;
    use crate::server::Client;
    use crate::world::Moment;

    /// The flavour of all locks in the models.
    pub(crate) const FLAVOUR: &str = "reentrant";

    #[derive(Debug)]
    pub(crate) struct Protocol;

    impl Protocol {
        pub(crate) fn takes(&self) -> (&'static str, u32) {
            (FLAVOUR, 0)
        }

        pub(crate) fn courtesy(&self) -> Courtesy {
            Courtesy::ByMessage
        }
    }

    #[derive(Debug)]
    pub(crate) struct Hold {
        pub(crate) name: Arc<LockName>,
        pub(crate) protocol: Protocol,
        pub(crate) client: Weak<Client>,
    }

    impl Hold {
        pub(crate) fn name(&self) -> &Arc<LockName> {
            &self.name
        }

        pub(crate) fn left(&self, _: Moment) -> Option<Duration> {
            Some(Duration::from_secs(30))
        }
    }

    /// A guard's share in a hold. Dropping the share releases it.
    #[derive(Debug)]
    pub(crate) struct Grant(pub(crate) Arc<Hold>);

    impl Drop for Grant {
        fn drop(&mut self) {
            if let Some(client) = self.0.client.upgrade() {
                client.release(&self.0);
            }
        }
    }
}

pub(crate) mod metrics {
    pub(crate) fn waiters(_: f64) {}
}

pub(crate) mod renewal {
    use crate::topology::MemberId;

    #[derive(Debug, Default)]
    pub(crate) struct Kick;

    impl Kick {
        pub(crate) fn renew_at(&self, _: MemberId) {}

        pub(crate) fn renew_slots(&self, _: &[u16]) {}
    }
}
