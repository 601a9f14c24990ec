//! The cost of a RedLock: an acquire and a release are one command each at every server. `tests/sim/timing/groups.rs`
//! asserts that each takes one round trip of the majority.

use crate::rig::{Path, everywhere, long, patient};
use bed::becomes;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_and_release_cost_one_command_each_per_server() {
    everywhere(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let lock = user.red("x");
        for at in five.all() {
            five.admin(at).await.reset_stats().await;
        }
        for _ in 0..20 {
            let guard = lock.acquire(long()).await.unwrap().expect("nobody has it");
            becomes("servers that granted it", five.all().len(), async || guard.members().len()).await;
            guard.unlock().await.unwrap();
            user.idle().await;
        }
        for at in five.all() {
            let calls = five.admin(at).await.commandstats().await;
            let count = |name: &str| calls.get(name).copied().unwrap_or_default();
            assert_eq!((count("evalsha"), count("eval"), count("subscribe")), (40, 0, 0), "server {at}");
        }
    })
    .await;
}
