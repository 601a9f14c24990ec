//! Late copies of commands, the order of released events, and messages overheard on the wire.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_late_copy_comes_in_whatever_became_of_its_connection() {
    let server = SimServer::new(1);
    let link = server.link(LinkOptions::default());
    link.plan_next(Mishap::LateCopy(ms(10_000)));
    assert_eq!(link.run(count_up("a")).await.unwrap(), Reply::Int(1));
    assert_eq!(count(&server, "a"), one());
    link.hang_up();
    link.partition(true);
    sleep(ms(9_000)).await;
    assert_eq!(count(&server, "a"), one());
    link.close(Duration::ZERO).await;
    sleep(ms(1_100)).await;
    assert_eq!(count(&server, "a"), SimReply::Text(Bytes::from_static(b"2")));
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_late_only_was_told_as_lost_or_not_at_all() {
    let server = SimServer::new(1);
    let link = server.link(LinkOptions::instant());
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
async fn a_server_that_stands_still_takes_in_what_is_late_and_one_that_is_away_does_not() {
    for (away, then) in [(false, one()), (true, SimReply::Nil)] {
        let server = SimServer::new(1);
        let link = server.link(LinkOptions::instant());
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
async fn by_chance_what_was_lost_comes_in_all_the_same() {
    let server = SimServer::new(1);
    let link = server.link(LinkOptions::default());
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
async fn who_listens_in_hears_what_is_published_from_then_on() {
    let server = SimServer::new(1);
    let link = server.link(LinkOptions::instant());
    link.subscribe(Bytes::from_static(b"channel")).await.unwrap();
    server.publish(b"channel", b"before");
    assert!(server.overhear().is_empty());
    server.publish(b"channel", b"1");
    server.publish(b"nobody", b"2");
    assert_eq!(server.overhear(), [(b"channel".to_vec(), b"1".to_vec())]);
    assert!(server.overhear().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_held_up_stays_ahead_of_what_comes_in_when_it_is_let_go() {
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
