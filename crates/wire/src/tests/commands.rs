//! Commands whose connection breaks, is silent or is full.

use super::*;

#[tokio::test]
async fn partly_written_command_is_lost_and_unsent_command_goes_to_the_next_connection() {
    let server = Server::start().await;
    let (connections, mut commands, _messages) = server.connect(Duration::from_secs(30)).await;
    let (mut cut, mut next) = (connections.run(huge()), connections.run(call("next")));
    sent(cut.as_mut());
    sent(next.as_mut());
    // Part of the command has arrived.
    assert!(commands.number().await > 0);
    drop(commands);
    let fault = cut.await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Lost, "{fault:?}");
    let mut commands = server.accept().await;
    assert_eq!(commands.word().await, b"next");
    commands.say(":5\r\n").await;
    assert_eq!(next.await.unwrap(), Reply::Int(5));
}

#[tokio::test]
async fn dropped_future_does_not_shift_replies() {
    let server = Server::start().await;
    let (connections, mut commands, _messages) = server.connect(Duration::from_secs(30)).await;
    let (mut cut, mut next) = (connections.run(huge()), connections.run(call("next")));
    sent(cut.as_mut());
    drop(cut);
    sent(next.as_mut());
    assert_eq!(commands.word().await.len(), 32 << 20);
    assert_eq!(commands.word().await, b"next");
    // The reply arrives byte by byte.
    for byte in ":4\r\n$3\r\na\r\n\r\n".split_inclusive("") {
        commands.say(byte).await;
    }
    assert_eq!(next.await.unwrap(), Reply::Text(Bytes::from_static(b"a\r\n")));
}

#[tokio::test]
async fn late_reply_does_not_answer_the_next_command() {
    let server = Server::start().await;
    let (connections, mut commands, _messages) = server.connect(ms(300)).await;
    let fault = connections.run(call("late")).await.unwrap_err();
    assert!(fault.kind == FaultKind::TimedOut && fault.in_doubt(), "{fault:?}");
    let mut next = connections.run(call("next"));
    sent(next.as_mut());
    assert_eq!((commands.word().await, commands.word().await), (b"late".to_vec(), b"next".to_vec()));
    commands.say(":1\r\n:2\r\n").await;
    assert_eq!(next.await.unwrap(), Reply::Int(2));
}

#[tokio::test]
async fn command_behind_a_full_socket_counts_as_not_sent() {
    let server = Server::start().await;
    let (connections, mut commands, _messages) = server.connect(ms(300)).await;
    let (mut cut, next) = (connections.run(huge()), connections.run(call("next")));
    sent(cut.as_mut());
    let (cut, next) = tokio::join!(cut, next);
    assert_eq!((cut.unwrap_err().kind, next.unwrap_err().kind), (FaultKind::TimedOut, FaultKind::NotSent));
    // The two timeouts together have the connection replaced.
    let mut replacement = server.accept().await;
    let mut last = connections.run(call("last"));
    sent(last.as_mut());
    assert_eq!(replacement.word().await, b"last");
    replacement.say("+OK\r\n").await;
    assert_eq!(last.await.unwrap(), Reply::Text(Bytes::from_static(b"OK")));
    let mut rest = Vec::new();
    let _ = commands.0.read_to_end(&mut rest).await;
    assert!(!rest.windows(4).any(|bytes| bytes == b"next"), "it never left");
}

#[tokio::test]
async fn command_that_waits_for_a_connection_counts_as_not_sent() {
    let server = Server::start().await;
    let (connections, commands, _messages) = server.connect(ms(200)).await;
    drop((commands, server));
    let fault = loop {
        // The first call may be lost with the connection.
        let fault = connections.run(call("a")).await.unwrap_err();
        if fault.kind != FaultKind::Lost {
            break fault;
        }
    };
    assert!(fault.kind == FaultKind::NotSent && !fault.in_doubt(), "{fault:?}");
    assert!(fault.message.contains("refused"), "{fault:?}");
    connections.close(ms(500)).await;
    assert_eq!(connections.run(call("b")).await.unwrap_err().kind, FaultKind::Closed);
}

/// No reply makes the client use memory or stack without bound.
#[tokio::test]
async fn hostile_replies_end_the_connection() {
    let deep = "*1\r\n".repeat(1 << 20);
    for odd in [&*deep, "$9999999999\r\n", "*2147483647\r\n", "HTTP/1.1 400 Bad Request\r\n", "\0\r\n", ":1\r\n:2\r\n"]
    {
        let server = Server::start().await;
        let (connections, mut commands, _messages) = server.connect(Duration::from_secs(30)).await;
        let mut asked = connections.run(call("a"));
        sent(asked.as_mut());
        commands.word().await;
        // The client may close the connection before all is written.
        let _ = commands.0.write_all(odd.as_bytes()).await;
        let outcome = asked.await;
        let is_answered = odd.starts_with(':') && outcome.is_ok();
        assert!(is_answered || outcome.is_err_and(|fault| fault.kind == FaultKind::Lost));
        // The connection is replaced.
        server.accept().await;
    }
}

#[test]
fn commands_fail_after_the_end_of_the_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (connections, mut under_way) = runtime.block_on(async {
        let server = Server::start().await;
        let (connections, _commands, _messages) = server.connect(Duration::from_secs(30)).await;
        let mut under_way = connections.run(call("a"));
        sent(under_way.as_mut());
        (connections, under_way)
    });
    drop(runtime);
    let polled = under_way.as_mut().poll(&mut Context::from_waker(noop_waker_ref()));
    let Poll::Ready(Err(fault)) = polled else { panic!("{polled:?}") };
    assert!(matches!(fault.kind, FaultKind::RuntimeGone | FaultKind::Lost), "{fault:?}");
    let after = futures::executor::block_on(connections.run(call("b"))).unwrap_err();
    assert_eq!(after.kind, FaultKind::RuntimeGone);
    let after = futures::executor::block_on(connections.subscribe(Bytes::from_static(b"c"))).unwrap_err();
    assert_eq!(after.kind, FaultKind::RuntimeGone);
}
