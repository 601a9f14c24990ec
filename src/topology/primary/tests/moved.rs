//! Commands, subscriptions and the choice of server when the primary changes.

use super::*;
use crate::config::{Acks, Options};

#[tokio::test(start_paused = true)]
async fn command_refused_by_demoted_server_runs_on_new_primary() {
    let (net, primary) = by_sentinels().await;
    net.says(ONE, |says| (says.is_primary, says.error) = (false, Some("READONLY You can't write against a replica")));
    let asked = tokio::spawn({
        let primary = Arc::clone(&primary);
        async move { primary.run(&call).await.map(|answered| answered.placement) }
    });
    settle(500).await;
    net.promote(TWO);
    net.sentinels_say(TWO, 6);
    let placement = asked.await.unwrap().unwrap();
    assert_eq!(placement, primary.placement());
    assert_eq!(primary.address(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn subscriptions_move_to_new_primary_unless_ended() {
    let (net, primary) = by_sentinels().await;
    let names = ["a", "b"].map(|name| LockName::new("", name));
    for name in &names {
        primary.subscribe(name).await.unwrap();
    }
    net.promote(TWO);
    net.says(SENTINELS[0], |says| says.told = Some((TWO, 6)));
    net.announce(SENTINELS[0], "locks 10.0.0.1 1 10.0.0.1 2");
    while primary.address() != address(TWO) {
        settle(1).await;
    }
    primary.unsubscribe(&names[1]).await;
    settle(100).await;
    assert_eq!(*net.0[TWO].channels.lock(), BTreeSet::from([names[0].channel.clone()]));
    primary.close(Duration::from_secs(1)).await;
    settle(5_000).await;
    net.0.keys().for_each(|at| assert_eq!(net.open(at), 0, "{at}"));
}

#[tokio::test(start_paused = true)]
async fn replicated_primary_stays_until_it_is_silent_or_denies_its_role() {
    let net = net();
    net.says(TWO, |says| says.is_primary = true);
    let primary = net.replicated().await;
    assert_eq!(primary.address(), address(ONE), "it has more replicas");
    assert_eq!(after(10_000, &primary).await, address(ONE));
    net.says(ONE, |says| says.is_silent = true);
    assert_eq!(after(2_500, &primary).await, address(TWO));
    net.says(ONE, |says| says.is_silent = false);
    assert_eq!(after(10_000, &primary).await, address(TWO));
    net.says(TWO, |says| says.is_primary = false);
    assert_eq!(after(1_100, &primary).await, address(ONE));
}

/// For example because their processors are busy.
#[tokio::test(start_paused = true)]
async fn client_connects_through_slow_servers_and_sentinels() {
    let net = net();
    for at in [ONE, TWO, THREE].into_iter().chain(SENTINELS) {
        net.says(at, |says| says.answers_within = 1_200);
    }
    net.by_sentinels().await.close(Duration::ZERO).await;
    let options = Options { acks: Acks::All, ..Options::default() };
    let all = Settings {
        acks: AckRule::of_several(&options),
        connect_timeout: Duration::from_secs(5),
        ..settings(&SENTINELS)
    };
    let primary = net.by_sentinels_with(all).await;
    assert_eq!(primary.member().acknowledgement().known(), 2);
    primary.close(Duration::ZERO).await;
    net.replicated().await.close(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn majority_of_reset_sentinels_outweighs_one_with_old_epoch() {
    let (net, primary) = by_sentinels().await;
    for sentinel in &SENTINELS[1..] {
        net.says(sentinel, |says| says.told = Some((TWO, 0)));
    }
    net.starts_as_primary(TWO);
    assert_eq!(after(5_000, &primary).await, address(ONE), "it says that it is the primary");
    net.says(ONE, |says| says.is_primary = false);
    assert_eq!(after(5_000, &primary).await, address(TWO));
    assert_eq!(after(60_000, &primary).await, address(TWO));
}

/// A broken connection does not prove that the server fails to answer.
#[tokio::test(start_paused = true)]
async fn broken_connections_do_not_replace_answering_primary() {
    let (net, primary) = by_sentinels().await;
    net.promote(TWO);
    for _ in 0..20 {
        primary.server_is_away(primary.member().id());
        settle(170).await;
        primary.server_is_back(primary.member().id());
        settle(30).await;
    }
    assert_eq!(primary.address(), address(ONE));
    // Control: a server that does not answer is replaced.
    net.says(ONE, |says| says.is_silent = true);
    primary.server_is_away(primary.member().id());
    assert_eq!(after(1_000, &primary).await, address(TWO));
}
