//! Requests to a holder to finish, beside Java. Java's scripts ignore the mark, and Java's holders are not asked.

use distlock_support::agent::Kind;

use crate::rig::{Rig, replied, soon};
use crate::sides::flavour;

pub async fn revoke_asks_our_holder_and_no_java_holder(version: &str) {
    let rig = Rig::with(version).await;
    let (client, other) = (rig.client().await, rig.client().await);
    for kind in [Kind::Reentrant, Kind::Write, Kind::Spin] {
        let name = &format!("{kind:?}");
        let java = rig.agents[0].at(kind, name, 1);
        let (mine, theirs) = (client.lock(flavour(kind), name), other.lock(flavour(kind), name));
        let guard = mine.lock().await.expect("lock");
        assert!(theirs.revoke().await.expect("revoke"), "{name}");
        assert_eq!(java.try_lock().await, Ok(false), "{name}: Java is in beside us");
        assert_eq!(client.renew_now().await.renewed, 1, "{name}");
        soon(guard.revoked()).await;
        guard.unlock().await.expect("unlock");
        replied(java.lock()).await;
        let before = rig.admin.hgetall(name).await;
        assert!(!theirs.revoke().await.expect("revoke"), "{name}: Java was asked");
        assert_eq!(rig.admin.hgetall(name).await, before, "{name}");
        replied(java.unlock()).await;
        assert!(!rig.admin.exists(name).await, "{name}: Java's release left a key");
    }
    rig.end([client, other]).await;
}
