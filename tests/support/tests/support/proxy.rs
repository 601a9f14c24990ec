//! The proxy in front of a real server: each fault does what it promises, and nothing else.

mod rig;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use distlock_support::{Action, Matcher, Mode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use rig::{Client, Rig};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn request_with_swallowed_reply_is_executed() {
    let rig = Rig::new().await;
    let incr = Matcher::command("INCR").nth(2);
    let armed = rig.proxy.on_request(incr, Action::SwallowReplyClose);
    let mut client = rig.client().await;
    client.cmd("INCR x\r\nPING").await;
    client.expect(":1\r\n+PONG\r\n").await;
    assert!(!armed.has_fired());
    client.cmd("PING\r\nINCR x\r\nPING").await;
    client.expect("+PONG\r\n").await;
    assert_eq!(client.end().await.expect("a clean end"), 0);
    armed.fired().await;
    assert!(armed.has_fired());
    assert_eq!(rig.x().await, Some(2));
    crate::until("no connection", async || rig.proxy.connections() == 0).await;
    assert_eq!(rig.proxy.requests_seen("incr"), 2);
    let mut client = rig.client().await;
    client.cmd("INCR x").await;
    client.expect(":3\r\n").await;
}

#[tokio::test]
async fn swallowed_and_hung_replies_never_arrive_and_a_duplicate_is_answered_once() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let armed = rig.proxy.on_request(Matcher::any().containing("x"), Action::Duplicate);
    client.send("*2\r\n$4\r\nINCR\r\n$1\r\nx\r\n").await;
    client.cmd("PING").await;
    client.expect(":1\r\n+PONG\r\n").await;
    assert!(armed.has_fired());
    assert_eq!(rig.x().await, Some(2));
    let incr = Matcher::command("INCR");
    rig.proxy.on_request(incr.clone(), Action::SwallowReply);
    client.cmd("INCR x\r\nPING").await;
    client.expect("+PONG\r\n").await;
    let armed = rig.proxy.on_request(incr, Action::HangReply);
    client.cmd("PING\r\nINCR x\r\nPING").await;
    client.expect("+PONG\r\n").await;
    armed.fired().await;
    client.silent_for(100 * MS).await;
    assert_eq!(rig.x().await, Some(4));
    drop(client);
    let closed = async || rig.proxy.connections() == 0 && rig.admin.others().await.is_empty();
    crate::until("closed connections", closed).await;
}

#[tokio::test]
async fn request_is_executed_only_if_not_dropped_or_closed_before() {
    let rig = Rig::new().await;
    let incr = || Matcher::command("INCR");
    let mut client = rig.client().await;
    let armed = rig.proxy.on_request(incr(), Action::DropRequest);
    client.cmd("INCR x\r\nPING").await;
    client.expect("+PONG\r\n").await;
    assert!(armed.has_fired());

    let armed = rig.proxy.on_request(incr(), Action::CloseBefore);
    client.cmd("PING\r\nINCR x").await;
    armed.fired().await;
    assert!(matches!(client.end().await, Ok(_) | Err(_)));
    assert_eq!(rig.x().await, None);

    let mut client = rig.client().await;
    let armed = rig.proxy.on_request(incr(), Action::CloseAfter);
    client.cmd("INCR x").await;
    assert_eq!(client.end().await.expect("a clean end"), 0);
    armed.fired().await;
    rig.until_x(1).await;
}

#[tokio::test]
async fn resets_reach_client_as_connection_reset() {
    let rig = Rig::new().await;
    let refused = async || {
        // The reset may arrive before the connect has returned.
        match TcpStream::connect(rig.proxy.addr()).await {
            Ok(stream) => Client(stream).end().await,
            Err(e) => Err(e),
        }
    };
    let reset = |end: std::io::Result<usize>| {
        assert_eq!(end.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    };
    let mut client = rig.client().await;
    rig.proxy.on_request(Matcher::command("INCR"), Action::Rst);
    client.cmd("INCR x").await;
    reset(client.end().await);
    assert_eq!(rig.x().await, None);

    let mut client = rig.client().await;
    rig.proxy.on_request(Matcher::command("INCR"), Action::SwallowReplyRst);
    client.cmd("INCR x").await;
    reset(client.end().await);
    assert_eq!(rig.x().await, Some(1));

    let mut client = rig.client().await;
    client.ping().await;
    rig.proxy.rst_all();
    reset(client.end().await);

    let mut client = rig.client().await;
    client.ping().await;
    rig.proxy.close_all();
    assert_eq!(client.end().await.expect("a clean end"), 0);

    rig.proxy.refuse(true);
    reset(refused().await);
    rig.proxy.refuse(false);
    let mut client = rig.client().await;
    rig.server.kill9();
    assert!(matches!(client.end().await, Ok(0) | Err(_)));
    reset(refused().await);
}

#[tokio::test]
async fn delays_and_jitter_add_latency() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    rig.proxy.set_upstream_mode(Mode::Delay(60 * MS));
    rig.proxy.set_downstream_mode(Mode::Delay(40 * MS));
    let start = Instant::now();
    // A pipeline of three takes as long as one command.
    client.cmd("INCR x\r\nINCR x\r\nINCR x").await;
    client.expect(":1\r\n:2\r\n:3\r\n").await;
    let took = start.elapsed();
    assert!(took >= 100 * MS, "{took:?}");
    rig.proxy.heal();

    let start = Instant::now();
    rig.proxy.on_request(Matcher::command("PING"), Action::Delay(50 * MS));
    rig.proxy.on_request(Matcher::command("ECHO"), Action::DelayReply(80 * MS));
    client.cmd("PING\r\nECHO a\r\nPING").await;
    client.expect("+PONG\r\n$1\r\na\r\n+PONG\r\n").await;
    let took = start.elapsed();
    assert!(took >= 130 * MS, "{took:?}");

    rig.proxy.set_downstream_mode(Mode::Jitter(10 * MS, 50 * MS));
    let start = Instant::now();
    client.cmd(&["PING"; 20].join("\r\n")).await;
    client.expect(&"+PONG\r\n".repeat(20)).await;
    assert!(start.elapsed() >= 10 * MS);
}

#[tokio::test]
async fn blackhole_keeps_bytes_and_connections_until_it_ends() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    client.ping().await;
    rig.proxy.blackhole(true);
    client.cmd("INCR x").await;
    let mut late = rig.client().await;
    late.cmd("INCR x").await;
    client.silent_for(100 * MS).await;
    late.silent_for(50 * MS).await;
    assert_eq!(rig.x().await, None);
    assert_eq!(rig.admin.client_kill_type("normal").await, 1);
    client.silent_for(50 * MS).await;
    rig.proxy.blackhole(false);
    assert!(matches!(client.end().await, Ok(0) | Err(_)));
    late.expect(":1\r\n").await;
}

#[tokio::test]
async fn hang_and_drop_affect_one_direction_only_and_split_bytes_arrive_whole() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    rig.proxy.set_downstream_mode(Mode::Hang);
    client.cmd("INCR x").await;
    rig.until_x(1).await;
    client.silent_for(100 * MS).await;
    rig.proxy.set_upstream_mode(Mode::Hang);
    rig.proxy.set_downstream_mode(Mode::Pass);
    client.expect(":1\r\n").await;
    client.cmd("INCR x").await;
    client.silent_for(100 * MS).await;
    assert_eq!(rig.x().await, Some(1));
    rig.proxy.set_upstream_mode(Mode::Pass);
    client.expect(":2\r\n").await;
    rig.proxy.set_upstream_mode(Mode::Drop);
    client.cmd("INCR x").await;
    rig.until_seen("INCR", 3).await;
    client.silent_for(50 * MS).await;
    assert_eq!(rig.x().await, Some(2));
    rig.proxy.set_upstream_mode(Mode::Pass);
    rig.proxy.set_downstream_mode(Mode::Drop);
    client.cmd("INCR x").await;
    rig.until_x(3).await;
    client.silent_for(50 * MS).await;
    rig.proxy.set_downstream_mode(Mode::Pass);
    client.cmd("INCR x").await;
    client.expect(":4\r\n").await;

    rig.proxy.set_upstream_mode(Mode::Split);
    rig.proxy.set_downstream_mode(Mode::Split);
    let text = "0123456789".repeat(300);
    client.send(&format!("*2\r\n$4\r\nECHO\r\n$3000\r\n{text}\r\n")).await;
    client.expect(&format!("$3000\r\n{text}\r\n")).await;
}

#[tokio::test]
async fn resp3_subscriptions_do_not_shift_reply_count() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    client.cmd("HELLO 3").await;
    client.expect("%7\r\n").await;
    client.cmd("PING").await;
    // The rest of the reply to HELLO ends with the modules, an empty list.
    let mut seen = String::new();
    while !seen.ends_with("+PONG\r\n") {
        seen.push(char::from(client.0.read_u8().await.expect("read")));
    }
    let armed = rig.proxy.on_request(Matcher::command("INCR"), Action::SwallowReply);
    client.cmd("SUBSCRIBE a b\r\nSUBSCRIBE\r\nINCR x\r\nPING").await;
    client.expect(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n").await;
    client.expect(">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n").await;
    client.expect("-ERR").await;
    while client.0.read_u8().await.expect("read") != b'\n' {}
    client.expect("+PONG\r\n").await;
    assert!(armed.has_fired());

    rig.proxy.on_request(Matcher::command("INCR"), Action::SwallowReply);
    // Only the server knows the number of confirmations of UNSUBSCRIBE.
    client.cmd("UNSUBSCRIBE\r\nINCR x\r\nECHO e").await;
    client.expect(">3\r\n$11\r\nunsubscribe\r\n$1\r\n").await;
    while client.0.read_u8().await.expect("read") != b':' {}
    client.expect("1\r\n>3\r\n$11\r\nunsubscribe\r\n$1\r\n").await;
    while client.0.read_u8().await.expect("read") != b':' {}
    client.expect("0\r\n$1\r\ne\r\n").await;
    assert_eq!(rig.x().await, Some(2));

    // A confirmation can be lost like a reply.
    rig.proxy.on_request(Matcher::command("SUBSCRIBE"), Action::SwallowReply);
    client.cmd("SUBSCRIBE c d\r\nPING").await;
    client.expect("+PONG\r\n").await;
    assert_eq!(rig.admin.numsub("d").await, 1);
}

#[tokio::test]
async fn resp2_messages_do_not_shift_reply_count() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    client.cmd("SUBSCRIBE c").await;
    client.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
    let armed = rig.proxy.on_request(Matcher::command("PING"), Action::SwallowReply);
    assert_eq!(rig.admin.publish("c", b"one").await, 1);
    let one = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$3\r\none\r\n";
    client.expect(one).await;
    client.cmd("PING").await;
    armed.fired().await;
    rig.proxy.set_downstream_mode(Mode::DropMessages);
    assert_eq!(rig.admin.publish("c", b"two").await, 1);
    client.cmd("PING").await;
    client.expect("*2\r\n$4\r\npong\r\n$0\r\n\r\n").await;
    rig.proxy.set_downstream_mode(Mode::Pass);
    rig.admin.publish("c", b"one").await;
    client.expect(one).await;
}

#[tokio::test]
async fn disarmed_action_does_not_fire_and_foreign_bytes_pass() {
    let rig = Rig::new().await;
    let armed = rig.proxy.on_request(Matcher::command("PING"), Action::CloseBefore);
    armed.disarm();
    let mut client = rig.client().await;
    client.ping().await;
    assert!(!armed.has_fired());
    let echo = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let echo = echo.expect("bind");
    rig.proxy.set_upstream(echo.local_addr().expect("addr"));
    let mut client = rig.client().await;
    client.send("\x16\x03\x01").await;
    let (mut stream, _) = echo.accept().await.expect("accept");
    let mut got = [0; 3];
    stream.read_exact(&mut got).await.expect("read");
    assert_eq!(&got, b"\x16\x03\x01");
    stream.write_all(b"\x15\x03").await.expect("write");
    client.expect("\x15\x03").await;
    let log = rig.proxy.log();
    assert!(log.iter().any(|(_, e)| e.contains("PING #1")), "{log:?}");
    drop(rig.proxy);
    assert!(matches!(client.end().await, Ok(0) | Err(_)));
}
