//! What the lock objects of all flavours have in common.

/// The methods of a lock object made of a `client` and a `protocol`: those of [`DistLock`](crate::DistLock), and the
/// same without boxed futures.
macro_rules! lock_object {
    ($lock:ident) => {
        impl $lock {
            /// The name, without the client's prefix.
            #[must_use]
            pub fn name(&self) -> &str {
                &self.protocol.name().plain
            }

            /// As [`DistLock::acquire`](crate::DistLock::acquire), without a boxed future. Held while the
            /// [guard](crate::Guard#bind-it) lives: `if let Some(guard) = lock.acquire(how).await? { .. }`, not
            /// `if lock.acquire(how).await?.is_some() { .. }`, which releases it before the block.
            pub async fn acquire(&self, how: $crate::Acquire) -> $crate::Result<Option<$crate::Guard>> {
                let guard = if how.grouped { $crate::Guard::part } else { $crate::Guard::new };
                let grant = $crate::engine::acquire::acquire(self.client.engine(), &self.protocol, how).await?;
                Ok(grant.map(|grant| guard(grant, self.client.handle())))
            }

            /// As [`DistLock::lock`](crate::DistLock::lock), without a boxed future. Held while the
            /// [guard](crate::Guard#bind-it) lives: `let guard = lock.lock().await?;`, not `let _ = lock.lock().await?;`.
            pub async fn lock(&self) -> $crate::Result<$crate::Guard> {
                self.acquire($crate::Acquire::new()).await?.ok_or($crate::Error::Closed)
            }

            /// As [`DistLock::try_lock`](crate::DistLock::try_lock), without a boxed future. Held while the
            /// [guard](crate::Guard#bind-it) lives: `if let Some(guard) = lock.try_lock().await? { .. }`, not
            /// `if lock.try_lock().await?.is_some() { .. }`, which releases it before the block.
            pub async fn try_lock(&self) -> $crate::Result<Option<$crate::Guard>> {
                self.acquire($crate::Acquire::new().wait(std::time::Duration::ZERO)).await
            }

            /// As [`DistLock::lock_for`](crate::DistLock::lock_for), without a boxed future. Held while the
            /// [guard](crate::Guard#bind-it) lives: `if let Some(guard) = lock.lock_for(wait).await? { .. }`, not
            /// `lock.lock_for(wait).await?;`, which releases it at once, or never had it.
            pub async fn lock_for(&self, wait: std::time::Duration) -> $crate::Result<Option<$crate::Guard>> {
                self.acquire($crate::Acquire::new().wait(wait)).await
            }

            /// As [`DistLock::lock_leased`](crate::DistLock::lock_leased), without a boxed future. Held while the
            /// [guard](crate::Guard#bind-it) lives: `let guard = lock.lock_leased(lease).await?;`, not `let _ = ..`.
            pub async fn lock_leased(&self, lease: std::time::Duration) -> $crate::Result<$crate::Guard> {
                self.acquire($crate::Acquire::new().lease(lease)).await?.ok_or($crate::Error::Closed)
            }
        }

        impl $crate::DistLock for $lock {
            fn name(&self) -> &str {
                Self::name(self)
            }

            fn acquire(
                &self,
                how: $crate::Acquire,
            ) -> futures::future::BoxFuture<'_, $crate::Result<Option<$crate::Guard>>> {
                Box::pin(Self::acquire(self, how))
            }

            fn part(&self) -> Option<$crate::group::Part<'_>> {
                Some($crate::group::Part { client: &self.client, protocol: &self.protocol })
            }

            fn state(&self) -> futures::future::BoxFuture<'_, $crate::Result<$crate::State>> {
                Box::pin($crate::engine::acquire::state(self.client.engine(), &self.protocol))
            }

            fn force_unlock(&self) -> futures::future::BoxFuture<'_, $crate::Result<bool>> {
                Box::pin($crate::engine::release::force(self.client.engine(), &self.protocol))
            }

            fn release<'a>(
                &'a self,
                owner: &'a $crate::Owner,
            ) -> futures::future::BoxFuture<'a, $crate::Result<$crate::Released>> {
                Box::pin($crate::engine::release::by_owner(self.client.engine(), &self.protocol, owner))
            }
        }
    };
}
