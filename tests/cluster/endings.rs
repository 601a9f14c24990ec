//! What is left behind by clients that end.

use distlock::Flavour;
use distlock_support::{Cluster, ClusterOptions, Mode};
use tokio::time::Instant;

use crate::{client, connections, end, lock, ms, primaries, secs};

/// A client is shut down while it asks for the map, and its handle is kept: no connection stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_while_the_map_is_asked_for_leaves_no_connection() {
    let cluster = Cluster::start(ClusterOptions::default().replicas(0).proxies(true)).await;
    let mut kept = Vec::new();
    for n in 0..10 {
        let one = bed::builder(&cluster.url()).scan_interval(ms(100)).connect().await.unwrap();
        for n in 0..6 {
            lock(&one, Flavour::Reentrant, &format!("left:{n}")).lock().await.unwrap().unlock().await.unwrap();
        }
        // A network of some distance.
        for node in cluster.nodes() {
            node.proxy().set_downstream_mode(Mode::Delay(ms(60)));
        }
        tokio::time::sleep(ms(200 + n * 13)).await;
        one.shutdown(secs(5)).await.unwrap();
        for node in cluster.nodes() {
            node.proxy().heal();
        }
        kept.push(one);
    }
    tokio::time::sleep(secs(6)).await;
    assert_eq!(connections(&cluster).await, 0, "connections of clients that are shut down");
    drop(kept);
}

/// Clients come and go, shut down and dropped: no task stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_are_dropped_leave_no_task() {
    let cluster = primaries(2).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for shut in [true, false] {
        for _ in 0..20 {
            let one = client(&cluster).await;
            lock(&one, Flavour::Reentrant, "x").lock().await.unwrap().unlock().await.unwrap();
            if shut {
                end(one).await;
            }
        }
        let began = Instant::now();
        while tasks() > before && began.elapsed() < secs(15) {
            tokio::time::sleep(ms(50)).await;
        }
        println!(
            "shut down: {shut}: {} tasks more, {} connections",
            tasks().saturating_sub(before),
            connections(&cluster).await
        );
        assert!(tasks() <= before, "shut down: {shut}: {} tasks stay", tasks() - before);
    }
}
