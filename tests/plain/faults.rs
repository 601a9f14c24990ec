//! Every command of a session is lost, repeated, delayed and cut off. Also tests faults of `SET`, which is no script.

use bed::fault::{assert_doubt, brisk};
use bed::session::{PLAIN, in_every_way};
use bed::{becomes, ends, idle, secs};
use distlock::{Error, Step};
use distlock_support::proxy::{Action, Matcher};

use crate::rig::{plain, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_leave_one_holder_or_none() {
    plain(async |bed| in_every_way(bed, PLAIN).await).await;
}

fn set(name: &str) -> Matcher {
    Matcher::command("SET").containing(name)
}

/// fred's traps 1 and 2 for `SET`: the timeout applies, and `SET` is sent once.
#[tokio::test]
async fn set_has_the_command_timeout_and_is_sent_once() {
    plain(async |bed| {
        let proxy = bed.proxy();
        let client = bed.connect(brisk(&proxy.url()).watchdog(secs(3600)).retry_attempts(1_000)).await;
        for (name, action) in [
            ("hang", Action::HangReply),
            ("close", Action::SwallowReplyClose),
            ("reset", Action::SwallowReplyRst),
            ("close after", Action::CloseAfter),
        ] {
            // This opens the connection.
            client.plain("warm").lock().await.unwrap().unlock().await.unwrap();
            idle(&client).await;
            let armed = proxy.on_request(set(name), action);
            let seen = proxy.requests_seen("SET");
            let error = client.plain(name).try_lock().await.unwrap_err();
            assert_doubt(&error);
            ends("the SET is sent", armed.fired()).await;
            if action == Action::HangReply {
                assert!(matches!(error, Error::Timeout { step: Step::Command, .. }), "{error:?}");
            }
            becomes("is locked", false, async || bed.admin.exists(name).await).await;
            assert_eq!(proxy.requests_seen("SET"), seen + 1, "{name}");
        }
    })
    .await;
}

/// The reply to the `SET` is lost. The retry finds that the waiter itself holds the lock.
#[tokio::test]
async fn waiter_holds_its_own_value_after_set_in_doubt() {
    plain(async |bed| {
        let proxy = bed.proxy();
        let client = bed.connect(brisk(&proxy.url()).watchdog(secs(3600)).retry_attempts(1_000)).await;
        for (name, action) in [("lost", Action::SwallowReplyClose), ("never", Action::CloseBefore)] {
            proxy.on_request(set(name), action);
            let guard = client.plain(name).lock().await.unwrap();
            assert_eq!(value(bed, name).await.as_deref(), Some(guard.owner().as_str()), "{name}");
            guard.unlock().await.unwrap();
            assert!(!bed.admin.exists(name).await, "{name}");
        }
        idle(&client).await;
    })
    .await;
}

/// A `SET` needs no script, so a server that has forgotten the scripts grants the lock.
#[tokio::test]
async fn server_without_scripts_grants_the_lock() {
    plain(async |bed| {
        let client = bed.still_client().await;
        let lock = client.plain("job");
        for _ in 0..3 {
            bed.admin.script_flush().await;
            bed.admin.reset_stats().await;
            let guard = lock.lock().await.unwrap();
            assert_eq!((bed.admin.calls("evalsha").await, bed.admin.calls("eval").await), (0, 0));
            guard.unlock().await.unwrap();
            assert_eq!((bed.admin.calls("evalsha").await, bed.admin.calls("eval").await), (1, 1));
        }
    })
    .await;
}

/// If the server refuses the `SET`, nothing is held and nothing is in doubt.
#[tokio::test]
async fn refused_set_returns_the_server_message() {
    plain(async |bed| {
        let client = bed.client().await;
        let lock = client.plain("job");
        bed.admin.config_set("maxmemory", "1").await;
        let refused = lock.try_lock().await;
        assert!(matches!(&refused, Err(Error::Server { message, .. }) if message.starts_with("OOM")), "{refused:?}");
        bed.admin.config_set("maxmemory", "0").await;
        lock.try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
        // A login without the right to `SET`.
        let rules = ["reset", "on", ">SECRET", "~*", "&*", "+@all", "-set"];
        let () = bed.admin.cmd(&[&["ACL", "SETUSER", "mute"], rules.as_slice()].concat()).await;
        let mute = bed.connect(bed.builder().username("mute").password("SECRET").preflight(false)).await;
        let refused = mute.plain("job").lock().await;
        assert!(matches!(&refused, Err(Error::Server { message, .. }) if message.starts_with("NOPERM")), "{refused:?}");
        assert!(!bed.admin.exists("job").await);
    })
    .await;
}
