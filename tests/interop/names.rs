//! Odd names and names with a prefix: both sides use the same key and the same channel, and exclude and wake each other.

use distlock::Client;
use distlock_support::agent::{Agent, AgentOptions, Kind};

use crate::rig::{Rig, connect, lasting, ms, replied, soon, until_is, wait_for};

/// Names, each with its hash tag: the name in braces, unless it contains braces.
const NAMES: [(&str, &str); 19] = [
    ("plain", "{plain}"),
    ("a:b:c", "{a:b:c}"),
    ("pre{tag}suf", "pre{tag}suf"),
    ("{}", "{}"),
    ("a{}b", "a{}b"),
    ("a{b", "a{b"),
    ("x}y", "{x}y}"),
    ("}{", "}{"),
    ("{a}{b}", "{a}{b}"),
    ("with spaces  two", "{with spaces  two}"),
    (" ", "{ }"),
    ("line\nbreak\r\ntab\t", "{line\nbreak\r\ntab\t}"),
    ("Größe ☃ 锁 قفل", "{Größe ☃ 锁 قفل}"),
    // A character that is two UTF-16 units in Java, and an emoji made of several characters.
    ("🔒👩‍👩‍👧", "{🔒👩‍👩‍👧}"),
    // Looks the same as the next name, but is a different name.
    ("e\u{301}", "{e\u{301}}"),
    ("\u{e9}", "{\u{e9}}"),
    ("we*rd?[n]ame\\ \"'%s $1", "{we*rd?[n]ame\\ \"'%s $1}"),
    ("nul\0inside", "{nul\0inside}"),
    ("redisson_lock__channel:{plain}", "redisson_lock__channel:{plain}"),
];

/// Prefixes, each with the key and the hash tag of the lock `job`.
const PREFIXES: [(&str, &str, &str); 2] = [("p:", "p:job", "{p:job}"), ("{app}:", "{app}:job", "{app}:job")];

/// A name as the clients use it, and its forms in Redis.
#[derive(Clone, Copy)]
pub struct Spelt {
    pub name: &'static str,
    pub key: &'static str,
    pub tag: &'static str,
}

/// Calls `meet` for every name, then for each prefix, with a client and an agent that use it. The agent adds the prefix
/// by a name mapper.
pub async fn under_every_name(version: &str, meet: impl AsyncFn(&Rig, &Client, &Agent, Spelt)) {
    let mut options = vec![lasting(version)];
    options.extend(PREFIXES.map(|(prefix, ..)| AgentOptions { prefix: Some(prefix.to_owned()), ..lasting(version) }));
    let rig = Rig::start(options).await;
    // Subscriptions end at once, so that they do not count for the next name.
    let builder = || rig.builder().configure(|options| options.subscription_linger = ms(1));
    let mut clients = vec![connect(builder()).await];
    for (name, tag) in NAMES {
        meet(&rig, &clients[0], &rig.agents[0], Spelt { name, key: name, tag }).await;
        until_is("channels", async || rig.admin.channels().await, Vec::is_empty).await;
    }
    for ((prefix, key, tag), agent) in PREFIXES.into_iter().zip(&rig.agents[1..]) {
        let client = connect(builder().name_prefix(prefix)).await;
        meet(&rig, &client, agent, Spelt { name: "job", key, tag }).await;
        until_is("channels", async || rig.admin.channels().await, Vec::is_empty).await;
        clients.push(client);
    }
    rig.end(clients).await;
}

pub async fn odd_names_exclude_and_wake_the_other_side(version: &str) {
    under_every_name(version, meet).await;
}

async fn meet(rig: &Rig, client: &Client, agent: &Agent, spelt: Spelt) {
    let Spelt { name, key, tag } = spelt;
    let channel = format!("redisson_lock__channel:{tag}");
    let [java, other] = [1, 2].map(|thread| agent.at(Kind::Reentrant, name, thread));
    let lock = client.reentrant(name);

    replied(java.lock()).await;
    assert_eq!(rig.keys().await, [key]);
    assert!(lock.try_lock().await.expect("try_lock").is_none(), "{key:?}");
    let before = rig.scripts().await;
    let ours = wait_for(client, name);
    let theirs = other.start_lock();
    rig.listeners(&channel, 2).await;
    rig.scripts_since(before, 4).await;
    until_is("channels", async || rig.admin.channels().await, |channels| channels[..] == [channel.as_str()]).await;
    replied(java.unlock()).await;
    // Either side may acquire first. The other acquires after its release.
    let mut ours = std::pin::pin!(soon(ours));
    let mut theirs = std::pin::pin!(replied(theirs));
    tokio::select! {
        first = &mut ours => {
            assert_eq!(java.try_lock().await, Ok(false), "{key:?}");
            first.expect("the waiter").unlock().await.expect("unlock");
            theirs.await;
            replied(other.unlock()).await;
        }
        _ = &mut theirs => {
            assert!(lock.try_lock().await.expect("try_lock").is_none(), "{key:?}");
            replied(other.unlock()).await;
            ours.await.expect("the waiter").unlock().await.expect("unlock");
        }
    }

    let guard = lock.lock().await.expect("lock");
    assert_eq!((guard.name(), rig.keys().await), (name, vec![key.to_owned()]));
    assert_eq!(java.try_lock().await, Ok(false), "{key:?}");
    assert_eq!(java.is_locked().await, Ok(true), "{key:?}");
    let before = rig.scripts().await;
    let theirs = java.start_lock();
    rig.scripts_since(before, 2).await;
    guard.unlock().await.expect("unlock");
    replied(theirs).await;
    replied(java.unlock()).await;
}
