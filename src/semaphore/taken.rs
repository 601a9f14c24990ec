//! The commands of a semaphore that must count exactly once, and the return of permits whose caller was dropped.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::once;
use crate::engine::Engine;
use crate::engine::once::{Command, Once, exactly_once};
use crate::error::Result;
use crate::names::LockName;
use crate::runtime::reaper::Finished;
use crate::transport::Arg;
use crate::transport::script::Script;

static ACQUIRE: Script = Script::new("semaphore/acquire", once!("semaphore/acquire"));
static RELEASE: Script = Script::new("semaphore/release", once!("semaphore/release")).announcing();
static UNDO: Script = Script::new("semaphore/undo", once!("semaphore/undo")).announcing();

/// Permits that were taken. Dropping this value returns them in the background, unless [`Taken::keep`] was called.
pub(super) struct Taken {
    engine: Arc<Engine>,
    name: Arc<LockName>,
    n: u32,
    kept: bool,
}

impl Taken {
    /// Gives the permits to the caller: they are not returned any more.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.kept {
            let (engine, name, n) = (Arc::clone(&self.engine), Arc::clone(&self.name), self.n);
            let reaper = engine.reaper.clone();
            reaper.finish(Box::pin(async move {
                let once = Once::new(&engine, &name);
                once.finish(Command::new(&RELEASE, [Arg::Int(n.into()), Arg::Int(0)])).await;
            }));
        }
    }
}

/// Takes permits. Returns `None` if too few are free. Once begun, the acquire is completed. If the caller was dropped,
/// the permits are returned.
pub(super) fn acquire(engine: &Arc<Engine>, name: &Arc<LockName>, n: u32) -> BoxFuture<'static, Result<Option<Taken>>> {
    let (engine, name) = (Arc::clone(engine), Arc::clone(name));
    let reaper = engine.reaper.clone();
    Box::pin(Finished::new(&reaper, async move {
        let command = |script| Command::new(script, [Arg::Int(n.into())]);
        match exactly_once(&engine, &name, command(&ACQUIRE), Some(command(&UNDO)), Duration::ZERO).await? {
            1 => Ok(Some(Taken { engine, name, n, kept: false })),
            _ => Ok(None),
        }
    }))
}

/// Returns permits to the semaphore. Returns false if `if_exists` is set and there is no free count.
pub(super) async fn release(engine: &Arc<Engine>, name: &Arc<LockName>, n: u32, if_exists: bool) -> Result<bool> {
    let (engine, name) = (Arc::clone(engine), Arc::clone(name));
    let reaper = engine.reaper.clone();
    Finished::new(&reaper, async move {
        let release = Command::new(&RELEASE, [Arg::Int(n.into()), Arg::Int(i64::from(if_exists))]);
        Ok(exactly_once(&engine, &name, release, None, engine.patience()).await? == 1)
    })
    .await
}
