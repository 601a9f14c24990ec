//! Fewer than half of the servers are unreachable, and no user notices. `tests/sim/sequences.rs` has random breaks, and
//! `tests/sim/group/special.rs` every server in every state.

use distlock::{Acquire, Released};

use crate::rig::{Away, Path, by_all, endless, five, long, patient};
use bed::{ends, secs};

/// Two servers are unreachable from the start, or from a moment during the hold. No acquire, renewal or release waits
/// for them. No other user acquires. Nothing is left on the two servers after their return.
async fn two_of_five_unreachable_servers_fail_no_acquire(way: Away) {
    five(async |five| {
        let user = five.warm(Path::Proxied, endless).await;
        let other = five.warm(Path::Direct, patient).await;
        let lock = user.red("x").node_timeout(secs(3600));
        let change = |at: [usize; 2], away: bool| {
            at.iter().for_each(|at| if away { five.take(*at, way) } else { five.back(*at, way) });
        };
        change([0, 4], true);
        for round in 0..3 {
            let guard = ends("an acquire at three of five servers", lock.acquire(long())).await.unwrap();
            let guard = guard.expect("most servers are there");
            assert!(guard.is_held() && guard.members().len() == 3, "round {round}: {guard:?}");
            let released = ends("a release at three of five servers", guard.unlock()).await;
            assert_eq!(released.unwrap(), Released::Free);
        }
        change([0, 4], false);
        five.clean().await;
        user.reaches_all().await;
        // The hold is on all servers, because a hold on only three could not lose one. It has another name, because
        // late votes may still arrive for `x`.
        let guard = by_all(&user.red("y"), Acquire::new()).await;
        change([1, 3], true);
        for at in [0, 2, 4] {
            assert_eq!(ends("a renewal", user.clients[at].renew_now()).await.renewed, 1);
        }
        assert!(guard.is_held(), "{guard:?}");
        // If only the first user is cut off from these servers, the second user reaches all of them.
        let second = ends("an attempt of another", other.red("y").try_lock()).await;
        assert!(second.as_ref().is_ok_and(Option::is_none), "{second:?} beside {guard:?}");
        let released = ends("a release at three of five servers", guard.unlock()).await;
        // No server reports a loss.
        assert_eq!(released.unwrap(), Released::Free);
        change([1, 3], false);
        five.clean().await;
        other.reaches_all().await;
    })
    .await;
}

bed::cases!(on two threads, two_of_five_unreachable_servers_fail_no_acquire:
    killed = Away::Killed,
    stopped = Away::Stopped,
    cut_off = Away::Cut,
);
