//! Records clients' script calls, to be run again while the keys are on different servers.

use std::collections::BTreeMap;

use distlock::{Client, Prefer};

use super::NAME;
use super::cluster::{Cluster, Snapshot};
use bed::wire::Wire;
use bed::{Bed, enter, harm, ms, scripts, secs};

/// The read-write lock's scripts that declare more keys than the hash.
const SCRIPTS: [&str; 6] = ["read", "read_release", "write", "write_release", "leave", "renew"];

/// One script call of a client, and all keys before the call.
pub struct Recorded {
    pub what: &'static str,
    pub call: Vec<String>,
    pub before: Snapshot,
}

struct Recorder<'a> {
    bed: &'a Bed,
    wire: Wire,
    /// Maps the hash of a script to the hash of the script to run later.
    later: BTreeMap<String, String>,
    calls: Vec<Recorded>,
    seen: usize,
}

impl Recorder<'_> {
    /// Records the calls since the last `note`, of scripts with more keys than the hash.
    async fn note(&mut self, what: &'static str, before: &Snapshot) {
        let all = self.wire.calls(self.bed).await;
        let (new, count) = (all[self.seen..].iter().filter(|call| call[2] != "1"), self.calls.len());
        for call in new {
            let mut call = call.clone();
            call[1] = self.later[&call[1]].clone();
            self.calls.push(Recorded { what, call, before: before.clone() });
        }
        self.seen = all.len();
        assert!(self.calls.len() > count, "{what} sent nothing");
    }
}

/// Loads the scripts on both servers. `OPEN_SLOT_LUA=dir` (instead of `lua/`) loads the scripts to run later from
/// another directory.
async fn load(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut later = BTreeMap::new();
    for script in SCRIPTS {
        let files: Vec<String> = scripts::files(&format!("rwlock/{script}")).into_iter().map(str::to_owned).collect();
        let elsewhere =
            std::env::var("OPEN_SLOT_LUA").map(|dir| files.iter().map(|file| format!("{dir}/{file}")).collect());
        let asked: Vec<String> = elsewhere.unwrap_or_else(|_| files.clone());
        for admin in [&cluster.here, &cluster.there] {
            let sha: String = admin.cmd(&["SCRIPT", "LOAD", &harm::text(&files)]).await;
            assert_eq!(sha, harm::sha(&files));
            later.insert(sha, admin.cmd::<String>(&["SCRIPT", "LOAD", &harm::text(&asked)]).await);
        }
    }
    later
}

/// Records every client call of both halves with more keys than the hash, while the slot is not open.
pub async fn record(bed: &Bed, cluster: &Cluster) -> Vec<Recorded> {
    let later = load(cluster).await;
    let builder =
        || bed.builder().configure(|options| options.preflight = false).watchdog(secs(400)).command_timeout(secs(100));
    let (one, two) = (bed.connect(builder()).await, bed.connect(builder()).await);
    let mut recorder = Recorder { bed, wire: Wire::tap(&bed.server).await, later, calls: Vec::new(), seen: 0 };
    readers(&mut recorder, cluster, &one, &two).await;
    shared(&mut recorder, cluster, &one, &two).await;
    writer(&mut recorder, cluster, &one).await;
    recorder.calls
}

/// One owner with two holds, and one hold of another client.
async fn readers(recorder: &mut Recorder<'_>, cluster: &Cluster, one: &Client, two: &Client) {
    let (rw, me) = (one.rw(NAME), one.owner());
    let nothing = Snapshot::new();
    let first = enter(&rw.read(), &me).await;
    recorder.note("read", &nothing).await;
    let second = enter(&rw.read(), &me).await;
    let other = two.rw(NAME).read().lock().await.unwrap();
    let before = cluster.snapshot().await;
    let third = enter(&rw.read(), &me).await;
    recorder.note("read again", &before).await;
    third.unlock().await.unwrap();
    one.renew_now().await;
    recorder.note("renew", &before).await;
    first.extend(secs(100)).await.unwrap();
    recorder.note("extend", &before).await;
    assert!(two.rw(NAME).write().try_lock().await.unwrap().is_none());
    recorder.note("write beside readers", &before).await;
    assert!(bed::in_vain(&two.rw(NAME).prefer(Prefer::Writers).write().lock_for(ms(50)).await));
    bed::eventually("it gave up", async || two.stats().under_way == 0).await;
    recorder.note("wait for readers, and give up", &before).await;
    other.unlock().await.unwrap();
    recorder.note("another reader leaves", &before).await;
    second.unlock().await.unwrap();
    recorder.note("give back one of two", &before).await;
    first.unlock().await.unwrap();
    recorder.note("give back the other", &before).await;
}

/// Two clients act as one owner, so neither client knows the number of covers. Then an owner has more holds than a
/// release names.
async fn shared(recorder: &mut Recorder<'_>, cluster: &Cluster, one: &Client, two: &Client) {
    let (rw, me) = (one.rw(NAME), one.owner());
    let nothing = Snapshot::new();
    let (mine, theirs) = (enter(&rw.read(), &me).await, enter(&two.rw(NAME).read(), &me).await);
    let before = cluster.snapshot().await;
    two.renew_now().await;
    recorder.note("renew one of two clients'", &before).await;
    theirs.extend(secs(100)).await.unwrap();
    recorder.note("extend one of two clients'", &before).await;
    theirs.unlock().await.unwrap();
    recorder.note("give back one of two clients'", &before).await;
    // An owner has more holds than a release names.
    let mut many = vec![mine];
    while many.len() < 18 {
        many.push(enter(&rw.read(), &me).await);
    }
    recorder.note("read many times", &nothing).await;
    let before = cluster.snapshot().await;
    many.pop().unwrap().unlock().await.unwrap();
    recorder.note("give back one of many", &before).await;
    for guard in many {
        guard.unlock().await.unwrap();
    }
    recorder.note("give back the rest", &nothing).await;
    // A release that also includes an earlier, failed release.
    let one_of_many = recorder.calls.iter().find(|recorded| recorded.what == "give back one of many").unwrap();
    let (mut call, before) = (one_of_many.call.clone(), one_of_many.before.clone());
    let args = 3 + call[2].parse::<usize>().unwrap();
    let (rest, last) = call[args + 3].rsplit_once(',').map(|(rest, last)| (rest.to_owned(), last.to_owned())).unwrap();
    call[args + 1] = format!("{},{last}", call[args + 1]);
    call[args + 3] = rest;
    recorder.calls.push(Recorded { what: "give back two of many", call, before });
}

async fn writer(recorder: &mut Recorder<'_>, cluster: &Cluster, one: &Client) {
    let (rw, me) = (one.rw(NAME), one.owner());
    let writing = enter(&rw.write(), &me).await;
    let reading = [enter(&rw.read(), &me).await, enter(&rw.read(), &me).await];
    let before = cluster.snapshot().await;
    writing.extend(secs(100)).await.unwrap();
    recorder.note("extend the writing", &before).await;
    let inner = enter(&rw.write(), &me).await;
    recorder.note("write again", &before).await;
    let inside = cluster.snapshot().await;
    inner.unlock().await.unwrap();
    recorder.note("give back one of two for writing", &inside).await;
    writing.unlock().await.unwrap();
    recorder.note("downgrade", &before).await;
    for guard in reading {
        guard.unlock().await.unwrap();
    }
}
