//! A node's view of its cluster (`CLUSTER NODES`), with its slot map.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// One line of `CLUSTER NODES`: a node in the view of another node, or in its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub id: String,
    /// `host:port` for clients. The host is empty until the node knows it.
    pub addr: String,
    /// The flags, such as `myself`, `master`, `slave`, `fail?`, `fail`, `handshake`.
    pub flags: Vec<String>,
    /// A replica's primary, by id.
    pub primary: Option<String>,
    /// The config epoch of its slots.
    pub epoch: u64,
    /// Whether the viewing node's link to this node's bus is connected.
    pub linked: bool,
    pub slots: Vec<RangeInclusive<u16>>,
    /// Open slots that move away from the node, with their targets. A node reports only its own slots.
    pub migrating: BTreeMap<u16, String>,
    /// Open slots that the node imports, with their sources. A node reports only its own slots.
    pub importing: BTreeMap<u16, String>,
}

impl Seen {
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    pub fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

/// The whole view of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View(pub Vec<Seen>);

impl View {
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_line).collect())
    }

    pub fn node(&self, id: &str) -> Option<&Seen> {
        self.0.iter().find(|seen| seen.id == id)
    }

    /// The node's view of itself.
    pub fn myself(&self) -> &Seen {
        match self.0.iter().find(|seen| seen.is("myself")) {
            Some(seen) => seen,
            None => panic!("a node says nothing of itself: {self:?}"),
        }
    }

    pub fn slot_map(&self) -> SlotMap {
        let ranges = self.0.iter().flat_map(|seen| seen.slots.iter().map(|range| (range.clone(), seen.id.clone())));
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_by_key(|(range, _)| *range.start());
        SlotMap { ranges }
    }
}

/// The nodes of all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotMap {
    /// Sorted ranges, each with the id of its node.
    pub ranges: Vec<(RangeInclusive<u16>, String)>,
}

impl SlotMap {
    pub fn owner(&self, slot: u16) -> Option<&str> {
        self.ranges.iter().find(|(range, _)| range.contains(&slot)).map(|(_, id)| id.as_str())
    }

    pub fn served(&self) -> usize {
        self.ranges.iter().map(|(range, _)| range.len()).sum()
    }
}

/// `id ip:port@bus[,host] flags primary ping pong epoch link slot...`
fn parse_line(line: &str) -> Option<Seen> {
    let mut words = line.split(' ');
    let id = words.next()?.to_owned();
    let addr = words.next()?.split('@').next()?.to_owned();
    let flags = words.next()?.split(',').map(str::to_owned).collect();
    let primary = Some(words.next()?).filter(|id| *id != "-").map(str::to_owned);
    let epoch = words.nth(2)?.parse().ok()?;
    let linked = words.next()? == "connected";
    let mut seen = Seen { id, addr, flags, primary, epoch, linked, ..Seen::default() };
    for word in words {
        let open = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
        if let Some((slot, to)) = open.and_then(|open| open.split_once("->-")) {
            seen.migrating.insert(slot.parse().ok()?, to.to_owned());
        } else if let Some((slot, from)) = open.and_then(|open| open.split_once("-<-")) {
            seen.importing.insert(slot.parse().ok()?, from.to_owned());
        } else if !word.is_empty() {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            seen.slots.push(first.parse().ok()?..=last.parse().ok()?);
        }
    }
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_nodes_reply_is_parsed() {
        let view = View::parse(
            "aa 127.0.0.1:12000@22000,host myself,master - 0 17 3 connected 9-10 0-5 7 [7->-bb] [8-<-bb]\n\
             bb 127.0.0.1:12001@22001 master,fail? - 0 17 2 disconnected 6 8\n\
             cc :0@0 slave aa 0 17 3 connected\n",
        );
        let range = |range, id: &str| (range, id.to_owned());
        let map = view.slot_map();
        assert_eq!(
            map.ranges,
            [range(0..=5, "aa"), range(6..=6, "bb"), range(7..=7, "aa"), range(8..=8, "bb"), range(9..=10, "aa")]
        );
        assert_eq!((map.owner(10), map.owner(11), map.served()), (Some("aa"), None, 11));
        let me = view.myself();
        assert_eq!((me.addr.as_str(), me.epoch, me.linked), ("127.0.0.1:12000", 3, true));
        assert_eq!((me.migrating[&7].as_str(), me.importing[&8].as_str()), ("bb", "bb"));
        assert!(me.serves(7) && !me.serves(8));
        let other = view.node("bb").unwrap();
        assert!(other.is("fail?") && !other.is("fail") && !other.linked);
        assert_eq!(view.node("cc").unwrap().primary.as_deref(), Some("aa"));
        assert_eq!(view.node("dd"), None);
    }
}
