//! Every public async function of a simulated client, what has to be there before it is called, and who else is about.

use std::time::Duration;

use distlock::sim::{LinkOptions, SimServer};
use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard, Owner, Result};
use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::rig::{self, Party, ms};

pub const NAME: &str = "orders:42";

/// The watchdog of these clients; their other times go with it.
pub const WATCHDOG: Duration = ms(600);
pub const TIMEOUT: Duration = ms(200);
/// A round trip at the most.
pub const ROUND_TRIP: Duration = ms(10);
pub const LINGER: Duration = ms(20);
pub const POLL_CAP: Duration = ms(150);
/// How long the place of a fair lock's waiter lasts when nobody keeps it.
pub const FAIR_WAIT: Duration = ms(500);

/// The public async functions, some of them with different pasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Lock,
    TryLock,
    LockFor,
    LockLeased,
    /// `acquire` as an owner that holds nothing.
    First,
    FirstShared,
    /// `acquire` as an owner that holds it already.
    Again,
    AgainShared,
    AgainLeased,
    Scope,
    /// The last hold.
    Unlock,
    UnlockLeased,
    /// One of two holds.
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
    /// One of two holds.
    ReleaseInner,
    Run,
    /// `run` of work that outlasts the lease.
    RunLost,
    Lost,
    Expiring,
    Shutdown,
    RenewNow,
}

impl Op {
    /// True where the subject holds nothing before the call.
    pub fn begins_free(self) -> bool {
        use Op::*;
        matches!(
            self,
            Lock | TryLock
                | LockFor
                | LockLeased
                | First
                | FirstShared
                | Scope
                | State
                | IsLocked
                | RemainingTtl
                | HoldCount
                | IsHeldBy
                | ForceUnlock
        )
    }

    /// True where faults are tried in this scene too. What only reads, or sends nothing, is tried in the simplest ones.
    pub fn faults_in(self, scene: Scene) -> bool {
        use Op::*;
        let simple = matches!(
            self,
            State | IsLocked | RemainingTtl | HoldCount | IsHeldBy | Scope | Run | RunLost | Lost | Expiring | RenewNow
        );
        !simple || scene == Scene::Alone || (scene == Scene::Contended && matches!(self, Scope | Run | RenewNow))
    }

    /// True where an owner that others may act as too is counted by the server alone.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::FirstShared | Self::AgainShared | Self::Release | Self::ReleaseInner)
    }
}

/// Who else wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    Alone,
    /// A client that holds it, and will release it; or, where the lock is held already, that waits for it.
    Contended,
    /// As above, and a task of the same client waits too, and came before.
    Behind,
    /// Another task of the same client holds it, and may pass it on.
    Local,
}

/// Who calls the function under test.
pub struct Subject {
    pub client: Client,
    pub lock: Box<dyn DistLock>,
    pub owner: Owner,
    /// The guards it has.
    pub held: Vec<Guard>,
}

impl Subject {
    /// Everything that has to be there before the call.
    pub async fn before(op: Op, flavour: Flavour, us: &Party) -> Self {
        let client = us.client.clone();
        let lock = rig::lock(&client, flavour, NAME);
        let mut held = Vec::new();
        let owner = client.owner();
        let mine = || Acquire::new().owner(&owner);
        match op {
            Op::Unlock | Op::Extend | Op::ExtendShort | Op::Run | Op::Shutdown | Op::RenewNow => {
                held.push(lock.lock().await.unwrap());
            }
            Op::UnlockLeased => held.push(lock.lock_leased(ms(300)).await.unwrap()),
            Op::RunLost | Op::Lost | Op::Expiring => held.push(lock.lock_leased(ms(60)).await.unwrap()),
            Op::Again | Op::AgainShared | Op::AgainLeased => held.push(lock.acquire(mine()).await.unwrap().unwrap()),
            Op::UnlockInner | Op::ReleaseInner => {
                held.push(lock.acquire(mine()).await.unwrap().unwrap());
                held.push(lock.acquire(mine()).await.unwrap().unwrap());
            }
            Op::Release => held.push(lock.acquire(mine()).await.unwrap().unwrap()),
            _ => {}
        }
        if matches!(op, Op::Release | Op::ReleaseInner) {
            let _ = held.pop().unwrap().into_owner();
        }
        if op.is_shared() {
            let _ = owner.as_str();
        }
        Self { client, lock, owner, held }
    }

    /// The call. Its guard, if it gives one.
    pub fn call(&mut self, op: Op) -> BoxFuture<'_, Result<Option<Guard>>> {
        let unlocked = matches!(op, Op::Unlock | Op::UnlockLeased | Op::UnlockInner).then(|| self.held.pop().unwrap());
        let Self { client, lock, owner, held } = self;
        let mine = Acquire::new().owner(owner);
        let guard = held.first();
        match op {
            Op::Lock => Box::pin(async { lock.lock().await.map(Some) }),
            Op::TryLock => Box::pin(lock.try_lock()),
            Op::LockFor => Box::pin(lock.lock_for(ms(40))),
            Op::LockLeased => Box::pin(async { lock.lock_leased(ms(300)).await.map(Some) }),
            Op::First | Op::FirstShared | Op::Again | Op::AgainShared => Box::pin(lock.acquire(mine)),
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

/// A client of the enumeration.
pub fn party(server: &SimServer) -> Party {
    let options = LinkOptions { timeout: TIMEOUT, reconnect: ms(20), ..LinkOptions::default() };
    Party::new(server, options, |options| {
        options.watchdog = WATCHDOG;
        options.command_timeout = TIMEOUT;
        options.subscribe_timeout = TIMEOUT;
        options.subscription_linger = LINGER;
        options.poll_cap = POLL_CAP;
        options.fair_wait = FAIR_WAIT;
        options.retry_delay = (ms(20), ms(40));
    })
}

/// Takes the lock however often that fails, holds it for a while and unlocks it. Only the end of the client stops that.
async fn take(lock: Box<dyn DistLock>, hold: Duration) -> Result<()> {
    loop {
        match lock.lock().await {
            Ok(guard) => return give(guard, hold).await,
            Err(Error::Closed) => return Ok(()),
            Err(error) if error.is_retryable() || matches!(error, Error::Server { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Holds for a while and unlocks. What went wrong with the unlock is for other tests to tell.
async fn give(guard: Guard, hold: Duration) -> Result<()> {
    sleep(hold).await;
    let _ = guard.unlock().await;
    Ok(())
}

/// The others of a scene, each at its place when this returns.
pub async fn others(op: Op, flavour: Flavour, scene: Scene, us: &Party, them: &Party) -> Vec<JoinHandle<Result<()>>> {
    let lock = |party: &Party| rig::lock(&party.client, flavour, NAME);
    let mut others = Vec::new();
    if op.begins_free() {
        let holder = match scene {
            Scene::Alone => None,
            Scene::Local => Some((us, ms(15))),
            Scene::Contended | Scene::Behind => Some((them, ms(30))),
        };
        if let Some((party, hold)) = holder {
            let guard = lock(party).lock().await.unwrap();
            others.push(tokio::spawn(give(guard, hold)));
        }
    } else if matches!(scene, Scene::Contended | Scene::Behind) {
        others.push(tokio::spawn(take(lock(them), ms(5))));
    }
    if scene == Scene::Behind || (scene == Scene::Local && !op.begins_free()) {
        others.push(tokio::spawn(take(lock(us), ms(5))));
    }
    // Until those who wait have asked, and listen.
    sleep(if scene == Scene::Alone { ms(0) } else { ms(12) }).await;
    others
}
