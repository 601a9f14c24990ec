//! What the tests of the fenced lock add to the bed: its counter, a history of sections, and the storage that they write to.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock::{FencedLock, Flavour, Guard};
use parking_lot::Mutex;

use bed::{Bed, COUNTER};

/// Runs a test body over the fenced lock.
pub async fn fenced(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Fenced, name), body).await;
}

/// The counter's key.
pub fn counter(name: &str) -> String {
    format!("{COUNTER}{{{name}}}")
}

/// The counter, as it stands in Redis.
pub async fn counted(bed: &Bed, name: &str) -> Option<String> {
    bed.admin.cmd(&["GET", &counter(name)]).await
}

/// The number of a guard's section, which every guard of a fenced lock has.
#[track_caller]
pub fn token(guard: &Guard) -> u64 {
    let token = guard.token().expect("a section has a number");
    assert_eq!(guard.members()[0].token, Some(token));
    token
}

/// A moment in the order of all events of this process.
pub fn clock() -> u64 {
    static EVENTS: AtomicU64 = AtomicU64::new(0);
    EVENTS.fetch_add(1, Ordering::SeqCst)
}

/// One acquire: when it was asked for, when it was granted, and the section's number.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub asked: u64,
    pub granted: u64,
    pub token: u64,
}

/// Acquires and notes it.
pub async fn enter(lock: &FencedLock, history: &Mutex<Vec<Section>>) -> Guard {
    let asked = clock();
    let guard = lock.lock().await.unwrap();
    history.lock().push(Section { asked, granted: clock(), token: token(&guard) });
    guard
}

/// What is wrong with a history of one name (M3): a section whose number is not above those of all that were granted before
/// it was asked for, or that has the number of another.
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

/// What a fenced lock protects: it remembers the largest number that has written, and refuses smaller ones.
#[derive(Debug, Default)]
pub struct Storage {
    /// The numbers that wrote, in order.
    written: Mutex<Vec<u64>>,
}

impl Storage {
    /// Writes; false when a later section has written before.
    pub fn write(&self, token: u64) -> bool {
        let mut written = self.written.lock();
        let last = written.last().copied().unwrap_or(0);
        if token >= last {
            written.push(token);
        }
        token >= last
    }

    /// The numbers that wrote, in order.
    pub fn written(&self) -> Vec<u64> {
        self.written.lock().clone()
    }
}
