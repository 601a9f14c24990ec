//! Odd names and prefixes: in both halves, both languages use the same hash, covers and channel.

use distlock::Client;
use distlock_support::agent::{Agent, Call, Kind};
use tokio::task::JoinHandle;

use crate::names::{Spelt, under_every_name};
use crate::rig::{Rig, replied, soon, until_is};
use crate::rw_rig::{enter, refused, sits, wait_for_half};

pub async fn rw_odd_names_exclude_and_wake_the_other_side(version: &str) {
    under_every_name(version, meet).await;
}

/// Both sides read, both wait to write, and each writes while the other waits to read.
async fn meet(rig: &Rig, client: &Client, agent: &Agent, spelt: Spelt) {
    let Spelt { name, key, tag } = spelt;
    let channel = format!("redisson_rwlock:{tag}");
    let (reader, writer) = (agent.at(Kind::Read, name, 1), agent.at(Kind::Write, name, 2));
    let owner = client.owner();
    let keys = |mut keys: Vec<String>| {
        keys.sort();
        keys
    };

    replied(reader.lock()).await;
    let ours = enter(client, Kind::Read, name, &owner, None).await;
    let cover = |owner: &str| format!("{tag}:{owner}:rwlock_timeout:1");
    let covers = [cover(&agent.holder(Kind::Read, 1)), cover(owner.as_str())];
    assert_eq!(rig.keys().await, keys([vec![key.to_owned()], covers.to_vec()].concat()), "{name:?}");
    refused(client, Kind::Write, name).await;
    assert_eq!(writer.try_lock().await, Ok(false), "{name:?}");
    let theirs = java_waits(rig, agent, Kind::Write, name).await;
    let mine = we_wait(rig, client, Kind::Write, name, &channel, 2).await;
    replied(reader.unlock()).await;
    assert_eq!(rig.keys().await, keys(vec![key.to_owned(), covers[1].clone()]), "{name:?}");
    let before = rig.scripts().await;
    ours.unlock().await.expect("unlock");

    // Either side may acquire first. The other acquires after its release.
    let (mut mine, mut theirs) = (std::pin::pin!(soon(mine)), std::pin::pin!(replied(theirs)));
    tokio::select! {
        first = &mut mine => {
            // Waits for three scripts: our release, our acquire, and Java's attempt. Then Java sleeps again.
            rig.scripts_since(before, 3).await;
            sits(agent, 3).await;
            assert_eq!(reader.try_lock().await, Ok(false), "{name:?}");
            first.expect("the waiter").unlock().await.expect("unlock");
            theirs.await;
        }
        _ = &mut theirs => {
            refused(client, Kind::Read, name).await;
            replied(agent.at(Kind::Write, name, 3).unlock()).await;
            mine.await.expect("the waiter").unlock().await.expect("unlock");
            replied(agent.at(Kind::Write, name, 3).lock()).await;
        }
    }
    assert_eq!(rig.keys().await, [key], "{name:?}");
    let mine = we_wait(rig, client, Kind::Read, name, &channel, 1).await;
    replied(agent.at(Kind::Write, name, 3).unlock()).await;
    soon(mine).await.expect("the waiter").unlock().await.expect("unlock");

    let guard = enter(client, Kind::Write, name, &owner, None).await;
    assert_eq!(rig.keys().await, [key], "{name:?}");
    let theirs = java_waits(rig, agent, Kind::Read, name).await;
    guard.unlock().await.expect("unlock");
    replied(theirs).await;
    replied(agent.at(Kind::Read, name, 3).unlock()).await;
    assert_eq!(rig.keys().await, Vec::<String>::new(), "{name:?}");
}

async fn java_waits(rig: &Rig, agent: &Agent, half: Kind, name: &str) -> Call {
    let before = rig.scripts().await;
    let call = agent.at(half, name, 3).start_lock();
    rig.scripts_since(before, 2).await;
    sits(agent, 3).await;
    call
}

/// Waits for a half, and asserts that only this channel is subscribed.
async fn we_wait(
    rig: &Rig,
    client: &Client,
    half: Kind,
    name: &str,
    channel: &str,
    listeners: u64,
) -> JoinHandle<distlock::Guard> {
    // With a lingering subscription, the second attempt would be skipped.
    rig.listeners(channel, listeners - 1).await;
    let before = rig.scripts().await;
    let task = wait_for_half(client, half, name);
    rig.waiting(client, 1).await;
    rig.listeners(channel, listeners).await;
    rig.scripts_since(before, 2).await;
    until_is("channels", async || rig.admin.channels().await, |channels| channels[..] == [channel]).await;
    task
}
