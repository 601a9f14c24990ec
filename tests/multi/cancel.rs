//! Acquires and releases of multi locks that are dropped at any point leave nothing. Leases outlast the test, so that
//! leftovers stay visible. `tests/sim/enumeration.rs` drops them beside rivals, and over two servers.

use std::time::Duration;

use distlock::{Acquire, Flavour};

use crate::rig::multi;
use bed::dropped::{at_each_await, only_left};
use bed::{apart, ms, reentrant, secs};

/// Longer than any wait of the test.
const LONG: Duration = secs(600);

/// Drops an acquire at its first await, then one at its second, and so on. Does the same with releases. In a cluster
/// the members are on different primaries. All members are free, or another client holds one member.
#[tokio::test]
async fn acquire_or_release_dropped_at_each_await_leaves_no_keys() {
    reentrant(async |bed| {
        let client = bed.connect(bed.builder().configure(|options| options.subscription_linger = ms(20))).await;
        let other = bed.client().await;
        let mut kinds: Vec<_> = Flavour::ALL.iter().map(|flavour| [*flavour; 3]).collect();
        kinds.push([Flavour::Reentrant, Flavour::Fair, Flavour::Write]);
        for kind in kinds {
            let names = apart("each");
            let members: Vec<_> = kind.into_iter().zip(names.iter().map(String::as_str)).collect();
            let lock = multi(&client, &members);
            for taken in [None, Some(0), Some(2)] {
                let mut theirs = Vec::new();
                if let Some(taken) = taken {
                    // The rival of a reader is a writer, because two readers do not exclude each other.
                    let flavour = if kind[taken] == Flavour::Read { Flavour::Write } else { kind[taken] };
                    theirs.push(other.lock(flavour, &names[taken]).lock_leased(LONG).await.unwrap());
                }
                let keys = bed.keys().await;
                let how = || Acquire::new().lease(LONG).wait(if taken.is_some() { ms(60) } else { LONG });
                let look = async |when: String| only_left(bed, &client, &keys, &when).await;
                at_each_await(async || lock.acquire(how()).await, look).await;
                for guard in theirs {
                    guard.unlock().await.unwrap();
                }
            }
            let free = multi(&other, &members).try_lock().await.unwrap();
            free.expect("all members are free").unlock().await.unwrap();
        }
    })
    .await;
}
