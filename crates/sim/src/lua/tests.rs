use super::*;

const WRONG: &str = crate::store::WRONG_TYPE;

fn sample(name: &str) -> &'static str {
    let start = format!("--- {name}\n");
    let (_, rest) = include_str!("../samples.lua").split_once(&start).unwrap();
    rest.split("--- ").next().unwrap()
}

fn word(text: &'static [u8]) -> std::iter::Once<Word<'static>> {
    std::iter::once(Word::Text(text))
}

fn run(store: &mut Store, source: &str) -> SimReply {
    let sha = Bytes::from(sha1hex(source.as_bytes()));
    eval(store, &sha, source, word(b"k"), word(b"a"))
}

fn text(text: &'static str) -> SimReply {
    SimReply::Text(Bytes::from_static(text.as_bytes()))
}

fn said(reply: &SimReply) -> &str {
    reply.error().unwrap()
}

#[test]
fn lua_values_become_replies_as_in_redis() {
    let store = &mut Store::default();
    let cut = SimReply::List(vec![SimReply::Int(1), SimReply::Nil, text("x")]);
    assert_eq!(run(store, "return"), SimReply::Nil);
    assert_eq!(run(store, "return false"), SimReply::Nil);
    assert_eq!(run(store, "return true"), SimReply::Int(1));
    assert_eq!(run(store, "return 3.99"), SimReply::Int(3));
    assert_eq!(run(store, "return -3.99"), SimReply::Int(-3));
    assert_eq!(run(store, "return '3.99'"), text("3.99"));
    assert_eq!(run(store, "return {1, false, 'x', nil, 5}"), cut);
    assert_eq!(run(store, "return {ok='fine'}"), SimReply::Status("fine".into()));
    assert_eq!(run(store, "return {err='BAD thing'}"), SimReply::Error("BAD thing".into()));
    assert_eq!(run(store, "return KEYS[1] .. ARGV[1]"), text("ka"));
    assert_eq!(said(&run(store, "return redis.error_reply('WRONGTYPE no')")), "WRONGTYPE no");
    assert_eq!(said(&run(store, "return redis.error_reply('no')")), "ERR no");
    assert_eq!(run(store, "return redis.status_reply('no')"), SimReply::Status("no".into()));
    let hex = text("e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    assert_eq!(run(store, "return redis.sha1hex('return 1')"), hex);
}

#[test]
fn binary_arguments_and_replies_are_preserved() {
    let store = &mut Store::default();
    let source = "return KEYS[1] .. ARGV[1]";
    let sha = Bytes::from(sha1hex(source.as_bytes()));
    let reply = eval(store, &sha, source, word(b"\xff\0"), word(b"\x80\r\n"));
    assert_eq!(reply, SimReply::Text(Bytes::from_static(b"\xff\0\x80\r\n")));
}

#[test]
fn script_errors_have_redis_form_and_roll_back_no_writes() {
    let store = &mut Store::default();
    let bad = sample("half way");
    let sha = sha1hex(bad.as_bytes());
    assert_eq!(said(&run(store, bad)), format!("{WRONG} script: {sha}, on @user_script:2."));
    assert_eq!(run(store, sample("get k")), text("v"));
    assert_eq!(run(store, sample("pcall")), text(WRONG));
    assert_eq!(run(store, sample("lua pcall")), SimReply::List(vec![SimReply::Nil, text(WRONG)]));
}

#[test]
fn invalid_scripts_fail_with_redis_errors() {
    let store = &mut Store::default();
    let mut refused = |source, why| {
        let reply = run(store, source);
        assert!(said(&reply).contains(why), "{reply:?}");
    };
    refused(sample("unknown command"), "ERR Unknown Redis command called from script");
    refused(sample("wrong arity"), "ERR Wrong number of args calling Redis command");
    refused(sample("not a word"), "ERR Lua redis lib command arguments must be strings or integers");
    refused("return nope", "nonexistent global variable 'nope'");
    refused("nope = 1", "readonly table");
    refused("return (", "ERR Error compiling script");
    refused("local x = nil + 1", "user_script:1: attempt to perform arithmetic");
}

#[test]
fn numeric_arguments_are_formatted_like_percent_17_g() {
    let store = &mut Store::default();
    assert_eq!(run(store, sample("numbers")), SimReply::List(vec![text("3"), text("1.1000000000000001")]));
}

#[test]
fn functions_of_lua_build_members_of_raw_bytes() {
    let store = &mut Store::default();
    let member = SimReply::Text(Bytes::from_static(b"\xff\0\nbc"));
    let expected = vec![SimReply::List(vec![member, text("2")]), text("1,2,3"), SimReply::Int(13), SimReply::Int(2)];
    assert_eq!(run(store, sample("functions")), SimReply::List(expected));
}

#[test]
fn script_uses_clock_of_store() {
    let store = &mut Store::default();
    store.set_clock(5_000_123);
    assert_eq!(run(store, sample("clock")), SimReply::List(vec![text("5"), text("123")]));
    assert_eq!(store.entry(b"c").unwrap().until, Some(5_005));
}

#[test]
fn published_message_is_queued_only_with_subscribers() {
    let store = &mut Store::default();
    assert_eq!(run(store, sample("tell")), SimReply::Int(0));
    assert!(store.outbox.is_empty());
    store.audience.insert(Bytes::from_static(b"k"), 2);
    assert_eq!(run(store, sample("tell")), SimReply::Int(2));
    assert_eq!(store.outbox.len(), 1);
}
