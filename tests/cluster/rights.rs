//! The minimal access lists of `docs/acl.md` and `docs/clusters.md` during slot moves. `tests/client/acl.rs` tests
//! other uses of the lists, also over a cluster.

use distlock::{Builder, Flavour, Sharded};
use distlock_support::cluster::key_in;
use distlock_support::{Admin, Cluster};

use crate::{FLAVOURS, end, kept, lock, primaries, secs, waiter, woken, woken_by_messages};

fn block(page: &'static str) -> &'static str {
    let (_, block) = page.split_once("```acl\n").expect("the page has the list");
    block.split_once("```").expect("the block ends").0
}

/// Starts a cluster with a user who has these rights, except `without`.
async fn with_rights(without: &str) -> (Cluster, Admin) {
    let cluster = primaries(2).await;
    let admin = Admin::of_cluster(&cluster).await;
    let list = [block(include_str!("../../docs/acl.md")), block(include_str!("../../docs/clusters.md"))].concat();
    let rules = list.split_whitespace().skip(1).filter(|rule| *rule != without);
    // The cluster's list replaces the pub/sub commands of a single server.
    let rules = rules.filter(|rule| !["+subscribe", "+unsubscribe", "+publish"].contains(rule));
    let setuser: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(rules).collect();
    admin.cmd::<()>(&setuser).await;
    admin.cmd::<()>(&["ACL", "LOG", "RESET"]).await;
    (cluster, admin)
}

fn builder(cluster: &Cluster) -> Builder {
    bed::builder(&cluster.url()).username("locks").password("SECRET").name_prefix("app:")
}

async fn refused(admin: &Admin) -> Vec<redis::Value> {
    admin.cmd(&["ACL", "LOG"]).await
}

/// A name that is in this slot when the prefix is added.
fn name_in(slot: u16, prefix: &str) -> String {
    key_in(slot, &format!("app:{prefix}"))["app:".len()..].to_owned()
}

#[tokio::test]
async fn access_lists_are_sufficient_while_slots_move() {
    let (cluster, admin) = with_rights("").await;
    let (one, other) = (builder(&cluster).connect().await.unwrap(), builder(&cluster).connect().await.unwrap());
    let to = &cluster.nodes()[1];
    for (flavour, slot) in FLAVOURS.into_iter().zip(100..) {
        let name = name_in(slot, "held:");
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        let waiter = (flavour != Flavour::Read).then(|| {
            let lock = lock(&other, flavour, &name);
            tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
        });
        cluster.move_slot(slot, to).await;
        kept(&one, 1).await;
        guard.unlock().await.unwrap();
        if let Some(waiter) = waiter {
            bed::ends("a waiter whose slot moved", waiter).await.unwrap();
        }
        bed::idle(&other).await;
    }
    // Locks with one key can be acquired while their slot is half moved.
    cluster.open_slot(200, to).await;
    for flavour in [Flavour::Reentrant, Flavour::Spin, Flavour::Plain] {
        let lock = lock(&one, flavour, &name_in(200, &format!("open:{flavour}:")));
        lock.try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
    }
    assert!(admin.calls("asking").await > 0, "nothing was asked for behind an ASKING");
    cluster.close_slot(200).await;
    let refused = refused(&admin).await;
    assert!(refused.is_empty(), "{refused:?}");
    end(one).await;
    end(other).await;
}

/// The error is retryable, and arrives within one command timeout.
#[tokio::test]
async fn waiter_without_asking_right_acquires_once_slot_is_whole() {
    let (cluster, admin) = with_rights("+asking").await;
    let client = builder(&cluster).command_timeout(secs(2)).connect().await.unwrap();
    let to = &cluster.nodes()[1];
    let name = name_in(200, "open:");
    cluster.open_slot(200, to).await;
    let error = lock(&client, Flavour::Reentrant, &name).try_lock().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("slot 200"), "{error:?}");
    assert!(!refused(&admin).await.is_empty());
    let lock_there = lock(&client, Flavour::Reentrant, &name);
    let waiter = tokio::spawn(async move { lock_there.lock_for(secs(90)).await });
    bed::becomes("waiting tasks", 1, async || client.stats().waiting).await;
    cluster.close_slot(200).await;
    waiter.await.unwrap().unwrap().expect("had once it is whole").unlock().await.unwrap();
    end(client).await;
}

/// The access list denies the channels while a task waits, and allows them again later. Only a message wakes the
/// waiter.
#[tokio::test]
async fn refused_subscription_is_made_again_once_it_is_allowed() {
    let cluster = primaries(2).await;
    let admin = Admin::of_cluster(&cluster).await;
    let rules = async |rules: &[&str]| {
        let words: Vec<&str> = ["ACL", "SETUSER", "app"].into_iter().chain(rules.iter().copied()).collect();
        admin.cmd::<()>(&words).await;
    };
    let channel = "redisson_lock__channel:{x}";
    let holder = bed::builder(&cluster.url()).connect().await.unwrap();
    for (sharded, direct) in [(Sharded::Auto, false), (Sharded::Auto, true), (Sharded::Off, false)] {
        rules(&["reset", "on", ">secret", "~*", "allchannels", "+@all"]).await;
        let held = lock(&holder, Flavour::Reentrant, "x").lock_leased(secs(3600)).await.unwrap();
        let login = woken_by_messages(&cluster).username("app").password("secret");
        let client = login
            .configure(|options| {
                options.sharded = sharded;
                options.use_fred = !direct;
            })
            .connect()
            .await
            .unwrap();
        let waiting = waiter(&client, Flavour::Reentrant, "x").await;
        let subscribers = async || admin.numsub(channel).await;
        bed::becomes("subscribers", 1, subscribers).await;
        admin.cmd::<()>(&["ACL", "LOG", "RESET"]).await;
        rules(&["resetchannels"]).await;
        bed::eventually("a subscription is refused", async || !refused(&admin).await.is_empty()).await;
        rules(&["allchannels"]).await;
        bed::becomes("subscribers", 1, subscribers).await;
        held.unlock().await.unwrap();
        if sharded == Sharded::Off {
            // The holder publishes to the sharded channel, but this client has subscribed to the ordinary one.
            admin.cmd::<redis::Value>(&["PUBLISH", channel, "0"]).await;
        }
        woken("the waiter", waiting).await.unlock().await.unwrap();
        end(client).await;
    }
    end(holder).await;
}
