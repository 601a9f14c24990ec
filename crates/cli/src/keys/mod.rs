//! The keys of locks: their names, and what they say. Pure, except for [`look`], which sends a script.

pub mod look;
mod names;
mod owner;
pub mod reply;
pub mod show;

#[cfg(test)]
pub use look::Kind;
pub use look::{Found, MAYBE_FENCED};
pub use names::Names;
pub use owner::{Language, hold_ids, is_owner, of_plain, to_hex};
