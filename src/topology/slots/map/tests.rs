use std::fmt::Write as _;

use distlock_support::Numbers;

use super::*;

/// The true state of a cluster.
#[derive(Clone)]
struct Truth {
    owner_of: Vec<usize>,
    /// The epoch of each node. No two are equal.
    epochs: Vec<u64>,
}

impl Truth {
    fn new(nodes: usize) -> Self {
        let owner_of = (0..usize::from(SLOTS)).map(|slot| slot * nodes / usize::from(SLOTS)).collect();
        Self { owner_of, epochs: (1..).take(nodes).collect() }
    }

    /// Moves slots to a node, which gets the highest epoch.
    fn give(&mut self, slots: std::ops::Range<usize>, to: usize) {
        let highest = self.epochs.iter().copied().max().unwrap_or(0);
        if self.epochs[to] != highest {
            self.epochs[to] = highest + 1;
        }
        self.owner_of[slots].fill(to);
    }

    /// Moves all slots of a node to a new node.
    fn fail_over(&mut self, node: usize) {
        self.epochs.push(self.epochs.iter().copied().max().unwrap_or(0) + 1);
        let new = self.epochs.len() - 1;
        self.owner_of.iter_mut().filter(|owner| **owner == node).for_each(|owner| *owner = new);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (node, epoch) in self.epochs.iter().enumerate() {
            let myself = if node == 0 { "myself," } else { "" };
            write!(text, "a{node} 10.0.0.{node}:6379@16379 {myself}master - 0 0 {epoch} connected").unwrap();
            let mut slot = 0;
            for run in self.owner_of.chunk_by(|one, other| one == other) {
                if run[0] == node {
                    write!(text, " {slot}-{}", slot + run.len() - 1).unwrap();
                }
                slot += run.len();
            }
            text.push('\n');
        }
        text
    }

    fn view(&self) -> SlotView {
        SlotView::parse(&self.text(), "10.0.0.1").unwrap()
    }

    /// Returns the slots in which a map is wrong.
    fn differs(&self, map: &SlotMap) -> Vec<u16> {
        let addresses: Vec<_> = (0..self.epochs.len()).map(of).collect();
        let is_wrong = |slot: &u16| map.primary(*slot) != Some(&addresses[self.owner_of[usize::from(*slot)]]);
        (0..SLOTS).filter(is_wrong).collect()
    }
}

fn of(node: usize) -> Address {
    Address::new(&format!("10.0.0.{node}"), 6379).unwrap()
}

fn parse(text: &str) -> SlotView {
    SlotView::parse(text, "10.0.0.1").unwrap()
}

fn merged(text: &str) -> SlotMap {
    let mut map = SlotMap::default();
    map.merge(&parse(text)).unwrap();
    map
}

#[test]
fn stale_views_do_not_override_newer_views() {
    for seed in 0..25 {
        let mut numbers = Numbers::lane(3, seed);
        let mut history = vec![Truth::new(3)];
        for _ in 0..12 {
            let mut truth = history[history.len() - 1].clone();
            if numbers.once_in(3) {
                truth.fail_over(numbers.below(truth.epochs.len() as u64) as usize);
            } else {
                let from = numbers.below(u64::from(SLOTS)) as usize;
                let to = (from + 1 + numbers.below(3_000) as usize).min(usize::from(SLOTS));
                truth.give(from..to, numbers.below(truth.epochs.len() as u64) as usize);
            }
            history.push(truth);
        }
        let (mut map, mut newest) = (SlotMap::default(), 0);
        for _ in 0..20 {
            let at = numbers.below(history.len() as u64) as usize;
            let before = map.clone();
            let changes = map.merge(&history[at].view()).unwrap();
            newest = newest.max(at);
            assert_eq!(history[newest].differs(&map), Vec::<u16>::new(), "seed {seed}, {at} after {newest}");
            // The reported changes are exactly the differences.
            let moved = |slot: &u16| before.primary(*slot) != map.primary(*slot);
            let expected: Vec<_> = (0..SLOTS).filter(moved).collect();
            assert_eq!((&changes.slots, changes.is_empty()), (&expected, expected.is_empty()));
            for slot in 0..SLOTS {
                let more = u32::from(expected.binary_search(&slot).is_ok());
                assert_eq!(map.generation(slot), before.generation(slot) + more);
            }
            let (old, new) = (before.addresses(), map.addresses());
            assert!(changes.joined.iter().all(|address| new.contains(address) && !old.contains(address)));
            assert!(changes.left.iter().all(|address| old.contains(address) && !new.contains(address)));
            assert_eq!(old.len() + changes.joined.len(), new.len() + changes.left.len());
            assert!(map.is_whole() && map.owners.len() <= usize::from(SLOTS));
        }
    }
}

#[test]
fn next_view_corrects_wrong_redirects() {
    for seed in 0..10 {
        let mut numbers = Numbers::lane(5, seed);
        let (mut truth, mut map) = (Truth::new(4), SlotMap::default());
        map.merge(&truth.view()).unwrap();
        for _ in 0..6 {
            // Redirects lead to the right node, to wrong ones, and to one that does not exist.
            for _ in 0..50 {
                let slot = numbers.below(u64::from(SLOTS)) as u16;
                map.patch(slot, map.generation(slot), &of(numbers.below(9) as usize));
            }
            let from = numbers.below(16_000) as usize;
            truth.give(from..from + 300, numbers.below(4) as usize);
            map.merge(&truth.view()).unwrap();
            assert_eq!((truth.differs(&map), map.is_hearsay()), (vec![], false), "seed {seed}");
        }
    }
}

/// Two nodes, the state after a failover of the first, and a map that has the first state.
fn before_and_after_failover() -> (Truth, Truth, SlotMap) {
    let (old, mut new, mut map) = (Truth::new(2), Truth::new(2), SlotMap::default());
    new.fail_over(0);
    map.merge(&old.view()).unwrap();
    (old, new, map)
}

#[test]
fn redirect_applies_at_once_and_is_settled_by_next_view() {
    let (old, new, mut map) = before_and_after_failover();
    let (slot, seen) = (100, map.generation(100));
    let changes = map.patch(slot, seen, &of(2));
    assert_eq!(changes, Changes { slots: vec![slot], joined: vec![of(2)], left: vec![] });
    assert_eq!((map.primary(slot), map.epoch(slot), map.generation(slot)), (Some(&of(2)), Some(1), seen + 1));
    assert!(map.is_hearsay() && map.primary(101) == Some(&of(0)));
    // Redirects of commands that were sent together with the first one change nothing, and neither does an old
    // redirect.
    assert!(map.patch(slot, seen, &of(2)).is_empty() && map.patch(slot, seen, &of(1)).is_empty());
    assert!(map.patch(slot, seen + 1, &of(2)).is_empty());
    let changes = map.merge(&new.view()).unwrap();
    assert_eq!((changes.slots.len(), changes.slots.contains(&slot)), (8_191, false), "all of that node but this one");
    assert_eq!((changes.joined, changes.left, map.is_hearsay()), (vec![], vec![of(0)], false));
    // From now on the old view changes nothing.
    assert!(map.merge(&old.view()).unwrap().is_empty());
    // In an empty map the redirect is all that is known.
    let mut empty = SlotMap::default();
    assert_eq!(empty.patch(7, 0, &of(1)).joined, [of(1)]);
    assert_eq!((empty.epoch(7), empty.is_whole()), (Some(0), false));
    assert_eq!(empty.merge(&old.view()).unwrap().slots.len(), usize::from(SLOTS));
    // These slots do not exist.
    assert!(map.patch(SLOTS, 0, &of(1)).is_empty() && map.patch(u16::MAX, 0, &of(1)).is_empty());
    assert_eq!((map.primary(SLOTS), map.generation(SLOTS), map.epoch(SLOTS)), (None, 0, None));
}

/// A replica takes over. The old primary redirects before the other servers have learned of the promotion.
#[test]
fn held_redirect_survives_stale_view() {
    let (old, new, mut map) = before_and_after_failover();
    map.patch(100, map.generation(100), &of(2));
    map.hold_hearsay(true);
    assert!(map.merge(&old.view()).unwrap().is_empty());
    assert_eq!((map.primary(100), map.is_hearsay()), (Some(&of(2)), true));
    map.merge(&new.view()).unwrap();
    assert_eq!((new.differs(&map), map.is_hearsay()), (vec![], false));
    // A wrong redirect is reverted once redirects no longer override views.
    map.patch(9_000, map.generation(9_000), &of(0));
    assert!(map.merge(&new.view()).unwrap().is_empty());
    map.hold_hearsay(false);
    assert_eq!(map.merge(&new.view()).unwrap().slots, [9_000]);
    assert_eq!((new.differs(&map), map.generation(9_000)), (vec![], 3));
}

#[test]
fn slot_owner_stays_when_epochs_are_equal() {
    let mut map =
        merged("a 10.0.0.1:1@2 myself,master - 0 0 5 connected 0-9\nb 10.0.0.2:1@2 master - 0 0 5 connected\n");
    let view = parse("a 10.0.0.1:1@2 myself,master - 0 0 5 connected\nb 10.0.0.2:1@2 master - 0 0 5 connected 5-12\n");
    assert_eq!(map.merge(&view).unwrap().slots, [10, 11, 12], "those of nobody");
    // A slot without a node in the view keeps its current node, because no better node is known.
    assert!(map.merge(&parse("a 10.0.0.1:1@2 myself,master - 0 0 9 connected\n")).unwrap().is_empty());
    assert_eq!(map.primary(0).map(ToString::to_string).as_deref(), Some("10.0.0.1:1"));
}

#[test]
fn node_is_followed_to_new_address_once_connected() {
    let text = |port: u16, link: &str| {
        format!("a 10.0.0.1:{port}@2 master - 0 0 5 {link} 0-9\nb 10.0.0.2:1@2 myself,slave a 0 0 5 connected\n")
    };
    let mut map = merged(&text(1, "connected"));
    assert!(map.merge(&parse(&text(2, "disconnected"))).unwrap().is_empty(), "nobody is there");
    let changes = map.merge(&parse(&text(2, "connected"))).unwrap();
    assert_eq!((changes.slots.len(), changes.joined.len(), changes.left.len()), (10, 1, 1));
    assert!(map.merge(&parse(&text(1, "disconnected"))).unwrap().is_empty());
}

#[test]
fn host_name_and_address_identify_same_node() {
    let mut map = merged(
        "a 10.0.0.1:1@2,n1 myself,master - 0 0 5 connected 0-9\nb 10.0.0.2:1@2,n2 master - 0 0 6 connected 10-19\n\
         c 10.0.0.3:1@2,n3 slave b 0 0 6 connected\n",
    );
    let named = |host: &str| Address::new(host, 1).unwrap();
    assert!(map.patch(0, 1, &named("n1")).is_empty(), "it is there");
    // A replica that was promoted, by the host name that it announces.
    assert_eq!(map.patch(10, 1, &named("n3")).joined, [named("10.0.0.3")]);
    assert_eq!(map.known().len(), 3);
}

#[test]
fn views_of_another_cluster_are_ignored() {
    let mut map = merged("a 10.0.0.1:1@2 myself,master - 0 0 5 connected 0-16383\n");
    let before = map.clone();
    assert_eq!(map.merge(&parse("z 10.0.0.1:1@2 myself,master - 0 0 99 connected 0-16383\n")), None);
    assert_eq!((before.addresses(), map.generation(0), map.epoch(0)), (map.addresses(), 1, Some(5)));
}

#[test]
fn map_keeps_few_owner_entries_for_scattered_slots() {
    let mut truth = Truth::new(2);
    truth.owner_of = (0..usize::from(SLOTS)).map(|slot| slot % 2).collect();
    let mut map = SlotMap::default();
    map.merge(&truth.view()).unwrap();
    assert_eq!(map.owners.len(), 2);
    // Patching single slots many times leaves no more owners than that.
    for slot in 0..500 {
        for node in [2, 3, 4] {
            map.patch(slot, map.generation(slot), &of(node));
        }
    }
    assert!(map.owners.len() <= 4, "{}", map.owners.len());
    assert_eq!(map.addresses(), [of(0), of(1), of(4)]);
}
