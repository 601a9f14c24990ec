//! Traps 14 and 15: options of the sockets, read back from the kernel for the sockets of this very process.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::SockRef;

use bed::fault::brisk;
use bed::{reentrant, secs};

/// Duplicates of this process's sockets that are connected to `peer`.
fn sockets_to(peer: SocketAddr) -> Vec<OwnedFd> {
    let me = pidfd_open(getpid(), PidfdFlags::empty()).expect("Linux 5.6 or newer");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let number = entry.unwrap().file_name().to_string_lossy().parse().unwrap();
        let Ok(fd) = pidfd_getfd(&me, number, PidfdGetfdFlags::empty()) else { continue };
        let address = SockRef::from(&fd).peer_addr().ok().and_then(|address| address.as_socket());
        if address == Some(peer) {
            found.push(fd);
        }
    }
    found
}

/// Nagle's algorithm is on by default, and holds a small command back while another one is under way. connect.rs,
/// `nodelay: Some(true)`.
///
/// And the feature `tcp-user-timeouts`, which has the kernel give up on bytes that are never acknowledged, does not
/// compile alone: trap 14. The manifest names `socket2` with all its features for it; without that line this crate does
/// not build, so what is left to show is that the option arrives: connect.rs, `user_timeout`.
#[tokio::test]
async fn trap_14_15_sockets_send_at_once_and_give_up_in_time() {
    reentrant(async |bed| {
        let client =
            bed.connect(brisk(&bed.server.url()).command_timeout(secs(1)).retry_attempts(1_000).pool_size(2)).await;
        for reconnected in [false, true] {
            if reconnected {
                bed.admin.client_kill_type("normal").await;
                bed.admin.client_kill_type("pubsub").await;
                for name in ["a", "b"] {
                    client.reentrant(name).lock().await.unwrap().unlock().await.unwrap();
                }
                bed::becomes("connections", 3, async || bed.admin.others().await.len()).await;
            }
            // The admin's own connection is among them, with options of its own.
            let sockets = sockets_to(bed.server.addr());
            let ours: Vec<_> = sockets
                .iter()
                .map(SockRef::from)
                .filter(|socket| socket.tcp_user_timeout().is_ok_and(|limit| limit == Some(Duration::from_secs(2))))
                .collect();
            assert_eq!(ours.len(), 3, "two connections for commands and one for messages, of {}", sockets.len());
            for socket in ours {
                assert!(socket.nodelay().unwrap(), "reconnected: {reconnected}");
            }
        }
    })
    .await;
}
