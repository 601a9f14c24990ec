//! Clients, faults and virtual time together.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::*;
use distlock::transport::{Arg, Call, Fault, FaultKind, Listener, Reply, Script, Transport};

mod late;

static ACQUIRE: Script = Script::new(
    "reentrant/acquire",
    concat!(include_str!("../../../lua/common/holds.lua"), include_str!("../../../lua/reentrant/acquire.lua")),
);
static RELEASE: Script = Script::new(
    "reentrant/release",
    concat!(include_str!("../../../lua/common/holds.lua"), include_str!("../../../lua/reentrant/release.lua")),
);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn text(word: &'static str) -> Arg {
    Arg::Text(Bytes::from_static(word.as_bytes()))
}

fn acquire(owner: &'static str) -> Call {
    let words = vec![text("lock"), text(owner), Arg::Int(30_000), text(""), text(""), Arg::Int(0), Arg::Int(0)];
    Call { script: &ACQUIRE, keys: 1, words }
}

/// Counts its own runs.
fn count_up(field: &'static str) -> Call {
    static COUNT: Script = Script::new("count", "return redis.call('hincrby', KEYS[1], ARGV[1], 1)");
    Call { script: &COUNT, keys: 1, words: vec![text("lock"), text(field)] }
}

fn release(owner: &'static str) -> Call {
    let words = vec![text("lock"), text(owner), Arg::Int(30_000), text("publish"), text("channel")];
    Call { script: &RELEASE, keys: 1, words }
}

fn count(server: &SimServer, owner: &str) -> SimReply {
    server.command(&[b"hget", b"lock", owner.as_bytes()])
}

fn one() -> SimReply {
    SimReply::Text(Bytes::from_static(b"1"))
}

fn two() -> SimReply {
    SimReply::Text(Bytes::from_static(b"2"))
}

fn linked(seed: u64, options: LinkOptions) -> (SimServer, SimLink) {
    let server = SimServer::new(seed);
    let link = server.link(options);
    (server, link)
}

fn kind(outcome: Result<Reply, Fault>) -> FaultKind {
    outcome.unwrap_err().kind
}

#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Listener for Diary {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.0.lock().push(format!("{}={}", text(channel), text(payload)));
    }

    fn missed(&self) {
        self.0.lock().push("missed".into());
    }

    fn reconnected(&self) {
        self.0.lock().push("reconnected".into());
    }
}

fn listening(link: &SimLink) -> Arc<Diary> {
    let diary = Arc::new(Diary::default());
    let listener: Weak<Diary> = Arc::downgrade(&diary);
    link.listen(listener);
    diary
}

#[tokio::test(start_paused = true)]
async fn release_notifies_subscriber_and_leaves_no_keys() {
    let (server, link) = linked(1, LinkOptions::default());
    let other: Arc<dyn Transport> = Arc::new(server.link(LinkOptions::instant()));
    assert_eq!(link.run(acquire("a")).await.unwrap(), Reply::Nil);
    assert!(matches!(other.run(acquire("b")).await.unwrap(), Reply::Int(1..=30_000)));
    let diary = listening(&link);
    link.subscribe(Bytes::from_static(b"channel")).await.unwrap();
    assert_eq!(server.channels(), [b"channel"]);
    // The release reached one subscriber.
    assert_eq!(link.run(release("a")).await.unwrap(), Reply::Int(-1));
    sleep(ms(20)).await;
    assert_eq!(diary.take(), ["channel=0"]);
    link.unsubscribe(Bytes::from_static(b"channel")).await;
    assert!(server.channels().is_empty());
    assert!(server.keys().is_empty());
    assert_eq!((server.commands_run(), server.scripts_run()), (5, 3));
}

#[tokio::test(start_paused = true)]
async fn lease_ends_by_virtual_time_and_clock_steps() {
    let (server, link) = linked(1, LinkOptions::instant());
    link.run(acquire("a")).await.unwrap();
    sleep(ms(30_000)).await;
    assert_eq!(server.pttl(b"lock"), 0);
    sleep(ms(1)).await;
    assert_eq!(server.pttl(b"lock"), -2);
    link.run(acquire("a")).await.unwrap();
    server.step_clock(30_001);
    assert!(server.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn lost_request_does_not_run_but_command_of_lost_reply_does() {
    let server = SimServer::new(2);
    for options in [LinkOptions::default(), LinkOptions::instant()] {
        let link = server.link(options);
        for (mishap, fault, counted) in [
            (Mishap::LoseRequest, FaultKind::Lost, SimReply::Nil),
            (Mishap::LoseReply, FaultKind::Lost, one()),
            (Mishap::SwallowRequest, FaultKind::TimedOut, SimReply::Nil),
            (Mishap::SwallowReply, FaultKind::TimedOut, one()),
        ] {
            let (before, case) = (Instant::now(), format!("{mishap:?}"));
            link.plan_next(mishap);
            assert_eq!(kind(link.run(acquire("a")).await), fault, "{case}");
            assert!(fault == FaultKind::Lost || before.elapsed() >= ms(3000), "{case}");
            assert_eq!(count(&server, "a"), counted, "{case}");
            server.command(&[b"flushall"]);
        }
        assert_eq!(link.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn duplicated_request_runs_twice_and_refused_or_unsent_does_not_run() {
    let (server, link) = linked(3, LinkOptions::default());
    link.plan(0, Mishap::DuplicateRequest);
    link.plan(1, Mishap::Refuse("OOM command not allowed".into()));
    link.plan(2, Mishap::NotSent);
    link.run(count_up("a")).await.unwrap();
    sleep(ms(100)).await;
    assert_eq!(count(&server, "a"), two());
    let refused = link.run(acquire("a")).await.unwrap_err();
    assert_eq!((refused.kind, refused.message.as_str()), (FaultKind::Refused, "OOM command not allowed"));
    assert_eq!(kind(link.run(acquire("a")).await), FaultKind::NotSent);
    sleep(ms(100)).await;
    assert_eq!(count(&server, "a"), two());
    assert_eq!(link.sent(), 3);
}

#[tokio::test(start_paused = true)]
async fn command_is_sent_on_first_poll_and_runs_even_if_dropped() {
    let (server, link) = linked(4, LinkOptions::default());
    drop(link.run(acquire("a")));
    sleep(ms(50)).await;
    assert_eq!(server.commands_run(), 0);
    let mut polled = link.run(acquire("a"));
    assert!(futures::poll!(&mut polled).is_pending());
    drop(polled);
    assert_eq!(link.in_flight(), 0);
    assert_eq!(server.commands_run(), 0);
    sleep(ms(50)).await;
    assert_eq!(count(&server, "a"), one());
}

#[tokio::test(start_paused = true)]
async fn frozen_server_runs_timed_out_command_after_thaw() {
    let (server, link) = linked(5, LinkOptions::instant());
    server.freeze(true);
    assert_eq!(kind(link.run(acquire("a")).await), FaultKind::TimedOut);
    assert_eq!(server.commands_run(), 0);
    server.freeze(false);
    sleep(ms(1)).await;
    assert_eq!(count(&server, "a"), one());
}

#[tokio::test(start_paused = true)]
async fn restart_breaks_connections_and_subscriptions_are_restored() {
    let (server, link) = linked(6, LinkOptions::default());
    let diary = listening(&link);
    link.subscribe(Bytes::from_static(b"c")).await.unwrap();
    link.run(acquire("a")).await.unwrap();
    let flying = tokio::spawn(link.run(acquire("a")));
    tokio::task::yield_now().await;
    server.restart(true);
    assert_eq!(kind(flying.await.unwrap()), FaultKind::Lost);
    assert!(server.channels().is_empty());
    assert_eq!(server.publish(b"c", b"unheard"), 0);
    assert_eq!(kind(link.run(acquire("a")).await), FaultKind::NotSent);
    sleep(ms(60)).await;
    assert_eq!(diary.take(), ["missed", "reconnected"]);
    assert_eq!(server.publish(b"c", b"1"), 1);
    assert_eq!(count(&server, "a"), one());
    sleep(ms(10)).await;
    assert_eq!(diary.take(), ["c=1"]);
    server.restart(false);
    assert!(server.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn partition_loses_traffic_and_stall_delays_it() {
    let (server, link) = linked(7, LinkOptions::default());
    let diary = listening(&link);
    link.subscribe(Bytes::from_static(b"c")).await.unwrap();
    link.partition(true);
    server.publish(b"c", b"lost");
    assert_eq!(kind(link.run(acquire("a")).await), FaultKind::TimedOut);
    link.partition(false);
    sleep(ms(60)).await;
    assert_eq!(server.scripts_run(), 0);
    assert_eq!(diary.take(), ["missed", "reconnected"]);

    link.stall(true);
    server.publish(b"c", b"late");
    assert_eq!(kind(link.run(acquire("a")).await), FaultKind::TimedOut);
    assert_eq!(server.scripts_run(), 0);
    link.stall(false);
    sleep(ms(10)).await;
    assert_eq!(count(&server, "a"), one());
    assert_eq!(diary.take(), ["c=late"]);

    link.drop_messages(true);
    assert_eq!(server.publish(b"c", b"unheard"), 1);
    sleep(ms(10)).await;
    assert!(diary.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_keep_order_unless_chaos_reorders_them() {
    let run = |seed, chaos| async move {
        let (server, link) = linked(seed, LinkOptions { latency_max: ms(40), ..LinkOptions::default() });
        link.chaos(chaos);
        let diary = listening(&link);
        link.subscribe(Bytes::from_static(b"c")).await.unwrap();
        for n in 0..50 {
            server.publish(b"c", n.to_string().as_bytes());
            sleep(ms(2)).await;
        }
        sleep(ms(1000)).await;
        diary.take()
    };
    let sorted: Vec<String> = (0..50).map(|n| format!("c={n}")).collect();
    assert_eq!(run(1, Chaos::default()).await, sorted);
    let shuffled = run(1, Chaos { reorder_message: 0.3, ..Chaos::default() }).await;
    assert_eq!(shuffled.len(), 50);
    assert_ne!(shuffled, sorted);
    assert!(run(1, Chaos { lose_message: 0.5, ..Chaos::default() }).await.len() < 50);
    assert!(run(1, Chaos { duplicate_message: 0.5, ..Chaos::default() }).await.len() > 50);
}

#[tokio::test(start_paused = true)]
async fn same_seed_replays_same_run() {
    let run = |seed| async move {
        let (_server, link) = linked(seed, LinkOptions::default());
        link.chaos(Chaos { lose_request: 0.2, lose_reply: 0.2, duplicate: 0.2, delay_max: ms(30), ..Chaos::default() });
        let start = Instant::now();
        let mut story = Vec::new();
        for _ in 0..200 {
            story.push((format!("{:?}", link.run(acquire("a")).await), start.elapsed()));
        }
        story
    };
    let first = run(9).await;
    assert_eq!(first, run(9).await);
    assert_ne!(first, run(10).await);
    assert!(first.iter().any(|(told, _)| told.contains("Lost")));
    assert!(first.iter().any(|(told, _)| told.contains("TimedOut")));
}

#[tokio::test(start_paused = true)]
async fn closed_link_fails_commands_with_closed() {
    let (server, link) = linked(11, LinkOptions::default());
    link.subscribe(Bytes::from_static(b"c")).await.unwrap();
    let flying = tokio::spawn(link.run(acquire("a")));
    tokio::task::yield_now().await;
    link.close(ms(100)).await;
    assert_eq!(kind(flying.await.unwrap()), FaultKind::Closed);
    assert_eq!(kind(link.run(acquire("a")).await), FaultKind::Closed);
    assert!(server.channels().is_empty());
}

#[test]
fn server_outlives_runtime_that_drives_it() {
    let server = SimServer::new(12);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let link = server.link(LinkOptions::default());
    runtime().block_on(async {
        assert!(futures::poll!(link.run(acquire("a"))).is_pending());
    });
    runtime().block_on(async {
        // The latencies decide which request arrives first. This test needs both to arrive.
        assert!(link.run(acquire("b")).await.is_ok());
    });
}

/// A request that has reached a frozen server runs before later requests of the same client, whatever happens to the
/// connection.
#[tokio::test(start_paused = true)]
async fn frozen_server_keeps_command_order_of_stalled_client() {
    let (server, link) = linked(1, LinkOptions { timeout: ms(50), ..LinkOptions::default() });
    server.freeze(true);
    let channel = Bytes::from_static(b"c");
    assert!(link.subscribe(channel.clone()).await.is_err());
    link.stall(true);
    link.unsubscribe(channel).await;
    server.freeze(false);
    sleep(ms(10)).await;
    assert_eq!(server.channels().len(), 1);
    link.stall(false);
    sleep(ms(20)).await;
    assert_eq!(server.channels().len(), 0, "the end of the subscription came first");
}
