//! Two holders (findings 1 to 7, 16): shared owners, late copies, forged and misread grants.

mod extends;
mod given_up;
mod grants;
mod late;
mod shared;

use distlock::Flavour;

/// Flavours whose holds an owner may have several of.
const REENTRANT: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];
