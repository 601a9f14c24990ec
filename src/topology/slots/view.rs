//! A server's view of its cluster: its reply to `CLUSTER NODES`, the only reply that contains config epochs.
//!
//! Each node has a line: id, address, flags, primary, ping, pong, epoch, link, and a primary's slots:
//!
//! ```text
//! 07c3.. 10.0.0.7:6379@16379,n7.example myself,master - 0 0 3 connected 0-5460 5462 [93-<-1f2e..] [95->-2a3b..]
//! ```

use std::sync::Arc;

use super::SLOTS;
use crate::topology::address::{Address, digits};

/// Longest reply that is accepted, in bytes. A thousand nodes with all slots scattered need a tenth of that.
const LONGEST: usize = 4 << 20;

/// Largest number of nodes that is accepted: a primary for each slot.
const MOST: usize = SLOTS as usize;

/// Longest node id that is accepted. Redis's ids have 40 digits.
const LONGEST_ID: usize = 64;

/// A server's view of its cluster. It may be stale.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotView {
    peers: Vec<Arc<Peer>>,
    pub(super) claims: Vec<Claim>,
    open: Vec<Open>,
}

/// A node, as the queried node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) id: Arc<str>,
    /// `None` if the queried node does not know the address.
    pub(crate) address: Option<Address>,
    /// Host name that the node announces, with the port. A cluster may use this address in redirects.
    pub(crate) alias: Option<Address>,
    /// True if the queried node is connected to this node, or is this node.
    pub(crate) is_linked: bool,
    /// True if the queried node considers this node down, cannot reach it, or waits for its reply to a ping. False if
    /// another node has taken this node's address (`noaddr`), because this node will not return.
    pub(crate) is_away: bool,
    /// The config epoch. A replica has the epoch of its primary. The epoch rises with every failover and every slot
    /// that is taken over.
    pub(crate) epoch: u64,
    /// The id of a replica's primary.
    pub(crate) primary: Option<Arc<str>>,
}

impl Peer {
    /// True if this is the node's address, by IP address or by host name.
    pub(super) fn is_at(&self, address: &Address) -> bool {
        self.address.as_ref() == Some(address) || self.alias.as_ref() == Some(address)
    }
}

/// The slots of a primary, as the queried node knows them.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) peer: Arc<Peer>,
    /// First and last slot of each range.
    pub(super) ranges: Vec<(u16, u16)>,
}

/// A slot that is being moved. Only the source and the target of the move report the slot, each in its own view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) slot: u16,
    /// True if the slot moves away from the queried node. False if it moves to that node.
    pub(crate) is_leaving: bool,
    /// The node at the other end of the move.
    pub(crate) other: Arc<str>,
}

/// Reason why a text is not a valid reply to `CLUSTER NODES`. The error does not repeat the text, which may contain
/// anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoView {
    #[error("the list of nodes is too long for a cluster's")]
    TooLong,
    #[error("line {line} of the list of nodes has {what}")]
    Line { line: usize, what: &'static str },
    #[error("the list of nodes assigns a slot to two nodes")]
    Overlap,
    #[error("the list of nodes does not mark the node that sent it")]
    NoMyself,
}

impl SlotView {
    /// Parses the reply of the node at `asked_host`. For an address without a host, `asked_host` is used.
    pub(crate) fn parse(text: &str, asked_host: &str) -> Result<Self, NoView> {
        if text.len() > LONGEST {
            return Err(NoView::TooLong);
        }
        let mut reading = Reading { asked_host, ..Reading::default() };
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            if index >= MOST {
                return Err(NoView::TooLong);
            }
            reading.line(line).map_err(|what| NoView::Line { line: index + 1, what })?;
        }
        if reading.asked != 1 {
            return Err(NoView::NoMyself);
        }
        // This sort is short: a view with more ranges than slots was refused already.
        reading.taken.sort_unstable();
        if reading.taken.windows(2).any(|pair| pair[0].1 >= pair[1].0) {
            return Err(NoView::Overlap);
        }
        Ok(reading.view)
    }

    /// Returns every node in the view, also nodes without slots. Nodes that have not joined yet are left out.
    pub(crate) fn peers(&self) -> &[Arc<Peer>] {
        &self.peers
    }

    pub(crate) fn announces(&self, host: &str) -> bool {
        self.peers.iter().filter_map(|peer| peer.alias.as_ref()).any(|name| name.host() == host)
    }

    pub(crate) fn has_names(&self) -> bool {
        self.peers.iter().any(|peer| peer.alias.is_some())
    }

    /// Returns the same view with nodes addressed by the host names that they announce. Their addresses become their
    /// aliases.
    pub(crate) fn by_name(mut self) -> Self {
        let named = |peer: &Arc<Peer>| match &peer.alias {
            Some(name) => {
                let (address, alias) = (Some(name.clone()), peer.address.clone());
                Arc::new(Peer { address, alias, ..Peer::clone(peer) })
            }
            None => Arc::clone(peer),
        };
        self.peers = self.peers.iter().map(named).collect();
        for claim in &mut self.claims {
            claim.peer = named(&claim.peer);
        }
        self
    }

    /// Returns the slots that are being moved from or to the queried node.
    pub(crate) fn open(&self) -> &[Open] {
        &self.open
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.peers.iter().map(|peer| peer.epoch).max().unwrap_or(0)
    }
}

#[derive(Default)]
struct Reading<'a> {
    asked_host: &'a str,
    /// Number of nodes that are marked as the queried node.
    asked: usize,
    /// Every range of slots so far, and the number of slots in them.
    taken: Vec<(u16, u16)>,
    count: usize,
    view: SlotView,
}

impl Reading<'_> {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let mut fields = line.split(' ');
        let mut field = || fields.next().ok_or("too few fields");
        let (id, place, flags) = (id(field()?)?, field()?, field()?);
        let (primary, unanswered_ping, _pong) = (field()?, field()?, field()?);
        let epoch = digits(field()?).ok_or("an epoch that is no number")?;
        let link = field()?;
        let has = |wanted: &[&str]| flags.split(',').any(|flag| wanted.contains(&flag));
        let is_asked = has(&["myself"]);
        self.asked += usize::from(is_asked);
        let (address, alias) = if has(&["noaddr"]) { (None, None) } else { self.place(place)? };
        let mut ranges = Vec::new();
        for token in fields.filter(|token| !token.is_empty()) {
            match token.strip_prefix('[') {
                Some(open) => self.view.open.push(self::open(open)?),
                None => ranges.push(self.range(token)?),
            }
        }
        // A node in its handshake has not joined yet, and has a temporary, random id.
        if has(&["handshake"]) && ranges.is_empty() {
            return Ok(());
        }
        if has(&["slave", "replica"]) && !ranges.is_empty() {
            return Err("slots of a replica");
        }
        let primary = if has(&["slave", "replica"]) { self::id(primary).ok() } else { None };
        let is_linked = is_asked || link == "connected";
        // An unanswered ping counts too, because a pong that was read late clears `fail`.
        let is_silent = !is_asked && unanswered_ping != "0";
        let is_away = !has(&["noaddr"]) && (!is_linked || is_silent || has(&["fail", "fail?"]));
        let peer = Arc::new(Peer { id, address, alias, is_linked, is_away, epoch, primary });
        // A primary without an address cannot be reached, so its slots are of no use.
        if !ranges.is_empty() && peer.address.is_some() {
            self.view.claims.push(Claim { peer: Arc::clone(&peer), ranges });
        }
        self.view.peers.push(peer);
        Ok(())
    }

    /// Parses `ip:port@bus,hostname,aux=value`. The last three parts may be missing.
    fn place(&self, text: &str) -> Result<(Option<Address>, Option<Address>), &'static str> {
        let mut parts = text.split(',');
        let endpoint = parts.next().unwrap_or_default();
        let endpoint = endpoint.split_once('@').map_or(endpoint, |(endpoint, _bus)| endpoint);
        let (host, port) = Address::split(endpoint).ok_or("no address")?;
        let name = parts.next().filter(|name| !name.is_empty() && !name.contains('='));
        let alias = name.and_then(|name| Address::new(name, port));
        let host = if host.is_empty() { self.asked_host } else { host };
        match Address::new(host, port) {
            None if port != 0 && host != "?" => Err("an address where no server can be"),
            address => Ok((address, alias)),
        }
    }

    /// Parses `5` or `5-7`.
    fn range(&mut self, text: &str) -> Result<(u16, u16), &'static str> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = digits(first).zip(digits(last)).ok_or("a slot that is no number")?;
        if first > last || last >= SLOTS {
            return Err("a slot that no cluster has");
        }
        self.count += usize::from(last - first) + 1;
        if self.count > usize::from(SLOTS) {
            return Err("more slots than a cluster has");
        }
        self.taken.push((first, last));
        Ok((first, last))
    }
}

/// Parses `93->-id]` (away from the queried node) or `93-<-id]` (to it).
fn open(text: &str) -> Result<Open, &'static str> {
    let text = text.strip_suffix(']').ok_or("a slot that is half open")?;
    let (away, to) = (text.split_once("->-"), text.split_once("-<-"));
    let (slot, other) = away.or(to).ok_or("a slot that is half open")?;
    let slot = digits(slot).filter(|slot| *slot < SLOTS).ok_or("a slot that no cluster has")?;
    Ok(Open { slot, is_leaving: away.is_some(), other: id(other)? })
}

fn id(text: &str) -> Result<Arc<str>, &'static str> {
    if text.is_empty() || text.len() > LONGEST_ID || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err("an id that is none");
    }
    Ok(Arc::from(text))
}

#[cfg(test)]
mod tests;
