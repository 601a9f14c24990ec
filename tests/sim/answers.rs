//! Replies and effects that the headers of scripts promise, and that no other test notices: the engine would hide a
//! wrong reply. Readers of the headers rely on these promises.

use crate::prelude::*;

const ME: &str = "00000000-0000-8000-8000-00000000000a:1";
const OTHER: &str = "00000000-0000-8000-8000-00000000000b:1";
const JAVA: &str = "00000000-0000-4000-8000-00000000000c:1";

/// Concatenates scripts as the build does.
macro_rules! put_together {
    ($($file:literal),+) => { concat!($(include_str!(concat!("../../lua/", $file, ".lua"))),+) };
}

const ACQUIRE: &str = put_together!("common/holds", "reentrant/acquire");
const RELEASE: &str = put_together!("common/holds", "reentrant/release");
const MANY: &str = put_together!(
    "common/holds",
    "common/many/begin",
    "reentrant/acquire",
    "common/many/next",
    "reentrant/release",
    "common/many/run"
);
const RENEW: &str = put_together!("common/holds", "common/renew/begin", "common/renew");
const READ: &str = put_together!("common/holds", "rwlock/covers", "rwlock/read");
const READ_RELEASE: &str = put_together!("common/holds", "rwlock/covers", "rwlock/read_release");
const RW_RENEW: &str = put_together!("common/holds", "rwlock/covers", "common/renew/begin", "rwlock/renew");
const WRITE: &str = put_together!("common/holds", "rwlock/covers", "rwlock/write");
const FAIR_ACQUIRE: &str = put_together!("common/holds", "fair/queue", "fair/acquire");
const FAIR_LEAVE: &str = put_together!("common/holds", "fair/queue", "fair/remove", "fair/leave");
const FAIR_REFRESH: &str = put_together!("common/holds", "fair/queue", "fair/mend", "fair/refresh");

const FAIR: [&str; 4] = ["x", "q", "t", "w"];
/// The last arguments of fair-lock scripts: the time for which a waiter of this crate keeps its place, first lease,
/// publish command, the same time for a Java waiter, watchdog, grace time, prefix of channels.
const TOLD: [&str; 7] = ["4000", "4000", "publish", "300000", "30000", "500", "c"];

struct Store(SimServer);

impl Store {
    fn new() -> Self {
        Self(SimServer::new(1))
    }

    fn run(&self, source: &str, keys: &[&str], args: &[&str]) -> SimReply {
        let [keys, args] = [keys, args].map(|all| all.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        self.0.eval(source, &keys, &args)
    }

    /// Runs a script that replies with a list.
    fn list(&self, source: &str, keys: &[&str], args: &[&str]) -> Vec<SimReply> {
        match self.run(source, keys, args) {
            SimReply::List(replies) => replies,
            odd => panic!("no list: {odd:?}"),
        }
    }

    fn does(&self, command: &str) -> SimReply {
        does(&self.0, command)
    }

    /// Appends a queue entry of `owner` that was last refreshed at `kept`, a time in ms on the server's clock.
    fn stands(&self, owner: &str, kept: i64) {
        let ticks = kept * 2 / 125 % 4096;
        let due = (kept + 4000) as f64 + ticks as f64 / 4096.0;
        self.does(&format!("zadd t {due} {owner}"));
        self.does(&format!("rpush q {owner}"));
        self.does(&format!("hset w {owner} n-{owner}"));
    }
}

fn text(text: &str) -> SimReply {
    SimReply::Text(text.as_bytes().to_vec().into())
}

fn list(ints: &[i64]) -> SimReply {
    SimReply::List(ints.iter().map(|int| SimReply::Int(*int)).collect())
}

/// A script with its keys and arguments, and the commands that set up the state.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], Vec<String>);

#[test]
fn acquire_is_refused_when_earlier_hold_is_gone() {
    virtually(async || {
        let cover = format!("{{x}}:{ME}:rwlock_timeout:1");
        let keys = ["x", &cover, "{x}:rwlock_waiting"];
        let plain = [ME, "1000", "n.1", "e.1", "0", "0"];
        let half = [ME, "1000", "n.1", "e.1", "0", "0", "{x}", "0"];
        // The lock is free, or this owner holds it without the given hold id, or only a dead reader holds it.
        let listed = |field: &str| format!("hset x {field} 1 {field}:holds ,a.1");
        let write = format!("{ME}:write");
        let cases: [Case<'_>; 7] = [
            (ACQUIRE, &keys[..1], &plain, vec![]),
            (ACQUIRE, &keys[..1], &plain, vec![listed(ME)]),
            (READ, &keys, &half, vec![]),
            (READ, &keys, &half, vec![listed(ME), "hset x mode read".into(), format!("set {cover} 1 px 9000")]),
            (WRITE, &keys, &half, vec![]),
            (WRITE, &keys, &half, vec![listed(&write), "hset x mode write".into()]),
            (WRITE, &keys, &half, vec![format!("hset x mode read {OTHER} 1")]),
        ];
        for (n, (script, keys, args, state)) in cases.into_iter().enumerate() {
            let store = Store::new();
            state.iter().for_each(|command| drop(store.does(command)));
            let before = store.does("hgetall x");
            assert_eq!(store.run(script, keys, args), SimReply::Int(-3), "{n}: {state:?}");
            assert_eq!(store.does("hgetall x"), before, "{n}: {state:?}");
        }
        // The same script with a new hold of an owner that has no other hold.
        let fresh = [ME, "1000", "", "e.1", "0", "0", "{x}", "0"];
        assert_eq!(Store::new().run(WRITE, &keys, &fresh), SimReply::Int(-3));
    });
}

#[test]
fn release_reply_distinguishes_missing_hold_from_freed_lock() {
    virtually(async || {
        let release = |store: &Store, hold| store.run(RELEASE, &["x"], &[ME, "1000", "publish", "c", hold, "", "0"]);
        let store = Store::new();
        store.does(&format!("hset x {ME} 2 {ME}:holds ,a.1,a.2"));
        assert_eq!(release(&store, "b.1"), list(&[-2, 2]), "not there, and two others are");
        let store = Store::new();
        store.does(&format!("hset x {ME} 1"));
        assert_eq!(release(&store, "*"), SimReply::Int(0), "any hold, and no last moment");
        // An empty channel name: nothing is published.
        store.does(&format!("hset x {ME} 1"));
        assert_eq!(store.run(RELEASE, &["x"], &[ME, "1000"]), SimReply::Int(0));
        // The renewal's command number is in the list instead of the unlisted hold.
        store.does(&format!("hset x {ME} 2 {ME}:holds ,a.1"));
        store.does("pexpire x 9000");
        assert_eq!(store.run(RENEW, &["x"], &["-1000", "0", ME, ",-~5"]), list(&[1]));
        assert_eq!(store.does(&format!("hget x {ME}:holds")), text("~5,a.1"));
    });
}

#[test]
fn steps_of_one_command_share_no_arguments_and_no_errors() {
    virtually(async || {
        let store = Store::new();
        store.does("set s 1");
        // The first script of the batch, with one key.
        let shape = |args: &[&str]| (10_000 + 100 + args.len()).to_string();
        let step = |args: &[&str]| [&[&*shape(args)], args].concat().join(" ");
        // A step must not see the optional arguments of an earlier step, even if it has fewer arguments.
        let told = [
            step(&[ME, "1000", "n.1", "e.1", "0", "0"]),
            step(&[ME, "1000", "n.2"]),
            step(&[ME, "1000", "n.3", "", "1"]),
            step(&[ME, "1000", "n.4"]),
            step(&[ME, "1000", "n.5", "e.1"]),
            step(&[ME, "1000", "n.6"]),
            step(&[ME, "x", "n.7"]),
            step(&[ME, "1000", "n.8"]),
            step(&[ME, "1000", "n.9", "", "1", "0"]),
            step(&[ME, "1000", "n.10"]),
        ]
        .join(" ");
        let args: Vec<&str> = told.split(' ').collect();
        let replies = store.list(MANY, &["a", "b", "c", "d", "e", "f", "g", "s", "h", "i"], &args);
        let at = now(&store.0);
        let held = SimReply::Nil;
        let expected = [SimReply::Int(-3), held.clone(), list(&[-7, at]), held.clone(), SimReply::Int(-3), held];
        assert_eq!(replies[..6], expected);
        assert_eq!(replies[8..], [list(&[-7, at]), SimReply::Nil]);
        // An error becomes the reply of its own step, both when the script returns the error and when the error aborts
        // the script.
        for (n, reason) in [(6, "ERR value is not an integer"), (7, "WRONGTYPE")] {
            let SimReply::List(parts) = &replies[n] else { panic!("{n}: {:?}", replies[n]) };
            let [mark, SimReply::Text(said)] = &parts[..] else { panic!("{n}: {parts:?}") };
            assert!(*mark == text("!") && said.starts_with(reason.as_bytes()), "{n}: {parts:?}");
        }
        assert_eq!(store.does("exists g"), SimReply::Int(0));
    });
}

#[test]
fn leave_releases_only_one_unlisted_hold() {
    virtually(async || {
        let leave =
            |store: &Store, hold| store.run(FAIR_LEAVE, &FAIR, &[&[ME, hold, "9000", "", "n"][..], &TOLD].concat());
        let fields =
            |store: &Store| [ME.to_owned(), format!("{ME}:holds")].map(|field| store.does(&format!("hget x {field}")));
        // The only hold of an owner without a list.
        let store = Store::new();
        store.does(&format!("hset x {ME} 1"));
        assert_eq!((leave(&store, ""), store.does("exists x")), (SimReply::Int(0), SimReply::Int(0)));
        // The unlisted hold of an owner that has acquired again.
        store.does(&format!("hset x {ME} 2 {ME}:holds ,a.1"));
        assert_eq!(leave(&store, ""), SimReply::Int(1));
        assert_eq!(fields(&store), [text("1"), text(",a.1")]);
        assert_eq!(leave(&store, ""), SimReply::Nil, "not twice");
        assert_eq!(fields(&store), [text("1"), text(",a.1")]);
        store.does("del x");
        // The owner has two unlisted holds.
        store.does(&format!("hset x {ME} 2"));
        assert_eq!(leave(&store, "-"), SimReply::Int(1));
        assert_eq!(fields(&store), [text("1"), SimReply::Nil]);
    });
}

#[test]
fn acquire_refreshes_only_its_own_queue_entry() {
    virtually(async || {
        let stay = |store: &Store| {
            store.run(FAIR_ACQUIRE, &FAIR, &[&[ME, "9000", "n.1", "", "0", "0", "2", "n1"][..], &TOLD].concat())
        };
        // Another process waits as this owner. Its registration stays.
        let store = Store::new();
        store.does(&format!("hset x {OTHER} 1"));
        store.does(&format!("hset w {ME} another"));
        assert_eq!(stay(&store), SimReply::Int(-4));
        assert_eq!(store.does(&format!("hget w {ME}")), text("another"));
        // This owner is last in the queue, and has no deadline.
        store.does(&format!("rpush q {JAVA} {ME}"));
        store.does(&format!("zadd t {} {JAVA}", now(&store.0) + 60_000));
        assert!(matches!(stay(&store), SimReply::List(_)), "busy");
        assert!(store.does(&format!("zscore t {ME}")) != SimReply::Nil);
    });
}

/// The fraction of a deadline is the time when it was set, modulo 256 s.
#[test]
fn queue_entry_expires_by_time_of_last_refresh() {
    virtually(async || {
        // A place is dead if it was refreshed 10 s ago. It is alive if it was refreshed now, 3 s ago, or at a time in
        // the future (the server's clock was set back).
        let kept = [(-10_000, false), (30_000, true), (0, true), (-3_000, true)];
        // The result is the same a multiple of 256 s later.
        for ((kept, lives), later) in pairs(kept, [0, 256_000, 512_000]) {
            let store = Store::new();
            sleep(ms(later)).await;
            // The deadline is a minute ahead, so only its fraction can make the place dead.
            store.stands(OTHER, now(&store.0) + kept);
            store.does(&format!("zincrby t 60000 {OTHER}"));
            let asks = [&[ME, "9000", "", "", "0", "0", "1", "n1"][..], &TOLD].concat();
            let reply = store.run(FAIR_ACQUIRE, &FAIR, &asks);
            let who = if lives { OTHER } else { ME };
            assert_eq!(store.does(&format!("hexists x {who}")), SimReply::Int(1), "{kept}, {later}: {reply:?}");
        }
    });
}

#[test]
fn refresh_replies_for_every_lock_and_every_waiter() {
    virtually(async || {
        let store = Store::new();
        let at = now(&store.0);
        // Lock x has a broken queue, y is held and has a waiter, z is free and has a Java waiter whose channel is
        // unknown.
        store.does("set q 1");
        store.does(&format!("hset y {OTHER} 1"));
        store.does(&format!("rpush qy {ME}"));
        store.does(&format!("zadd ty {} {ME}", at + 4_000));
        store.does(&format!("rpush qz {JAVA}"));
        store.does(&format!("zadd tz {} {JAVA}", at + 60_000));
        let keys = ["x", "q", "t", "w", "y", "qy", "ty", "wy", "z", "qz", "tz", "wz"];
        let head = ["4000", "4000", "nosuchcommand", "300000", "30000", "500"];
        let broken = ["c", "2", "0", "0", ME, "0", OTHER, "n1", "n2"];
        let args = [&head[..], &broken, &["c", "1", "0", "0", ME, "n3"], &["c", "0", "0"]].concat();
        let replies = store.list(FAIR_REFRESH, &keys, &args);
        assert!(matches!(&replies[1], SimReply::Text(said) if said.starts_with(b"WRONGTYPE")), "{replies:?}");
        let one = SimReply::List(vec![SimReply::Int(1)]);
        let mut rest: Vec<SimReply> = [0, 0, 1, 0, -1, 0].map(SimReply::Int).to_vec();
        rest.extend([one, SimReply::Int(2), SimReply::Int(-2), SimReply::Int(0), SimReply::List(Vec::new())]);
        assert_eq!((&replies[0], &replies[2..]), (&SimReply::Int(at), &rest[..]));
    });
}

#[test]
fn repeated_acquire_gets_same_reply_and_adds_no_hold() {
    virtually(async || {
        let store = Store::new();
        for _ in 0..2 {
            assert_eq!(store.run(ACQUIRE, &["x"], &[ME, "1000"]), SimReply::Nil);
        }
        assert_eq!(store.does("hgetall x"), SimReply::List(vec![text(ME), text("1")]));
        // A waiter was granted the lock and wants a shorter lease. Only the first command sets the lease.
        let store = Store::new();
        store.does(&format!("hset x {ME} 1 {ME}:holds ,n.1"));
        store.does("pexpire x 4000");
        let asks = [&[ME, "1000", "n.1", "", "0", "0", "2", "n1"][..], &TOLD].concat();
        assert_eq!(store.run(FAIR_ACQUIRE, &FAIR, &asks), SimReply::Int(-2));
        assert_eq!(
            (store.does("pttl x"), store.does(&format!("hget x {ME}:holds"))),
            (SimReply::Int(1000), text(",n.1~0"))
        );
        store.does("pexpire x 3000");
        assert_eq!(store.run(FAIR_ACQUIRE, &FAIR, &asks), SimReply::Int(-2));
        assert_eq!(store.does("pttl x"), SimReply::Int(3000));
    });
}

/// A lock that `ME` reads, with one hold for each entry of `covers` (remaining times in ms).
fn read_by_me(mode: &str, covers: &[u32]) -> Store {
    let store = Store::new();
    let ids: String = (1..=covers.len()).map(|n| format!(",a.{n}")).collect();
    store.does(&format!("hset x mode {mode} {ME} {} {ME}:holds {ids}", covers.len()));
    if mode == "write" {
        store.does(&format!("hset x {ME}:write 1"));
    }
    store.does("pexpire x 9000");
    for (n, left) in (1..).zip(covers) {
        store.does(&format!("set {{x}}:{ME}:rwlock_timeout:{n} 1 px {left}"));
    }
    store
}

#[test]
fn read_release_keeps_longest_cover_others_rely_on() {
    virtually(async || {
        let cover = |n: usize| format!("{{x}}:{ME}:rwlock_timeout:{n}");
        let release = |store: &Store, hold: &str, mine: &str| {
            let args = [ME, hold, "9000", mine, "0", "{x}", "0", "publish", "c"];
            store.run(READ_RELEASE, &["x", &cover(1)], &args)
        };
        let left = |store: &Store, n| store.does(&format!("pttl {}", cover(n)));
        // A free lock: nothing to release.
        assert_eq!(release(&Store::new(), "a.1", ""), SimReply::Nil);
        // The release removes cover 1. The remaining cover gets the longer of both remaining times.
        let store = read_by_me("read", &[1000, 5000]);
        assert_eq!((release(&store, "a.1", ""), left(&store, 1)), (SimReply::Int(1), SimReply::Int(5000)));
        let store = read_by_me("read", &[1000, 9000, 3000]);
        assert_eq!((release(&store, "a.2,a.3", ""), left(&store, 1)), (SimReply::Int(1), SimReply::Int(9000)));
        let store = read_by_me("read", &[1000, 2000, 9000]);
        assert_eq!((release(&store, "a.1", ",a.2"), left(&store, 2)), (SimReply::Int(2), SimReply::Int(9000)));
        let store = read_by_me("read", &[1000, 2000, 9000]);
        assert_eq!((release(&store, "a.1", ",a.2,a.3"), left(&store, 2)), (SimReply::Int(2), SimReply::Int(2000)));
        // The owner also holds the write half, so the hash must not expire before the cover.
        let store = read_by_me("write", &[1000, 9000]);
        store.does("pexpire x 5000");
        assert_eq!((release(&store, "a.1", ""), store.does("pttl x")), (SimReply::Int(1), SimReply::Int(9000)));
    });
}

#[test]
fn renewal_error_of_one_lock_does_not_stop_others() {
    virtually(async || {
        let store = Store::new();
        store.does("set s 1");
        store.does(&format!("hset x mode write {ME}:write 1"));
        let each = |owner| [owner, "", "write", "{x}", "0"];
        let args = [&["1000", "0"][..], &each(ME), &each(ME)].concat();
        let replies = store.list(RW_RENEW, &["s", "x"], &args);
        assert!(matches!(&replies[0], SimReply::Text(said) if said.starts_with(b"WRONGTYPE")), "{replies:?}");
        assert_eq!(replies[1..], [SimReply::Int(1)]);
    });
}
