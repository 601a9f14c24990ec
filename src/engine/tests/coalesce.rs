//! Calls of scripts that share a command.

use futures::future::join_all;

use super::{begin, client, done, got, ms, secs, settle};
use crate::Acquire;

#[tokio::test(start_paused = true)]
async fn calls_under_load_share_commands_and_each_gets_its_own_answer() {
    let (client, fake) = client(|options| options.batching = true);
    let names: Vec<String> = (0..200).map(|n| format!("lock {n}")).collect();
    for name in names.iter().step_by(2) {
        fake.steal(name, secs(3600));
    }
    let locks: Vec<_> = names.iter().map(|name| client.reentrant(name)).collect();
    let got = join_all(locks.iter().map(|lock| lock.try_lock())).await;
    let held: Vec<bool> = got.iter().map(|got| got.as_ref().unwrap().is_some()).collect();
    assert_eq!(held, (0..200).map(|n| n % 2 == 1).collect::<Vec<_>>());
    // Four calls are sent as single commands, the others in batches of up to 64.
    assert_eq!((fake.sent("acquire").len(), fake.sent("many").len()), (4, 4));
    drop(got);
    settle().await;
    for name in names.iter().step_by(2) {
        fake.delete(name);
    }
    done(client, &fake).await;
}

/// If bare commands (commands without a script) are cheap, they are sent alone even under load. Scripts are still
/// batched.
#[tokio::test(start_paused = true)]
async fn bare_command_shares_script_only_where_commands_are_costly() {
    for (prefers_bare, alone, shared) in [(false, 4, 3), (true, 4 + 64, 0)] {
        let (client, fake) = client(|options| options.batching = true);
        if prefers_bare {
            fake.prefer_bare_commands();
        }
        let locks: Vec<_> = (0..4 + 64).map(|n| client.plain(&n.to_string())).collect();
        let got = join_all(locks.iter().map(|lock| lock.try_lock())).await;
        assert_eq!((fake.sent("set").len(), fake.sent("many").len()), (alone, shared), "{prefers_bare}");
        let unlocked = join_all(got.into_iter().map(|got| got.unwrap().unwrap().unlock())).await;
        assert!(unlocked.iter().all(Result::is_ok));
        assert_eq!((fake.sent("release").len(), fake.sent("many").len()), (4, shared + 3), "{prefers_bare}");
        done(client, &fake).await;
    }
}

/// Calls of readers and calls with long names are more work, so a batch has fewer of them.
#[tokio::test(start_paused = true)]
async fn shared_command_has_fewer_calls_if_each_costs_more() {
    const CALLS: usize = 4 + 3 * 64;
    let long = "x".repeat(3_584);
    for (readers, name, commands) in [(false, "", 3), (true, "", 6), (false, &*long, 24)] {
        let (client, fake) = client(|options| options.batching = true);
        let ask = async |n: usize| {
            let name = format!("{n}{name}");
            if readers { client.rw(&name).read().try_lock().await } else { client.reentrant(&name).try_lock().await }
        };
        let got = join_all((0..CALLS).map(ask)).await;
        assert!(got.iter().all(|got| got.as_ref().is_ok_and(Option::is_some)));
        assert_eq!(fake.sent("many").len(), commands, "readers {readers}, names of {} bytes", name.len());
        drop(got);
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unpolled_acquires_do_not_delay_other_acquires() {
    let (client, fake) = client(|options| options.batching = true);
    let locks: Vec<_> = (0..8).map(|n| client.reentrant(&n.to_string())).collect();
    // These acquires are started and then not polled.
    let mut begun: Vec<_> = locks.iter().map(|lock| Box::pin(lock.lock())).collect();
    for acquire in &mut begun {
        assert!(futures::poll!(acquire).is_pending());
    }
    let other = client.reentrant("other");
    got(ms(50), begin(&other, Acquire::new())).await.unlock().await.unwrap();
    tokio::time::sleep(secs(1)).await;
    drop(begun);
    done(client, &fake).await;
}
