use super::*;

/// Commands, and the reply of each: an integer, a quoted text, `+status`, `-error` or a list.
const SESSIONS: [(&str, &str); 12] = [
    (
        "unknown commands and wrong arity give Redis' errors",
        "GET -> -ERR wrong number of arguments for 'get' command
         nope a -> -ERR unknown command 'nope', with args beginning with: 'a'
         hset h f v g -> -ERR wrong number of arguments for 'hset' command",
    ),
    (
        "hincrby refuses a text, an overflow and another type",
        "hset h f x g 9223372036854775807 -> 2
         hincrby h f 1 -> -ERR hash value is not an integer
         hincrby h g 1 -> -ERR increment or decrement would overflow
         set s 1 -> +OK
         hincrby s g 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value",
    ),
    (
        "hdel of the last field removes the key",
        "hset h f x -> 1
         hdel h f g -> 1
         exists h -> 0",
    ),
    (
        "pttl may be 0, and pexpire of 0 deletes",
        "clock 1000000000
         set k v -> +OK
         pexpire k 10 -> 1
         clock 1000010999
         pttl k -> 0
         clock 1000011000
         pttl k -> -2
         set k v -> +OK
         pttl k -> -1
         pexpire k 0 -> 1
         exists k -> 0",
    ),
    (
        "invalid times of expiry give Redis' errors",
        "clock 1000000000
         pexpire k 9223372036854775807 -> -ERR invalid expire time in 'pexpire' command
         pexpire k x -> -ERR value is not an integer or out of range",
    ),
    (
        "lset replaces an element, and refuses a missing one",
        r#"rpush l a b -> 2
           lset l -1 "" -> +OK
           lindex l 1 -> ""
           lset l 2 c -> -ERR index out of range
           lset m 0 c -> -ERR no such key"#,
    ),
    (
        "lrem removes from the end if the count is negative",
        r#"rpush l a b a c a -> 5
           lrem l -1 a -> 1
           lindex l -1 -> "c"
           lrem l 1 a -> 1
           lindex l 0 -> "b"
           lindex l -9 -> nil"#,
    ),
    (
        "set applies or clears the lease",
        "set k 1 PX 50 -> +OK
         pttl k -> 50
         set k 2 -> +OK
         pttl k -> -1
         set k 2 px 0 -> -ERR invalid expire time in 'set' command
         set k 2 px -> -ERR syntax error
         set k 2 nx px -> -ERR syntax error
         set k 2 px 5 px 5 -> -ERR syntax error
         set k 2 xx -> -ERR syntax error",
    ),
    (
        "set nx sets only a missing key, of any type",
        "set k 1 NX PX 50 -> +OK
         set k 1 NX PX 50 -> nil
         set k 2 px 70 nx -> nil
         pttl k -> 50
         hset h f v -> 1
         set h 2 nx -> nil
         set h 2 -> +OK",
    ),
    (
        "incr keeps the lease, and refuses an overflow",
        "set k 9223372036854775806 px 50 -> +OK
         incr k -> 9223372036854775807
         incr k -> -ERR increment or decrement would overflow
         pttl k -> 50",
    ),
    (
        "zadd xx adds no member, and ch counts changes",
        "zadd z xx ch 1 a -> 0
         exists z -> 0
         zadd z 1 a 2 b -> 2
         zadd z XX CH 1 a 3 b 4 c -> 1
         zscore z c -> nil
         zadd z ch 5 a 6 d -> 2",
    ),
    (
        "zrange and zcount select by index and by score",
        r#"zadd z 3 c 1 a 2 b -> 3
           zrange z 0 0 withscores -> ["a", "1"]
           zrange z -2 -1 -> ["b", "c"]
           zcount z -inf 2 -> 2
           zincrby z 0.5 a -> "1.5"
           zcount z (2 +inf -> 1
           zrem z a b c -> 3
           exists z -> 0"#,
    ),
];

fn shown(reply: &SimReply) -> String {
    match reply {
        SimReply::Nil => "nil".to_owned(),
        SimReply::Int(int) => int.to_string(),
        SimReply::Status(text) => format!("+{text}"),
        SimReply::Error(text) => format!("-{}", text.trim_end()),
        SimReply::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        SimReply::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
    }
}

#[test]
fn commands_reply_as_in_redis() {
    for (rule, session) in SESSIONS {
        let mut store = Store::default();
        for line in session.lines().map(str::trim) {
            if let Some(micros) = line.strip_prefix("clock ") {
                store.set_clock(micros.parse().unwrap());
                continue;
            }
            let (command, expected) = line.split_once(" -> ").unwrap();
            let words: Vec<_> = command.split(' ').map(|word| word.trim_matches('"')).collect();
            assert_eq!(shown(&run(&mut store, &words)), expected, "{rule}: {command}");
        }
    }
}

#[test]
fn window_counts_negative_indexes_from_the_end() {
    assert_eq!(window(0, -1, 3), 0..3);
    assert_eq!(window(-2, -1, 3), 1..3);
    assert_eq!(window(-9, 0, 3), 0..1);
    assert_eq!(window(2, 1, 3), 0..0);
    assert_eq!(window(0, -4, 3), 0..0);
    assert_eq!(window(5, 9, 3), 0..0);
}
