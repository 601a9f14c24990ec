//! RedLocks: how soon a waiter hears of a release, beside a vote whose owner is dead; and votes of a lock that is lost.

use std::time::Duration;

use distlock::{DistLock as _, Error, RedLock};
use distlock_sim::{LinkOptions, SimServer};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{Party, ms, virtually};

const SECOND: Duration = ms(1_000);

struct Five([SimServer; 5]);

impl Five {
    fn new() -> Self {
        Self([1, 2, 3, 4, 5].map(SimServer::new))
    }

    fn user(&self) -> [Party; 5] {
        self.0.each_ref().map(|server| Party::new(server, LinkOptions::default(), |_| ()))
    }

    /// The servers that have a vote for `x`.
    fn having(&self) -> Vec<usize> {
        let has = |server: &SimServer| server.keys().iter().any(|key| key == b"x");
        self.0.iter().enumerate().filter_map(|(n, server)| has(server).then_some(n)).collect()
    }
}

fn red(user: &[Party; 5]) -> RedLock {
    RedLock::new(user.each_ref().map(|party| party.client.clone()), "x")
}

/// The lowest server has a vote of somebody who died. Nobody waits there for a release that never comes.
#[test]
fn a_dead_vote_delays_nobody() {
    virtually(async || {
        let five = Five::new();
        let dead = five.user();
        let vote = dead[0].client.reentrant("x").lock_leased(3_600 * SECOND).await.unwrap();
        let (holder, waits) = (five.user(), five.user());
        for round in 0..8 {
            let held = red(&holder).lock().await.unwrap();
            sleep(ms(50)).await;
            assert_eq!(held.members().len(), 4);
            let waiting = [red(&waits), red(&waits)].map(|lock| {
                tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    let had = Instant::now();
                    guard.unlock().await.unwrap();
                    had
                })
            });
            sleep(ms(250 + 170 * round)).await;
            let freed = Instant::now();
            held.unlock().await.unwrap();
            for one in waiting {
                let took = timeout(60 * SECOND, one).await.expect("a waiter is served").unwrap() - freed;
                assert!(took < ms(600), "round {round}: served {took:?} after the release");
            }
            sleep(ms(200)).await;
        }
        let users: Vec<_> = (0..4).map(|_| five.user()).collect();
        let tasks = users.iter().map(|user| {
            let lock = red(user);
            tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..8 {
                    let began = Instant::now();
                    let guard = lock.lock().await.unwrap();
                    longest = longest.max(began.elapsed());
                    sleep(ms(2)).await;
                    guard.unlock().await.unwrap();
                }
                longest
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            let longest = task.await.unwrap();
            assert!(longest < SECOND, "a turn came after {longest:?}");
        }
        vote.unlock().await.unwrap();
    });
}

/// Three of five servers are cut off while it is extended. The guard lives on.
#[test]
fn a_redlock_that_is_lost_in_an_extend_gives_its_votes_back() {
    virtually(async || {
        let five = Five::new();
        let user = five.user();
        let guard = red(&user).lock().await.unwrap();
        sleep(ms(50)).await;
        assert_eq!(five.having().len(), 5);
        user[..3].iter().for_each(|party| party.link.partition(true));
        let extended = guard.extend(60 * SECOND).await;
        assert!(extended.is_err(), "{extended:?}");
        let lost = timeout(31 * SECOND, guard.lost()).await.expect("the loss is signalled");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        sleep(SECOND).await;
        let left = five.having();
        assert!(!left.contains(&3) && !left.contains(&4), "votes are kept: {left:?}");
        user[..3].iter().for_each(|party| party.link.partition(false));
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        sleep(40 * SECOND).await;
        assert_eq!(five.having(), Vec::<usize>::new());
    });
}
