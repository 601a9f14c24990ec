//! The texts are replies of real servers, with shortened ids.

use distlock_support::Numbers;

use super::*;
use crate::topology::slots::map::SlotMap;
use crate::topology::slots::mutated;

/// Redis 7.0.15: two primaries with a replica each. A slot is being moved away from the queried node.
const OPEN: &str = "\
e076db1c 127.0.0.1:15003@25003 slave 531bd3c2 0 1795563267821 2 connected
006a39e1 127.0.0.1:15000@25000 master - 0 1795563267821 1 connected 0-8191
531bd3c2 127.0.0.1:15001@25001 myself,master - 0 1795563267000 2 connected 8192-16383 [12182->-006a39e1]
8f5023e9 127.0.0.1:15002@25002 slave 006a39e1 0 1795563267210 1 connected
";

/// Valkey 9.1.2: a slot without a node, a host name, a failed primary, a suspected replica, and a node that has just
/// been met.
const WORN: &str = "\
c893397e 127.0.0.1:15501@25501,n1.example myself,master - 0 0 2 connected 8192-12181 12183-16383
06cdd51f 127.0.0.1:15500@25500 master,fail - 1795563398867 1795563398060 1 disconnected 0-8191
17f2443a 127.0.0.1:15502@25502 slave,fail? 06cdd51f 0 1795563417665 1 connected
265e7d64 127.0.0.1:16560@26560 handshake - 0 0 0 disconnected
";

fn address(host: &str, port: u16) -> Option<Address> {
    Some(Address::new(host, port).unwrap())
}

fn parse(text: &str) -> Result<SlotView, NoView> {
    SlotView::parse(text, "10.0.0.1")
}

/// Parses the view of a single primary with this address and these slots.
fn with(place: &str, slots: &str) -> Result<SlotView, NoView> {
    parse(&format!("07c3 {place} myself,master - 0 0 1 connected {slots}\n"))
}

#[test]
fn nodes_slots_and_moving_slots_are_parsed() {
    let view = parse(OPEN).unwrap();
    let peers: Vec<_> = view.peers().iter().map(|peer| (&*peer.id, peer.epoch)).collect();
    assert_eq!(peers, [("e076db1c", 2), ("006a39e1", 1), ("531bd3c2", 2), ("8f5023e9", 1)]);
    let claims: Vec<_> = view.claims.iter().map(|claim| (&*claim.peer.id, &claim.ranges[..])).collect();
    assert_eq!(claims, [("006a39e1", &[(0, 8_191)][..]), ("531bd3c2", &[(8_192, 16_383)])]);
    assert_eq!(view.open(), [Open { slot: 12_182, is_leaving: true, other: Arc::from("006a39e1") }]);
    assert_eq!(view.epoch(), 2);
    let other = with("a:1@2", "0-5 [93-<-531b] 7 [95->-006a]").unwrap();
    let open: Vec<_> = other.open().iter().map(|open| (open.slot, open.is_leaving, &*open.other)).collect();
    assert_eq!(open, [(93, false, "531b"), (95, true, "006a")]);
    assert_eq!(other.claims[0].ranges, [(0, 5), (7, 7)]);
}

#[test]
fn failed_and_addressless_nodes_are_parsed() {
    let view = parse(WORN).unwrap();
    let peers: Vec<_> = view.peers().iter().map(|peer| (&*peer.id, peer.is_linked)).collect();
    assert_eq!(peers, [("c893397e", true), ("06cdd51f", false), ("17f2443a", true)]);
    assert_eq!(view.peers()[0].alias, address("n1.example", 15501));
    assert_eq!(view.claims[0].ranges, [(8_192, 12_181), (12_183, 16_383)]);
    // A primary without an address stays in the list of nodes, but has no claim to its slots.
    let view =
        parse("a1 :0@0 master,noaddr - 0 0 1 disconnected 0-5\nb2 h:1@2 myself,slave a1 0 0 1 connected\n").unwrap();
    assert_eq!((view.peers().len(), view.claims.len(), &view.peers()[0].address), (2, 0, &None));
}

#[test]
fn node_addresses_of_all_forms_are_parsed() {
    for (place, host, alias) in [
        ("127.0.0.1:7000@17000", "127.0.0.1", None),
        ("127.0.0.1:7000", "127.0.0.1", None),
        (":7000@17000", "10.0.0.1", None),
        ("fd00::5:7000@17000", "fd00::5", None),
        ("[fd00::5]:7000@17000", "fd00::5", None),
        ("127.0.0.1:7000@17000,n7.example", "127.0.0.1", address("n7.example", 7000)),
        ("127.0.0.1:7000@17000,,tls-port=0,shard-id=69bc", "127.0.0.1", None),
        ("127.0.0.1:7000@17000,shard-id=69bc", "127.0.0.1", None),
        ("127.0.0.1:7000@17000,n7.example,nodename=x,shard-id=69bc", "127.0.0.1", address("n7.example", 7000)),
    ] {
        let view = with(place, "0-16383").unwrap_or_else(|refused| panic!("{place}: {refused}"));
        assert_eq!((&view.peers()[0].address, &view.peers()[0].alias), (&address(host, 7000), &alias), "{place}");
    }
    // A node that listens on its TLS port only, and a node whose host is unknown.
    for place in ["127.0.0.1:0@17000", "?:7000@17000"] {
        assert_eq!(with(place, "0-16383").unwrap().peers()[0].address, None, "{place}");
    }
    let crlf = OPEN.replace('\n', "\r\n");
    assert_eq!(parse(&crlf).unwrap().peers(), parse(OPEN).unwrap().peers());
}

#[test]
fn malformed_node_lists_are_refused() {
    for text in ["", "\n\n", "OK", "ERR unknown command", "PONG", "a b c d e f g h", "redis_version:7.0.15\r\n"] {
        assert!(parse(text).is_err(), "{text}");
    }
    for slots in [
        "0-16384",
        "16384",
        "5-4",
        "-1",
        "+1",
        "1-",
        "-",
        "a",
        "0-5 5",
        "0-5 3-8",
        "7 7",
        "0-16383 0-16383",
        "[93",
        "[93]",
        "[93->-]",
        "[16384->-a]",
        "[x-<-a]",
        "[93->-a b]",
        "99999999999999999999",
    ] {
        assert!(with("a:1@2", slots).is_err(), "{slots}");
    }
    for place in ["", "a", "a:", "a:1x@2", "a b:1", "a:65536@2", "a\u{7}:1@2", "@2", "\u{1b}[2J:1"] {
        assert!(with(place, "0-16383").is_err(), "{place}");
    }
    assert_eq!(parse(&OPEN.replace("myself,", "")).unwrap_err(), NoView::NoMyself);
    assert_eq!(parse(&OPEN.replace("0-8191", "0-8190 8192")).unwrap_err(), NoView::Overlap);
    assert_eq!(parse(&"x".repeat(LONGEST + 1)).unwrap_err(), NoView::TooLong);
    let crowd = format!("{OPEN}{}", "e0 127.0.0.1:1@2 slave 53 0 0 2 connected\n".repeat(MOST));
    assert_eq!(parse(&crowd).unwrap_err(), NoView::TooLong);
    let replica = OPEN.replace("[12182->-006a39e1]", "").replace("myself,master", "myself,slave");
    assert_eq!(parse(&replica).unwrap_err(), NoView::Line { line: 3, what: "slots of a replica" });
    let long = OPEN.replace("e076db1c", &"e".repeat(LONGEST_ID + 1));
    assert_eq!(parse(&long).unwrap_err().to_string(), "line 1 of the list of nodes has an id that is none");
}

#[test]
fn mutated_replies_do_not_panic() {
    let mut numbers = Numbers::new(13);
    let (mut good, mut map) = (0, SlotMap::default());
    for _ in 0..100_000 {
        let text = mutated(numbers.of(&[OPEN, WORN]), &mut numbers);
        let Ok(view) = parse(&text) else { continue };
        good += 1;
        assert!(view.claims.iter().flat_map(|claim| &claim.ranges).all(|(first, last)| first <= last && *last < SLOTS));
        // Not every view, because a merge looks at every slot.
        if good % 200 == 0 {
            map.merge(&view);
        }
    }
    assert!((1_000..90_000).contains(&good), "mutations of both kinds: {good}");
}
