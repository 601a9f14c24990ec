//! Faults of servers, connections, clients and processes. Each fault is healed before the next one.

use std::sync::Arc;
use std::time::Duration;

use distlock_support::Numbers;
use distlock_support::proxy::Mode;
use tokio::task::spawn_blocking;

use crate::bed::{Bed, CLIENTS};
use crate::children::Children;

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillServer,
    KillRedServer,
    FreezeServer,
    ClientKill,
    ClientKillMessages,
    ScriptFlush,
    CloseConnections,
    ResetConnections,
    Delay,
    Blackhole,
    NewClient,
    DroppedClient,
    KillChild,
    DroppedRuntime,
}

const ALL: [Fault; 14] = [
    Fault::KillServer,
    Fault::KillRedServer,
    Fault::FreezeServer,
    Fault::ClientKill,
    Fault::ClientKillMessages,
    Fault::ScriptFlush,
    Fault::CloseConnections,
    Fault::ResetConnections,
    Fault::Delay,
    Fault::Blackhole,
    Fault::NewClient,
    Fault::DroppedClient,
    Fault::KillChild,
    Fault::DroppedRuntime,
];

/// Causes one random fault. Everything is up again when this returns.
pub async fn strike(bed: &Arc<Bed>, children: &mut Children, numbers: &mut Numbers) {
    let fault = numbers.of(&ALL);
    let while_down = numbers.between(50, 1000);
    bed.tally.count(&format!("fault: {fault:?}"));
    match fault {
        Fault::KillServer => restart(bed, 0, while_down).await,
        Fault::KillRedServer => restart(bed, 1 + numbers.below(3) as usize, while_down).await,
        Fault::FreezeServer => {
            bed.servers[0].stop();
            tokio::time::sleep(while_down).await;
            bed.servers[0].cont();
        }
        Fault::ClientKill => drop(bed.admins[0].client_kill_type("normal").await),
        Fault::ClientKillMessages => drop(bed.admins[0].client_kill_type("pubsub").await),
        Fault::ScriptFlush => bed.admins[numbers.below(4) as usize].script_flush().await,
        Fault::CloseConnections => bed.proxy.close_all(),
        Fault::ResetConnections => bed.proxy.rst_all(),
        Fault::Delay => {
            bed.proxy.set_downstream_mode(Mode::Jitter(Duration::from_millis(5), Duration::from_millis(80)));
            bed.proxy.set_upstream_mode(Mode::Delay(Duration::from_millis(30)));
            tokio::time::sleep(while_down).await;
            bed.proxy.heal();
        }
        Fault::Blackhole => {
            bed.proxy.blackhole(true);
            tokio::time::sleep(while_down * 2).await;
            bed.proxy.heal();
        }
        Fault::NewClient | Fault::DroppedClient => {
            let at = numbers.below(CLIENTS as u64) as usize;
            let new = bed.connect(at).await;
            let old = std::mem::replace(&mut bed.shared().clients.write()[at], new);
            if let (Fault::NewClient, Err(error)) = (fault, old.shutdown(Duration::from_secs(5)).await) {
                bed.tally.error("shutdown", &error);
            }
        }
        Fault::KillChild => children.kill_one(numbers).await,
        Fault::DroppedRuntime => {
            let (bed, at) = (Arc::clone(bed), numbers.below(CLIENTS as u64) as usize);
            let ended = spawn_blocking(move || drop_runtime(&bed, at, while_down)).await;
            ended.unwrap_or_else(|error| panic!("a runtime of its own: {error}"));
        }
    }
}

async fn restart(bed: &Arc<Bed>, server: usize, after: Duration) {
    let bed = Arc::clone(bed);
    let restarted = spawn_blocking(move || {
        bed.servers[server].kill9();
        std::thread::sleep(after);
        bed.servers[server].restart();
    });
    restarted.await.unwrap_or_else(|error| panic!("a restart: {error}"));
}

/// Ends a client's runtime while the client holds, waits and releases.
fn drop_runtime(bed: &Bed, at: usize, after: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("a runtime: {error}"));
    let kept = runtime.block_on(async {
        let client = bed.connect(at).await;
        for hot in 0..3 {
            for flavour in distlock::Flavour::ALL {
                let lock = client.lock(*flavour, &format!("hot:{flavour}:{hot}"));
                tokio::spawn(async move { lock.lock().await });
            }
        }
        tokio::time::sleep(after).await;
        client.reentrant("held by a dropped runtime").lock_for(after).await
    });
    drop(runtime);
    drop(kept);
}
