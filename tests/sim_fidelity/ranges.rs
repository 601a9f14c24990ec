//! Commands of counters and sorted sets, with their options, and scripts with members of raw bytes.

use crate::{Agree, Dice, LEASES, command, script};

const COUNTERS: [&str; 2] = ["c", "d"];
const SETS: [&str; 2] = ["s", "t"];
const MEMBERS: [&str; 5] = ["m", "n", "o", "", "12"];
/// Valid steps, then invalid ones or ones that overflow.
const STEPS: [&str; 10] = ["1", "2", "0", "-3", "9223372036854775807", "-9223372036854775808", "x", "1.5", "+1", "01"];
const SCORES: [&str; 10] = ["1", "2", "2.5", "150", "1700000000123", "-1", "inf", "-inf", "nan", "x"];
const BOUNDS: [&str; 13] =
    ["-inf", "+inf", "0", "(1", "2", "(2.5", "151", "(1700000000123", "(-inf", "x", "(nan", "", " "];
const INDEXES: [&str; 7] = ["0", "1", "2", "-1", "-2", "x", "1.5"];
const COUNTS: [&str; 7] = ["1", "2", "0", "9", "-1", "-2", "x"];

/// Members that are not UTF-8, by functions of Lua that our scripts use. The scripts return counts as text, because the
/// conversion of a double of 2^63 depends on the processor.
const MEMBER: &str = r"
local function member(n)
  return string.char(n, 0, 255 - n, 10, 13) .. string.sub('\195\40abcdef', 1, n % 4)
end
";

const TAKE: &str = r"
local entries = {}
for _, n in ipairs(ARGV) do
  entries[#entries + 1] = math.max(math.min(n * 50, 180), 1)
  entries[#entries + 1] = member(tonumber(n))
end
local added = redis.call('zadd', KEYS[2], unpack(entries))
local left = redis.call('decrby', KEYS[1], added)
local some = redis.call('zrangebyscore', KEYS[2], '(1', math.ceil(150.5), 'WITHSCORES', 'LIMIT', 1, 3)
return {added, tostring(left), some}
";

const GIVE: &str = r"
local found = redis.call('zrangebyscore', KEYS[2], '-inf', ARGV[1], 'limit', 0, ARGV[2])
if #found == 0 then return false end
local removed = redis.call('zrem', KEYS[2], unpack(found))
local left, card = redis.call('zcount', KEYS[2], '-inf', '+inf'), redis.call('zcard', KEYS[2])
local free = redis.call('incrby', KEYS[1], removed)
return {table.concat(found, '|'), tostring(free), left, card}
";

fn with_members(source: &str, keys: [String; 2], args: &[String]) -> (Agree, Vec<String>) {
    script(&[MEMBER, source].concat(), &keys, args)
}

/// A command of a counter for the number `n` below 6.
fn counting(d: &mut Dice, counter: &str, n: usize) -> (Agree, Vec<String>) {
    let (step, lease) = (d.mostly(&STEPS, 4), d.mostly(&LEASES, 4));
    match n {
        0 => command(&["incrby", counter, &step]),
        1 => command(&["decrby", counter, &step]),
        2 => command(&["set", counter, &step, &d.of(&["nx", "XX", "keepttl", "px"]), &d.of(&["xx", "nx", "KEEPTTL"])]),
        3 => command(&["set", counter, &step, "px", &lease, &d.of(&["nx", "xx", "keepttl", "bad"])]),
        4 => command(&["set", counter, &step, "px", &lease, "PX", &d.mostly(&LEASES, 4)]),
        _ => {
            let (one, two) = (d.of(&["nx", "xx", "GT", "LT"]), d.of(&["nx", "xx", "gt", "lt", "bad"]));
            command(&["pexpire", counter, &lease, &one, &two])
        }
    }
}

/// A command of a sorted set for the number `n` below 10.
fn sorting(d: &mut Dice, set: &str, n: usize) -> (Agree, Vec<String>) {
    let (score, member) = (d.mostly(&SCORES, 5), d.of(&MEMBERS));
    let (min, max) = (d.mostly(&BOUNDS, 9), d.mostly(&BOUNDS, 9));
    let (offset, count) = (d.of(&COUNTS), d.of(&COUNTS));
    match n {
        0 => command(&["zadd", set, &score, &member, &d.mostly(&SCORES, 5), &d.of(&MEMBERS)]),
        1 => {
            command(&["zadd", set, &d.of(&["xx", "nx", "XX"]), &score, &member, &d.mostly(&SCORES, 5), &d.of(&MEMBERS)])
        }
        2 => command(&["zrem", set, &member, &d.of(&MEMBERS), &d.of(&MEMBERS)]),
        3 => command(&["zcount", set, &min, &max]),
        4 => command(&["zrangebyscore", set, &min, &max]),
        5 => command(&["zrangebyscore", set, &min, &max, "LIMIT", &offset, &count]),
        6 => command(&["zrangebyscore", set, &min, &max, "limit", &offset, &count, &d.of(&["WITHSCORES", "bad"])]),
        7 => command(&["zrangebyscore", set, &min, &max, &d.of(&["withscores", "limit"]), "limit", &offset, &count]),
        8 => command(&["zrange", set, &d.of(&INDEXES), &d.of(&INDEXES), "withscores", &d.of(&["withscores", "bad"])]),
        _ => command(&["zrange", set, &d.of(&INDEXES), &d.of(&INDEXES), "limit", &offset, &count]),
    }
}

/// One random command or script.
pub(crate) fn draw(d: &mut Dice, _: i64) -> (Agree, Vec<String>) {
    let (mut counter, mut set) = (d.of(&COUNTERS), d.of(&SETS));
    // Now and then keys of the wrong type.
    if d.roll(12) == 0 {
        std::mem::swap(&mut counter, &mut set);
    }
    let other = d.of(&["c", "d", "s", "t"]);
    match d.roll(28) {
        0..5 => {
            let ns: Vec<String> = (0..=d.roll(4)).map(|_| d.of(&["1", "2", "3", "4", "5", "200"])).collect();
            with_members(TAKE, [counter, set], &ns)
        }
        5..9 => with_members(GIVE, [counter, set], &[d.mostly(&BOUNDS, 9), d.mostly(&COUNTS, 4)]),
        n @ 9..15 => counting(d, &counter, n - 9),
        n @ 15..25 => sorting(d, &set, n - 15),
        25 => {
            let name = d.of(&["pttl", "get", "zcard", "incrby", "decrby", "zrangebyscore", "pexpire"]);
            command(&[name.as_str(), &other])
        }
        26 => command(&["pexpire", &other, &d.mostly(&LEASES, 4)]),
        _ => command(&["del", &other]),
    }
}
