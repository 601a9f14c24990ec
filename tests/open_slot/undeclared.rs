//! Server errors for keys that a script does not declare. Commands that batch many names of a server declare no keys.

use distlock_support::cluster::{SLOTS, key_in};
use distlock_support::{Cluster, Node, slot_of};

use super::slot::NAME;
use super::two_nodes;

/// Writes each key in its arguments, and returns the error of each write that failed.
const EACH: &str = "
local out = {}
for i, key in ipairs(ARGV) do
  local reply = redis.pcall('hset', key, 'field', 'value')
  out[i] = type(reply) == 'table' and reply.err or ''
end
return out";

/// Reads all keys in its arguments, and fails at the first unreadable key.
const ALL: &str = "
for _, key in ipairs(ARGV) do redis.call('exists', key) end
return 'read'";

/// Names in other slots of the node that has this one.
async fn names_of(cluster: &Cluster, node: &Node, count: usize) -> Vec<String> {
    let map = cluster.agreed().await;
    let its = (0..SLOTS).filter(|slot| *slot != slot_of(NAME) && map.owner(*slot) == Some(node.id()));
    its.take(count).map(|slot| key_in(slot, "k")).collect()
}

async fn each(node: &Node, asking: bool, keys: &[&str]) -> Vec<String> {
    if asking {
        node.admin().cmd::<()>(&["ASKING"]).await;
    }
    node.admin().cmd(&[&["EVAL", EACH, "0"], keys].concat()).await
}

async fn all(node: &Node, asking: bool, keys: &[&str]) -> Result<String, String> {
    if asking {
        node.admin().cmd::<()>(&["ASKING"]).await;
    }
    let said = node.admin().raw(&[&["EVAL", ALL, "0"], keys].concat()).await.map_err(|error| error.to_string())?;
    redis::from_redis_value(said).map_err(|error| error.to_string())
}

#[tokio::test]
async fn script_may_touch_undeclared_keys_of_whole_slots_of_its_server() {
    let cluster = two_nodes().await;
    let source = cluster.primary_of(NAME).await;
    let target = cluster.other_primary(source).await;
    let here = names_of(&cluster, source, 3).await;
    let there = names_of(&cluster, target, 1).await;
    let [one, two, three] = [0, 1, 2].map(|n| here[n].as_str());
    assert_eq!(each(source, false, &[one, two, three]).await, ["", "", ""], "several slots");
    assert_eq!(all(source, false, &[one, two, three]).await.as_deref(), Ok("read"));
    let tell = |what: &str, said: &str| println!("{what}: {said}");
    let refused = |what: &str, said: Vec<String>, which: &[bool]| {
        let are: Vec<bool> = said.iter().map(|why| !why.is_empty()).collect();
        assert_eq!(are, which, "{what}: {said:?}");
        tell(what, said.iter().find(|why| !why.is_empty()).map_or("", String::as_str));
    };
    let foreign = each(source, false, &[one, &there[0], two]).await;
    refused("of a slot that it has not, in a script that goes on", foreign, &[false, true, false]);
    tell("of a slot that it has not", &all(source, false, &[one, &there[0]]).await.unwrap_err());

    let (is, gone, slot) = (format!("{{{NAME}}}is"), format!("{{{NAME}}}gone"), slot_of(NAME));
    assert_eq!(each(source, false, &[&is, &gone]).await, ["", ""]);
    cluster.open_slot(slot, target).await;
    cluster.move_keys(slot, &[&gone]).await;
    let open = each(source, false, &[one, &is, &gone, two]).await;
    refused(
        "of an open slot at its source, where it is not, in a script that goes on",
        open,
        &[false, false, true, false],
    );
    tell("the same", &all(source, false, &[&is, &gone]).await.unwrap_err());
    let open = each(target, false, &[&there[0], &gone, &is]).await;
    refused("of an open slot at its target, in a script that goes on", open, &[false, true, true]);
    tell("the same", &all(target, false, &[&gone]).await.unwrap_err());
    // Behind `ASKING` the key counts as free, although the source has it.
    assert_eq!(all(target, true, &[&gone, &is]).await.as_deref(), Ok("read"));
    assert_eq!(each(target, true, &[&gone, &is]).await, ["", ""]);
}
