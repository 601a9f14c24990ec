//! Replica counts, tested through the slot map: a primary `p` with replicas `q` and `r`, and another shard.

use crate::topology::address::Address;
use crate::topology::slots::map::SlotMap;
use crate::topology::slots::view::SlotView;

/// Builds a view. `p`, `q` and `r` are the rest of each node's line after its address; `gone` leaves the node out.
fn view(p: &str, q: &str, r: &str) -> SlotView {
    view_at(2, p, q, r)
}

/// Like `view`, with this epoch of the other shard.
fn view_at(epoch: u64, p: &str, q: &str, r: &str) -> SlotView {
    let text = format!(
        "p 10.0.0.1:1@2 {p}\nq 10.0.0.2:1@2 {q}\nr 10.0.0.3:1@2 {r}\n\
         x 10.0.0.4:1@2 myself,master - 0 0 {epoch} connected 100-16383\ny 10.0.0.5:1@2 slave x 0 0 {epoch} connected\n"
    );
    let known: Vec<_> = text.lines().filter(|line| !line.ends_with("gone")).collect();
    SlotView::parse(&known.join("\n"), "10.0.0.4").unwrap()
}

const OF_P: &str = "slave p 0 0 1 connected";
const OF_Q: &str = "slave q 0 0 3 connected";
const AWAY: &str = "master,fail - 0 0 1 disconnected";
const AWAY_TOO: &str = "master,fail - 0 0 3 disconnected";
const FIRST: &str = "master - 0 0 1 connected 0-99";
const PROMOTED: &str = "master - 0 0 3 connected 0-99";
const THIRD: &str = "master - 0 0 4 connected 0-99";

fn address(n: usize) -> Address {
    Address::new(&format!("10.0.0.{n}"), 1).unwrap()
}

fn replicas(map: &SlotMap, n: usize) -> Option<usize> {
    assert_eq!(map.replicas().get(&address(4)), Some(&1), "the other shard is as ever");
    map.replicas().get(&address(n)).copied()
}

/// Returns the map after a first view of all nodes, and then these views.
fn after(views: &[SlotView]) -> SlotMap {
    let mut map = SlotMap::default();
    map.merge(&view(FIRST, OF_P, OF_P)).unwrap();
    assert_eq!(replicas(&map, 1), Some(2));
    for view in views {
        map.merge(view).unwrap();
    }
    map
}

#[test]
fn former_primary_counts_as_replica_of_new_primary() {
    // A replica counts before it follows the new primary. After a failover by request, the former primary is a replica at
    // once.
    for first in [view(AWAY, PROMOTED, OF_P), view(OF_Q, PROMOTED, OF_P)] {
        assert_eq!(replicas(&after(&[first]), 2), Some(2));
    }
    let mut map = after(&[view(AWAY, PROMOTED, OF_Q)]);
    assert_eq!(replicas(&map, 2), Some(2));
    // Repeated views and stale views change nothing.
    map.merge(&view(AWAY, PROMOTED, OF_Q)).unwrap();
    map.merge(&view("master,fail? - 0 0 1 connected 0-99", OF_P, OF_P)).unwrap();
    assert_eq!(replicas(&map, 2), Some(2));
    map.merge(&view(OF_Q, PROMOTED, OF_Q)).unwrap();
    assert_eq!(replicas(&map, 2), Some(2));
    // A replica is counted where the views place it, so it may move to another shard.
    map.merge(&view("slave x 0 0 2 connected", PROMOTED, OF_Q)).unwrap();
    assert_eq!(map.replicas().get(&address(2)), Some(&1));
}

#[test]
fn redirect_to_replica_counts_as_its_promotion() {
    let mut map = after(&[]);
    map.patch(5, map.generation(5), &address(2));
    // Each primary counts all other nodes of the shard, until more is known.
    assert_eq!((replicas(&map, 1), replicas(&map, 2)), (Some(2), Some(2)));
    map.merge(&view(FIRST, OF_P, OF_P)).unwrap();
    assert_eq!((replicas(&map, 1), replicas(&map, 2)), (Some(2), None), "it was wrong");
    // The redirect overrides views of nodes that have not learned of the promotion.
    map.hold_hearsay(true);
    map.patch(5, map.generation(5), &address(2));
    map.merge(&view(FIRST, OF_P, OF_P)).unwrap();
    assert_eq!(replicas(&map, 2), Some(2));
    map.merge(&view(AWAY, PROMOTED, OF_P)).unwrap();
    assert_eq!(replicas(&map, 2), Some(2));
}

#[test]
fn successive_promotions_keep_whole_shard_with_last_primary() {
    let map = after(&[view(AWAY, PROMOTED, OF_Q), view(AWAY, AWAY_TOO, THIRD)]);
    assert_eq!(replicas(&map, 3), Some(2));
    // The former primaries return one after the other.
    let mut map = after(&[view(AWAY, PROMOTED, OF_Q), view(AWAY, "slave r 0 0 4 connected", THIRD)]);
    assert_eq!(replicas(&map, 3), Some(2));
    map.merge(&view("slave r 0 0 4 connected", "slave r 0 0 4 connected", THIRD)).unwrap();
    assert_eq!(replicas(&map, 3), Some(2));
    // The first former primary is the primary again.
    map.merge(&view("master - 0 0 5 connected 0-99", "slave p 0 0 5 connected", "slave p 0 0 5 connected")).unwrap();
    assert_eq!((replicas(&map, 1), replicas(&map, 3)), (Some(2), None));
}

/// A replica was promoted, and failed, before the client queried any view.
#[test]
fn unseen_promotions_keep_whole_shard_with_last_primary() {
    let both_away = view(AWAY, AWAY_TOO, THIRD);
    let mut map = after(std::slice::from_ref(&both_away));
    assert_eq!(replicas(&map, 3), Some(2));
    map.orphan("p");
    assert_eq!(replicas(&map, 3), Some(1), "the rest of the shard stays together");
    let mut map = after(&[]);
    map.patch(5, map.generation(5), &address(2));
    map.merge(&both_away).unwrap();
    assert_eq!(replicas(&map, 3), Some(2));
    // A redirect leads back to the first primary. No view has shown its return.
    map.patch(5, map.generation(5), &address(1));
    assert_eq!((replicas(&map, 1), replicas(&map, 3)), (Some(2), Some(2)));
}

/// The view has the newest state of the other shard, and an old state of this one.
#[test]
fn stale_view_removes_no_replica_from_shard() {
    let now = || view_at(9, AWAY, AWAY_TOO, THIRD);
    for behind in [view_at(9, "master,fail? - 0 0 1 connected 0-99", OF_P, OF_P), view_at(9, AWAY, PROMOTED, OF_Q)] {
        let mut map = after(&[view(AWAY, PROMOTED, OF_Q), now()]);
        assert_eq!(replicas(&map, 3), Some(2));
        map.merge(&behind).unwrap();
        assert_eq!(replicas(&map, 3), Some(2));
        map.merge(&now()).unwrap();
        assert_eq!(replicas(&map, 3), Some(2));
    }
}

/// A former replica was set up again as an empty primary, and gets the slots. The former primary counts as its replica
/// while it may still return.
#[test]
fn slot_move_makes_no_lasting_replica() {
    let moved = || view("master - 0 0 1 connected", "slave p 0 0 1 connected", "master - 0 0 3 connected 0-99");
    let mut map = after(&[view(FIRST, OF_P, "master - 0 0 2 connected"), moved()]);
    assert_eq!(map.gone_in(&moved()).iter().map(|id| &**id).collect::<Vec<_>>(), ["p"]);
    map.orphan("p");
    assert_eq!((replicas(&map, 1), replicas(&map, 3)), (Some(1), Some(0)));
    // Slots that move from one primary to another take no replicas along.
    let moved = view("master - 0 0 1 connected 0-98", OF_P, OF_P);
    assert_eq!(replicas(&after(&[moved]), 1), Some(2));
}

/// The node was removed from the cluster, or was reset. No view lists it as failed.
#[test]
fn removed_node_is_reported_gone_and_no_longer_counts() {
    for now in ["gone", "master - 0 0 1 connected"] {
        let later = view(now, PROMOTED, OF_Q);
        let mut map = after(&[view(AWAY, PROMOTED, OF_Q), later.clone()]);
        assert_eq!(replicas(&map, 2), Some(2), "not at once: that may be behind the times");
        let gone: Vec<_> = map.gone_in(&later).into_iter().collect();
        assert_eq!(gone.iter().map(|id| &**id).collect::<Vec<_>>(), ["p"]);
        assert_eq!(map.gone_in(&view(AWAY, PROMOTED, OF_Q)).len(), 0);
        map.orphan("p");
        map.merge(&later).unwrap();
        assert_eq!(replicas(&map, 2), Some(1));
    }
}

/// Either a pong that was read late has cleared `fail`, or the queried node has not learned of the promotion yet.
#[test]
fn node_with_an_unanswered_ping_or_with_slots_in_a_stale_view_is_not_gone() {
    for now in ["master - 1700000000000 0 1 connected", FIRST] {
        let map = after(&[view(AWAY, PROMOTED, OF_Q)]);
        let heir = if now.ends_with("0-99") { OF_P } else { PROMOTED };
        assert_eq!(map.gone_in(&view(now, heir, OF_Q)).len(), 0, "{now}");
    }
}
