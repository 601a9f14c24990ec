//! Several tasks act as one owner, while other owners compete. A task that holds the lock releases it only when all
//! waiting tasks of its owner have acquired. If one of these tasks stays in the local queue, the run hangs.

use crate::prelude::*;
use distlock::Step;
use std::sync::Weak;

const NAME: &str = "orders:42";
const TASKS: u64 = 10;
const OWNERS: u64 = 2;

/// Longer than a few round trips of each task. Far below `poll_cap`, so that no task acquires by polling.
const SOON: Duration = Duration::from_secs(1);

/// The waiting tasks by owner and half. Each waiting task keeps its entry alive.
type Waiting = Arc<Mutex<Vec<Weak<(u64, Flavour)>>>>;

/// True if an owner that holds the half `held` may acquire the half `wanted`.
const fn lets_in(held: Flavour, wanted: Flavour) -> bool {
    !matches!((held, wanted), (Flavour::Read, Flavour::Write))
}

async fn task(
    party: Party,
    owners: Arc<Vec<Owner>>,
    waiting: Waiting,
    flavours: &'static [Flavour],
    mut dice: Numbers,
) {
    for _ in 0..8 {
        sleep(dice.between(0, 60)).await;
        let flavour = flavours[dice.below(flavours.len() as u64) as usize];
        let lock = rig::lock(&party.client, flavour, NAME);
        let who = dice.below(OWNERS + 1);
        let owner = owners.get(who as usize);
        let mut how = owner.map_or_else(Acquire::new, |owner| Acquire::new().owner(owner));
        match dice.below(8) {
            0 => how = how.wait(ms(0)),
            1 => how = how.wait(dice.between(1, 60)),
            _ => {}
        }
        let waits = Arc::new((who, flavour));
        waiting.lock().push(Arc::downgrade(&waits));
        let patience = if dice.once_in(4) { dice.between(0, 80) } else { Duration::from_secs(600) };
        let outcome = timeout(patience, lock.acquire(how)).await;
        drop(waits);
        let guard = match outcome {
            Ok(Ok(Some(guard))) => guard,
            // The wait ended, perhaps before the replies to earlier commands of this owner. Or the task wanted the
            // write half, and its owner holds the read half.
            Err(_) | Ok(Ok(None) | Err(Error::WouldDeadlock { .. } | Error::Timeout { step: Step::Command, .. })) => {
                continue;
            }
            Ok(Err(error)) => panic!("{error:?}"),
        };
        if owner.is_some() {
            let began = Instant::now();
            let behind = |waits: &(u64, Flavour)| waits.0 == who && lets_in(flavour, waits.1);
            let left = || waiting.lock().iter().any(|waits| waits.upgrade().is_some_and(|waits| behind(&waits)));
            while left() {
                sleep(ms(1)).await;
                assert!(began.elapsed() < SOON, "{flavour} is held, and who waits as its owner is left behind");
            }
        } else {
            sleep(dice.between(0, 10)).await;
        }
        if dice.once_in(3) {
            drop(guard);
        } else {
            guard.unlock().await.unwrap();
        }
    }
}

fn crowds(flavours: &'static [Flavour]) {
    each(seeds(if full() { 1000 } else { 12 }), async move |seed| {
        let server = SimServer::new(seed);
        let linger = [ms(5), Duration::from_secs(5)][seed as usize % 2];
        let limit = [0, 2, 16][seed as usize % 3];
        let party = || {
            Party::new(&server, LinkOptions::default(), |options| {
                (options.local_handoff_limit, options.subscription_linger) = (limit, linger);
            })
        };
        let parties = [party(), party()];
        let mut tasks = Vec::new();
        for (n, party) in parties.iter().enumerate() {
            let owners: Arc<Vec<_>> = Arc::new((0..OWNERS).map(|_| party.client.owner()).collect());
            let waiting = Waiting::default();
            for lane in 0..TASKS {
                let dice = Numbers::lane(seed, 100 * n as u64 + lane);
                let (owners, waiting) = (Arc::clone(&owners), Arc::clone(&waiting));
                tasks.push(tokio::spawn(task(party.clone(), owners, waiting, flavours, dice)));
            }
        }
        for task in tasks {
            task.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        settled(&server, &[&parties[0], &parties[1]], Duration::from_secs(20)).await.unwrap();
    });
}

macro_rules! crowd {
    ($($name:ident: $($flavour:ident),+;)+) => {
        $(
            #[test]
            fn $name() {
                crowds(&[$(Flavour::$flavour),+]);
            }
        )+
    };
}

crowd! {
    waiters_of_one_owner_are_all_served_reentrant: Reentrant;
    waiters_of_one_owner_are_all_served_fair: Fair;
    waiters_of_one_owner_are_all_served_fenced: Fenced;
    waiters_of_one_owner_are_all_served_spin: Spin;
    waiters_of_one_owner_are_all_served_write: Write;
    waiters_of_one_owner_are_all_served_read: Read;
    waiters_of_one_owner_are_all_served_reads_and_writes: Read, Write;
}
