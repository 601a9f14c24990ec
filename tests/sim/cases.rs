//! Every public async function of a simulated client, the state before the call, and the actions of other clients.

use distlock::Result;
use futures::future::BoxFuture;

use crate::fleet::Fleet;
use crate::made::{Made, NAME};
use crate::prelude::*;

/// Public async functions, some with different states before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Lock,
    TryLock,
    LockFor,
    LockLeased,
    /// `acquire` under an owner that has no hold.
    First,
    FirstShared,
    /// `acquire` under an owner that holds the lock already.
    Again,
    AgainShared,
    AgainLeased,
    /// Acquires the read half under an owner that holds the write half.
    Under,
    /// Acquires the write half under an owner that holds the read half.
    Upgrade,
    Downgrade,
    DowngradeLeased,
    Scope,
    /// Unlocks the owner's last hold.
    Unlock,
    UnlockLeased,
    /// Unlocks a hold of an owner that has another hold.
    UnlockInner,
    Extend,
    ExtendShort,
    State,
    IsLocked,
    RemainingTtl,
    HoldCount,
    IsHeldBy,
    ForceUnlock,
    Release,
    ReleaseInner,
    Run,
    /// `run` with work that takes longer than the lease.
    RunLost,
    Lost,
    Expiring,
    Shutdown,
    RenewNow,
}

impl Op {
    fn is_query(self) -> bool {
        matches!(self, Self::State | Self::IsLocked | Self::RemainingTtl | Self::HoldCount | Self::IsHeldBy)
    }

    pub fn begins_free(self) -> bool {
        use Op::*;
        self.is_query()
            || matches!(self, Lock | TryLock | LockFor | LockLeased | First | FirstShared | Scope | ForceUnlock)
    }

    /// True if this call gets faults in this scene. Calls that only read or send nothing get faults only in the
    /// simplest scenes.
    pub fn faults_in(self, scene: Scene) -> bool {
        use Op::*;
        let simple = self.is_query() || matches!(self, Scope | Run | RunLost | Lost | Expiring | RenewNow);
        !simple || scene == Scene::Alone || (scene == Scene::Contended && matches!(self, Scope | Run | RenewNow))
    }

    pub fn is_downgrade(self) -> bool {
        matches!(self, Self::Downgrade | Self::DowngradeLeased)
    }

    /// True if the owner's text was read. Other clients may then act as this owner, so only the server knows how many
    /// holds the owner has.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::FirstShared | Self::AgainShared | Self::Release | Self::ReleaseInner)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    Alone,
    /// Another client holds the lock and will release it. If the subject (the client under test) holds the lock, the
    /// other client waits for it.
    Contended,
    /// As `Contended`, and a task of the subject's client waits ahead of the subject.
    Behind,
    /// Another task of the subject's client holds the lock, and may hand it over.
    Local,
    /// One client holds the read half, and another client waits for the write half.
    HeldBack,
    /// As `Alone`, and the subject's hold is watched for a while after the call.
    Free,
    /// As `Free`. Another client holds a part of the lock for a while, then the whole lock.
    Obstacle,
    /// As `Free`. Two of the lock's servers are frozen until the call has returned.
    Away,
}

impl Scene {
    /// True if the subject's hold is watched after the call. Late commands must not harm this hold. At servers that
    /// answer, a command in doubt is undone at once.
    pub const fn is_watched(self) -> bool {
        matches!(self, Self::Free | Self::Obstacle | Self::Away)
    }
}

/// The flavour that the other clients acquire. For a read-write lock, the half that `flavour` is not. For a downgrade,
/// the write half, because a downgrade must not admit a writer.
fn other_half(flavour: Flavour, op: Op) -> Flavour {
    match flavour {
        Flavour::Read => Flavour::Write,
        Flavour::Write if !op.is_downgrade() => Flavour::Read,
        flavour => flavour,
    }
}

pub struct Subject {
    pub client: Client,
    pub lock: Box<dyn DistLock>,
    pub owner: Owner,
    pub held: Vec<Guard>,
    /// The guard of the other half of a read-write lock.
    pub other: Option<Guard>,
}

impl Subject {
    pub async fn before(op: Op, made: Made, fleet: &Fleet) -> Self {
        let client = fleet.clients[0][0].client.clone();
        let lock = made.lock(fleet, 0);
        let mut held = Vec::new();
        let owner = client.owner();
        match op {
            Op::Unlock | Op::Extend | Op::ExtendShort | Op::Downgrade | Op::Run | Op::Shutdown | Op::RenewNow => {
                held.push(lock.lock().await.unwrap());
            }
            Op::DowngradeLeased | Op::UnlockLeased => held.push(lock.lock_leased(ms(300)).await.unwrap()),
            Op::RunLost | Op::Lost | Op::Expiring => held.push(lock.lock_leased(ms(60)).await.unwrap()),
            Op::Again | Op::AgainShared | Op::AgainLeased | Op::Release => held.push(take(&*lock, &owner).await),
            Op::UnlockInner | Op::ReleaseInner => {
                held.extend([take(&*lock, &owner).await, take(&*lock, &owner).await]);
            }
            _ => {}
        }
        let other = if matches!(op, Op::Under | Op::Upgrade) {
            Some(take(&*rig::lock(&client, other_half(made.flavour(), op), NAME), &owner).await)
        } else {
            None
        };
        if matches!(op, Op::Release | Op::ReleaseInner) {
            let _ = held.pop().unwrap().into_owner();
        }
        if op.is_shared() {
            let _ = owner.as_str();
        }
        Self { client, lock, owner, held, other }
    }

    /// Makes the call. Returns the guard of a successful acquire.
    pub fn call(&mut self, op: Op) -> BoxFuture<'_, Result<Option<Guard>>> {
        let ends = matches!(op, Op::Unlock | Op::UnlockLeased | Op::UnlockInner) || op.is_downgrade();
        let unlocked = ends.then(|| self.held.pop().unwrap());
        let Self { client, lock, owner, held, .. } = self;
        let mine = Acquire::new().owner(owner);
        let guard = held.first();
        match op {
            Op::Lock => Box::pin(async { lock.lock().await.map(Some) }),
            Op::TryLock => Box::pin(lock.try_lock()),
            Op::LockFor => Box::pin(lock.lock_for(ms(40))),
            Op::LockLeased => Box::pin(async { lock.lock_leased(ms(300)).await.map(Some) }),
            Op::First | Op::FirstShared | Op::Again | Op::AgainShared | Op::Under => Box::pin(lock.acquire(mine)),
            Op::Upgrade => Box::pin(async {
                match lock.acquire(mine).await {
                    Err(Error::WouldDeadlock { .. }) => Ok(None),
                    Ok(_) => Err(Error::Unsupported { what: "RW2: an upgrade".into() }),
                    Err(error) => Err(error),
                }
            }),
            Op::Downgrade | Op::DowngradeLeased => {
                let guard = unlocked.unwrap();
                Box::pin(async move { guard.downgrade().await.map(Some) })
            }
            Op::AgainLeased => Box::pin(lock.acquire(mine.lease(ms(300)))),
            Op::Scope => Box::pin(async { owner.scope(lock.lock()).await.map(Some) }),
            Op::Unlock | Op::UnlockLeased | Op::UnlockInner => {
                let guard = unlocked.unwrap();
                Box::pin(async move { guard.unlock().await.map(|_| None) })
            }
            Op::Extend | Op::ExtendShort => {
                let lease = if op == Op::Extend { ms(900) } else { ms(100) };
                Box::pin(async move { guard.unwrap().extend(lease).await.map(|()| None) })
            }
            Op::State => Box::pin(async { lock.state().await.map(|_| None) }),
            Op::IsLocked => Box::pin(async { lock.is_locked().await.map(|_| None) }),
            Op::RemainingTtl => Box::pin(async { lock.remaining_ttl().await.map(|_| None) }),
            Op::HoldCount => Box::pin(async { lock.hold_count(owner).await.map(|_| None) }),
            Op::IsHeldBy => Box::pin(async { lock.is_held_by(owner).await.map(|_| None) }),
            Op::ForceUnlock => Box::pin(async { lock.force_unlock().await.map(|_| None) }),
            Op::Release | Op::ReleaseInner => Box::pin(async { lock.release(owner).await.map(|_| None) }),
            Op::Run => Box::pin(async move { guard.unwrap().run(sleep(ms(10))).await.map(|()| None) }),
            Op::RunLost => Box::pin(async move { guard.unwrap().run(std::future::pending()).await }),
            Op::Lost => Box::pin(async move { Err(guard.unwrap().lost().await) }),
            Op::Expiring => Box::pin(async move {
                guard.unwrap().expiring().await;
                Ok(None)
            }),
            Op::Shutdown => Box::pin(async { client.shutdown(ms(500)).await.map(|()| None) }),
            Op::RenewNow => Box::pin(async {
                client.renew_now().await;
                Ok(None)
            }),
        }
    }
}

/// Acquires the lock, holds it and unlocks it. Repeats after retryable errors, and stops when the client is closed.
async fn take_turn(lock: Box<dyn DistLock>, hold: Duration, entered: Arc<AtomicUsize>) -> Result<()> {
    loop {
        match lock.lock().await {
            Ok(guard) => {
                entered.fetch_add(1, Ordering::Relaxed);
                return give(guard, hold).await;
            }
            Err(Error::Closed) => return Ok(()),
            Err(error) if error.is_retryable() || matches!(error, Error::Server { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Holds for a while and unlocks. Ignores errors of the unlock, which other tests check.
async fn give(guard: Guard, hold: Duration) -> Result<()> {
    sleep(hold).await;
    let _ = guard.unlock().await;
    Ok(())
}

pub struct Others {
    pub tasks: Vec<JoinHandle<Result<()>>>,
    writers: Arc<AtomicUsize>,
}

impl Others {
    /// Number of tasks that waited for the write half and got it.
    pub fn writers(&self) -> usize {
        self.writers.load(Ordering::Relaxed)
    }
}

/// Starts the other tasks of a scene. All of them hold or wait when this function returns.
pub async fn others(op: Op, made: Made, scene: Scene, fleet: &Fleet) -> Others {
    let flavour = made.flavour();
    let half = |client: usize, flavour| match made {
        Made::One(_) => lock(&fleet.clients[client][0].client, flavour, NAME),
        _ => made.lock(fleet, client),
    };
    let other = other_half(flavour, op);
    let mut tasks = Vec::new();
    let writers = Arc::new(AtomicUsize::new(0));
    let take = |client, flavour| {
        let entered = if flavour == Flavour::Read { Arc::default() } else { Arc::clone(&writers) };
        tokio::spawn(take_turn(half(client, flavour), ms(5), entered))
    };
    if op.begins_free() {
        let holder = match scene {
            Scene::Alone | Scene::Free | Scene::Away | Scene::Obstacle => None,
            Scene::Local => Some((0, flavour, ms(15))),
            Scene::Contended | Scene::Behind => Some((1, other, ms(30))),
            Scene::HeldBack => Some((1, flavour, ms(30))),
        };
        if let Some((client, flavour, hold)) = holder {
            let guard = half(client, flavour).lock().await.unwrap();
            tasks.push(tokio::spawn(give(guard, hold)));
        }
        if scene == Scene::Obstacle {
            let guard = made.obstacle(fleet, 1).lock().await.unwrap();
            tasks.push(tokio::spawn(async move {
                sleep(ms(30)).await;
                guard.unlock().await.map(drop)
            }));
        }
        if scene == Scene::HeldBack {
            tasks.push(take(1, other));
        }
    } else if matches!(scene, Scene::Contended | Scene::Behind) {
        tasks.push(take(1, other));
    }
    if scene == Scene::Obstacle {
        tasks.push(take(1, flavour));
    }
    if scene == Scene::Behind || (scene == Scene::Local && !op.begins_free()) {
        tasks.push(take(0, flavour));
    }
    // Gives the waiters time to try once and to subscribe.
    sleep(if matches!(scene, Scene::Alone | Scene::Free | Scene::Away) { ms(0) } else { ms(12) }).await;
    Others { tasks, writers }
}
