//! Odd names: both sides use the same key and the same channel, and exclude and wake each other.

use crate::rig::{Rig, connect, lasting, ms, replied, soon, until_is, wait_for};

/// Names, each with its channel.
pub const NAMES: [(&str, &str); 19] = [
    ("plain", "redisson_lock__channel:{plain}"),
    ("a:b:c", "redisson_lock__channel:{a:b:c}"),
    ("pre{tag}suf", "redisson_lock__channel:pre{tag}suf"),
    ("{}", "redisson_lock__channel:{}"),
    ("a{}b", "redisson_lock__channel:a{}b"),
    ("a{b", "redisson_lock__channel:a{b"),
    ("x}y", "redisson_lock__channel:{x}y}"),
    ("}{", "redisson_lock__channel:}{"),
    ("{a}{b}", "redisson_lock__channel:{a}{b}"),
    ("with spaces  two", "redisson_lock__channel:{with spaces  two}"),
    (" ", "redisson_lock__channel:{ }"),
    ("line\nbreak\r\ntab\t", "redisson_lock__channel:{line\nbreak\r\ntab\t}"),
    ("Größe ☃ 锁 قفل", "redisson_lock__channel:{Größe ☃ 锁 قفل}"),
    // A character that is two UTF-16 units in Java, and an emoji made of several characters.
    ("🔒👩‍👩‍👧", "redisson_lock__channel:{🔒👩‍👩‍👧}"),
    // Looks the same as the next name, but is a different name.
    ("e\u{301}", "redisson_lock__channel:{e\u{301}}"),
    ("\u{e9}", "redisson_lock__channel:{\u{e9}}"),
    ("we*rd?[n]ame\\ \"'%s $1", "redisson_lock__channel:{we*rd?[n]ame\\ \"'%s $1}"),
    ("nul\0inside", "redisson_lock__channel:{nul\0inside}"),
    ("redisson_lock__channel:{plain}", "redisson_lock__channel:redisson_lock__channel:{plain}"),
];

/// Keys and channels are as in the table. Exclusion and wake-ups work in both directions.
pub async fn odd_names_exclude_and_wake_the_other_side(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    // Subscriptions end at once, so that they do not count for the next name.
    let client = connect(rig.builder().subscription_linger(ms(1))).await;
    for (name, channel) in NAMES {
        let (java, other) = (rig.java(name, 1), rig.java(name, 2));
        let lock = client.reentrant(name);

        replied(java.lock()).await;
        assert_eq!(rig.keys().await, [name]);
        assert!(lock.try_lock().await.expect("try_lock").is_none(), "{name:?}");
        let before = rig.scripts().await;
        let ours = wait_for(&client, name);
        let theirs = other.start_lock();
        rig.listeners(channel, 2).await;
        rig.scripts_since(before, 4).await;
        until_is("channels", async || rig.admin.channels().await, |channels| channels[..] == [channel]).await;
        replied(java.unlock()).await;
        // Either side may acquire first. The other acquires after its release.
        let mut ours = std::pin::pin!(soon(ours));
        let mut theirs = std::pin::pin!(soon(theirs));
        tokio::select! {
            first = &mut ours => {
                assert_eq!(java.try_lock().await, Ok(false), "{name:?}");
                first.expect("the waiter").unlock().await.expect("unlock");
                theirs.await.expect("the lock in Java");
                replied(other.unlock()).await;
            }
            first = &mut theirs => {
                first.expect("the lock in Java");
                assert!(lock.try_lock().await.expect("try_lock").is_none(), "{name:?}");
                replied(other.unlock()).await;
                ours.await.expect("the waiter").unlock().await.expect("unlock");
            }
        }

        let guard = lock.lock().await.expect("lock");
        assert_eq!(rig.keys().await, [name]);
        assert_eq!(java.try_lock().await, Ok(false), "{name:?}");
        assert_eq!(java.is_locked().await, Ok(true), "{name:?}");
        let before = rig.scripts().await;
        let theirs = java.start_lock();
        rig.scripts_since(before, 2).await;
        guard.unlock().await.expect("unlock");
        replied(theirs).await;
        replied(java.unlock()).await;
    }
    println!("{version}: {} names", NAMES.len());
    rig.end([client]).await;
}
