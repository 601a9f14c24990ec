use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::*;
use crate::config::Sharded;
use crate::names::LockName;
use crate::topology::AckRule;
use crate::transport::script::Script;
use crate::transport::{Arg, Listener, Reply, Transport};
use crate::world::Machine;

/// A server, or a sentinel, that answers what it was told to.
#[derive(Debug, Default)]
struct Server {
    says: Mutex<Says>,
    /// Of all its connections but those of before a restart.
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
    channels: Mutex<BTreeSet<Bytes>>,
    /// How many scripts came.
    scripts: AtomicUsize,
    open: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
struct Says {
    is_primary: bool,
    replicas: usize,
    history: [&'static str; 2],
    /// How many ms its connections take to stand.
    connects_within: u64,
    /// It takes commands and answers none.
    is_silent: bool,
    /// What a sentinel says of the primary: its address, and the epoch.
    told: Option<(&'static str, u64)>,
    /// A sentinel that has promoted a replica, and names the primary of before yet.
    is_replacing: bool,
    /// What a script is answered with instead.
    error: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
struct Net(Arc<BTreeMap<&'static str, Arc<Server>>>);

#[derive(Debug)]
struct Line(Arc<Server>, Instant);

fn word(text: &str) -> Reply {
    Reply::Text(Bytes::copy_from_slice(text.as_bytes()))
}

fn words(words: &[&str]) -> Reply {
    Reply::List(words.iter().map(|text| word(text)).collect())
}

impl Connector for Net {
    fn connect(&self, address: &str, _purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>> {
        let server = Arc::clone(self.0.get(address).unwrap_or_else(|| panic!("nobody is at {address}")));
        server.open.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(Arc::new(Line(server, Instant::now())) as Arc<dyn Transport>)))
    }
}

impl Server {
    fn answer(&self, call: &Call) -> Result<Reply, Fault> {
        let says = self.says.lock().clone();
        match (call.script.command, says.told) {
            (Some("ROLE"), None) if says.is_primary => {
                let replica = |n: usize| words(&["10.0.0.9", &(n + 1).to_string(), "1"]);
                let replicas = (0..says.replicas).map(replica).collect();
                Ok(Reply::List(vec![word("master"), Reply::Int(1), Reply::List(replicas)]))
            }
            (Some("ROLE"), None) => Ok(words(&["slave", "10.0.0.1", "1", "connected", "1"])),
            (Some("INFO"), None) => {
                let (role, [id, before]) = (if says.is_primary { "master" } else { "slave" }, says.history);
                Ok(word(&format!("role:{role}\r\nmaster_replid:{id}\r\nmaster_replid2:{before}\r\n")))
            }
            (Some("SENTINEL"), Some((address, epoch))) => match &call.words[0] {
                Arg::Text(what) if *what == "MASTER" => {
                    let (ip, port) = address.split_once(':').unwrap();
                    let flags = if says.is_replacing { "master,o_down,failover_in_progress" } else { "master" };
                    Ok(words(&[
                        "ip",
                        ip,
                        "port",
                        port,
                        "flags",
                        flags,
                        "config-epoch",
                        &epoch.to_string(),
                        "num-other-sentinels",
                        "2",
                    ]))
                }
                Arg::Text(what) if *what == "REPLICAS" => {
                    let others = [ONE, TWO, THREE].into_iter().filter(|one| *one != address);
                    let replica = |at: &str| words(&["ip", "10.0.0.1", "port", at.split_once(':').unwrap().1]);
                    Ok(Reply::List(others.map(replica).collect()))
                }
                _ => Ok(Reply::List(Vec::new())),
            },
            (Some(_), _) => Err(Fault::new(FaultKind::Refused, "ERR unknown command")),
            (None, _) => {
                self.scripts.fetch_add(1, Ordering::SeqCst);
                says.error.map_or(Ok(Reply::Int(1)), |error| Err(Fault::new(FaultKind::Refused, error)))
            }
        }
    }

    fn each(&self, what: impl Fn(&dyn Listener)) {
        let listeners: Vec<_> = self.listeners.lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| what(&**listener));
    }
}

impl Transport for Line {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let (server, since) = (Arc::clone(&self.0), self.1);
        Box::pin(async move {
            let stands = since + Duration::from_millis(server.says.lock().connects_within);
            tokio::time::sleep_until(stands.max(Instant::now() + Duration::from_millis(1))).await;
            if server.says.lock().is_silent {
                std::future::pending::<()>().await;
            }
            server.answer(&call)
        })
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            server.channels.lock().insert(channel);
            Ok(())
        })
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.0.channels.lock().remove(&channel);
        Box::pin(std::future::ready(()))
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.0.listeners.lock().push(listener);
    }

    fn address(&self) -> &str {
        "somewhere"
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine)
    }

    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

const ONE: &str = "10.0.0.1:1";
const TWO: &str = "10.0.0.1:2";
const THREE: &str = "10.0.0.1:3";
const SENTINELS: [&str; 3] = ["10.0.1.1:1", "10.0.1.2:1", "10.0.1.3:1"];

fn address(text: &str) -> Address {
    Address::split(text).and_then(|(host, port)| Address::new(host, port)).unwrap()
}

fn settings(seeds: &[&str]) -> Settings {
    let limit = Duration::from_secs(3);
    Settings {
        seeds: seeds.iter().map(|seed| address(seed)).collect(),
        command_timeout: limit,
        connect_timeout: limit,
        scan_interval: Duration::from_secs(1),
        sharded: Sharded::Off,
        acks: AckRule::off(),
        coalesce: None,
    }
}

/// Three servers, of which the first is the primary, and three sentinels that say so at epoch 5.
fn net() -> Net {
    let all = [ONE, TWO, THREE].into_iter().chain(SENTINELS);
    let net = Net(Arc::new(all.map(|at| (at, Arc::<Server>::default())).collect()));
    net.says(ONE, |says| (says.is_primary, says.replicas, says.history) = (true, 2, ["first", "none"]));
    for replica in [TWO, THREE] {
        net.says(replica, |says| says.history = ["first", "none"]);
    }
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((ONE, 5)));
    }
    net
}

impl Net {
    fn says(&self, at: &str, how: impl FnOnce(&mut Says)) {
        how(&mut self.0[at].says.lock());
    }

    /// A replica of the first one becomes a primary, and goes on from there.
    fn promote(&self, at: &str) {
        self.says(at, |says| (says.is_primary, says.history) = (true, ["second", "first"]));
    }

    async fn by_sentinels(&self) -> Arc<Primary> {
        let (connector, name) = (Arc::new(self.clone()), "locks".to_owned());
        let primary = Primary::by_sentinels(settings(&SENTINELS), connector, Arc::new(Machine), name).await.unwrap();
        settle(3_000).await;
        primary
    }

    async fn replicated(&self) -> Arc<Primary> {
        let connector = Arc::new(self.clone());
        Primary::of_replicated(settings(&[ONE, TWO, THREE]), connector, Arc::new(Machine)).await.unwrap()
    }
}

async fn settle(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

static SCRIPT: Script = Script::new("primary/test", "return 1");

fn call(_: &ServerClock) -> Call {
    Call { script: &SCRIPT, keys: 0, words: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn of_several_answers_that_of_the_highest_epoch_counts() {
    let net = net();
    net.promote(TWO);
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 6)));
    let primary = net.by_sentinels().await;
    assert_eq!(primary.address(), address(TWO));
    // The first one, which was cut off, goes on calling itself primary, and others of old say so.
    settle(60_000).await;
    net.0[SENTINELS[0]].each(|listener| listener.message(b"+switch-master", b"locks 10.0.0.1 2 10.0.0.1 1"));
    settle(1_000).await;
    assert_eq!(primary.address(), address(TWO));
    primary.run(&call).await.unwrap();
    assert_eq!((net.0[ONE].scripts.load(Ordering::SeqCst), net.0[TWO].scripts.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_first_sentinel_that_tells_is_followed_once_the_server_proves_it() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(SENTINELS[2], |says| says.told = Some((TWO, 6)));
    let tell = || net.0[SENTINELS[2]].each(|of| of.message(b"+switch-master", b"locks 10.0.0.1 1 10.0.0.1 2"));
    tell();
    settle(100).await;
    assert_eq!(primary.address(), address(ONE), "it says that it is a replica");
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    tell();
    settle(10).await;
    assert_eq!(primary.address(), address(TWO));
    // Of another name.
    net.0[SENTINELS[2]].each(|of| of.message(b"+switch-master", b"other 10.0.0.1 1 10.0.0.1 3"));
    settle(10_000).await;
    assert_eq!(primary.address(), address(TWO));
}

/// Who was found early has to say itself that it is none, whatever sentinels say that have yet to hear of it.
#[tokio::test(start_paused = true)]
async fn who_was_found_early_stays_also_while_it_is_silent() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(ONE, |says| says.is_silent = true);
    net.promote(TWO);
    primary.suspicion.raise();
    settle(1_000).await;
    assert_eq!(primary.address(), address(TWO));
    net.says(TWO, |says| says.is_silent = true);
    net.says(ONE, |says| says.is_silent = false);
    primary.suspicion.raise();
    settle(5_000).await;
    assert_eq!(primary.address(), address(TWO));
    // Taken back.
    net.says(TWO, |says| (says.is_silent, says.is_primary) = (false, false));
    settle(2_000).await;
    assert_eq!(primary.address(), address(ONE));
}

/// A provider of credentials, or TLS over a slow link.
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_long_to_connect_to_is_taken_all_the_same() {
    let net = net();
    net.says(ONE, |says| says.connects_within = 2_500);
    let primary = net.by_sentinels().await;
    net.says(TWO, |says| (says.connects_within, says.is_primary) = (2_500, true));
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((TWO, 6)));
    }
    settle(10_000).await;
    assert_eq!(primary.address(), address(TWO));
    assert_eq!(net.0[TWO].open.load(Ordering::SeqCst), 1, "one connection for names, and none that was given up");
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Bytes>>);

impl MemberListener for Heard {
    fn message(&self, _channel: &[u8], payload: &[u8]) {
        self.0.lock().push(Bytes::copy_from_slice(payload));
    }

    fn missed(&self, _member: MemberId) {}

    fn reconnected(&self, _member: MemberId) {}

    fn slots_moved(&self, _slots: &[u16]) {}

    fn resubscribed(&self, _channel: &[u8]) {}
}

/// Whoever takes the place before there is anybody to listen is listened to as well.
#[tokio::test(start_paused = true)]
async fn a_new_primary_is_listened_to() {
    let net = net();
    let primary = net.by_sentinels().await;
    let listener: Arc<Heard> = Arc::default();
    let listening: Arc<dyn MemberListener> = Arc::<Heard>::clone(&listener);
    for (place, at) in [TWO, THREE].into_iter().enumerate() {
        net.says(at, |says| says.is_primary = true);
        let epoch = 6 + u64::try_from(place).unwrap();
        net.says(SENTINELS[0], |says| says.told = Some((at, epoch)));
        if place == 1 {
            primary.listen(&Arc::downgrade(&listening));
        }
        settle(3_000).await;
        assert_eq!(primary.address(), address(at));
        if place == 0 {
            primary.listen(&Arc::downgrade(&listening));
        }
        net.0[at].each(|of| of.message(b"x", at.as_bytes()));
        assert_eq!(listener.0.lock().pop().as_deref(), Some(at.as_bytes()));
    }
}

/// It has the epoch of the next primary before it names that one.
#[tokio::test(start_paused = true)]
async fn a_sentinel_that_leads_a_failover_confirms_nothing() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(SENTINELS[0], |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    settle(3_000).await;
    // Nothing that goes on from the first one, so that it is for sentinels to say.
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 6)));
    settle(1_100).await;
    assert_eq!(primary.address(), address(TWO));
    // At the start as well.
    let net = self::net();
    net.says(ONE, |says| says.is_primary = false);
    for sentinel in SENTINELS {
        net.says(sentinel, |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    }
    let starting = tokio::spawn({
        let net = net.clone();
        async move { net.by_sentinels().await.address() }
    });
    settle(1_000).await;
    net.promote(TWO);
    for sentinel in SENTINELS {
        net.says(sentinel, |says| (says.told, says.is_replacing) = (Some((TWO, 6)), false));
    }
    assert_eq!(starting.await.unwrap(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_that_leads_a_failover_has_the_epoch_of_the_new_primary_before_it_names_it() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(SENTINELS[1], |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    net.promote(TWO);
    settle(10_000).await;
    assert_eq!(primary.address(), address(ONE), "it says that it is the primary");
    net.says(SENTINELS[1], |says| (says.told, says.is_replacing) = (Some((TWO, 6)), false));
    net.0[SENTINELS[1]].each(|of| of.message(b"+switch-master", b"locks 10.0.0.1 1 10.0.0.1 2"));
    settle(10).await;
    assert_eq!(primary.address(), address(TWO));
    // Who connects in between asks the one that leads.
    net.says(SENTINELS[1], |says| (says.told, says.is_replacing) = (Some((ONE, 6)), true));
    let primary = net.by_sentinels().await;
    assert_eq!(primary.address(), address(ONE));
    net.says(SENTINELS[2], |says| says.told = Some((TWO, 6)));
    settle(5_000).await;
    assert_eq!(primary.address(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn a_promoted_replica_is_found_before_sentinels_tell_and_one_that_was_emptied_is_not() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(ONE, |says| says.is_silent = true);
    primary.suspicion.raise();
    // Restarted, without what it had.
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["empty", "none"]));
    let asked = tokio::spawn({
        let primary = Arc::clone(&primary);
        async move { primary.run(&call).await.map(drop) }
    });
    settle(2_000).await;
    assert_eq!(primary.address(), address(ONE));
    net.promote(THREE);
    settle(250).await;
    assert_eq!(primary.address(), address(THREE));
    // What was under way at the silent one ends at once, in doubt.
    let fault = asked.await.unwrap().unwrap_err();
    assert!(fault.in_doubt(), "{fault:?}");
    // Sentinels that have yet to hear of it turn nothing back, also when the first one goes on.
    net.says(ONE, |says| says.is_silent = false);
    settle(20_000).await;
    assert_eq!(primary.address(), address(THREE));
    // Nor have they one replica forgotten: the one that they take for the primary yet.
    assert_eq!(*primary.replicas.read(), [ONE, TWO].map(address).into());
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((THREE, 6)));
    }
    settle(5_000).await;
    assert_eq!(primary.address(), address(THREE));
    assert_eq!(net.0[ONE].open.load(Ordering::SeqCst), 0, "nothing leads there any more");
}

#[tokio::test(start_paused = true)]
async fn sentinels_that_begin_anew_are_believed_where_most_agree_and_ours_is_none_any_more() {
    let net = net();
    let primary = net.by_sentinels().await;
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((TWO, 0)));
    }
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    settle(5_000).await;
    assert_eq!(primary.address(), address(ONE), "it says that it is the primary");
    net.says(SENTINELS[0], |says| says.told = Some((ONE, 5)));
    net.says(SENTINELS[1], |says| says.told = Some((ONE, 5)));
    net.says(ONE, |says| says.is_primary = false);
    settle(5_000).await;
    assert_eq!(primary.address(), address(ONE), "one of three says so");
    net.says(SENTINELS[1], |says| says.told = Some((TWO, 5)));
    net.says(SENTINELS[0], |says| says.told = Some((TWO, 5)));
    settle(5_000).await;
    assert_eq!(primary.address(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn what_a_demoted_server_refuses_goes_to_the_next_one() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.says(ONE, |says| (says.is_primary, says.error) = (false, Some("READONLY You can't write against a replica")));
    let asked = tokio::spawn({
        let primary = Arc::clone(&primary);
        async move { primary.run(&call).await.map(|answered| answered.placement) }
    });
    settle(500).await;
    net.promote(TWO);
    for sentinel in SENTINELS {
        net.says(sentinel, |says| says.told = Some((TWO, 6)));
    }
    let placement = asked.await.unwrap().unwrap();
    assert_eq!(placement, primary.placement());
    assert_eq!(primary.address(), address(TWO));
}

#[tokio::test(start_paused = true)]
async fn subscriptions_come_along_and_those_that_have_ended_do_not() {
    let net = net();
    let primary = net.by_sentinels().await;
    let names = ["a", "b"].map(|name| LockName::new("", name));
    for name in &names {
        primary.subscribe(name).await.unwrap();
    }
    net.promote(TWO);
    net.says(SENTINELS[0], |says| says.told = Some((TWO, 6)));
    net.0[SENTINELS[0]].each(|of| of.message(b"+switch-master", b"locks 10.0.0.1 1 10.0.0.1 2"));
    while primary.address() != address(TWO) {
        settle(1).await;
    }
    primary.unsubscribe(&names[1]).await;
    settle(100).await;
    assert_eq!(*net.0[TWO].channels.lock(), BTreeSet::from([names[0].channel.clone()]));
    primary.close(Duration::from_secs(1)).await;
    settle(5_000).await;
    for (at, server) in &*net.0 {
        assert_eq!(server.open.load(Ordering::SeqCst), 0, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_replicated_servers_ours_stays_until_it_says_no_or_nothing() {
    let net = net();
    net.says(TWO, |says| says.is_primary = true);
    let primary = net.replicated().await;
    assert_eq!(primary.address(), address(ONE), "it has more replicas");
    settle(10_000).await;
    assert_eq!(primary.address(), address(ONE));
    net.says(ONE, |says| says.is_silent = true);
    settle(2_500).await;
    assert_eq!(primary.address(), address(TWO));
    net.says(ONE, |says| says.is_silent = false);
    settle(10_000).await;
    assert_eq!(primary.address(), address(TWO));
    net.says(TWO, |says| says.is_primary = false);
    settle(1_100).await;
    assert_eq!(primary.address(), address(ONE));
}

#[tokio::test(start_paused = true)]
async fn most_sentinels_outweigh_one_that_was_not_set_up_anew_with_them() {
    let net = net();
    let primary = net.by_sentinels().await;
    for sentinel in &SENTINELS[1..] {
        net.says(sentinel, |says| says.told = Some((TWO, 0)));
    }
    net.says(TWO, |says| (says.is_primary, says.history) = (true, ["other", "none"]));
    settle(5_000).await;
    assert_eq!(primary.address(), address(ONE), "it says that it is the primary");
    net.says(ONE, |says| says.is_primary = false);
    settle(5_000).await;
    assert_eq!(primary.address(), address(TWO));
    settle(60_000).await;
    assert_eq!(primary.address(), address(TWO));
}

/// A broken connection is no answer that does not come.
#[tokio::test(start_paused = true)]
async fn a_primary_that_is_well_is_not_left_for_a_replica_that_somebody_promoted() {
    let net = net();
    let primary = net.by_sentinels().await;
    net.promote(TWO);
    for _ in 0..20 {
        primary.went_away(primary.member().id());
        settle(170).await;
        primary.came_back(primary.member().id());
        settle(30).await;
    }
    assert_eq!(primary.address(), address(ONE));
    // The control: one that does not answer is.
    net.says(ONE, |says| says.is_silent = true);
    primary.went_away(primary.member().id());
    settle(1_000).await;
    assert_eq!(primary.address(), address(TWO));
}
