//! A server that serves nobody, because its cluster does not. Commands wait at a gate until it says that it does again, and do not
//! go on asking: hundreds of them would, and the library `fred` ends its connection at each such answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::Cluster;
use crate::runtime::standstill::within;
use crate::topology::member::Member;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};

/// Tells whether a server serves anybody.
static INFO: Script = Script::bare("cluster/info", "CLUSTER");

/// How often it is asked, and how long it may take to say so.
const EVERY: Duration = Duration::from_millis(20);
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// Whether a server's cluster serves nobody.
#[derive(Debug, Default)]
pub(in crate::topology) struct Gate(AtomicBool);

impl Gate {
    pub(in crate::topology) fn is_shut(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// True for an error that says so of the cluster, and not of a slot that nobody serves.
pub(super) fn tells_of_cluster(error: &str) -> bool {
    let is_down = error.starts_with("CLUSTERDOWN") || error.contains("the cluster is down");
    is_down && !error.contains("slot not served")
}

/// What a command is told that has waited as long as it may.
pub(super) fn shut(host: &str) -> Fault {
    Fault::new(FaultKind::NotSent, format!("CLUSTERDOWN the cluster of {host} serves nobody"))
}

impl Cluster {
    /// Has commands wait until a server serves again, has left the cluster, or does not say.
    pub(super) fn shut(&self, member: &Arc<Member>) {
        if member.gate().0.swap(true, Ordering::AcqRel) {
            return;
        }
        let (cluster, member) = (self.this.clone(), Arc::clone(member));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                let Some(cluster) = cluster.upgrade() else { return };
                if cluster.closed.load(Ordering::Relaxed) || !is_shut(&member).await {
                    member.gate().0.store(false, Ordering::Release);
                    // Those who wait look at the gate as well.
                    cluster.suspicion.changed();
                    return;
                }
            }
        });
    }
}

async fn is_shut(member: &Member) -> bool {
    let words = vec![Arg::Text(Bytes::from_static(b"INFO"))];
    match within(ANSWERS_WITHIN, member.transport().run(Call { script: &INFO, keys: 0, words })).await {
        Some(Ok(Reply::Text(text))) => !text.windows(16).any(|part| part == b"cluster_state:ok"),
        // Where it does not say, or the login may not ask, commands find it out.
        _ => false,
    }
}
