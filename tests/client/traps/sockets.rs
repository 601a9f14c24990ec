//! Traps 7, 14 and 15: reconnects and socket options. The tests read the options of this process's sockets from the
//! kernel.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::{SockAddr, SockRef};

use bed::fault::brisk;
use bed::{becomes, reentrant, secs};

/// Duplicates of this process's sockets that are connected to `peer`, one for each connection.
fn sockets_to(peer: SocketAddr) -> Vec<OwnedFd> {
    let me = pidfd_open(getpid(), PidfdFlags::empty()).expect("Linux 5.6 or newer");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let number = entry.unwrap().file_name().to_string_lossy().parse().unwrap();
        let Ok(fd) = pidfd_getfd(&me, number, PidfdGetfdFlags::empty()) else { continue };
        let socket = SockRef::from(&fd);
        let address = |address: io::Result<SockAddr>| address.ok().and_then(|address| address.as_socket());
        let (here, there) = (address(socket.local_addr()), address(socket.peer_addr()));
        // The directory is read piece by piece, so it may also list the duplicates that this function makes.
        if there == Some(peer) {
            found.entry(here).or_insert(fd);
        }
    }
    found.into_values().collect()
}

/// The sockets of our clients that are connected to `peer`. The admin connection has other options, so it is left out.
fn ours(peer: SocketAddr) -> Vec<OwnedFd> {
    let has_limit = |fd: &OwnedFd| SockRef::from(fd).tcp_user_timeout().is_ok_and(|limit| limit == Some(secs(2)));
    sockets_to(peer).into_iter().filter(has_limit).collect()
}

/// Trap 7: the default is no reconnect policy, so the first disconnect is final. Workaround: connect.rs,
/// `ReconnectPolicy::new_exponential`.
///
/// Trap 14: the feature `tcp-user-timeouts` makes the kernel give up on unacknowledged bytes, but does not compile
/// alone. So the manifest enables all features of `socket2`, and this crate does not build without that line. The test
/// shows that the option is set (connect.rs, `user_timeout`).
///
/// Trap 15: Nagle's algorithm is on by default, and delays a small command while another one is in flight. Workaround:
/// connect.rs, `nodelay: Some(true)`.
#[tokio::test]
async fn trap_07_14_15_killed_connections_come_back_and_sockets_have_our_options() {
    reentrant(async |bed| {
        let brisk = brisk(&bed.server.url()).command_timeout(secs(1)).retry_attempts(1_000);
        let client = bed.connect(brisk.pool_size(2)).await;
        for round in 0..3 {
            let peer = bed.server.addr();
            becomes("two sockets for commands and one for messages", 3, async || ours(peer).len()).await;
            assert!(ours(peer).iter().all(|fd| SockRef::from(fd).nodelay().unwrap()), "round {round}");
            let guard = client.reentrant("a").lock().await.unwrap();
            let killed = bed.admin.client_kill_type("normal").await + bed.admin.client_kill_type("pubsub").await;
            assert_eq!(killed, 3, "round {round}");
            guard.unlock().await.unwrap();
            becomes("connections", 3, async || bed.admin.others().await.len()).await;
        }
    })
    .await;
}
