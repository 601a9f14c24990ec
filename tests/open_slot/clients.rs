//! Clients of one server of a cluster, over `redis://`. The test records their calls with several keys, and sends these
//! calls again while the keys are on different servers. Also tests the clients' locks in this state.

mod cluster;
mod record;

use std::collections::BTreeMap;

use bed::eventually;
use cluster::{Cluster, Seen, Snapshot, server};
use distlock::{Flavour, Released};
use distlock_support::Admin;
use record::{Recorded, record};
use redis::Value;

const NAME: &str = "foo";

/// The answer to a call: an error, or a renewal's answer about its one lock.
#[derive(Debug, PartialEq)]
enum Said {
    Failed(String),
    Answer(String),
}

async fn say(admin: &Admin, call: &[String]) -> Said {
    match admin.raw(call).await {
        Err(error) => Said::Failed(error.to_string()),
        Ok(Value::Array(entries)) if matches!(entries.as_slice(), [Value::BulkString(_)]) => {
            Said::Failed(format!("{entries:?}"))
        }
        // A lease in ms, or the number of messages.
        Ok(Value::Int(ms)) if ms > 100 => Said::Answer("some ms".to_owned()),
        Ok(value) => Said::Answer(format!("{value:?}")),
    }
}

/// All splits in which one key, all covers, or the hash has already moved.
fn splits(keys: &Snapshot) -> Vec<Vec<&str>> {
    let covers: Vec<&str> = keys.keys().map(String::as_str).filter(|key| *key != NAME).collect();
    let mut splits: Vec<Vec<&str>> = keys.keys().map(|key| vec![key.as_str()]).collect();
    splits.push(covers);
    splits.retain(|split| !split.is_empty());
    splits
}

#[tokio::test]
async fn script_on_half_moved_lock_runs_whole_or_leaves_keys_unchanged() {
    let make: bed::Make = |client, name| client.lock(Flavour::Write, name);
    bed::run_on(server(), make, async |bed| {
        let cluster = Cluster::form(bed).await;
        let recorded = record(bed, &cluster).await;
        let (mut failed, mut done) = (0, 0);
        for Recorded { what, call, before } in &recorded {
            cluster.restore(before).await;
            let whole = say(&cluster.here, call).await;
            assert!(matches!(whole, Said::Answer(_)), "{what}: {whole:?}");
            let result = cluster.look(&cluster.here).await;
            for split in splits(before) {
                cluster.restore(before).await;
                cluster.open().await;
                cluster.move_there(&split).await;
                let untouched = [cluster.look(&cluster.here).await, cluster.look(&cluster.there).await];
                let said = say(&cluster.here, call).await;
                let now = [cluster.look(&cluster.here).await, cluster.look(&cluster.there).await];
                if matches!(said, Said::Failed(_)) {
                    failed += 1;
                    assert_eq!(now, untouched, "{what}, without {split:?}: {said:?}");
                } else {
                    done += 1;
                    assert_eq!(said, whole, "{what}, without {split:?}");
                    let [here, there] = now;
                    let both: BTreeMap<_, _> = here.into_iter().chain(there).collect();
                    let values = |keys: &Seen| -> Vec<(String, String)> {
                        keys.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
                    };
                    assert_eq!(values(&both), values(&result), "{what}, without {split:?}");
                }
                // If the hash has moved and the covers have not, no reader may count as dead.
                if split == [NAME] && before.len() > 1 {
                    let () = cluster.there.cmd(&["ASKING"]).await;
                    let said = say(&cluster.there, call).await;
                    assert!(matches!(said, Said::Failed(_)), "{what}, there: {said:?}");
                    let now = [cluster.look(&cluster.here).await, cluster.look(&cluster.there).await];
                    assert_eq!(now, untouched, "{what}, there: {said:?}");
                }
            }
        }
        println!("{} calls, {failed} failed, {done} done", recorded.len());
        assert!(recorded.len() > 12 && failed > 30 && done > 0);
        cluster.restore(&Snapshot::new()).await;
    })
    .await;
}

/// A reentrant lock has one key, and channels are not checked. So it can be released at the server that has the key. A
/// reader's release is retried while another reader's cover is on the other server.
#[tokio::test]
async fn release_succeeds_at_once_with_one_key_and_once_slot_is_whole_with_several() {
    let make: bed::Make = |client, name| client.lock(Flavour::Write, name);
    bed::run_on(server(), make, async |bed| {
        let cluster = Cluster::form(bed).await;
        let client = bed.connect(bed.builder().configure(|options| options.preflight = false)).await;
        for flavour in [Flavour::Reentrant, Flavour::Spin] {
            let guard = client.lock(flavour, NAME).lock().await.unwrap();
            cluster.open().await;
            assert_eq!(client.renew_now().await.renewed, 1);
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}");
            cluster.close(&[]).await;
        }
        let (one, other) = (client.rw(NAME).read(), client.rw(NAME).read());
        let (one, other) = (one.lock().await.unwrap(), other.lock().await.unwrap());
        let cover = format!("{{{NAME}}}:{}:rwlock_timeout:1", other.owner());
        cluster.open().await;
        cluster.move_there(&[&cover]).await;
        let calls = async || bed.admin.calls("evalsha").await + bed.admin.calls("eval").await;
        let asked = calls().await;
        let leaves = tokio::spawn(one.unlock());
        eventually("it is refused", async || calls().await > asked + 1).await;
        cluster.close(&[&cover]).await;
        assert_eq!(leaves.await.unwrap().unwrap(), Released::Free);
        assert_eq!(client.rw(NAME).read().hold_count(other.owner()).await.unwrap(), 1);
        // On a slow machine a round may fail, but the hold is not lost.
        bed::becomes("renewals of the other, which holds on", (1, 0), async || {
            let round = client.renew_now().await;
            assert_eq!(round.lost, 0, "{round:?}");
            (round.renewed, round.failed)
        })
        .await;
        other.unlock().await.unwrap();
    })
    .await;
}
