//! The fixture of sentinels against real ones: automatic and requested promotions, sentinels that join and leave.

use distlock_support::{Member, ReplicasOptions, Sentinels, SentinelsOptions};

async fn set(node: &Member, key: &str) {
    node.admin().cmd::<()>(&["SET", key, "v"]).await;
    assert_eq!(node.admin().cmd::<u64>(&["WAIT", "2", "90000"]).await, 2);
}

#[tokio::test]
async fn replica_takes_over_from_killed_and_frozen_primaries_and_on_request() {
    let bed = Sentinels::start(SentinelsOptions::default().swift()).await;
    assert!(bed.url().starts_with(&format!("redis-sentinel://{},", bed.sentinel(0).addr())));
    assert!(bed.url().ends_with("/locks"));
    assert_eq!(bed.primary().await, 0);
    set(bed.server(0), "k").await;

    bed.server(0).kill();
    let promotion = bed.promotion(0).await;
    let told = bed.switched(promotion.cause).await;
    assert!(promotion.server != 0 && bed.server(promotion.server).is_primary().await);
    let new = bed.server(promotion.server).addr();
    assert!(told.text.ends_with(&format!("{} {}", new.ip(), new.port())), "{told:?}");
    bed.whole().await;
    assert_eq!(bed.primary().await, promotion.server, "{}", bed.told_since(promotion.cause));
    assert_eq!(bed.server(promotion.server).admin().keys().await, ["k"]);

    // The old primary returns as a primary without its data, and is made a replica of the new one.
    bed.server(0).restart();
    bed.whole().await;
    assert_eq!(bed.servers().primaries().await, [promotion.server]);
    assert_eq!(bed.server(0).admin().keys().await, ["k"]);

    for _ in 0..2 {
        let old = bed.primary().await;
        let promotion = bed.failover().await;
        bed.switched(promotion.cause).await;
        assert_ne!(promotion.server, old);
        assert_eq!(bed.primary().await, promotion.server);
        assert_eq!(bed.servers().primaries().await, [promotion.server]);
        set(bed.server(promotion.server), "after").await;
    }
    // A frozen primary is made a replica when it resumes.
    for round in 0..2 {
        let old = bed.primary().await;
        bed.server(old).stop();
        let promotion = bed.promotion(old).await;
        bed.switched(promotion.cause).await;
        bed.server(old).cont();
        bed.whole().await;
        assert_eq!(bed.servers().primaries().await, [promotion.server]);
        set(bed.server(promotion.server), &format!("k{round}")).await;
    }
}

#[tokio::test]
async fn sentinels_can_be_added_removed_and_restarted() {
    let bed = Sentinels::start(SentinelsOptions::default().swift()).await;
    let first = bed.sentinel(0).addr();
    assert_eq!(bed.add_sentinel().await, 3);
    bed.remove_sentinel(0).await;
    assert!(bed.sentinels().len() == 3 && !bed.url().contains(&first.to_string()));

    // One sentinel is dead but not forgotten, and returns later: the others are a majority.
    bed.sentinel(0).kill();
    let old = bed.primary().await;
    bed.server(old).kill();
    let promotion = bed.promotion(old).await;
    bed.whole().await;
    bed.sentinel(0).restart();
    bed.server(old).restart();
    bed.whole().await;
    assert_eq!(bed.primary().await, promotion.server);

    // A frozen sentinel reports late, and the others do not report in its name.
    let frozen = bed.sentinel(1);
    frozen.stop();
    let promotion = bed.failover().await;
    assert_ne!(bed.switched(promotion.cause).await.sentinel, frozen.addr());
    frozen.cont();
    bed.whole().await;
    assert_eq!(bed.primary().await, promotion.server);
}

#[tokio::test]
async fn sentinels_refuse_clients_without_credentials() {
    for (servers, sentinels, userinfo) in [
        (ReplicasOptions::default().password("data"), SentinelsOptions::default().swift().password("watch"), ":data@"),
        (
            ReplicasOptions::default().user("app", "data"),
            SentinelsOptions::default().swift().user("ops", "watch"),
            "app:data@",
        ),
    ] {
        let bed = Sentinels::start(sentinels.servers(servers.replicas(1)).name("other")).await;
        let first = bed.sentinel(0).addr();
        assert!(bed.url().starts_with(&format!("redis-sentinel://{userinfo}{first},")), "{}", bed.url());
        let mut stranger = crate::connection(&format!("redis://{first}")).await;
        let asked = redis::cmd("SENTINEL").arg("MASTERS").query_async::<()>(&mut stranger).await;
        assert_eq!(asked.expect_err("a stranger").code(), Some("NOAUTH"));
        let promotion = bed.failover().await;
        assert_eq!((promotion.server, bed.primary().await), (1, 1));
    }
}
