use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::*;
use crate::transport::{Listener, Reply};
use crate::world::World;

static TAKE: Script = Script::new("test/take", "").gaining(|_| true);

/// A server with `replicas` replicas. It replies after a notification.
#[derive(Debug)]
struct Slow(usize, Arc<Notify>);

impl Transport for Slow {
    fn run(&self, _call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let (replicas, answers) = (self.0, Arc::clone(&self.1));
        Box::pin(async move {
            answers.notified().await;
            let each = (0..replicas).map(|n| format!("slave{n}:ip=::1,port=1,state=online,offset=1,lag=0\r\n"));
            let told = format!("role:master\r\nconnected_slaves:{replicas}\r\n{}", each.collect::<String>());
            Ok(Reply::Text(told.into()))
        })
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn subscribe(&self, _channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        std::future::ready(Ok(())).boxed()
    }

    fn unsubscribe(&self, _channel: Bytes) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn listen(&self, _listener: Weak<dyn Listener>) {}

    fn address(&self) -> &str {
        "slow"
    }

    fn world(&self) -> Arc<dyn World> {
        unreachable!("nobody asks for it")
    }

    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

#[test]
fn acknowledged_calls_wait_until_replicas_are_known() {
    for replicas in [0, 2] {
        let server = Slow(replicas, Arc::default());
        let known = Acknowledgement::new(AckRule::of_several(&Options::default()));
        known.knows_of(2);
        let now = Moment::from_nanos(5_000_000_000);
        let mut first: Vec<_> = (0..3)
            .map(|_| {
                assert!(known.concerns(&TAKE, now), "nobody knows yet that there are none");
                let mut how = Box::pin(known.how(&server, now, false));
                assert!(how.as_mut().now_or_never().is_none());
                how
            })
            .collect();
        server.1.notify_waiters();
        for how in &mut first {
            let how = how.as_mut().now_or_never().expect("it has answered").unwrap();
            assert_eq!(how.map(|how| how.replicas), (replicas > 0).then_some(1));
        }
        drop(first);
        // Once the server is known to have no replicas, a call checks again from time to time. All other calls skip
        // acknowledgement.
        assert_eq!(known.concerns(&TAKE, now), replicas > 0);
        let later = now + KNOWN_FOR;
        assert!(known.concerns(&TAKE, later));
        assert_eq!(known.how(&server, later, false).now_or_never().is_none(), replicas == 0);
        assert_eq!(known.concerns(&TAKE, later), replicas > 0);
    }
}

#[test]
fn unsupported_wait_is_distinguished_from_temporary_refusal() {
    for text in [
        "ERR unknown command 'WAIT', with args beginning with: '1' '1000' ",
        "ERR unknown command `wait`",
        "ERR unsupported command 'WAIT'",
        "NOPERM User app has no permissions to run the 'wait' command",
    ] {
        assert!(is_unsupported(text), "{text}");
    }
    for text in ["ERR WAIT cannot be used with replica instances. Please also note", "LOADING Redis is loading"] {
        assert!(!is_unsupported(text), "{text}");
    }
}
