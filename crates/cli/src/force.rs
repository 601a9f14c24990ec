//! Commands that take something from its owner: a held lock (`unlock --force`), a place in a queue (`dequeue`).

mod dequeue;
mod unlock;

pub use dequeue::{Args as DequeueArgs, main as dequeue};
pub use unlock::{Args as UnlockArgs, main as unlock};
