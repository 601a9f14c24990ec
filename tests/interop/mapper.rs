//! A name mapper in Java and a name prefix in this crate result in the same key and the same channel.

use distlock_support::agent::{AgentOptions, Kind};

use crate::rig::{Rig, connect, lasting, replied, soon, wait_for};

/// Prefixes with the key and the channel of the lock `job`.
const PREFIXES: [(&str, &str, &str); 2] =
    [("p:", "p:job", "redisson_lock__channel:{p:job}"), ("{app}:", "{app}:job", "redisson_lock__channel:{app}:job")];

/// Prefixed clients of both languages exclude and wake each other. For other clients the prefix is just part of the
/// name.
pub async fn prefix_and_name_mapper_give_the_same_key_and_channel(version: &str) {
    let options = |prefix: &str| AgentOptions { prefix: Some(prefix.to_owned()), ..lasting(version) };
    let rig = Rig::start(PREFIXES.map(|(prefix, ..)| options(prefix)).to_vec()).await;
    let bare = rig.client().await;
    let mut clients = vec![bare.clone()];
    for ((prefix, key, channel), agent) in PREFIXES.into_iter().zip(&rig.agents) {
        let client = connect(rig.builder().name_prefix(prefix)).await;
        clients.push(client.clone());
        let (java, lock) = (agent.at(Kind::Reentrant, "job", 3), client.reentrant("job"));

        replied(java.lock()).await;
        assert_eq!(rig.keys().await, [key]);
        assert!(lock.try_lock().await.expect("try_lock").is_none(), "{prefix}");
        assert!(bare.reentrant(key).try_lock().await.expect("try_lock").is_none(), "{prefix}");
        let before = rig.scripts().await;
        let ours = wait_for(&client, "job");
        rig.listeners(channel, 1).await;
        rig.scripts_since(before, 2).await;
        replied(java.unlock()).await;
        let guard = soon(ours).await.expect("the waiter");

        assert_eq!((guard.name(), rig.keys().await), ("job", vec![key.to_owned()]));
        assert_eq!(java.try_lock().await, Ok(false), "{prefix}");
        let before = rig.scripts().await;
        let theirs = java.start_lock();
        rig.scripts_since(before, 2).await;
        // Both sides use one channel. Other subscriptions may linger from the previous round.
        let mut heard = rig.admin.channels().await;
        heard.retain(|heard| PREFIXES.iter().all(|(.., known)| known == &channel || known != heard));
        assert_eq!(heard, [channel]);
        guard.unlock().await.expect("unlock");
        replied(theirs).await;
        // Without the prefix, the name is another lock.
        bare.reentrant("job").try_lock().await.expect("try_lock").expect("a free lock").unlock().await.expect("unlock");
        replied(java.unlock()).await;
    }
    rig.end(clients).await;
}
