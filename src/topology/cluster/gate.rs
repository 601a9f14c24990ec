//! Holds back commands to a server that says that its cluster is down.
//!
//! The first such reply shuts the gate of the member. A task then polls `CLUSTER INFO` until the server serves again,
//! and opens the gate. Without the gate, hundreds of commands would be retried, and `fred` closes its connection at
//! each such reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::Cluster;
use crate::runtime::standstill::within;
use crate::topology::member::Member;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};

static INFO: Script = Script::bare("cluster/info", "CLUSTER");

/// Poll interval, and the time that the server has for each answer.
const EVERY: Duration = Duration::from_millis(20);
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// True while commands to a server wait, because its cluster is down.
#[derive(Debug, Default)]
pub(in crate::topology) struct Gate(AtomicBool);

impl Gate {
    pub(in crate::topology) fn is_shut(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// True if the error is about the whole cluster, not about a slot without a primary.
pub(super) fn is_about_whole_cluster(error: &str) -> bool {
    let is_down = error.starts_with("CLUSTERDOWN") || error.contains("the cluster is down");
    is_down && !error.contains("slot not served")
}

/// The fault of a command that has waited at the gate until its time limit.
pub(super) fn shut(host: &str) -> Fault {
    Fault::new(FaultKind::NotSent, format!("CLUSTERDOWN the cluster of {host} serves nobody"))
}

impl Cluster {
    /// Shuts the gate of a member. The gate opens once the server serves again or does not report its state, or once
    /// the client is closed.
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
                    // Wakes the commands that wait at the gate.
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
        // If the server does not report its state, or the login may not query it, the gate opens.
        _ => false,
    }
}
