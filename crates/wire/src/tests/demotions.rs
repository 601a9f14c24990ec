//! Connections follow the demotion of their server.

use std::sync::Arc;

use super::*;
use crate::connection::Connection;
use crate::dial::Dialer;
use crate::{Demotions, ListenerSlot, driver};

const REFUSED: &str = "-READONLY You can't write against a read only replica.\r\n";

/// A client with two connections for commands and no other. The next command goes to the first.
async fn two_connections(server: &Server) -> (Connections, [Peer; 2]) {
    let settings = Settings { pool_size: 2, command_timeout: Duration::from_secs(3_600), ..Settings::default() };
    let both = async { (server.accept().await, server.accept().await) };
    let (connections, (first, second)) = tokio::join!(Connections::for_commands(server.target(), &settings), both);
    let connections = connections.unwrap();
    let (first, second) = commands(&connections, first, second).await;
    // This command goes to the second connection.
    let mut asked = connections.run(call("second"));
    sent(asked.as_mut());
    let mut second = second;
    assert_eq!(second.word().await, b"second");
    second.say(":0\r\n").await;
    asked.await.unwrap();
    (connections, [first, second])
}

/// After a refusal, the first connection is replaced. Once it is up, the second one is replaced, once.
#[tokio::test]
async fn connection_follows_demotion_seen_by_another_connection() {
    let server = Server::start().await;
    let (connections, [mut first, mut second]) = two_connections(&server).await;
    let (mut refused, mut in_flight) = (connections.run(call("a")), connections.run(call("b")));
    sent(refused.as_mut());
    sent(in_flight.as_mut());
    assert_eq!((first.word().await, second.word().await), (b"a".to_vec(), b"b".to_vec()));
    first.say(REFUSED).await;
    assert_eq!(refused.await.unwrap_err().kind, FaultKind::Refused);
    let dialing = Peer(BufReader::new(server.0.accept().await.unwrap().0));
    assert!(tokio::time::timeout(ms(100), server.0.accept()).await.is_err(), "the second one waits for the first");
    sent(in_flight.as_mut());
    let mut first = dialing;
    assert_eq!(first.words().await[0], b"HELLO");
    first.say("%0\r\n").await;
    let mut second = server.accept().await;
    let fault = in_flight.await.unwrap_err();
    assert!(fault.kind == FaultKind::Lost && fault.in_doubt(), "{fault:?}");
    let next = [connections.run(call("c")), connections.run(call("d"))];
    let served = async {
        for (peer, word) in [(&mut first, b"c"), (&mut second, b"d")] {
            assert_eq!(peer.word().await, word);
            peer.say(":1\r\n").await;
        }
    };
    let (replies, ()) = tokio::join!(futures::future::try_join_all(next), served);
    assert_eq!(replies.unwrap(), [Reply::Int(1), Reply::Int(1)]);
    assert!(tokio::time::timeout(ms(100), server.0.accept()).await.is_err(), "nobody reports once more");
}

/// When the report comes, the reply of the old primary is in the socket.
#[tokio::test]
async fn reply_read_after_the_report_of_a_demotion_is_discarded() {
    let server = Server::start().await;
    let (mut demotions, connection) = (Demotions::default(), Connection::new(Duration::from_secs(3_600)));
    let dialer = Arc::new(Dialer::new(server.target(), &Settings::default()));
    let driving = driver::drive(Arc::clone(&connection), dialer, ListenerSlot::default(), None, demotions.clone());
    let mut driving = Box::pin(driving);
    let (_, mut old) = tokio::join!(tokio::time::timeout(ms(100), driving.as_mut()), server.accept());
    let mut asked = Box::pin(connection.run(call("a"), true));
    sent(asked.as_mut());
    let _ = tokio::time::timeout(ms(100), driving.as_mut()).await;
    assert_eq!(old.word().await, b"a");
    old.say("$-1\r\n").await;
    demotions.report();
    let _ = tokio::time::timeout(ms(100), driving.as_mut()).await;
    assert_eq!(asked.await.unwrap_err().kind, FaultKind::Lost);
}
