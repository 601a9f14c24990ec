//! Commands that are lost, repeated or late. A number may be skipped, but no number is given to two sections.

use distlock::Released;
use distlock_support::Admin;
use distlock_support::proxy::Matcher;

use crate::rig::{counter, fenced, token};
use bed::fault::{brisk, gave, got};
use bed::harm::{ACTIONS, runs};
use bed::{becomes, ends, idle, secs, text};

fn acquires() -> Matcher {
    runs(&["common/holds", "fenced/begin", "reentrant/acquire", "fenced/number"])
}

/// Asserts that `token` is the counter's value, and that `owner` has the only hold.
async fn is_the_last(admin: &Admin, name: &str, token: u64, owner: &str, label: &str) {
    assert_eq!(admin.cmd::<u64>(&["GET", &counter(name)]).await, token, "{label}");
    let holds = admin.hgetall(name).await;
    assert_eq!(holds.into_iter().collect::<Vec<_>>(), [(owner.to_owned(), "1".to_owned())], "{label}");
}

/// An acquire that waits is retried until its outcome is known, and gets one number. An attempt without a wait is
/// undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_with_command_fault_gets_one_token_or_none() {
    fenced(async |bed| {
        let (direct, mut running) = (bed.client().await, Vec::new());
        for action in ACTIONS {
            let (proxy, direct) = (bed.proxy(), direct.clone());
            let client = bed.connect(brisk(&proxy.url()).watchdog(secs(600)).retry_attempts(1_000)).await;
            let admin = Admin::connect(&bed.server).await;
            running.push(async move {
                let name = format!("{action:?}").replace(['(', ')'], " ");
                let (lock, there) = (client.fenced(&name), direct.fenced(&name));
                let mut last = token(&lock.lock().await.unwrap());
                idle(&client).await;
                for round in 0..3 {
                    let label = format!("{name}, round {round}");
                    let armed = proxy.on_request(acquires().containing(&name), action);
                    if round < 2 {
                        let guard = got(&label, "acquire", lock.lock_for(secs(600)).await);
                        is_the_last(&admin, &name, token(&guard), &text(guard.owner()), &label).await;
                        assert!(token(&guard) > last, "{label}: {} after {last}", token(&guard));
                        last = token(&guard);
                        gave(&label, "release", guard.unlock().await, Released::Free);
                    } else {
                        match lock.try_lock().await {
                            Err(error) => assert!(error.is_retryable(), "{label}: {error:?}"),
                            outcome => {
                                let guard = got(&label, "try", outcome);
                                assert!(token(&guard) > last, "{label}");
                                last = token(&guard);
                            }
                        }
                    }
                    ends(&format!("{label}: the command is sent"), armed.fired()).await;
                    becomes(&format!("{label}: is locked"), false, async || admin.exists(&name).await).await;
                    // The next number is higher than all earlier ones, whether a client got them or not.
                    let guard = there.lock().await.unwrap();
                    assert!(token(&guard) > last, "{label}: {} after {last}", token(&guard));
                    last = token(&guard);
                    is_the_last(&admin, &name, last, &text(guard.owner()), &label).await;
                    guard.unlock().await.unwrap();
                    idle(&client).await;
                }
                (name, last)
            });
        }
        for (name, last) in futures::future::join_all(running).await {
            assert!(last >= 6, "{name}: 7 acquires, {last} numbers");
        }
    })
    .await;
}
