//! A sentinel's view of the primary.

use super::{texts, words};
use crate::connect::Raw;
use crate::doctor::facts::Sentinel;
use crate::exit::Failure;

pub(super) async fn read(raw: &Raw, name: &str) -> Result<Sentinel, Failure> {
    let fields = texts(raw.call(words(&["SENTINEL", "MASTER", name])).await?);
    let fields = fields.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let no_quorum = match raw.call(words(&["SENTINEL", "CKQUORUM", name])).await {
        Err(Failure::Server(why)) if why.contains("NOQUORUM") => Some(why),
        // A login may lack the right to ask.
        _ => None,
    };
    Ok(Sentinel { address: raw.address().to_owned(), fields, no_quorum })
}
