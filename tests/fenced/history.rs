//! Histories of sections (holds of a lock), and a storage that refuses late writes (M3 in `tests/README.md`).

use std::sync::Arc;

use distlock_support::Numbers;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::rig::{Section, Storage, clock, faults, fenced, token};
use bed::{ends, ms};

#[test]
fn checker_finds_planted_faults() {
    let section = |asked, granted, token| Section { asked, granted, token };
    assert!(faults(&[section(0, 10, 1), section(5, 20, 3), section(11, 30, 2), section(40, 50, 9)]).is_empty());
    // Concurrent acquires may be granted in either order.
    assert!(faults(&[section(0, 10, 2), section(5, 20, 1)]).is_empty());
    assert_eq!(faults(&[section(0, 10, 2), section(11, 20, 1)]).len(), 1);
    assert_eq!(faults(&[section(0, 10, 2), section(5, 20, 2)]).len(), 1);
    assert_eq!(faults(&[section(0, 10, 7), section(11, 12, 8), section(13, 14, 7)]).len(), 2);
}

/// Some holders of two clients write after their leases have ended. The storage refuses such a write after a later
/// section has written, and never refuses the current holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_refuses_late_writers_but_never_holders() {
    const TASKS: u64 = 6;
    const LOOPS: u64 = 25;
    fenced(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let storage = Arc::new(Storage::default());
        let history = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for n in 0..TASKS {
            let lock = clients[n as usize % 2].fenced("job");
            let (storage, history) = (Arc::clone(&storage), Arc::clone(&history));
            tasks.spawn(async move {
                let (mut numbers, mut refused) = (Numbers::new(n), 0);
                for _ in 0..LOOPS {
                    let late = numbers.below(4) == 0;
                    let asked = clock();
                    // The call fails if the lease ends while its command is in flight.
                    let guard = if late { lock.lock_leased(ms(20)).await } else { lock.lock().await };
                    let Ok(guard) = guard else {
                        assert!(late, "lock() failed: {guard:?}");
                        continue;
                    };
                    let token = token(&guard);
                    history.lock().push(Section { asked, granted: clock(), token });
                    if late {
                        ends("the loss of a short lease", guard.lost()).await;
                        tokio::time::sleep(ms(numbers.below(20))).await;
                    }
                    let done = storage.write(token);
                    // The guard is checked after the write. If it is held now, it was held during the write.
                    assert!(done || !guard.is_held(), "a holder was refused: {token}");
                    refused += usize::from(!done);
                    drop(guard);
                }
                refused
            });
        }
        let refused: usize = tasks.join_all().await.into_iter().sum();
        let (written, history) = (storage.written(), history.lock().clone());
        assert_eq!(faults(&history), Vec::<String>::new());
        assert!(written.is_sorted(), "{written:?}");
        assert_eq!(refused + written.len(), history.len());
        assert!(refused > 0, "nobody was late");
        // If a reply arrived after its lease, its number is in no section.
        assert!(clients[0].fenced("job").last_token().await.unwrap() >= history.len() as u64);
    })
    .await;
}
