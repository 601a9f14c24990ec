//! Checks the keys that calls leave on the server, to the millisecond, and the published messages. Ignores lists of
//! hold ids, which only their owner's clients use.

use crate::prelude::*;

mod places;
mod readers;
mod renewals;

const NAME: &str = "l";

/// A server, a client whose commands take no time, and a client that listens.
struct Sight {
    server: SimServer,
    us: Party,
    _ear: Party,
}

impl Sight {
    async fn new() -> Self {
        let server = SimServer::new(1);
        let [us, ear] = [(); 2].map(|()| Self::party(&server, Prefer::Readers));
        // A waiter keeps its subscription for a while after its wait has ended.
        let held = us.client.rw(NAME).write().lock().await.unwrap();
        assert!(ear.client.rw(NAME).read().lock_for(ms(10)).await.unwrap().is_none());
        held.unlock().await.unwrap();
        server.overhear();
        Self { server, us, _ear: ear }
    }

    async fn of_two(flavour: Flavour) -> (Self, Box<dyn DistLock>, Box<dyn DistLock>) {
        let sight = Self::new().await;
        let other = Self::party(&sight.server, Prefer::Readers);
        let [mine, theirs] = [&sight.us, &other].map(|party| lock(&party.client, flavour, NAME));
        (sight, mine, theirs)
    }

    fn party(server: &SimServer, prefer: Prefer) -> Party {
        Party::new(server, LinkOptions::instant(), |options| {
            options.prefer = prefer;
            options.subscription_linger = ms(3_600_000);
            // So long that nobody polls.
            options.poll_cap = ms(60_000);
            options.max_reader_delay = ms(60_000);
        })
    }

    /// Remaining time of the lock, in ms.
    fn left(&self) -> i64 {
        self.server.pttl(NAME.as_bytes())
    }

    /// Every key with its remaining time in ms. A hash is shown with its fields, a cover by its number, owners as `A`,
    /// `B` and so on.
    fn keys(&self, owners: &[&Owner]) -> String {
        let mut seen = Vec::new();
        for key in self.server.keys() {
            let (name, left) = (String::from_utf8_lossy(&key).into_owned(), self.server.pttl(&key));
            if name.starts_with("redisson_lock_token:") {
                continue;
            }
            let flat = self.server.command(&[b"hgetall", &key]);
            let flat = if flat.error().is_some() { Vec::new() } else { words(&flat) };
            let mut fields: Vec<_> = flat.chunks(2).map(|pair| format!("{} {}", pair[0], pair[1])).collect();
            fields.retain(|field| !field.contains(":holds "));
            fields.sort();
            let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
            seen.push(format!("{name}{fields}: {left}"));
        }
        let mut seen = seen.join("; ").replace(&format!("{{{NAME}}}:"), "").replace("rwlock_timeout:", "");
        for (owner, letter) in owners.iter().zip(["A", "B", "C"]) {
            seen = seen.replace(&text(owner), letter);
        }
        seen
    }

    /// Messages published since the last call.
    fn told(&self) -> String {
        let told = self.server.overhear().into_iter();
        told.map(|(_, payload)| String::from_utf8_lossy(&payload).into_owned()).collect::<Vec<_>>().join(" ")
    }
}

/// A re-entry shortens no lease. After a release, the remaining hold has its own lease again, unless another client
/// may rely on the longer one.
#[test]
fn release_restores_lease_of_remaining_hold_unless_shared() {
    each(REENTRANT, async |flavour| {
        let (sight, lock, theirs) = Sight::of_two(flavour).await;
        let a = sight.us.client.owner();
        for shared in [false, true] {
            let kept = enter(&*lock, &a, 4000).await;
            let given = enter(&*lock, &a, 9000).await;
            let elsewhere = if shared { Some(enter(&*theirs, &a, 3000).await) } else { None };
            assert_eq!(sight.left(), 9000);
            sleep(ms(500)).await;
            given.unlock().await.unwrap();
            assert!(kept.remaining() <= ms(sight.left() as u64), "shared: {shared}");
            assert_eq!(sight.left() > 4000, shared, "{} ms are left", sight.left());
            kept.unlock().await.unwrap();
            if let Some(elsewhere) = elsewhere {
                assert!(sight.left() >= 2500);
                elsewhere.unlock().await.unwrap();
            }
            assert_eq!(sight.keys(&[&a]), "");
        }
    });
}

/// An extension to a shorter lease shortens the lease only if no other hold may rely on a longer one. An extension to a
/// longer lease never shortens a lease.
#[test]
fn extend_does_not_shorten_lease_of_other_hold() {
    each(REENTRANT, async |flavour| {
        let (sight, lock, theirs) = Sight::of_two(flavour).await;
        // A new owner, whose only hold may get a shorter lease.
        let alone = lock.lock_leased(ms(9000)).await.unwrap();
        for lease in [3000, 8000, 2000] {
            alone.extend(ms(lease)).await.unwrap();
            assert_eq!(sight.left(), lease as i64);
        }
        assert!(theirs.force_unlock().await.unwrap());
        assert!(matches!(alone.extend(ms(1000)).await, Err(Error::Lost { .. })));
        assert_eq!(sight.left(), -2);
        drop(alone);
        sleep(ms(9000)).await;
        let a = sight.us.client.owner();
        let mine = enter(&*lock, &a, 9000).await;
        mine.extend(ms(3000)).await.unwrap();
        assert_eq!(sight.left(), 3000);
        let elsewhere = enter(&*theirs, &a, 8000).await;
        mine.extend(ms(2000)).await.unwrap();
        assert_eq!(sight.left(), 8000, "another client counts on it");
        mine.extend(ms(10_000)).await.unwrap();
        assert_eq!(sight.left(), 10_000);
        assert!(mine.remaining() > ms(9000) && elsewhere.remaining() > ms(7000));
        let gone = mine.into_owner();
        assert_eq!(lock.hold_count(&gone).await.unwrap(), 2);
        theirs.force_unlock().await.unwrap();
        assert!(matches!(elsewhere.extend(ms(5000)).await, Err(Error::Lost { .. })));
        sleep(ms(10_001)).await;
        assert_eq!(sight.keys(&[&a]), "", "nothing is created");
    });
}

/// A copy that arrives long after its command was answered or abandoned has no effect on later holders.
#[test]
fn command_copy_after_last_moment_has_no_effect() {
    const LATE: Duration = ms(120_000);
    each(REENTRANT, async |flavour| {
        let sight = Sight::new().await;
        let (lock, link) = (lock(&sight.us.client, flavour, NAME), &sight.us.link);
        let (a, b) = (sight.us.client.owner(), sight.us.client.owner());
        let _ = (a.as_str(), b.as_str());
        // The client learns the server's clock.
        for _ in 0..2 {
            assert!(!lock.force_unlock().await.unwrap());
            sleep(ms(10)).await;
        }
        for act in ["acquire", "again", "extend", "force"] {
            let mut guards = Vec::new();
            if act != "acquire" {
                guards.push(enter(&*lock, &a, 5000).await);
            }
            link.plan_next(Mishap::LateCopy(LATE));
            match act {
                "extend" => guards[0].extend(ms(2000)).await.unwrap(),
                "force" => assert!(lock.force_unlock().await.unwrap()),
                _ => guards.push(enter(&*lock, &a, 5000).await),
            }
            for guard in guards.into_iter().rev() {
                let _ = guard.unlock().await;
            }
            sleep(LATE - ms(1000)).await;
            assert_eq!(sight.keys(&[&a]), "", "{act}");
            let next = enter(&*lock, &b, 60_000).await;
            let before = sight.keys(&[&a, &b]);
            sleep(ms(2000)).await;
            let now = sight.keys(&[&a, &b]).replace("58000", "60000");
            assert_eq!(now, before, "a late copy of {act}");
            next.unlock().await.unwrap();
            if act == "acquire" {
                link.plan_next(Mishap::LateCopy(LATE));
                enter(&*lock, &a, 5000).await.unlock().await.unwrap();
                sleep(LATE + ms(1000)).await;
                assert_eq!(sight.keys(&[&a]), "", "a late copy of an acquire");
            }
        }
    });
}

/// Only the server knows that the owner holds the lock through another client. An acquire that is repeated because its
/// reply was lost finds its own hold. It does not mistake its own hold, or other readers, for an earlier hold.
#[test]
fn not_reentrant_acquire_fails_only_if_owner_holds_in_other_client() {
    each(REENTRANT, async |flavour| {
        let (sight, mine, theirs) = Sight::of_two(flavour).await;
        let a = sight.us.client.owner();
        let guard = enter(&*theirs, &a, 5000).await;
        let before = sight.keys(&[&a]);
        let again = mine.acquire(Acquire::new().owner(&a).not_reentrant()).await;
        assert!(matches!(again, Err(Error::WouldDeadlock { .. })), "{again:?}");
        assert_eq!(sight.keys(&[&a]), before);
        let second = enter(&*mine, &a, 3000).await;
        assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(mine.hold_count(&a).await.unwrap(), 1);
        assert_eq!(second.unlock().await.unwrap(), Released::Free);
        assert_eq!(sight.keys(&[&a]), "");
        let a = sight.us.client.owner();
        let _ = a.as_str();
        let beside = if flavour == Flavour::Read { Some(theirs.lock().await.unwrap()) } else { None };
        sight.us.link.plan_next(Mishap::LoseReply);
        let guard = mine.acquire(Acquire::new().owner(&a).not_reentrant()).await.unwrap().unwrap();
        assert_eq!(mine.hold_count(&a).await.unwrap(), 1);
        guard.unlock().await.unwrap();
        assert_eq!(mine.hold_count(&a).await.unwrap(), 0);
        if let Some(beside) = beside {
            beside.unlock().await.unwrap();
        }
        assert_eq!(sight.keys(&[&a]), "");
    });
}

/// An owner acquires again, unaware that its earlier hold is gone. The server counts a first acquire, and the earlier
/// guard is notified.
#[test]
fn reentry_on_lost_hold_counts_as_first_acquire() {
    each(pairs(REENTRANT, [false, true]), async |(flavour, taken)| {
        let (sight, mine, theirs) = Sight::of_two(flavour).await;
        let a = sight.us.client.owner();
        // Marks the owner as shared: other clients may act as this owner.
        let _ = a.as_str();
        let outer = enter(&*mine, &a, 50_000).await;
        assert!(theirs.force_unlock().await.unwrap());
        // A hold of the same owner, through another client.
        let next = if taken { Some(enter(&*theirs, &a, 5000).await) } else { None };
        assert!(outer.is_held(), "as far as it knows");
        let again = mine.acquire(Acquire::new().owner(&a).lease(ms(5000)).wait(ms(0))).await.unwrap().unwrap();
        assert!(!outer.is_held());
        assert_eq!(mine.hold_count(&a).await.unwrap(), 1 + u64::from(taken));
        assert!(outer.unlock().await.is_err());
        for guard in next.into_iter().chain([again]) {
            guard.unlock().await.unwrap();
        }
        assert_eq!(sight.left(), -2);
    });
}

#[test]
fn multi_lock_acquires_all_members_or_none() {
    virtually(async || {
        let sight = Sight::new().await;
        let other = Sight::party(&sight.server, Prefer::Readers);
        let all = sight.us.client.multi(["a", "b", "c"]);
        let guard = all.lock_leased(ms(5000)).await.unwrap();
        assert_eq!(["a", "b", "c"].map(|name| sight.server.pttl(name.as_bytes())), [5000; 3]);
        guard.unlock().await.unwrap();
        for name in ["a", "b", "c"] {
            let held = other.client.reentrant(name).lock_leased(ms(5000)).await.unwrap();
            assert!(all.try_lock().await.unwrap().is_none());
            assert_eq!(sight.server.keys(), [name.as_bytes()], "nothing was taken beside {name}");
            held.unlock().await.unwrap();
            does(&sight.server, &format!("set {name} x"));
            assert!(matches!(all.try_lock().await, Err(Error::WrongType { .. })), "{name}");
            assert_eq!(sight.server.keys(), [name.as_bytes()], "nothing was taken beside {name}");
            does(&sight.server, &format!("del {name}"));
        }
    });
}

/// Unlisted holds, such as Java's, are released one by one, and no list is created. A late copy of such a release
/// removes nothing.
#[test]
fn java_holds_are_released_one_by_one() {
    const JAVA: &str = "7be4a1a6-9a6b-4a4c-8b9f-1c1f6f8f6f8f:7";
    each(REENTRANT, async |flavour| {
        let (sight, mine, _) = Sight::of_two(flavour).await;
        let (owner, field) = (JAVA.parse::<Owner>().unwrap(), field(flavour, JAVA));
        let mode = match flavour {
            Flavour::Read => " mode read",
            Flavour::Write => " mode write",
            _ => "",
        };
        does(&sight.server, &format!("hset {NAME} {field} 3{mode}"));
        does(&sight.server, &format!("pexpire {NAME} 300000"));
        for n in (1..=3).filter(|_| flavour == Flavour::Read) {
            does(&sight.server, &format!("set {{{NAME}}}:{JAVA}:rwlock_timeout:{n} 1 px 300000"));
        }
        // The client learns the server's clock.
        assert!(!sight.us.client.reentrant("other").force_unlock().await.unwrap());
        sight.us.link.plan_next(Mishap::LateCopy(ms(120_000)));
        assert_eq!(mine.release(&owner).await.unwrap(), Released::StillHeld(2));
        sleep(ms(130_000)).await;
        assert_eq!(mine.release(&owner).await.unwrap(), Released::StillHeld(1));
        assert_eq!(does(&sight.server, &format!("hget {NAME} {field}:holds")), SimReply::Nil);
        assert_eq!(mine.release(&owner).await.unwrap(), Released::Free);
        assert_eq!(sight.keys(&[]), "");
    });
}

/// The release that frees a lock publishes one message. So does a release that finds the lock free, because an earlier
/// message may be lost. Spin locks publish nothing, fair locks notify only the head of the queue.
#[test]
fn release_publishes_only_when_lock_is_free_afterwards() {
    each(REENTRANT, async |flavour| {
        let (sight, mine, theirs) = Sight::of_two(flavour).await;
        let message = match flavour {
            Flavour::Spin | Flavour::Fair => "",
            Flavour::Write => "1",
            _ => "0",
        };
        let (a, b) = (sight.us.client.owner(), sight.us.client.owner());
        let guard = enter(&*mine, &a, 5000).await;
        // Another client subscribes.
        drop(theirs.lock_for(ms(10)).await.unwrap());
        sleep(ms(100)).await;
        sight.told();
        assert!(theirs.release(&b).await.is_err());
        assert_eq!(sight.told(), "", "a stranger");
        let inner = enter(&*mine, &a, 5000).await;
        inner.unlock().await.unwrap();
        assert_eq!(sight.told(), "", "it is held still");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert_eq!(sight.told(), message, "a release");
        let again = if matches!(flavour, Flavour::Read | Flavour::Write) { message } else { "" };
        assert!(theirs.release(&a).await.is_err());
        assert_eq!(sight.told(), again, "of what is free");
        assert!(!theirs.force_unlock().await.unwrap());
        assert_eq!(sight.told(), "", "freed already");
        let guard = mine.lock_leased(ms(5000)).await.unwrap();
        assert!(theirs.force_unlock().await.unwrap());
        assert_eq!(sight.told(), message, "by force");
        drop(guard);
    });
}
