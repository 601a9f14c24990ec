//! Every command of a session is lost, repeated, delayed and cut off. Also tests faults of `SET`, which is no script.

use bed::fault::{assert_doubt, brisk};
use bed::session::{PLAIN, in_every_way};
use bed::{becomes, ends, idle, secs};
use distlock::{Error, Step};
use distlock_support::proxy::{Action, Matcher};

use crate::rig::plain;

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
        let mute = bed
            .connect(bed.builder().username("mute").password("SECRET").configure(|options| options.preflight = false))
            .await;
        let refused = mute.plain("job").lock().await;
        assert!(matches!(&refused, Err(Error::Server { message, .. }) if message.starts_with("NOPERM")), "{refused:?}");
        assert!(!bed.admin.exists("job").await);
    })
    .await;
}
