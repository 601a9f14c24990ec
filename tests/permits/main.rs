//! Permits: never more than n at a time, whoever dies, and every permit comes back.

mod basics;
mod big;
mod cancel;
mod cost;
mod fair;
mod faults;
mod layer;
mod lost;
mod order;
mod rig;
