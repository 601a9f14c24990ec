//! The transport against fake servers.

use std::pin::Pin;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};

use futures::task::noop_waker_ref;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::connection::Connection;
use crate::dial::Dialer;
use crate::driver;
use crate::{
    Arg, Call, Connections, Demotions, Fault, FaultKind, Listener, MessageLine, Place, Reply, Script, Secret, Settings,
    Target,
};

static SCRIPT: Script = Script::new("x", "return 1");

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn call(word: impl Into<Bytes>) -> Call {
    Call { script: &SCRIPT, keys: 0, words: vec![Arg::Text(word.into())] }
}

/// Larger than the socket buffers between two processes.
fn huge() -> Call {
    call(vec![b'x'; 32 << 20])
}

struct Server(TcpListener);

impl Server {
    async fn start() -> Self {
        Self(TcpListener::bind(("127.0.0.1", 0)).await.unwrap())
    }

    fn target(&self) -> Target {
        let place = Place::Tcp("127.0.0.1".to_owned(), self.0.local_addr().unwrap().port());
        Target { place, tls: None, username: None, password: None, credentials: None, database: 0 }
    }

    /// A client with a connection for commands and one for messages, and the server's ends of both, in any order.
    async fn connect(&self, timeout: Duration) -> (Connections, Peer, Peer) {
        let settings = Settings { command_timeout: timeout, ..Settings::default() };
        let (direct, first, second) =
            tokio::join!(Connections::connect(self.target(), &settings, false, false), self.accept(), async {
                self.accept().await
            });
        (direct.unwrap(), first, second)
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = self.0.accept().await.unwrap();
        let mut peer = Peer(BufReader::new(stream));
        assert_eq!(peer.words().await[0], b"HELLO");
        peer.say("%0\r\n").await;
        peer
    }
}

struct Peer(BufReader<TcpStream>);

impl Peer {
    /// Reads the next command.
    async fn words(&mut self) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        for _ in 0..self.number().await {
            let mut word = vec![0; self.number().await + 2];
            self.0.read_exact(&mut word).await.unwrap();
            word.truncate(word.len() - 2);
            words.push(word);
        }
        words
    }

    async fn number(&mut self) -> usize {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line[1..].trim().parse().unwrap()
    }

    /// Reads the next command, and returns its last word.
    async fn word(&mut self) -> Vec<u8> {
        self.words().await.pop().unwrap()
    }

    async fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }
}

fn sent(mut exchange: Pin<&mut (impl Future<Output = Result<Reply, Fault>> + ?Sized)>) {
    assert!(exchange.as_mut().poll(&mut Context::from_waker(noop_waker_ref())).is_pending());
}

/// Sorts the two connections of a client, which arrive in any order. The connection that receives a command is returned
/// first.
async fn commands(direct: &Connections, first: Peer, second: Peer) -> (Peer, Peer) {
    let (mut first, mut second) = (first, second);
    let mut asked = direct.run(call("which"));
    sent(asked.as_mut());
    let is_first = tokio::select! {
        _ = first.words() => true,
        _ = second.words() => false,
    };
    if !is_first {
        std::mem::swap(&mut first, &mut second);
    }
    first.say(":0\r\n").await;
    assert_eq!(asked.await.unwrap(), Reply::Int(0));
    (first, second)
}

#[tokio::test]
async fn what_was_written_in_part_is_lost_and_what_never_left_goes_out_anew() {
    let server = Server::start().await;
    let (direct, first, second) = server.connect(Duration::from_secs(30)).await;
    let (mut commands, _messages) = commands(&direct, first, second).await;
    let (mut cut, mut next) = (direct.run(huge()), direct.run(call("next")));
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
async fn a_future_that_is_dropped_in_the_middle_of_its_command_shifts_no_reply() {
    let server = Server::start().await;
    let (direct, first, second) = server.connect(Duration::from_secs(30)).await;
    let (mut commands, _messages) = commands(&direct, first, second).await;
    let (mut cut, mut next) = (direct.run(huge()), direct.run(call("next")));
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
async fn a_late_reply_is_not_taken_for_the_next_one() {
    let server = Server::start().await;
    let (direct, first, second) = server.connect(ms(300)).await;
    let (mut commands, _messages) = commands(&direct, first, second).await;
    let fault = direct.run(call("late")).await.unwrap_err();
    assert!(fault.kind == FaultKind::TimedOut && fault.in_doubt(), "{fault:?}");
    let mut next = direct.run(call("next"));
    sent(next.as_mut());
    assert_eq!((commands.word().await, commands.word().await), (b"late".to_vec(), b"next".to_vec()));
    commands.say(":1\r\n:2\r\n").await;
    assert_eq!(next.await.unwrap(), Reply::Int(2));
}

#[tokio::test]
async fn a_server_that_takes_nothing_has_not_been_sent_anything() {
    let server = Server::start().await;
    let (direct, first, second) = server.connect(ms(300)).await;
    let (mut commands, _messages) = commands(&direct, first, second).await;
    let (mut cut, next) = (direct.run(huge()), direct.run(call("next")));
    sent(cut.as_mut());
    let (cut, next) = tokio::join!(cut, next);
    assert_eq!((cut.unwrap_err().kind, next.unwrap_err().kind), (FaultKind::TimedOut, FaultKind::NotSent));
    // The two timeouts together have the connection replaced.
    let mut anew = server.accept().await;
    let mut last = direct.run(call("last"));
    sent(last.as_mut());
    assert_eq!(anew.word().await, b"last");
    anew.say("+OK\r\n").await;
    assert_eq!(last.await.unwrap(), Reply::Text(Bytes::from_static(b"OK")));
    let mut rest = Vec::new();
    let _ = commands.0.read_to_end(&mut rest).await;
    assert!(!rest.windows(4).any(|bytes| bytes == b"next"), "it never left");
}

#[tokio::test]
async fn what_waits_for_a_connection_is_known_not_to_have_been_sent() {
    let server = Server::start().await;
    let (direct, first, second) = server.connect(ms(200)).await;
    let (commands, _messages) = commands(&direct, first, second).await;
    let target = server.target();
    drop((commands, server));
    let fault = loop {
        // The first call may be lost with the connection.
        let fault = direct.run(call("a")).await.unwrap_err();
        if fault.kind != FaultKind::Lost {
            break fault;
        }
    };
    assert!(fault.kind == FaultKind::NotSent && !fault.in_doubt(), "{fault:?}");
    assert!(fault.message.contains("refused"), "{fault:?}");
    direct.close(ms(500)).await;
    assert_eq!(direct.run(call("b")).await.unwrap_err().kind, FaultKind::Closed);
    assert!(matches!(target.place, Place::Tcp(..)));
}

#[derive(Default)]
struct Heard {
    reconnected: AtomicU32,
    missed: AtomicU32,
    deaf: AtomicU32,
    messages: Mutex<Vec<Vec<u8>>>,
}

impl Listener for Heard {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        self.messages.lock().push([channel, b" ", payload].concat());
    }

    fn deaf(&self) {
        self.deaf.fetch_add(1, Ordering::SeqCst);
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }

    fn reconnected(&self) {
        self.reconnected.fetch_add(1, Ordering::SeqCst);
    }
}

/// A connection for messages alone, which reports to `listener` and comes up when it can.
fn messages_of(
    server: &Server,
    settings: &Settings,
    listener: Weak<dyn Listener>,
    demotions: &Demotions,
) -> MessageLine {
    let dialer = Arc::new(Dialer::new(server.target(), settings));
    let line = MessageLine::over(dialer, settings, false, Arc::default(), None, demotions.clone());
    line.listen(listener);
    line
}

async fn reaches(count: &AtomicU32, expected: u32) {
    while count.load(Ordering::SeqCst) < expected {
        tokio::time::sleep(ms(1)).await;
    }
}

#[tokio::test]
async fn deaf_is_reported_once_per_outage() {
    let (server, heard) = (Server::start().await, Arc::new(Heard::default()));
    let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
    let settings = Settings { deaf_after: ms(100), ..Settings::default() };
    let _line = messages_of(&server, &settings, Arc::downgrade(&listener), &Demotions::default());
    for outage in 0..3 {
        let mut messages = server.accept().await;
        if outage > 0 {
            reaches(&heard.deaf, outage).await;
            // Connections that break before their subscriptions are confirmed belong to the same outage.
            for _ in 0..2 {
                drop(messages);
                messages = server.accept().await;
                tokio::time::sleep(settings.deaf_after / 2).await;
            }
        }
        assert_eq!(messages.words().await, [b"PING"]);
        messages.say("+PONG\r\n").await;
        reaches(&heard.missed, outage + 1).await;
        assert_eq!(heard.deaf.load(Ordering::SeqCst), outage);
    }
}

#[tokio::test]
async fn messages_follow_a_demotion_unless_they_connected_after_it() {
    let (server, heard, mut demotions) = (Server::start().await, Arc::new(Heard::default()), Demotions::default());
    let listener: Arc<dyn Listener> = heard;
    demotions.report();
    let line = messages_of(&server, &Settings::default(), Arc::downgrade(&listener), &demotions);
    let mut messages = server.accept().await;
    assert_eq!(messages.words().await, [b"PING"]);
    messages.say("+PONG\r\n").await;
    let subscribing = line.subscribe(Bytes::from_static(b"c"));
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"], "the same connection");
    drop(subscribing);
    demotions.report();
    let mut messages = server.accept().await;
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"], "another connection");
}

const REFUSED: &str = "-READONLY You can't write against a read only replica.\r\n";

/// A client with two connections for commands and no other. The next command goes to the first.
async fn two_connections(server: &Server) -> (Connections, [Peer; 2]) {
    let settings = Settings { pool_size: 2, command_timeout: Duration::from_secs(3_600), ..Settings::default() };
    let both = async { (server.accept().await, server.accept().await) };
    let (direct, (first, second)) = tokio::join!(Connections::for_commands(server.target(), &settings), both);
    let direct = direct.unwrap();
    let (first, second) = commands(&direct, first, second).await;
    // This command goes to the second connection.
    let mut asked = direct.run(call("second"));
    sent(asked.as_mut());
    let mut second = second;
    assert_eq!(second.word().await, b"second");
    second.say(":0\r\n").await;
    asked.await.unwrap();
    (direct, [first, second])
}

/// After a refusal, the first connection is replaced. Once it is up, the second one is replaced, once.
#[tokio::test]
async fn a_connection_follows_a_demotion_that_another_one_has_met() {
    let server = Server::start().await;
    let (direct, [mut first, mut second]) = two_connections(&server).await;
    let (mut refused, mut in_flight) = (direct.run(call("a")), direct.run(call("b")));
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
    let next = [direct.run(call("c")), direct.run(call("d"))];
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
async fn no_reply_is_handed_on_that_was_read_after_the_report_of_a_demotion() {
    let server = Server::start().await;
    let (mut demotions, connection) = (Demotions::default(), Connection::new(Duration::from_secs(3_600)));
    let dialer = Arc::new(Dialer::new(server.target(), &Settings::default()));
    let driving = driver::drive(Arc::clone(&connection), dialer, Arc::default(), None, demotions.clone());
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
    let trouble = opened.unwrap().err().unwrap();
    assert!(trouble.message.ends_with("ERR unknown command 'AUTH'"), "{trouble:?}");
    assert!(trouble.source.is_none(), "{trouble:?}");
}

#[tokio::test]
async fn subscriptions_are_confirmed_by_the_server_and_made_anew() {
    let server = Server::start().await;
    let (direct, first, second) = server.connect(Duration::from_secs(30)).await;
    let (_commands, mut messages) = commands(&direct, first, second).await;
    let heard = Arc::new(Heard::default());
    let listener: Arc<dyn Listener> = Arc::<Heard>::clone(&heard);
    direct.listen(Arc::downgrade(&listener));
    let mut subscribing = direct.subscribe(Bytes::from_static(b"c"));
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    assert!(tokio::time::timeout(ms(50), subscribing.as_mut()).await.is_err(), "it was only sent");
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n>3\r\n+message\r\n+c\r\n+0\r\n").await;
    subscribing.await.unwrap();
    // A refused subscription is reported, and not renewed.
    let refused = direct.subscribe(Bytes::from_static(b"d"));
    assert_eq!(messages.word().await, b"d");
    messages.say("-NOPERM no\r\n").await;
    assert_eq!(refused.await.unwrap_err().kind, FaultKind::Refused);
    drop(messages);
    let mut messages = server.accept().await;
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    assert_eq!(messages.words().await, [b"PING"]);
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n").await;
    assert_eq!(heard.missed.load(Ordering::SeqCst), 0);
    // A refused `PING` is an answer too.
    messages.say("-NOPERM no\r\n*3\r\n+message\r\n+c\r\n+1\r\n").await;
    let ended = direct.unsubscribe(Bytes::from_static(b"c"));
    assert_eq!(messages.words().await, [&b"UNSUBSCRIBE"[..], b"c"]);
    messages.say(">3\r\n+unsubscribe\r\n+c\r\n:0\r\n").await;
    ended.await;
    assert_eq!(*heard.messages.lock(), [b"c 0", b"c 1"]);
    assert_eq!((heard.missed.load(Ordering::SeqCst), heard.reconnected.load(Ordering::SeqCst)), (1, 0));
}

/// Two names may share a channel, and each name subscribes for itself.
#[tokio::test]
async fn a_subscription_that_is_not_confirmed_in_time_takes_nothing_from_whoever_has_it_already() {
    let server = Server::start().await;
    let settings = Settings { subscribe_timeout: ms(200), pool_size: 1, ..Settings::default() };
    let (direct, first, second) =
        tokio::join!(Connections::connect(server.target(), &settings, false, false), server.accept(), server.accept());
    let direct = direct.unwrap();
    let (_commands, mut messages) = commands(&direct, first, second).await;
    let c = || Bytes::from_static(b"c");
    let subscribing = direct.subscribe(c());
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n").await;
    subscribing.await.unwrap();
    let late = direct.subscribe(c());
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"c"]);
    assert_eq!(late.await.unwrap_err().kind, FaultKind::TimedOut);
    messages.say(">3\r\n+subscribe\r\n+c\r\n:1\r\n").await;
    let _other = direct.subscribe(Bytes::from_static(b"d"));
    assert_eq!(messages.words().await, [&b"SUBSCRIBE"[..], b"d"], "the first one hears no message any more");
    // A caller that does not need the channel ends the subscription.
    let ended = direct.unsubscribe(c());
    assert_eq!(messages.words().await, [&b"UNSUBSCRIBE"[..], b"c"]);
    drop(ended);
}

/// The server is older than Redis 6, or there is an old proxy in front of it.
#[tokio::test]
async fn a_server_without_hello_is_spoken_to_in_the_second_version() {
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
    let (direct, (first, second)) = tokio::join!(Connections::connect(target, &settings, false, false), both);
    let direct = direct.unwrap();
    let (mut commands, mut messages) = commands(&direct, first, second).await;
    let mut asked = direct.run(call("a"));
    sent(asked.as_mut());
    commands.say("$-1\r\n").await;
    assert_eq!(asked.await.unwrap(), Reply::Nil);
    let subscribing = direct.subscribe(Bytes::from_static(b"c"));
    messages.word().await;
    messages.say("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
    subscribing.await.unwrap();
}

/// The server accepts connections and does nothing else. The pauses grow up to 320 ms.
#[tokio::test]
async fn a_server_of_no_use_is_left_alone_more_and_more() {
    const SPAN: Duration = Duration::from_secs(4);
    let server = Server::start().await;
    let (direct, first, second) = server.connect(Duration::from_secs(30)).await;
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
    drop(direct);
}

/// No reply makes the client use memory or stack without bound.
#[tokio::test]
async fn hostile_replies_end_the_connection() {
    let deep = "*1\r\n".repeat(1 << 20);
    for odd in [&*deep, "$9999999999\r\n", "*2147483647\r\n", "HTTP/1.1 400 Bad Request\r\n", "\0\r\n", ":1\r\n:2\r\n"]
    {
        let server = Server::start().await;
        let (direct, first, second) = server.connect(Duration::from_secs(30)).await;
        let (mut commands, _messages) = commands(&direct, first, second).await;
        let mut asked = direct.run(call("a"));
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
fn the_end_of_the_runtime_is_told() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (direct, mut under_way) = runtime.block_on(async {
        let server = Server::start().await;
        let (direct, first, second) = server.connect(Duration::from_secs(30)).await;
        let (_commands, _messages) = commands(&direct, first, second).await;
        let mut under_way = direct.run(call("a"));
        sent(under_way.as_mut());
        (direct, under_way)
    });
    drop(runtime);
    let polled = under_way.as_mut().poll(&mut Context::from_waker(noop_waker_ref()));
    let Poll::Ready(Err(fault)) = polled else { panic!("{polled:?}") };
    assert!(matches!(fault.kind, FaultKind::RuntimeGone | FaultKind::Lost), "{fault:?}");
    let after = futures::executor::block_on(direct.run(call("b"))).unwrap_err();
    assert_eq!(after.kind, FaultKind::RuntimeGone);
    let after = futures::executor::block_on(direct.subscribe(Bytes::from_static(b"c"))).unwrap_err();
    assert_eq!(after.kind, FaultKind::RuntimeGone);
}
