//! Two clients of one server, and a lock that both want.

use crate::prelude::*;

pub struct Pair {
    pub server: SimServer,
    pub ours: Party,
    pub theirs: Party,
    /// The lock `x` of our client. `other` is the same lock at the other client.
    pub mine: Box<dyn DistLock>,
    pub other: Box<dyn DistLock>,
    pub me: Owner,
}

impl Pair {
    pub fn new(flavour: Flavour, link: LinkOptions, set: impl Fn(&mut Options)) -> Self {
        let server = SimServer::new(1);
        let [ours, theirs] = [(); 2].map(|()| Party::new(&server, link, &set));
        let [mine, other] = [&ours, &theirs].map(|party| lock(&party.client, flavour, "x"));
        let me = ours.client.owner();
        Self { server, ours, theirs, mine, other, me }
    }

    /// Latency of 1 ms, one way. A lost command is noticed after half a second.
    pub fn near(flavour: Flavour) -> Self {
        Self::new(flavour, way(ms(1)), |options| options.command_timeout = ms(500))
    }

    pub fn lasts(&self, flavour: Flavour, owner: &Owner) -> i64 {
        lasts(&self.server, flavour, "x", &text(owner))
    }

    pub fn count(&self, flavour: Flavour, owner: &Owner) -> u64 {
        count(&self.server, flavour, "x", &text(owner))
    }

    pub async fn ends(&self) {
        settled(&self.server, &[&self.ours, &self.theirs], ms(60_000)).await.unwrap();
    }
}
