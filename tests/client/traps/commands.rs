//! Traps 1-4 and 13: commands that are sent again, that run after their future was dropped, or that fred sends in an
//! unwanted way.

use distlock::{Acquire, Error, Step};
use distlock_support::proxy::{Action, Matcher};

use crate::rig::elsewhere;
use bed::fault::{assert_doubt, brisk, script, warm};
use bed::harm::{TIMEOUT, sha};
use bed::{PATIENCE, builder, ends, eventually, idle, ms, reentrant, secs, with_longer_waits};

/// Trap 1: fred ignores the options of `with_options` for scripts. So options are set for the whole client, and scripts
/// are sent by `custom` (node/connection.rs, `Connection::send`; connect.rs, `default_command_timeout`). The timeout
/// limits `EVALSHA`, and the `EVAL` that follows `NOSCRIPT`. Neither is sent twice.
///
/// Trap 4: a command that timed out after it was written still runs. So it counts as in doubt (node/fault.rs, `fault`),
/// and the acquire is undone (acquire/undo.rs, `Undo`).
#[tokio::test]
async fn trap_01_04_an_acquire_has_one_timeout_and_is_undone_after_it() {
    reentrant(async |bed| {
        for by_hash in [true, false] {
            // If the timeout is too short, `NOSCRIPT` may be late, and `EVAL` is not sent.
            with_longer_waits(TIMEOUT, async |wait| {
                let proxy = bed.proxy();
                let options = brisk(&proxy.url()).watchdog(secs(3600)).command_timeout(wait);
                let client = bed.connect(options.retry_attempts(1_000)).await;
                let lock = client.reentrant("a");
                if by_hash {
                    lock.lock().await.unwrap().unlock().await.unwrap();
                } else {
                    bed.admin.script_flush().await;
                }
                idle(&client).await;
                bed.admin.reset_stats().await;
                let acquire = if by_hash { script("acquire") } else { Matcher::command("EVAL") };
                let armed = proxy.on_request(acquire, Action::HangReply);
                let error = lock.try_lock().await.unwrap_err();
                if !armed.has_fired() {
                    armed.disarm();
                    idle(&client).await;
                    return None;
                }
                let is_timeout = matches!(error, Error::Timeout { step: Step::Command, .. });
                assert!(is_timeout && error.outcome_unknown(), "{error:?}");
                // The acquire increments the count with one `hset`. Its undo changes no count.
                assert_eq!(bed.admin.calls("hset").await, 1);
                eventually("it is undone", async || !bed.admin.exists("a").await).await;
                Some(())
            })
            .await;
        }
    })
    .await;
}

/// This process is suspended for longer than the timeout, and the reply arrives meanwhile. The client reads the reply
/// before it applies the timeout (node/connection.rs, `without_standstill`).
#[tokio::test]
async fn trap_01_a_standstill_is_no_timeout() {
    reentrant(async |bed| {
        warm(&bed.still_client().await).await;
        let proxy = bed.proxy();
        let client = bed
            .connect(brisk(&proxy.url()).watchdog(secs(3600)).configure(|options| options.ping_interval = secs(3600)))
            .await;
        for round in 0..5 {
            // A suspend of the proxy or of the server may also be longer than the timeout, so the test may need several
            // tries.
            let mut tries = 0..20;
            let guard = loop {
                assert!(tries.next().is_some(), "round {round}: 20 timeouts in a row");
                let armed = proxy.on_request(script("acquire"), Action::DelayReply(ms(100)));
                let seen = proxy.requests_seen("EVALSHA");
                let lock = client.reentrant("a");
                let taking = tokio::spawn(async move { lock.try_lock().await });
                eventually("the acquire is sent", async || proxy.requests_seen("EVALSHA") > seen).await;
                // This runtime has one thread, so the loop blocks the client.
                while !armed.has_fired() {
                    std::thread::sleep(ms(1));
                }
                std::thread::sleep(2 * TIMEOUT);
                match ends("the acquire", taking).await.unwrap() {
                    Err(Error::Timeout { step: Step::Command, .. }) => idle(&client).await,
                    Err(error) => panic!("round {round}: {error}"),
                    Ok(taken) => break taken.expect("nobody has it"),
                }
            };
            drop(guard);
            idle(&client).await;
        }
    })
    .await;
}

/// fred resends a script in flight up to three times when the connection drops. Workaround: connect.rs,
/// `max_command_attempts: 1`.
///
/// The script counts a hold once, however often it arrives, so the test counts the requests at the proxy.
#[tokio::test]
async fn trap_02_transport_resends_no_script() {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let client = bed.connect(builder(&proxy.url())).await;
        warm(&client).await;
        let actions = [Action::SwallowReplyClose, Action::SwallowReplyRst, Action::CloseAfter];
        for (name, action) in ["close", "reset", "close after"].into_iter().zip(actions) {
            let lock = client.reentrant(name);
            let owner = elsewhere(&client.owner());
            proxy.on_request(script("acquire").containing(name), action);
            let seen = proxy.requests_seen("EVALSHA");
            let error = lock.acquire(Acquire::new().owner(&owner).wait(ms(0))).await.unwrap_err();
            assert_doubt(&error);
            eventually("the release has come", async || proxy.requests_seen("EVALSHA") >= seen + 2).await;
            // The query uses the same queue, so fred resends earlier commands before the query.
            assert!(!lock.is_locked().await.unwrap(), "{name}");
            assert_eq!(proxy.requests_seen("EVALSHA"), seen + 3, "the acquire, its undoing, and the query");
        }
    })
    .await;
}

/// A dropped future does not cancel its command. fred sends the command when the server is back, and does not report
/// its success. Workaround: the reaper completes the call (reaper/finished.rs, `Finished`'s `Drop`), and releases an
/// unused grant (acquire/attempt.rs, `attempt`).
#[tokio::test]
async fn trap_03_dropped_acquire_leaves_no_keys_after_server_outage() {
    reentrant(async |bed| {
        // The timeout exceeds the outage, so the command is still queued when the server is back. A restarted server
        // does not know the hashes of scripts, so scripts are sent as text.
        let patient = builder(&bed.server.url()).watchdog(secs(3600)).command_timeout(PATIENCE);
        let client = bed.connect(patient.configure(|options| options.script_cache = false)).await;
        for hung in [false, true] {
            warm(&client).await;
            bed.admin.reset_stats().await;
            if hung {
                bed.server.stop();
            } else {
                bed.server.kill9();
            }
            // The first command after a kill may still be written to the dead connection and be lost.
            for lock in ["first", "a", "b", "c"].map(|name| client.reentrant(name)) {
                let outcome = tokio::time::timeout(ms(50), lock.lock()).await;
                assert!(outcome.is_err(), "an acquire has ended while the server is away: {outcome:?}");
            }
            if hung {
                bed.server.cont();
            } else {
                bed.server.restart();
            }
            let ran = async || bed.admin.calls("hset").await >= 3;
            eventually("the commands arrive after all", ran).await;
            idle(&client).await;
            assert_eq!(bed.admin.keys().await, Vec::<String>::new(), "hung: {hung}");
        }
    })
    .await;
}

/// fred's reload sends `SCRIPT LOAD` to every server. Instead, on `NOSCRIPT` the same command is sent once more as
/// `EVAL`, which also loads the script (node/connection.rs, `Connection::run_script`).
#[tokio::test]
async fn trap_13_a_forgotten_script_costs_one_eval() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let lock = client.reentrant("a");
        for round in 0..5 {
            bed.admin.script_flush().await;
            bed.admin.reset_stats().await;
            for _ in 0..3 {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
            let stats = bed.admin.commandstats().await;
            let calls = |command: &str| stats.get(command).copied().unwrap_or(0);
            assert_eq!((calls("eval"), calls("evalsha")), (2, 6), "round {round}: {stats:?}");
            assert_eq!(calls("script|load"), 0);
        }
        for script in ["reentrant/acquire", "reentrant/release"] {
            let known: Vec<bool> = bed.admin.cmd(&["SCRIPT", "EXISTS", &sha(&["common/holds", script])]).await;
            assert_eq!(known, [true], "{script}");
        }
    })
    .await;
}
