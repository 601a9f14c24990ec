//! The state in Redis after each step of a read-write lock is the same, whichever language takes which step, except for
//! intended differences. A *cast* assigns a language to each of the actors A, B, C.

use std::time::Duration;

use distlock::{Acquire, Client, Error, Guard, Owner};
use distlock_support::agent::Kind;

use crate::listener::Listener;
use crate::rig::{Rig, replied};
use crate::rw_rig::{Doc, HALVES, enter, half_of};

/// The unit of leases, in ms. Large compared to the delays of a slow machine.
const UNIT: i64 = 100_000;

/// An act of an actor. Leases are in units.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read(u64),
    Write(u64),
    Unread,
    Unwrite,
    /// Tries to acquire and is refused.
    NoRead,
    NoWrite,
    /// Downgrades a write hold with this lease.
    Downgrade(u64),
    /// Forces this half. The flag: whether the half was held.
    Force(Kind, bool),
    /// Learns of the loss of its hold.
    Lost(Kind),
}

use Act::{Downgrade, Force, Lost, NoRead, NoWrite, Read, Unread, Unwrite, Write};

/// The actor, the act, and the state after it: mode, holders (`*`: a writer), the lease of the hash, the covers, and
/// the messages. If this crate differs, the last field has its state.
type Row = (usize, Act, &'static str, Option<&'static str>);

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const CAST: usize = 3;

const STEPS: &[Row] = &[
    // Three readers. Later a writer also reads, and releases the write first.
    (A, Read(100), "read A1 100 [A/1 100]", None),
    (B, Read(300), "read A1 B1 300 [A/1 100, B/1 300]", None),
    (C, NoWrite, "read A1 B1 300 [A/1 100, B/1 300]", None),
    (C, Read(50), "read A1 B1 C1 300 [A/1 100, B/1 300, C/1 50]", None),
    (C, Read(200), "read A1 B1 C2 300 [A/1 100, B/1 300, C/1 50, C/2 200]", None),
    (C, NoWrite, "read A1 B1 C2 300 [A/1 100, B/1 300, C/1 50, C/2 200]", None),
    (C, Unread, "read A1 B1 C1 300 [A/1 100, B/1 300, C/1 50]", None),
    (C, Unread, "read A1 B1 300 [A/1 100, B/1 300]", None),
    // Redisson sends no message when the lease becomes shorter.
    (B, Unread, "read A1 100 [A/1 100]", Some("read A1 100 [A/1 100] told 0")),
    (A, Unread, "free told 0", None),
    // The second cover of the remaining reader is the longest.
    (A, Read(300), "read A1 300 [A/1 300]", None),
    (B, Read(50), "read A1 B1 300 [A/1 300, B/1 50]", None),
    (B, Read(200), "read A1 B2 300 [A/1 300, B/1 50, B/2 200]", None),
    (A, Unread, "read B2 200 [B/1 50, B/2 200]", Some("read B2 200 [B/1 50, B/2 200] told 0")),
    (B, Unread, "read B1 50 [B/1 50]", Some("read B1 50 [B/1 50] told 0")),
    (B, Unread, "free told 0", None),
    (C, Write(200), "write C*1 200", None),
    // Until a release, Redisson's lease is the sum of both leases.
    (C, Write(200), "write C*2 400", Some("write C*2 200")),
    (A, NoRead, "write C*2 400", Some("as it was")),
    (A, NoWrite, "write C*2 400", Some("as it was")),
    (C, Read(50), "write C1 C*2 400 [C/1 50]", Some("write C1 C*2 200 [C/1 50]")),
    (C, Read(100), "write C2 C*2 400 [C/1 50, C/2 100]", Some("write C2 C*2 200 [C/1 50, C/2 100]")),
    // Redisson cuts the writer's lease to the lease of its covers.
    (C, Unread, "write C1 C*2 50 [C/1 50]", Some("write C1 C*2 200 [C/1 50]")),
    (C, Unwrite, "write C1 C*1 200 [C/1 50]", None),
    // Redisson sends no message when a writer's read remains.
    (C, Unwrite, "read C1 200 [C/1 50]", Some("read C1 200 [C/1 50] told 1")),
    (C, NoWrite, "read C1 200 [C/1 50]", None),
    (B, Read(100), "read B1 C1 200 [B/1 100, C/1 50]", None),
    (A, NoWrite, "read B1 C1 200 [B/1 100, C/1 50]", None),
    (C, Unread, "read B1 100 [B/1 100]", Some("read B1 100 [B/1 100] told 0")),
    (B, Unread, "free told 0", None),
    // A read inside a write. The read is released first.
    (A, Write(100), "write A*1 100", None),
    (A, Read(300), "write A1 A*1 300 [A/1 300]", None),
    (B, NoRead, "write A1 A*1 300 [A/1 300]", None),
    (A, Unread, "write A*1 300", None),
    (A, Unwrite, "free told 1", None),
    // A downgrade by one call.
    (B, Write(100), "write B*1 100", None),
    (B, Downgrade(100), "read B1 100 [B/1 100]", Some("read B1 100 [B/1 100] told 1")),
    (C, Read(50), "read B1 C1 100 [B/1 100, C/1 50]", None),
    (B, Unread, "read C1 50 [C/1 50]", Some("read C1 50 [C/1 50] told 0")),
    (C, Unread, "free told 0", None),
    // `force_unlock` affects only the current mode. Covers stay until they expire.
    (C, Force(Kind::Read, false), "free", None),
    (C, Force(Kind::Write, false), "free", None),
    (A, Read(100), "read A1 100 [A/1 100]", None),
    (B, Force(Kind::Write, false), "read A1 100 [A/1 100]", None),
    (B, Force(Kind::Read, true), "free [A/1 100] told 0", None),
    (A, Lost(Kind::Read), "free", None),
    (C, Write(100), "write C*1 100", None),
    (C, Read(50), "write C1 C*1 100 [C/1 50]", None),
    (A, Force(Kind::Read, false), "write C1 C*1 100 [C/1 50]", None),
    (A, Force(Kind::Write, true), "free [C/1 50] told 1", None),
    (C, Lost(Kind::Read), "free", None),
    (C, Lost(Kind::Write), "free", None),
];

struct Actor<'a> {
    doc: Doc<'a>,
    client: &'a Client,
    owner: String,
    side: Side,
}

enum Side {
    Java(i64),
    Ours(Owner, [Vec<Guard>; 2]),
}

const fn index(half: Kind) -> usize {
    if matches!(half, Kind::Write) { 1 } else { 0 }
}

impl<'a> Actor<'a> {
    fn new(doc: Doc<'a>, client: &'a Client, java: bool, number: usize) -> Self {
        if java {
            let thread = number as i64 + 1;
            return Self { doc, client, owner: doc.java_owner(0, thread), side: Side::Java(thread) };
        }
        let owner = client.owner();
        let text = owner.as_str().to_owned();
        Self { doc, client, owner: text, side: Side::Ours(owner, Default::default()) }
    }

    async fn act(&mut self, act: Act) {
        match act {
            Read(lease) => self.enter(Kind::Read, lease).await,
            Write(lease) => self.enter(Kind::Write, lease).await,
            Unread => self.leave(Kind::Read).await,
            Unwrite => self.leave(Kind::Write).await,
            NoRead => self.in_vain(Kind::Read).await,
            NoWrite => self.in_vain(Kind::Write).await,
            Downgrade(lease) => self.downgrade(lease).await,
            Force(half, held) => assert_eq!(self.force(half).await, held),
            Lost(half) => self.lost(half).await,
        }
    }

    async fn enter(&mut self, half: Kind, lease: u64) {
        let lease = Duration::from_millis(lease * UNIT as u64);
        match &mut self.side {
            Side::Java(thread) => {
                assert_eq!(self.doc.java(0, half, *thread).try_lock_for(Duration::ZERO, lease).await, Ok(true));
            }
            Side::Ours(owner, guards) => {
                guards[index(half)].push(enter(self.client, half, self.doc.name, owner, Some(lease)).await);
            }
        }
    }

    async fn leave(&mut self, half: Kind) {
        match &mut self.side {
            Side::Java(thread) => drop(replied(self.doc.java(0, half, *thread).unlock()).await),
            Side::Ours(_, guards) => {
                guards[index(half)].pop().expect("a hold").unlock().await.expect("unlock");
            }
        }
    }

    async fn in_vain(&mut self, half: Kind) {
        match &mut self.side {
            Side::Java(thread) => assert_eq!(self.doc.java(0, half, *thread).try_lock().await, Ok(false)),
            Side::Ours(owner, guards) => {
                let how = Acquire::new().owner(owner).wait(Duration::ZERO);
                let got = half_of(self.client, half, self.doc.name).acquire(how).await;
                if half == Kind::Write && !guards[index(Kind::Read)].is_empty() {
                    assert!(matches!(got, Err(Error::WouldDeadlock { .. })), "{got:?}");
                } else {
                    assert!(got.expect("acquire").is_none());
                }
            }
        }
    }

    async fn downgrade(&mut self, lease: u64) {
        if let Side::Ours(_, guards) = &mut self.side {
            let writing = guards[index(Kind::Write)].pop().expect("a hold");
            guards[index(Kind::Read)].push(writing.downgrade().await.expect("downgrade"));
        } else {
            self.enter(Kind::Read, lease).await;
            self.leave(Kind::Write).await;
        }
    }

    async fn force(&mut self, half: Kind) -> bool {
        match &self.side {
            Side::Java(thread) => self.doc.java(0, half, *thread).force_unlock().await.expect("force_unlock"),
            Side::Ours(..) => half_of(self.client, half, self.doc.name).force_unlock().await.expect("force_unlock"),
        }
    }

    async fn lost(&mut self, half: Kind) {
        match &mut self.side {
            Side::Java(thread) => {
                let error = self.doc.java(0, half, *thread).unlock().await.expect_err("it is gone");
                assert_eq!(error.error, "IllegalMonitorStateException");
            }
            Side::Ours(_, guards) => {
                let guard = guards[index(half)].pop().expect("a hold");
                assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
            }
        }
        for (cover, n) in [(&self.owner, 1), (&self.owner, 2)] {
            self.doc.rig.admin.cmd::<()>(&["DEL", &self.doc.cover(cover, n)]).await;
        }
    }
}

/// Converts a lease to units, rounded up to a multiple of 50, so that elapsed time does not matter. First subtracts 100
/// ms, because our release may add some milliseconds.
fn units(ms: i64) -> i64 {
    (ms - 100 + 50 * UNIT - 1) / (50 * UNIT) * 50
}

/// Prints the state, with owners as letters of the cast.
async fn seen(doc: &Doc<'_>, cast: &[Actor<'_>], listener: &Listener, mute: bool) -> String {
    let messages = listener.take(&doc.rig.admin).await;
    let seen = doc.look().await;
    let letter = |owner: &str| {
        let at = cast.iter().position(|actor| actor.owner == owner);
        at.map_or_else(|| owner.to_owned(), |at| char::from(b'A' + at as u8).to_string())
    };
    let mut holders: Vec<_> = seen.fields.iter().filter(|(field, _)| *field != "mode").collect();
    holders.sort_by_key(|(field, _)| (letter(field.trim_end_matches(":write")), field.len()));
    let mut text = seen.mode().unwrap_or("free").to_owned();
    for (field, count) in holders {
        text += " ";
        text += &match field.strip_suffix(":write") {
            Some(owner) => letter(owner) + "*" + count,
            None => letter(field) + count,
        };
    }
    if seen.ttl != -2 {
        text += &format!(" {}", units(seen.ttl));
    }
    let covers = seen.covers.iter().map(|(cover, left)| {
        let (owner, n) = cover.split_once(":rwlock_timeout:").expect("a cover");
        format!("{}/{n} {}", letter(owner), units(*left))
    });
    let mut covers: Vec<_> = covers.collect();
    covers.sort();
    if !covers.is_empty() {
        text += &format!(" [{}]", covers.join(", "));
    }
    for message in messages.iter().filter(|_| !mute) {
        assert_eq!(message.channel, doc.channel());
        text += &format!(" told {}", String::from_utf8_lossy(&message.payload));
    }
    text
}

async fn play(rig: &Rig, client: &Client, listener: &Listener, name: &str, java: u32) {
    let doc = Doc::new(rig, name);
    let mut cast: Vec<_> = (0..CAST).map(|i| Actor::new(doc, client, java >> i & 1 == 1, i)).collect();
    let mut before = String::new();
    for (at, (who, act, left, by_us)) in STEPS.iter().enumerate() {
        cast[*who].act(*act).await;
        // `Lost` compares no messages: the hold's late release may send one.
        let now = seen(&doc, &cast, listener, matches!(act, Lost(_))).await;
        let what = format!("step {at}, {who} {act:?}, with Java at {java:03b}");
        let is_ours = |who: usize| matches!(cast[who].side, Side::Ours(..));
        match by_us {
            Some("as it was") => assert_eq!(now, before, "{what}"),
            Some(by_us) if is_ours(*who) => assert_eq!(now, *by_us, "{what}"),
            _ => assert_eq!(now, *left, "{what}"),
        }
        before = now;
        for half in HALVES {
            let theirs = doc.java(0, half, 99).is_locked().await.expect("is_locked");
            let ours = half_of(client, half, name).is_locked().await.expect("is_locked");
            // Java takes every field except the writer's own for a reader, and so also our list of holds
            // (docs/wire-format.md).
            let lists = rig.admin.hgetall_whole(name).await.keys().any(|field| field.ends_with(":write:holds"));
            let counted = half == HALVES[0] && lists && theirs && !ours;
            assert!(ours == theirs || counted, "{what}: is the half {half:?} locked: {ours}, Java {theirs}");
        }
    }
    doc.is_gone().await;
}

/// Every cast leaves the states of the table, from Java alone to this crate alone.
pub async fn rw_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::with(version).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    for java in (0..1 << CAST).rev() {
        play(&rig, &client, &listener, &format!("cast:{java}"), java).await;
    }
    println!("{version}: {} steps by each of {} casts", STEPS.len(), 1 << CAST);
    drop(listener);
    rig.end([client]).await;
}
