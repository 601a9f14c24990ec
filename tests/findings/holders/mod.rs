//! Two holders (findings 1 to 7, 16): shared owners, late copies, forged and misread grants.

mod extends;
mod given_up;
mod grants;
mod late;
mod shared;

use distlock::Flavour;

use crate::bed::{Bed, reentrant};

/// Flavours whose holds an owner may have several of.
const REENTRANT: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

/// Runs a test body for each of them, on a server of its own.
async fn each(body: impl AsyncFn(&Bed, Flavour)) {
    for flavour in REENTRANT {
        reentrant(async |bed| body(bed, flavour).await).await;
    }
}
