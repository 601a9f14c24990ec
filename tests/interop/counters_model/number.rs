//! The model of a number in Redis: the free count of permits or of a semaphore, or the count of a latch.

use super::story::NAME;
use crate::rig::Rig;

/// A TTL that outlasts every test, in ms.
pub const TTL: u64 = 36_000_000;

/// Reads the number and its TTL.
const LOOK: &str = "return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1])}";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number {
    /// `None`: there is no key.
    pub value: Option<i64>,
    /// True if the key has a TTL.
    pub expires: bool,
}

impl Number {
    /// The value; 0 if there is no key.
    pub fn get(self) -> i64 {
        self.value.unwrap_or(0)
    }

    /// `INCRBY`: keeps the TTL.
    pub fn increase(&mut self, n: i64) {
        self.value = Some(self.get() + n);
    }

    /// `SET`: removes the TTL.
    pub fn set(&mut self, n: i64) {
        *self = Self { value: Some(n), expires: false };
    }

    /// Sets the number if there is none. Returns whether there was none.
    pub fn set_new(&mut self, n: i64) -> bool {
        let is_new = self.value.is_none();
        if is_new {
            self.set(n);
        }
        is_new
    }

    /// `DEL`. Returns whether there was a number.
    pub fn delete(&mut self) -> bool {
        std::mem::take(self).value.is_some()
    }

    /// `PEXPIRE`. Returns whether there is a number.
    pub fn expire(&mut self) -> bool {
        self.expires = self.value.is_some();
        self.expires
    }

    /// Compares with the text and the remaining life that Redis has.
    pub fn check(self, text: Option<&str>, life: i64) -> Result<(), String> {
        let expected = self.value.map(|value| value.to_string());
        if text == expected.as_deref() && lives(self.value.is_some(), self.expires, life) {
            return Ok(());
        }
        Err(format!("Redis has the number {text:?} with a PTTL of {life}, the model has {self:?}"))
    }

    /// Compares with the key [`NAME`].
    pub async fn compare(self, rig: &Rig) -> Result<(), String> {
        let (text, life): (Option<String>, i64) = rig.admin.cmd(&["EVAL", LOOK, "1", NAME]).await;
        self.check(text.as_deref(), life)
    }
}

/// True if this is the `PTTL` of a key that exists and expires as the model says.
pub fn lives(exists: bool, expires: bool, life: i64) -> bool {
    match (exists, expires) {
        (false, _) => life == -2,
        (true, false) => life == -1,
        (true, true) => life >= 0,
    }
}

/// Gives the key [`NAME`] a TTL. Returns 0 if there is no key.
pub async fn expire(rig: &Rig) -> i64 {
    rig.admin.cmd(&["PEXPIRE", NAME, &TTL.to_string()]).await
}

/// Deletes the key [`NAME`], as Redis does at the end of a TTL.
pub async fn lapse(rig: &Rig) -> i64 {
    rig.admin.cmd(&["DEL", NAME]).await
}
