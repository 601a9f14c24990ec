//! Keys and channels of a name. `docs/wire-format.md` describes them.

use bytes::Bytes;

/// A name's key, and the keys and channels that belong to it.
#[derive(Clone, Debug)]
pub struct Names {
    /// The main key: prefix and name.
    pub key: Bytes,
    /// The key in braces, or the key itself if it contains a `{`.
    tag: Bytes,
}

impl Names {
    /// The keys of a name with this main key.
    pub fn new(key: impl Into<Bytes>) -> Self {
        let key = key.into();
        let tag =
            if key.contains(&b'{') { key.clone() } else { Bytes::from([&b"{"[..], &key[..], &b"}"[..]].concat()) };
        Self { key, tag }
    }

    /// Fair locks: the waiting owners, a list.
    pub fn queue(&self) -> Bytes {
        self.tagged("redisson_lock_queue")
    }

    /// Fair locks: the waiters' deadlines, a sorted set.
    pub fn deadlines(&self) -> Bytes {
        self.tagged("redisson_lock_timeout")
    }

    /// Fenced locks: the fencing counter.
    pub fn counter(&self) -> Bytes {
        self.tagged("redisson_lock_token")
    }

    /// Read-write locks: the lease of an owner's read hold `n`, from 1.
    pub fn cover(&self, owner: &str, n: u64) -> Bytes {
        joined(&self.tag, format!("{owner}:rwlock_timeout:{n}").as_bytes())
    }

    /// Read-write locks: the waiting writers that hold back readers, a sorted set.
    pub fn marks(&self) -> Bytes {
        joined(&self.tag, b"rwlock_waiting")
    }

    /// Permits: the held permits by the end of their lease, a sorted set.
    pub fn leases(&self) -> Bytes {
        joined(&self.tag, b"timeout")
    }

    /// Fair permits: the fair lock in front of the permits.
    pub fn line(&self) -> Self {
        Self::new(self.tagged("distlock_line"))
    }

    /// Barriers: the state, a hash.
    pub fn barrier(&self) -> Bytes {
        self.tagged("distlock_barrier")
    }

    /// Barriers: the parties that have arrived, a sorted set.
    pub fn parties(&self) -> Bytes {
        joined(&self.barrier(), b"parties")
    }

    /// The channels of all flavours, except the channels of single fair waiters.
    pub fn channels(&self) -> [Bytes; 6] {
        [
            self.tagged("redisson_lock__channel"),
            self.tagged("redisson_rwlock"),
            self.tagged("distlock_plain"),
            self.tagged("redisson_sc"),
            // The only channel that has braces around any name, also around a name with braces.
            Bytes::from([&b"redisson_countdownlatch__channel__{"[..], &self.key[..], &b"}"[..]].concat()),
            self.tagged("distlock_barrier__channel"),
        ]
    }

    fn tagged(&self, front: &str) -> Bytes {
        joined(front.as_bytes(), &self.tag)
    }
}

fn joined(front: &[u8], end: &[u8]) -> Bytes {
    Bytes::from([front, &b":"[..], end].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_braces_map_to_redisson_keys() {
        for (key, tag) in [("foo", "{foo}"), ("app:foo", "{app:foo}"), ("{a}:foo", "{a}:foo"), ("a{b", "a{b")] {
            let names = Names::new(key.to_owned());
            assert_eq!(names.queue(), format!("redisson_lock_queue:{tag}"));
            assert_eq!(names.deadlines(), format!("redisson_lock_timeout:{tag}"));
            assert_eq!(names.counter(), format!("redisson_lock_token:{tag}"));
            assert_eq!(names.cover("u:1", 2), format!("{tag}:u:1:rwlock_timeout:2"));
            assert_eq!(names.marks(), format!("{tag}:rwlock_waiting"));
            assert_eq!(names.leases(), format!("{tag}:timeout"));
            assert_eq!(names.line().queue(), format!("redisson_lock_queue:distlock_line:{tag}"));
            assert_eq!(names.parties(), format!("distlock_barrier:{tag}:parties"));
            assert_eq!(names.channels()[0], format!("redisson_lock__channel:{tag}"));
            assert_eq!(names.channels()[4], format!("redisson_countdownlatch__channel__{{{key}}}"));
        }
    }
}
