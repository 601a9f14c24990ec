//! The API without async. Tests run on threads outside of a runtime, because blocking calls are refused inside.

mod calls;
mod counters;
mod ends;
mod inside;
mod lost;
mod rig;
