//! Logins, and the pauses between attempts to connect.

use super::*;
use crate::Secret;
use crate::dial::Dialer;

/// A server that knows neither `HELLO` nor `AUTH` repeats their arguments in its error.
#[tokio::test]
async fn refused_login_does_not_repeat_the_password() {
    let server = Server::start().await;
    let password = Some(Secret("s3cret".to_owned()));
    let dialer = Dialer::new(Target { password, ..server.target() }, &Settings::default());
    let refusing = async {
        let mut peer = Peer(BufReader::new(server.0.accept().await.unwrap().0));
        for name in ["HELLO", "AUTH"] {
            assert_eq!(peer.words().await[0], name.as_bytes());
            peer.say(&format!("-ERR unknown command '{name}', with args beginning with: 's3cret' \r\n")).await;
        }
    };
    let (opened, ()) = tokio::join!(dialer.open(), refusing);
    let trouble = opened.err().unwrap();
    assert!(trouble.message.ends_with("ERR unknown command 'AUTH'"), "{trouble:?}");
    assert!(trouble.source.is_none(), "{trouble:?}");
}

/// The server is older than Redis 6, or there is an old proxy in front of it.
#[tokio::test]
async fn server_without_hello_is_used_with_resp2() {
    let server = Server::start().await;
    let login = Some(Secret("o'brien".to_owned()));
    let target =
        Target { username: login, password: Some(Secret("a b\r\n".to_owned())), database: 3, ..server.target() };
    let settings = Settings::default();
    let logged_in = async || {
        let mut peer = Peer(BufReader::new(server.0.accept().await.unwrap().0));
        assert_eq!(peer.words().await, [&b"HELLO"[..], b"3", b"AUTH", b"o'brien", b"a b\r\n"]);
        peer.say("-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n").await;
        assert_eq!(peer.words().await, [&b"AUTH"[..], b"o'brien", b"a b\r\n"]);
        peer.say("+OK\r\n").await;
        assert_eq!(peer.words().await, [b"PING"]);
        peer.say("+PONG\r\n").await;
        assert_eq!(peer.words().await, [&b"SELECT"[..], b"3"]);
        peer.say("+OK\r\n").await;
        peer
    };
    let both = async { (logged_in().await, logged_in().await) };
    let (connections, (first, second)) = tokio::join!(Connections::connect(target, &settings, false, false), both);
    let connections = connections.unwrap();
    let (mut commands, mut messages) = commands(&connections, first, second).await;
    let mut asked = connections.run(call("a"));
    sent(asked.as_mut());
    commands.say("$-1\r\n").await;
    assert_eq!(asked.await.unwrap(), Reply::Nil);
    let subscribing = connections.subscribe(Bytes::from_static(b"c"));
    messages.word().await;
    messages.say("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
    subscribing.await.unwrap();
}

/// The server accepts connections and does nothing else. The pauses grow up to 320 ms.
#[tokio::test]
async fn reconnect_pauses_grow_while_server_is_unusable() {
    const SPAN: Duration = Duration::from_secs(4);
    let server = Server::start().await;
    let (connections, first, second) = server.connect(Duration::from_secs(30)).await;
    drop((first, second));
    let mut count = 0;
    let connecting = async {
        loop {
            server.accept().await.say("HTTP/1.1 400 Bad Request\r\n").await;
            count += 1;
        }
    };
    assert!(tokio::time::timeout(SPAN, connecting).await.is_err());
    // Two connections double their pauses from 20 ms: about 18 attempts each in 4 s. With constant pauses of 20 ms it
    // would be 230 each.
    assert!((4..=60).contains(&count), "{count} connections in {SPAN:?}");
    drop(connections);
}
