//! A lock of a Java agent, with a typed call for each operation.

use super::*;

/// A lock as seen by one logical thread of an agent. Requests on one thread run in their order.
#[derive(Debug, Clone)]
pub struct JavaLock {
    pub(super) agent: Agent,
    pub(super) base: Value,
}

impl JavaLock {
    /// Uses a new Java object for every request. A reused object remembers its last lease, and applies it to an acquire
    /// without a lease. Other users of the object may then lose the lock early.
    #[must_use]
    pub fn fresh(mut self) -> Self {
        self.base["fresh"] = true.into();
        self
    }

    /// A request about this lock, with further fields.
    pub fn request(&self, op: &str, fields: Value) -> Value {
        let mut request = self.base.clone();
        request["op"] = op.into();
        for (name, value) in fields.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        request
    }

    pub fn start(&self, op: &str, fields: Value) -> Call {
        self.agent.start_call(self.request(op, fields))
    }

    async fn bool(&self, op: &str, fields: Value) -> Result<bool, AgentError> {
        Ok(self.start(op, fields).await?.bool())
    }

    async fn int(&self, op: &str, fields: Value) -> Result<i64, AgentError> {
        Ok(self.start(op, fields).await?.int())
    }

    /// `lock()`, not awaited.
    pub fn start_lock(&self) -> Call {
        self.start("lock", json!({}))
    }

    /// `tryLock(wait)`, not awaited. With `lease`: `tryLock(wait, lease)`.
    pub fn start_try_lock(&self, wait: Duration, lease: Option<Duration>) -> Call {
        self.start("try_lock", times(Some(wait), lease))
    }

    /// `tryLock(wait, SECONDS)`, not awaited. The unit matters for fair locks (see `tests/interop/fair_place.rs`).
    pub fn start_try_lock_seconds(&self, wait: u64) -> Call {
        self.start("try_lock", json!({"wait_s": wait}))
    }

    pub async fn lock(&self) -> CallResult {
        self.start_lock().await
    }

    /// `lock(lease)`.
    pub async fn lock_for(&self, lease: Duration) -> CallResult {
        self.start("lock", times(None, Some(lease))).await
    }

    pub async fn try_lock(&self) -> Result<bool, AgentError> {
        self.bool("try_lock", json!({})).await
    }

    /// `tryLock(wait)`.
    pub async fn try_lock_within(&self, wait: Duration) -> Result<bool, AgentError> {
        self.bool("try_lock", times(Some(wait), None)).await
    }

    /// `tryLock(wait, lease)`.
    pub async fn try_lock_for(&self, wait: Duration, lease: Duration) -> Result<bool, AgentError> {
        self.bool("try_lock", times(Some(wait), Some(lease))).await
    }

    pub async fn unlock(&self) -> CallResult {
        self.start("unlock", json!({})).await
    }

    pub async fn force_unlock(&self) -> Result<bool, AgentError> {
        self.bool("force_unlock", json!({})).await
    }

    pub async fn is_locked(&self) -> Result<bool, AgentError> {
        self.bool("is_locked", json!({})).await
    }

    /// `isHeldByCurrentThread()`.
    pub async fn is_held(&self) -> Result<bool, AgentError> {
        self.bool("is_held", json!({})).await
    }

    /// `getHoldCount()`.
    pub async fn hold_count(&self) -> Result<i64, AgentError> {
        self.int("hold_count", json!({})).await
    }

    /// `remainTimeToLive()` in milliseconds; −2: free, −1: no expiry.
    pub async fn ttl(&self) -> Result<i64, AgentError> {
        self.int("ttl", json!({})).await
    }

    /// `lockAndGetToken()` of a fenced lock.
    pub async fn lock_token(&self) -> Result<i64, AgentError> {
        self.int("lock_token", json!({})).await
    }

    /// `getToken()` of a fenced lock.
    pub async fn token(&self) -> Result<i64, AgentError> {
        self.int("token", json!({})).await
    }
}

fn times(wait: Option<Duration>, lease: Option<Duration>) -> Value {
    let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
    json!({"wait_ms": ms(wait), "lease_ms": ms(lease)})
}
