//! RedLocks: how soon a waiter learns of a release next to a vote of a dead owner, and the votes of a lost lock.

use crate::fleet::Fleet;
use crate::prelude::*;

const SECOND: Duration = ms(1_000);

fn fleet(users: usize) -> Fleet {
    Fleet::new(1, 5, users, |server, _| Party::new(server, LinkOptions::default(), |_| ()))
}

fn red(fleet: &Fleet, user: usize) -> Arc<dyn DistLock> {
    Arc::new(RedLock::new(fleet.clients[user].iter().map(|party| party.client.clone()), "x"))
}

fn having(fleet: &Fleet) -> Vec<usize> {
    let has = |n: &usize| fleet.servers[*n].keys().iter().any(|key| key == b"x");
    (0..5).filter(has).collect()
}

/// The lowest server has a vote of a dead owner. A waiter must not wait there for a message that never arrives.
#[test]
fn dead_vote_does_not_delay_redlock_waiters() {
    virtually(async || {
        let fleet = fleet(7);
        let vote = fleet.clients[0][0].client.reentrant("x").lock_leased(3_600 * SECOND).await.unwrap();
        for round in 0..8 {
            let held = red(&fleet, 1).lock().await.unwrap();
            sleep(ms(50)).await;
            assert_eq!(held.members().len(), 4);
            let waiting = [(); 2].map(|()| waiter(red(&fleet, 2)));
            sleep(ms(250 + 170 * round)).await;
            let freed = Instant::now();
            held.unlock().await.unwrap();
            for had in all(waiting).await {
                assert!(had - freed < ms(600), "round {round}: served {:?} after the release", had - freed);
            }
            sleep(ms(200)).await;
        }
        for longest in all((3..7).map(|user| turns(red(&fleet, user), 8, ms(2)))).await {
            assert!(longest < SECOND, "a turn came after {longest:?}");
        }
        vote.unlock().await.unwrap();
    });
}

/// Three of five servers are cut off during the extend. The guard is kept until the end.
#[test]
fn redlock_lost_in_extend_releases_its_votes() {
    virtually(async || {
        let fleet = fleet(1);
        let cut = |is| fleet.clients[0][..3].iter().for_each(|party| party.link.partition(is));
        let guard = red(&fleet, 0).lock().await.unwrap();
        sleep(ms(50)).await;
        assert_eq!(having(&fleet).len(), 5);
        cut(true);
        let extended = guard.extend(60 * SECOND).await;
        assert!(extended.is_err(), "{extended:?}");
        let lost = timeout(31 * SECOND, guard.lost()).await.expect("the loss is signalled");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        sleep(SECOND).await;
        let left = having(&fleet);
        assert!(left.iter().all(|n| *n < 3), "votes are kept: {left:?}");
        cut(false);
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        sleep(40 * SECOND).await;
        assert_eq!(having(&fleet), Vec::<usize>::new());
    });
}
