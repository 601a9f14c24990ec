//! Helpers of the fenced lock's tests: its counter, a history of sections, and a storage that sections write to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::{Client, DistLock, FencedLock, Flavour, Guard};
use parking_lot::Mutex;

use bed::{Bed, COUNTER, becomes, ends};

pub async fn fenced(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Fenced, name), body).await;
}

pub fn counter(name: &str) -> String {
    format!("{COUNTER}{{{name}}}")
}

pub async fn counted(bed: &Bed, name: &str) -> Option<String> {
    bed.admin.cmd(&["GET", &counter(name)]).await
}

/// The number of a guard's section. Every guard of a fenced lock has one.
#[track_caller]
pub fn token(guard: &Guard) -> u64 {
    let token = guard.fencing_token().expect("a section has a number");
    assert_eq!(guard.members()[0].token, Some(token));
    token
}

/// Releases this guard while a task of `client` waits for the lock. Returns the guard of that task.
pub async fn waited(guard: Guard, client: &Client, lock: Arc<dyn DistLock>) -> Guard {
    let next = tokio::spawn(async move { lock.lock().await.unwrap() });
    becomes("waiters", 1, async || client.stats().waiting).await;
    guard.unlock().await.unwrap();
    ends("the waiter", next).await.unwrap()
}

/// A logical time that orders all events of this process.
pub fn clock() -> u64 {
    static EVENTS: AtomicU64 = AtomicU64::new(0);
    EVENTS.fetch_add(1, Ordering::SeqCst)
}

/// One acquire: when it was requested, when it was granted, and the section's number.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub asked: u64,
    pub granted: u64,
    pub token: u64,
}

pub async fn enter(lock: &FencedLock, history: &Mutex<Vec<Section>>) -> Guard {
    let asked = clock();
    let guard = lock.lock().await.unwrap();
    history.lock().push(Section { asked, granted: clock(), token: token(&guard) });
    guard
}

/// Lists the violations of M3 in the history of one name. A number must be unique, and higher than every number that
/// was granted before its request.
pub fn faults(history: &[Section]) -> Vec<String> {
    let (mut by_grant, mut by_call) = (history.to_vec(), history.to_vec());
    by_grant.sort_by_key(|section| section.granted);
    by_call.sort_by_key(|section| section.asked);
    let mut earlier = by_grant.into_iter().peekable();
    let (mut largest, mut wrong) = (0, Vec::new());
    for section in &by_call {
        while let Some(before) = earlier.next_if(|before| before.granted < section.asked) {
            largest = largest.max(before.token);
        }
        if section.token <= largest {
            wrong.push(format!("{section:?} comes after one that has {largest}"));
        }
    }
    let mut tokens: Vec<_> = history.iter().map(|section| section.token).collect();
    tokens.sort_unstable();
    wrong.extend(tokens.windows(2).filter(|two| two[0] == two[1]).map(|two| format!("two sections have {}", two[0])));
    wrong
}

/// The storage that a fenced lock protects. It stores the highest number of a write, and refuses lower numbers.
#[derive(Debug, Default)]
pub struct Storage {
    written: Mutex<Vec<u64>>,
}

impl Storage {
    /// Writes with this number. Returns false if a later section has already written.
    pub fn write(&self, token: u64) -> bool {
        let mut written = self.written.lock();
        let last = written.last().copied().unwrap_or(0);
        if token >= last {
            written.push(token);
        }
        token >= last
    }

    pub fn written(&self) -> Vec<u64> {
        self.written.lock().clone()
    }
}
