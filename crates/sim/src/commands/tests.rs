use super::*;

/// Commands, and the reply of each: an integer, a quoted text, `+status`, `-error` or a list.
const SESSIONS: [(&str, &str); 21] = [
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
        "pexpire sets a lease only on its terms",
        "set k v -> +OK
         pexpire k 50 xx -> 0
         pexpire k 50 gt -> 0
         pexpire k 50 NX -> 1
         pexpire k 70 nx -> 0
         pexpire k 50 xx gt -> 0
         pexpire k 70 gt -> 1
         pexpire k 70 lt -> 0
         pexpire k 60 lt -> 1
         pttl k -> 60
         pexpire none 50 nx -> 0
         pexpire k x soon -> -ERR Unsupported option soon
         pexpire k x nx lt -> -ERR NX and XX, GT or LT options at the same time are not compatible
         pexpire k x gt lt -> -ERR GT and LT options at the same time are not compatible
         pexpire k x nx -> -ERR value is not an integer or out of range",
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
         set k 2 px 5 px 7 nope -> -ERR syntax error
         set k 2 px x nope -> -ERR syntax error
         set k 2 px 5 px 7 -> +OK
         pttl k -> 7",
    ),
    (
        "set xx replaces only an existing key, and keepttl keeps its lease",
        "set k 1 xx -> nil
         exists k -> 0
         set k 1 KEEPTTL -> +OK
         pttl k -> -1
         set k 2 XX px 50 -> +OK
         set k 3 xx keepttl -> +OK
         get k -> \"3\"
         pttl k -> 50
         set k 4 nx xx -> -ERR syntax error
         set k 4 px 5 keepttl -> -ERR syntax error
         set k 4 keepttl px 5 -> -ERR syntax error",
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
        "incrby and decrby create a key, and keep the lease of an existing one",
        "incrby k 5 -> 5
         pexpire k 50 -> 1
         decrby k 7 -> -2
         incrby k -1 -> -3
         get k -> \"-3\"
         pttl k -> 50
         decrby n 4 -> -4",
    ),
    (
        "incrby and decrby refuse a text, an overflow and another type",
        "incrby k -> -ERR wrong number of arguments for 'incrby' command
         incrby k 1.5 -> -ERR value is not an integer or out of range
         decrby k -9223372036854775808 -> -ERR decrement would overflow
         exists k -> 0
         incrby k -9223372036854775808 -> -9223372036854775808
         decrby k 1 -> -ERR increment or decrement would overflow
         set k 9223372036854775807 -> +OK
         incrby k 1 -> -ERR increment or decrement would overflow
         set k 01 -> +OK
         decrby k 1 -> -ERR value is not an integer or out of range
         hset h f v -> 1
         incrby h x -> -ERR value is not an integer or out of range
         incrby h 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value",
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
    (
        "zadd and zrem take many members, and zadd with a bad score adds none",
        r#"zadd z 2 b 1 a 3 b -> 2
           zrange z 0 -1 WITHSCORES -> ["a", "1", "b", "3"]
           zadd z 1 c x d -> -ERR value is not a valid float
           zadd z 1 c 2 -> -ERR syntax error
           zcard z -> 2
           zrem z a a nope -> 1
           zrem none a b -> 0
           set s 1 -> +OK
           zrem s a -> -WRONGTYPE Operation against a key holding the wrong kind of value
           zcard s -> -WRONGTYPE Operation against a key holding the wrong kind of value"#,
    ),
    (
        "zrange accepts repeated scores, and refuses a limit",
        "zadd z 1 a -> 1
         zrange z 0 -1 withscores withscores -> [\"a\", \"1\"]
         zrange z 0 -1 limit 0 -1 -> [\"a\"]
         zrange z x y limit 0 1 -> \
         -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX
         zrange z 0 -1 limit 0 -> -ERR syntax error
         zrange z 0 x -> -ERR value is not an integer or out of range",
    ),
    (
        "zrangebyscore selects between closed and open bounds",
        r#"zadd z 1 a 2 b 2 c 3.5 d -> 4
           zrangebyscore z -inf +inf -> ["a", "b", "c", "d"]
           zrangebyscore z 2 3.5 WITHSCORES -> ["b", "2", "c", "2", "d", "3.5"]
           zrangebyscore z (1 (3.5 -> ["b", "c"]
           zrangebyscore z (2 inf -> ["d"]
           zrangebyscore z (-inf (+inf -> ["a", "b", "c", "d"]
           zrangebyscore z 3 2 -> []
           zrangebyscore z (2 2 -> []
           zrangebyscore none 0 1 -> []"#,
    ),
    (
        "zrangebyscore skips and limits what it selects",
        r#"zadd z 1 a 2 b 3 c 4 d -> 4
           zrangebyscore z 2 4 LIMIT 1 1 -> ["c"]
           zrangebyscore z 2 4 limit 1 9 withscores -> ["c", "3", "d", "4"]
           zrangebyscore z 2 4 withscores limit 0 1 -> ["b", "2"]
           zrangebyscore z 2 4 limit 1 -1 -> ["c", "d"]
           zrangebyscore z 2 4 limit 0 0 -> []
           zrangebyscore z 2 4 limit 3 1 -> []
           zrangebyscore z 2 4 limit -1 2 -> []
           zrangebyscore z 2 4 limit 0 1 limit 2 1 -> ["d"]"#,
    ),
    (
        "zrangebyscore refuses wrong words in Redis' order",
        "zrangebyscore z 0 -> -ERR wrong number of arguments for 'zrangebyscore' command
         zrangebyscore z x y limit 0 -> -ERR syntax error
         zrangebyscore z x y nope -> -ERR syntax error
         zrangebyscore z x y limit 0 z nope -> -ERR value is not an integer or out of range
         zrangebyscore z x 1 -> -ERR min or max is not a float
         zrangebyscore z 1 (nan -> -ERR min or max is not a float
         set s 1 -> +OK
         zrangebyscore s x 1 -> -ERR min or max is not a float
         zrangebyscore s 0 1 -> -WRONGTYPE Operation against a key holding the wrong kind of value",
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
fn members_of_raw_bytes_are_ordered_and_replied_unchanged() {
    const LOW: &[u8; 16] = b"\0\xff\r\n \"\x80\0\0\0\0\0\0\0\0\0";
    const HIGH: &[u8; 16] = b"\xfe\xff\r\n \"\x80\0\0\0\0\0\0\0\0\0";
    let mut store = Store::default();
    let mut run = |words: &[&[u8]]| {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for word in words {
            bytes.extend_from_slice(word);
            ends.push(bytes.len());
        }
        direct(&mut store, &Words::new(&bytes, &ends))
    };
    let list = |members: &[&'static [u8]]| {
        SimReply::List(members.iter().map(|member| SimReply::Text(Bytes::from_static(member))).collect())
    };
    assert_eq!(run(&[b"zadd", b"z", b"7", HIGH, b"7", LOW]), SimReply::Int(2));
    assert_eq!(run(&[b"zrange", b"z", b"0", b"-1"]), list(&[LOW, HIGH]));
    assert_eq!(run(&[b"zrangebyscore", b"z", b"7", b"7", b"limit", b"1", b"1"]), list(&[HIGH]));
    assert_eq!(run(&[b"zscore", b"z", HIGH]), SimReply::Text(Bytes::from_static(b"7")));
    assert_eq!(run(&[b"zrem", b"z", LOW, &HIGH[..15]]), SimReply::Int(1));
    assert_eq!(run(&[b"zrange", b"z", b"0", b"-1", b"withscores"]), list(&[HIGH, b"7"]));
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
