//! Servers that announce host names, and queries sent to a server that leaves the cluster.

use bytes::Bytes;

use super::*;

static QUERY: Script = Script::new("test/query", "").reading();

fn slots(endpoint: &'static str) -> Reply {
    let node = vec![Reply::Text(Bytes::from_static(endpoint.as_bytes())), Reply::Int(1)];
    Reply::List(vec![Reply::List(vec![Reply::Int(0), Reply::Int(16_383), Reply::List(node)])])
}

/// If `CLUSTER SLOTS` has the announced name, the client connects by that name. Otherwise, also if the command is
/// refused, it connects by address.
#[tokio::test]
async fn announced_host_name_is_used_where_servers_prefer_it() {
    for (says, expected) in [
        (Some(slots("one.example")), "one.example:1"),
        (Some(slots("10.0.0.1")), "10.0.0.1:1"),
        (Some(slots("other.example")), "10.0.0.1:1"),
        (None, "10.0.0.1:1"),
    ] {
        let (one, two) = (Arc::<Server>::default(), Arc::<Server>::default());
        *one.nodes.lock() = "a 10.0.0.1:1@11,one.example myself,master - 0 0 1 connected 0-16383\n\
                             b 10.0.0.2:2@12,two.example master - 0 0 2 connected\n"
            .to_owned();
        *one.slots.lock() = says;
        *two.slots.lock() = None;
        let at = [("10.0.0.1:1", &one), ("one.example:1", &one), ("10.0.0.2:2", &two), ("two.example:2", &two)];
        let net = Net(Arc::new(at.map(|(at, server)| (at.to_owned(), Arc::clone(server))).into()));
        let cluster = net.cluster("10.0.0.1").await;
        let servers = cluster.info().servers;
        assert_eq!(servers.first().map(|server| &*server.address), Some(expected));
        // A redirect by name and one by address lead to the same server.
        let (name, names) = (name(), expected.starts_with("one"));
        for told in ["two.example:2", "10.0.0.2:2"] {
            *one.says.lock() = Some(Err(format!("MOVED {} {told}", name.slot())));
            cluster.run(&Machine, &name, &|_| Call { script: &QUERY, keys: 0, words: Vec::new() }).await.unwrap();
            let two = if names { "two.example:2" } else { "10.0.0.2:2" };
            assert!(cluster.info().servers.iter().any(|server| server.address == two), "{told}");
        }
        cluster.close(Duration::ZERO).await;
    }
}

/// A query changes nothing, so it is sent again, to the slot's new server. A script that may have run is not sent
/// twice.
#[tokio::test]
async fn query_is_retried_after_its_server_left_but_write_is_not() {
    let (rig, name) = (Rig::start().await, name());
    let call = |script: &'static Script| move |_: &ServerClock| Call { script, keys: 0, words: Vec::new() };
    rig.servers[0].leaves.store(true, Ordering::Relaxed);
    let answered = rig.topology.run_timed(&name, call(&QUERY)).await;
    assert!(answered.is_ok_and(|answered| answered.reply == Reply::Int(1)));
    rig.servers[0].leaves.store(true, Ordering::Relaxed);
    let failed = rig.topology.run_timed(&name, call(&ACQUIRE)).await;
    assert!(failed.is_err_and(|fault| fault.kind == FaultKind::Lost));
}
