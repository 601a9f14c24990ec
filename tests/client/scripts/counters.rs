//! The scripts of permits, semaphores, latches and leaders.

use super::cases::{Case, LEASE, NEVER, Words, case, words};

/// The id of a permit has 16 bytes.
fn permit(n: usize) -> String {
    format!("permit{n:010}")
}

fn permits(count: usize) -> String {
    (0..count).map(permit).collect()
}

fn number(n: usize) -> Words {
    words(["SET", "x", &n.to_string()])
}

/// No permit is free, and this many have leases that end at this moment.
fn held(count: usize, end: &str) -> Vec<Words> {
    let leases = (0..count).flat_map(|n| [end.to_owned(), permit(n)]);
    vec![number(0), words(["ZADD", "l"]).into_iter().chain(leases).collect()]
}

/// Arguments of the command that has the first number of its token, and may come at any time.
fn once<const N: usize>(rest: [&str; N]) -> Words {
    words(["1", LEASE, "0"]).into_iter().chain(words(rest)).collect()
}

/// A moment that has passed.
const PAST: &str = "1";

pub const CASES: &[Case] = &[
    case(
        "permits/acquire",
        "permits",
        |_| 6,
        |n| (vec![number(n)], words(["x", "l"]), words([&permits(n), LEASE, "0", "publish", "c"])),
    ),
    case(
        "permits/acquire",
        "permits of a repeat",
        |k| 2 * k + 5,
        |n| (held(n, NEVER), words(["x", "l"]), words([&permits(n), LEASE, "0", "publish", "c"])),
    ),
    case(
        "permits/acquire",
        "permits that are not there",
        |k| k + 4,
        |n| (Vec::new(), words(["x", "l"]), words([&permits(n), LEASE, "0", "publish", "c"])),
    ),
    case(
        "permits/acquire",
        "expired permits",
        |_| 8,
        |n| (held(n, PAST), words(["x", "l"]), words([&permit(n), LEASE, "0", "publish", "c"])),
    ),
    case(
        "permits/release",
        "permits",
        |k| k + 5,
        |n| (held(n, NEVER), words(["x", "l"]), words([&permits(n), "0", "0", "publish", "c"])),
    ),
    case(
        "permits/extend",
        "permits",
        |k| k + 2,
        |n| (held(n, NEVER), words(["x", "l"]), words([&permits(n), LEASE, "0"])),
    ),
    case(
        "permits/renew",
        "holds",
        |k| 2 * k + 2,
        |n| {
            let keys = (0..n).flat_map(|_| words(["x", "l"])).collect();
            (held(n, NEVER), keys, words([LEASE, "0"]).into_iter().chain((0..n).map(permit)).collect())
        },
    ),
    case(
        "permits/renew",
        "permits of one hold",
        |k| k + 3,
        |n| (held(n, NEVER), words(["x", "l"]), words([LEASE, "0", &permits(n)])),
    ),
    case(
        "permits/set",
        "held permits",
        |_| 5,
        |n| (held(n, NEVER), words(["x", "l"]), words(["total", &(2 * n).to_string(), "0", "publish", "c"])),
    ),
    case("permits/count", "held permits", |_| 4, |n| (held(n, NEVER), words(["x", "l"]), Vec::new())),
    case("permits/holders", "held permits", |_| 3, |n| (held(n, NEVER), words(["l"]), words(["0", "0", "500"]))),
    case("permits/delete", "held permits", |_| 4, |n| (held(n, NEVER), words(["x", "l"]), words(["0"]))),
    case("semaphore/acquire", "permits", |_| 5, |n| (vec![number(n)], words(["x", "t"]), once([&n.to_string()]))),
    case(
        "semaphore/release",
        "permits",
        |_| 7,
        |n| (vec![number(n)], words(["x", "t"]), once([&n.to_string(), "1", "publish", "c"])),
    ),
    case(
        "semaphore/undo",
        "permits",
        |_| 6,
        |n| (vec![number(0), words(["SET", "t", "1:1"])], words(["x", "t"]), once([&n.to_string(), "publish", "c"])),
    ),
    case(
        "semaphore/set",
        "permits",
        |_| 4,
        |n| (vec![number(n)], words(["x"]), words(["add", &n.to_string(), "0", "0", "publish", "c"])),
    ),
    case(
        "latch/down",
        "the count",
        |_| 6,
        |n| (vec![number(n)], words(["x", "t"]), once([&n.to_string(), "publish", "c"])),
    ),
    case("latch/set", "the count", |_| 4, |n| (Vec::new(), words(["x"]), words([&n.to_string(), "0", "publish", "c"]))),
    case("common/number", "the number", |_| 1, |n| (vec![number(n)], words(["x"]), Vec::new())),
    case(
        "lead/announce",
        "bytes of the payload",
        |_| 3,
        |n| {
            let args = words(["o", "7", "1", &"p".repeat(n), "0", "publish", "c"]);
            (vec![words(["HSET", "x", "o", "1"])], words(["x"]), args)
        },
    ),
    case(
        "lead/leader",
        "bytes of the payload",
        |_| 1,
        |n| {
            let record = format!("7:1:{}", "p".repeat(n));
            (vec![words(["HSET", "x", "o", "1", "leader:holds", &record])], words(["x", "n"]), Vec::new())
        },
    ),
];
