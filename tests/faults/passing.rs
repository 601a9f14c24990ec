//! Temporary refusals (`docs/faults.md` has the same table). The client retries releases, and acquires that may wait.
//! The error of a single attempt is retryable.

use distlock::{Client, Error, Flavour, Released};
use distlock_support::{Admin, RedisServer};
use tokio::task::JoinHandle;

use crate::fake::Fake;
use crate::rig::{HOUR, patient};
use bed::fault::warm;
use bed::{Bed, PATIENCE, becomes, ends, eventually, ms, run_on};

/// Refusals that the test can provoke from a real server.
const REAL: [&str; 6] = ["MISCONF", "NOREPLICAS", "OOM", "READONLY", "MASTERDOWN", "BUSY"];

const FAKE: [&str; 4] = [
    "LOADING Redis is loading",
    "CLUSTERDOWN Hash slot",
    "TRYAGAIN Multiple keys",
    "ERR max number of clients reached",
];

async fn config(bed: &Bed, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        bed.admin.config_set(name, value).await;
    }
}

/// Makes the server save its data, and waits until the save ends with `status`.
async fn save(bed: &Bed, status: &str) {
    let () = bed.admin.cmd(&["BGSAVE"]).await;
    eventually("the save ends with the expected status", async || {
        let info: String = bed.admin.cmd(&["INFO", "persistence"]).await;
        info.contains("rdb_bgsave_in_progress:0") && info.contains(&format!("rdb_last_bgsave_status:{status}"))
    })
    .await;
}

/// Makes the server refuse commands with `code`. For `BUSY`, returns the task of the endless script.
async fn refuse(bed: &Bed, code: &str) -> Option<JoinHandle<()>> {
    match code {
        "MISCONF" => {
            config(bed, &[("save", "3600 1")]).await;
            // The save fails because its file cannot replace a directory.
            std::fs::create_dir(bed.server.dir().join("dump.rdb")).expect("a directory");
            save(bed, "err").await;
        }
        "NOREPLICAS" => config(bed, &[("min-replicas-to-write", "1")]).await,
        "OOM" => config(bed, &[("maxmemory", "1")]).await,
        "READONLY" | "MASTERDOWN" => {
            let serves = if code == "READONLY" { "yes" } else { "no" };
            config(bed, &[("replica-serve-stale-data", serves)]).await;
            // No server listens on this port, so the link stays down.
            let () = bed.admin.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await;
        }
        _ => {
            let url = bed.server.url();
            return Some(tokio::spawn(async move {
                let _ = Admin::from_url(&url).await.raw(&["EVAL", "while true do end", "0"]).await;
            }));
        }
    }
    None
}

async fn heal(bed: &Bed, code: &str) {
    match code {
        "MISCONF" => {
            std::fs::remove_dir(bed.server.dir().join("dump.rdb")).expect("the directory");
            save(bed, "ok").await;
        }
        "NOREPLICAS" => config(bed, &[("min-replicas-to-write", "0")]).await,
        "OOM" => config(bed, &[("maxmemory", "0")]).await,
        "READONLY" | "MASTERDOWN" => bed.admin.cmd(&["REPLICAOF", "NO", "ONE"]).await,
        _ => bed.admin.cmd(&["SCRIPT", "KILL"]).await,
    }
}

async fn is_refused(client: &Client, code: &str) {
    let lock = client.reentrant("free");
    eventually(&format!("an acquire is refused by {code}"), async || match lock.try_lock().await {
        Err(error) if error.to_string().contains(code) => {
            assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
            true
        }
        outcome => {
            drop(outcome);
            false
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_and_releases_are_retried_through_temporary_refusals() {
    let server = RedisServer::builder().arg("--busy-reply-threshold", "100").start();
    run_on(
        server,
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let client = bed.connect(patient(&bed.server.url())).await;
            let hasty = bed.connect(patient(&bed.server.url()).retry_attempts(0)).await;
            warm(&client).await;
            for code in REAL {
                // Longer than the watchdog's lease, which is an hour.
                let dropped = client.reentrant("dropped").lock_leased(HOUR * 2).await.unwrap();
                let unlocked = client.reentrant("unlocked").lock().await.unwrap();
                let pending = hasty.reentrant("pending").lock().await.unwrap();
                let endless = refuse(bed, code).await;
                is_refused(&client, code).await;
                if code == "BUSY" {
                    let renewed = client.renew_now().await;
                    assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (0, 1, 0));
                }
                drop(dropped);
                let unlocking = tokio::spawn(unlocked.unlock());
                match pending.unlock().await {
                    // A server that is out of memory accepts commands that free memory.
                    Ok(released) => assert_eq!((code, released), ("OOM", Released::Free)),
                    Err(Error::ReleasePending { why, .. }) => {
                        assert!(why.to_string().contains(code), "{code}: {why:?}")
                    }
                    Err(error) => panic!("{code}: {error:?}"),
                }
                let lock = client.reentrant("waited for");
                let waiting = tokio::spawn(async move { lock.lock_for(HOUR).await });
                tokio::time::sleep(ms(100)).await;
                assert!(!waiting.is_finished(), "granted in spite of {code}");
                heal(bed, code).await;
                let guard = ends(&format!("the wait in spite of {code}"), waiting).await.unwrap();
                guard.unwrap_or_else(|error| panic!("{code}: {error:?}")).expect("granted").unlock().await.unwrap();
                let released = ends(&format!("the release in spite of {code}"), unlocking).await.unwrap();
                assert!(matches!(released, Ok(Released::Free)), "{code}: {released:?}");
                becomes(&format!("keys after {code}"), Vec::<String>::new(), async || bed.admin.keys().await).await;
                if let Some(endless) = endless {
                    ends("the endless script", endless).await.unwrap();
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn acquire_and_release_are_retried_through_refusals_of_fake_server() {
    for refusal in FAKE {
        let fake = Fake::start().await;
        let client = patient(&fake.url()).connect().await.unwrap();
        let refuses = |well: &'static [u8]| {
            let mut refusals = 0;
            fake.set(move |_| {
                refusals += 1;
                Some(if refusals <= 3 { format!("-{refusal}\r\n").into_bytes() } else { well.to_vec() })
            });
        };
        refuses(b"_\r\n");
        let error = client.reentrant("a").try_lock().await.expect_err(refusal);
        assert!(error.is_retryable(), "{refusal}: {error:?}");
        assert!(!refusal.starts_with("LOADING") || !error.outcome_unknown(), "{error:?}");
        let guard = ends(refusal, client.reentrant("a").lock_for(HOUR)).await.unwrap().expect("nil means held");
        refuses(b":0\r\n");
        let released = ends(refusal, guard.unlock()).await;
        assert!(matches!(released, Ok(Released::Free)), "{refusal}: {released:?}");
        client.shutdown(PATIENCE).await.unwrap();
    }
}
