//! Subscriptions that are never confirmed, or not allowed. In `src/engine/tests`, `same_owner` tests waiters that share
//! a pending subscription, and `answers` tests waiters without a subscription that a release in their own process
//! wakes.

use std::sync::Arc;

use distlock::{Builder, DistLock, Flavour, Guard};
use distlock_support::{Action, Matcher, Proxy};
use tokio::task::JoinHandle;

use bed::{Bed, becomes, builder, end, ends, ms, reentrant, secs, with_longer_waits};

fn waits(lock: &Arc<dyn DistLock>) -> JoinHandle<Guard> {
    let lock = Arc::clone(lock);
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

fn patient(proxy: &Proxy) -> Builder {
    let hour = secs(3600);
    builder(&proxy.url()).configure(|options| {
        options.poll_cap = hour;
        options.ping_interval = hour;
        options.subscribe_timeout = hour;
        options.subscription_linger = ms(100);
    })
}

/// Without a subscription, the waiter retries when the known lease of the holder ends.
#[tokio::test]
async fn a_waiter_without_a_subscription_acquires_after_the_lease() {
    reentrant(async |bed: &Bed| {
        let theirs = bed.client().await;
        for (held, wanted) in [
            (Flavour::Reentrant, Flavour::Reentrant),
            (Flavour::Fair, Flavour::Fair),
            (Flavour::Write, Flavour::Write),
            (Flavour::Write, Flavour::Read),
        ] {
            let proxy = bed.proxy();
            let ours = bed.connect(patient(&proxy)).await;
            let name = format!("job {held} {wanted}");
            let silent = proxy.on_request(Matcher::command("SUBSCRIBE"), Action::HangReply);
            let (held, waiting) = with_longer_waits(secs(1), async |lease| {
                let held = theirs.lock(held, &name).lock_leased(lease).await.unwrap();
                let mut waiting = waits(&ours.lock(wanted, &name));
                tokio::select! {
                    () = silent.fired() => Some((held, waiting)),
                    // The lease ended before the waiter had subscribed.
                    guard = &mut waiting => {
                        guard.unwrap().unlock().await.unwrap();
                        None
                    }
                }
            })
            .await;
            let guard = ends("a waiter whose subscription is not confirmed", waiting).await.unwrap();
            guard.unlock().await.unwrap();
            drop(held);
            // Without this, the subscribe would be in flight for an hour.
            proxy.rst_all();
            end(ours).await;
        }
    })
    .await;
}

/// The access list denies all channels. Over fred, such a subscription seems to succeed.
#[tokio::test]
async fn waiter_without_channel_rights_polls() {
    reentrant(async |bed: &Bed| {
        let holder = bed.client().await;
        let rules = ["ACL", "SETUSER", "deaf", "reset", "on", ">secret", "~*", "resetchannels", "+@all"];
        bed.admin.cmd::<String>(&rules).await;
        let login = bed.builder().username("deaf").password("secret");
        let client = bed
            .connect(login.configure(|options| {
                options.poll_cap = ms(200);
                options.subscription_linger = ms(50);
            }))
            .await;
        let held = holder.lock(Flavour::Reentrant, "x").lock_leased(secs(3600)).await.unwrap();
        let waiting = waits(&client.lock(Flavour::Reentrant, "x"));
        becomes("waiters", 1, async || client.stats().waiting).await;
        held.unlock().await.unwrap();
        let guard = ends("the waiter", waiting).await.unwrap();
        // The client has no right to publish its release either. Its next waiter needs no message.
        let next = waits(&client.lock(Flavour::Reentrant, "x"));
        becomes("waiters", 1, async || client.stats().waiting).await;
        guard.unlock().await.unwrap();
        let guard = ends("the next waiter of the client", next).await.unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// The access list denies the channels while a task waits. The server closes the connection for messages, and refuses
/// the subscription until the channels are allowed again. Only a message wakes these waiters.
#[tokio::test]
async fn subscription_that_was_refused_is_made_again_once_it_is_allowed() {
    let channel = "redisson_lock__channel:{x}";
    reentrant(async |bed: &Bed| {
        let holder = bed.client().await;
        let rules = async |rules: &[&str]| {
            let words: Vec<&str> = ["ACL", "SETUSER", "app"].into_iter().chain(rules.iter().copied()).collect();
            bed.admin.cmd::<String>(&words).await;
        };
        for direct in [false, true] {
            rules(&["reset", "on", ">secret", "~*", "allchannels", "+@all"]).await;
            let login =
                bed.builder().username("app").password("secret").configure(|options| options.use_fred = !direct);
            let hour = secs(3600);
            let client = bed
                .connect(login.configure(|options| {
                    options.poll_cap = hour;
                    options.ping_interval = hour;
                    options.subscription_linger = ms(50);
                }))
                .await;
            let held = holder.lock(Flavour::Reentrant, "x").lock_leased(hour).await.unwrap();
            let waiting = waits(&client.lock(Flavour::Reentrant, "x"));
            let subscribers = async || bed.admin.numsub(channel).await;
            becomes("subscribers", 1, subscribers).await;
            bed.admin.cmd::<String>(&["ACL", "LOG", "RESET"]).await;
            rules(&["resetchannels"]).await;
            becomes("subscribers", 0, subscribers).await;
            let refused = async || !bed.admin.cmd::<Vec<redis::Value>>(&["ACL", "LOG"]).await.is_empty();
            becomes("a refused subscription", true, refused).await;
            rules(&["allchannels"]).await;
            becomes("subscribers", 1, subscribers).await;
            held.unlock().await.unwrap();
            let guard = ends("the waiter", waiting).await.unwrap();
            // Another waiter of the same name shares the subscription.
            let next = waits(&client.lock(Flavour::Reentrant, "x"));
            becomes("waiters", 1, async || client.stats().waiting).await;
            guard.unlock().await.unwrap();
            ends("the next waiter", next).await.unwrap().unlock().await.unwrap();
            becomes("subscribers", 0, subscribers).await;
            end(client).await;
        }
    })
    .await;
}
