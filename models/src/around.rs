//! Small stand-ins for the registry's neighbours: names, owners, holds, a topology of one server, and a reaper whose
//! jobs are threads of the model.

pub(crate) mod config {
    use std::time::Duration;

    pub(crate) struct Options {
        pub(crate) local_handoff_limit: u32,
        pub(crate) local_handoff_time: Duration,
        pub(crate) yield_after_release: bool,
        pub(crate) subscription_linger: Duration,
    }
}

pub(crate) mod hash {
    use std::collections::hash_map::DefaultHasher;
    use std::hash::BuildHasherDefault;

    /// The hash has no random seed, so that all runs of a model are equal.
    pub(crate) type ReadyHash = BuildHasherDefault<DefaultHasher>;
}

pub(crate) mod names {
    use std::sync::Arc;

    use bytes::Bytes;

    #[derive(Debug, PartialEq, Eq, Hash)]
    pub(crate) struct LockName {
        pub(crate) as_written: String,
        pub(crate) channel: Bytes,
        pub(crate) lock: Option<Arc<LockName>>,
    }

    impl LockName {
        pub(crate) const fn slot(&self) -> u16 {
            0
        }
    }

    pub(crate) fn shard(_: &LockName, _: usize) -> usize {
        0
    }
}

pub(crate) mod owner {
    use bytes::Bytes;

    #[derive(Clone, Debug)]
    pub(crate) struct Owner(pub(crate) Bytes);

    impl Owner {
        pub(crate) fn bytes(&self) -> Bytes {
            self.0.clone()
        }
    }
}

pub(crate) mod runtime {
    pub(crate) mod reaper {
        use std::future::Future;
        use std::pin::Pin;
        use std::sync::Arc;
        use std::task::{Context, Poll, Waker};

        use loom::future::block_on;
        use loom::thread::{JoinHandle, spawn};

        use crate::sync::Mutex;

        pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

        /// Runs jobs. An awaited job runs as a thread at once. A job that begins with a sleep runs when the model calls
        /// `run_sleepers`.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Reaper(Arc<Jobs>);

        #[derive(Default)]
        struct Jobs {
            running: Mutex<Vec<JoinHandle<()>>>,
            asleep: Mutex<Vec<Job>>,
        }

        impl std::fmt::Debug for Jobs {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("Jobs")
            }
        }

        impl Reaper {
            pub(crate) fn finish_uncounted(&self, job: Job) {
                self.0.asleep.lock().push(job);
            }

            pub(crate) fn run_sleepers(&self) {
                let jobs = std::mem::take(&mut *self.0.asleep.lock());
                for job in jobs {
                    block_on(job);
                }
            }

            /// Waits for the jobs that run as threads.
            pub(crate) fn join(&self) {
                loop {
                    let Some(job) = self.0.running.lock().pop() else { return };
                    job.join().unwrap();
                }
            }
        }

        #[derive(Default)]
        struct State {
            done: bool,
            waker: Option<Waker>,
        }

        /// Resolves when a job has ended. Dropping this future does not stop the job.
        pub(crate) struct Finished<T>(Arc<Mutex<State>>, std::marker::PhantomData<fn() -> T>);

        impl Finished<()> {
            pub(crate) fn begun(reaper: &Reaper, job: impl Future<Output = ()> + Send + 'static) -> Self {
                let state = Arc::new(Mutex::<State>::default());
                let end = Arc::clone(&state);
                let thread = spawn(move || {
                    block_on(job);
                    let waker = {
                        let mut state = end.lock();
                        state.done = true;
                        state.waker.take()
                    };
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                });
                reaper.0.running.lock().push(thread);
                Self(state, std::marker::PhantomData)
            }
        }

        impl Future for Finished<()> {
            type Output = ();

            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
                let mut state = self.0.lock();
                if state.done {
                    return Poll::Ready(());
                }
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

pub(crate) mod topology {
    use std::sync::Arc;

    use crate::names::LockName;
    use crate::server::Server;
    use crate::world::Moment;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct MemberId;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Placement {
        pub(crate) member: MemberId,
    }

    #[allow(dead_code, reason = "the same trait as the crate's")]
    pub(crate) trait MemberListener: Send + Sync {
        fn message(&self, channel: &[u8], payload: &[u8]);
        fn missed(&self, member: MemberId);
        fn reconnected(&self, member: MemberId);
        fn slots_moved(&self, slots: &[u16]);
        fn resubscribed(&self, channel: &[u8]);
        fn unsubscribed(&self, channel: &[u8]);
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Topology(pub(crate) Arc<Server>);

    impl Topology {
        pub(crate) async fn subscribe(&self, _: &LockName) -> Result<(), &'static str> {
            self.0.subscribe()
        }

        pub(crate) async fn unsubscribe(&self, _: &LockName) {
            self.0.unsubscribe();
        }

        pub(crate) fn placement(&self, _: &LockName) -> Placement {
            Placement { member: MemberId }
        }

        pub(crate) fn hears(&self, _: &LockName) -> bool {
            true
        }

        pub(crate) fn time(&self, _: &LockName, _: Moment) -> Option<i64> {
            None
        }

        /// Time does not pass. The linger (the time for which an idle subscription stays) is 0.
        pub(crate) fn now(&self) -> Moment {
            Moment(1)
        }
    }
}

pub(crate) mod world {
    use std::ops::Add;
    use std::time::Duration;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Moment(pub(crate) u64);

    impl Moment {
        #[cfg(test)]
        pub(crate) const fn from_nanos(nanos: u64) -> Self {
            Self(nanos)
        }

        pub(crate) const fn as_nanos(self) -> u64 {
            self.0
        }

        pub(crate) const fn since(self, earlier: Self) -> Duration {
            Duration::from_nanos(self.0.saturating_sub(earlier.0))
        }
    }

    impl Add<Duration> for Moment {
        type Output = Self;

        fn add(self, span: Duration) -> Self {
            Self(self.0 + span.as_nanos() as u64)
        }
    }
}
