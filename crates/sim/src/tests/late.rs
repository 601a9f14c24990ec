//! Late copies of commands, the order of released events, and messages overheard on the wire.

use super::*;

#[tokio::test(start_paused = true)]
async fn late_copy_runs_even_after_link_is_closed() {
    let (server, link) = linked(1, LinkOptions::default());
    link.plan_next(Mishap::LateCopy(ms(10_000)));
    assert_eq!(link.run(count_up("a")).await.unwrap(), Reply::Int(1));
    assert_eq!(count(&server, "a"), one());
    link.hang_up();
    link.partition(true);
    sleep(ms(9_000)).await;
    assert_eq!(count(&server, "a"), one());
    link.close(Duration::ZERO).await;
    sleep(ms(1_100)).await;
    assert_eq!(count(&server, "a"), two());
}

#[tokio::test(start_paused = true)]
async fn late_only_command_is_reported_lost_or_timed_out_and_runs_later() {
    let (server, link) = linked(1, LinkOptions::instant());
    link.plan_next(Mishap::LateOnly(ms(5_000)));
    assert_eq!(kind(link.run(count_up("a")).await), FaultKind::Lost);
    assert_eq!(count(&server, "a"), SimReply::Nil);
    sleep(ms(5_001)).await;
    assert_eq!(count(&server, "a"), one());

    server.command(&[b"flushall"]);
    link.plan_next(Mishap::LateOnly(ms(5_000)));
    link.plan_next(Mishap::SwallowRequest);
    assert_eq!(kind(link.run(count_up("a")).await), FaultKind::TimedOut);
    assert_eq!(count(&server, "a"), SimReply::Nil);
    sleep(ms(2_001)).await;
    assert_eq!(count(&server, "a"), one());
}

#[tokio::test(start_paused = true)]
async fn frozen_server_accepts_late_command_but_stopped_server_does_not() {
    for (away, then) in [(false, one()), (true, SimReply::Nil)] {
        let (server, link) = linked(1, LinkOptions::instant());
        link.plan_next(Mishap::LateOnly(ms(100)));
        assert_eq!(kind(link.run(count_up("a")).await), FaultKind::Lost);
        if away {
            server.stop()
        } else {
            server.freeze(true)
        }
        sleep(ms(200)).await;
        if away {
            server.start(true)
        } else {
            server.freeze(false)
        }
        sleep(ms(200)).await;
        assert_eq!(count(&server, "a"), then);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_commands_arrive_late_by_chance() {
    let (server, link) = linked(1, LinkOptions::default());
    link.chaos(Chaos { lose_request: 0.5, lose_reply: 0.5, late_copy: 1.0, late_max: ms(60_000), ..Chaos::default() });
    for _ in 0..100 {
        let _ = link.run(count_up("a")).await;
    }
    sleep(ms(60_000)).await;
    let runs = server.scripts_run();
    // Half of the commands run at once. Later, the half with a lost request runs, and the half with a lost reply runs
    // again.
    assert!((120..200).contains(&runs), "{runs}");
    assert_eq!(link.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn overhear_returns_messages_since_previous_call() {
    let (server, link) = linked(1, LinkOptions::instant());
    link.subscribe(Bytes::from_static(b"channel")).await.unwrap();
    server.publish(b"channel", b"before");
    assert!(server.overhear().is_empty());
    server.publish(b"channel", b"1");
    server.publish(b"nobody", b"2");
    assert_eq!(server.overhear(), [(b"channel".to_vec(), b"1".to_vec())]);
    assert!(server.overhear().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stalled_command_stays_ahead_of_one_arriving_as_stall_ends() {
    let server = SimServer::new(1);
    let options = LinkOptions { latency_min: ms(2), latency_max: ms(2), timeout: ms(8), ..LinkOptions::default() };
    let link = server.link(options);
    link.stall(true);
    let channel = || Bytes::from_static(b"channel");
    assert_eq!(link.subscribe(channel()).await.unwrap_err().kind, FaultKind::TimedOut);
    let leaving = link.unsubscribe(channel());
    tokio::spawn(leaving);
    // The unsubscribe arrives at this very moment.
    sleep(ms(2)).await;
    link.stall(false);
    sleep(ms(20)).await;
    assert!(server.channels().is_empty());
}
