//! The fixture of sentinels against real ones: automatic and requested promotions, sentinels that join and leave,
//! ends.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use distlock_support::child::{self, Child};
use distlock_support::reaper::{self, Folder};
use distlock_support::{Member, ReplicasOptions, Sentinels, SentinelsOptions};

async fn set(node: &Member, key: &str) {
    node.admin().cmd::<()>(&["SET", key, "v"]).await;
    assert_eq!(node.admin().cmd::<u64>(&["WAIT", "2", "90000"]).await, 2);
}

#[tokio::test]
async fn replica_takes_over_from_killed_primary_and_on_request() {
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
}

#[tokio::test]
async fn frozen_primary_is_demoted_when_it_resumes() {
    let bed = Sentinels::start(SentinelsOptions::default().swift()).await;
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

#[tokio::test]
async fn child_with_sentinels() {
    if !child::is_child() {
        return;
    }
    child::init();
    let bed = Sentinels::start(SentinelsOptions::default().swift()).await;
    bed.server(1).stop();
    bed.sentinel(2).stop();
    for member in bed.servers().nodes().iter().chain(bed.sentinels().iter().map(AsRef::as_ref)) {
        child::say(&format!("{} {}", member.server().pid(), member.server().dir().display()));
    }
    std::future::pending().await
}

#[tokio::test]
async fn sentinels_and_servers_die_with_their_test_process() {
    let mut process = Child::spawn("sentinels::child_with_sentinels", &[]);
    let (mut pids, mut dirs) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let line = process.line().await.expect("a line");
        let (pid, dir) = line.split_once(' ').expect("two words");
        pids.push(pid.parse().expect("a pid"));
        dirs.push(PathBuf::from(dir));
    }
    assert!(pids.iter().all(|pid| !reaper::has_ended(*pid)));
    process.kill9();
    let gone = async || pids.iter().all(|pid| reaper::has_ended(*pid)) && !dirs.iter().any(|dir| dir.exists());
    crate::until(&format!("the end of {pids:?} and {dirs:?}"), gone).await;
}

fn openssl(dir: &Path, args: &str) {
    let made = Command::new("openssl").current_dir(dir).args(args.split(' ')).output().expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[tokio::test]
async fn replicas_and_sentinels_speak_only_tls_if_requested() {
    let dir = Folder::new();
    let new = "-newkey rsa:2048 -nodes -days 2";
    openssl(dir.path(), &format!("req -x509 {new} -subj /CN=ca -keyout ca.key -out ca.pem"));
    openssl(dir.path(), &format!("req {new} -subj /CN=localhost -keyout key.pem -out cert.csr"));
    openssl(dir.path(), "x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out cert.pem");
    let servers = ReplicasOptions::default().replicas(1).tls(dir.path());
    let bed = Sentinels::start(SentinelsOptions::default().swift().servers(servers)).await;
    assert!(bed.url().starts_with(&format!("rediss-sentinel://{},", bed.sentinel(0).addr())));
    // All members know each other by ports that speak only TLS.
    for member in bed.servers().nodes().iter().chain(bed.sentinels().iter().map(AsRef::as_ref)) {
        assert_ne!(member.addr(), member.server().addr());
        let mut plain = TcpStream::connect(member.addr()).expect("it listens");
        plain.write_all(b"PING\r\n").expect("it reads");
        plain.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let mut said = Vec::new();
        let _ = plain.read_to_end(&mut said);
        assert!(!said.starts_with(b"+PONG"), "{}: {said:?}", member.addr());
    }
    let promotion = bed.failover().await;
    assert_eq!((promotion.server, bed.primary().await), (1, 1));
    let told = bed.switched(promotion.cause).await;
    assert!(told.text.ends_with(&bed.server(1).addr().port().to_string()), "{told:?}");
}
