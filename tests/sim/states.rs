//! What calls leave on the server, to the millisecond, and whom they tell. Seen from outside, as others see it: lists of
//! holds, which are nobody else's business, are left out.

use std::time::Duration;

use distlock::{Acquire, DistLock, Error, Flavour, Guard, Owner, Prefer, Released};
use distlock_sim::{LinkOptions, Mishap, SimReply, SimServer};
use tokio::time::sleep;

use crate::rig::{Party, field, lock, ms, virtually};
use crate::stage::text;

mod places;
mod readers;
mod renewals;

const NAME: &str = "l";
const FLAVOURS: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Fenced, Flavour::Spin, Flavour::Read, Flavour::Write];

/// A server, a client whose commands take no time, and one that listens.
struct Sight {
    server: SimServer,
    us: Party,
    _ear: Party,
}

impl Sight {
    async fn new() -> Self {
        let server = SimServer::new(1);
        let [us, ear] = [(); 2].map(|()| Self::party(&server, Prefer::Readers));
        // Who waited in vain listens for a while yet.
        let held = us.client.rw(NAME).write().lock().await.unwrap();
        assert!(ear.client.rw(NAME).read().lock_for(ms(10)).await.unwrap().is_none());
        held.unlock().await.unwrap();
        server.overhear();
        Self { server, us, _ear: ear }
    }

    /// The lock as we have it, and as another client does.
    async fn of_two(flavour: Flavour) -> (Self, Box<dyn DistLock>, Box<dyn DistLock>) {
        let sight = Self::new().await;
        let other = Self::party(&sight.server, Prefer::Readers);
        let (mine, theirs) = (lock(&sight.us.client, flavour, NAME), lock(&other.client, flavour, NAME));
        (sight, mine, theirs)
    }

    fn party(server: &SimServer, prefer: Prefer) -> Party {
        Party::new(server, LinkOptions::instant(), |options| {
            options.prefer = prefer;
            options.subscription_linger = ms(3_600_000);
            // Nobody looks now and then.
            options.poll_cap = ms(60_000);
            options.hold_back = ms(60_000);
        })
    }

    /// Every key with what is left of it in ms: a hash with its fields, a cover as its number. Owners are `A`, `B` ..
    fn keys(&self, owners: &[&Owner]) -> String {
        let mut seen = Vec::new();
        for key in self.server.keys() {
            let (name, left) = (String::from_utf8_lossy(&key).into_owned(), self.server.pttl(&key));
            if name.starts_with("redisson_lock_token:") {
                continue;
            }
            let mut fields = match self.server.command(&[b"hgetall", &key]) {
                SimReply::List(items) => {
                    items.chunks(2).map(|pair| format!("{} {}", word(&pair[0]), word(&pair[1]))).collect()
                }
                _ => Vec::new(),
            };
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

    /// What was published since the last look.
    fn told(&self) -> String {
        let messages =
            self.server.overhear().into_iter().map(|(_, payload)| String::from_utf8_lossy(&payload).into_owned());
        messages.collect::<Vec<_>>().join(" ")
    }
}

fn word(item: &SimReply) -> String {
    match item {
        SimReply::Text(text) => String::from_utf8_lossy(text).into_owned(),
        odd => panic!("{odd:?}"),
    }
}

async fn enter(lock: &dyn DistLock, owner: &Owner, lease: u64) -> Guard {
    lock.acquire(Acquire::new().owner(owner).lease(ms(lease))).await.unwrap().unwrap()
}

/// Coming in again makes no lease shorter; what is left has its own again, unless somebody else may count on the longer one.
#[test]
fn leases_go_with_their_holds() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, lock, theirs) = Sight::of_two(flavour).await;
            let a = sight.us.client.owner();
            for shared in [false, true] {
                let kept = enter(&*lock, &a, 4000).await;
                let given = enter(&*lock, &a, 9000).await;
                let elsewhere = if shared { Some(enter(&*theirs, &a, 3000).await) } else { None };
                let left = |sight: &Sight| sight.server.pttl(NAME.as_bytes());
                assert_eq!(left(&sight), 9000, "{flavour}");
                sleep(ms(500)).await;
                given.unlock().await.unwrap();
                assert!(kept.remaining() <= ms(left(&sight) as u64), "{flavour}, {shared}");
                let lasts = left(&sight);
                assert_eq!(lasts > 4000, shared, "{flavour}, {shared}: {lasts} ms are left");
                kept.unlock().await.unwrap();
                if let Some(elsewhere) = elsewhere {
                    assert!(left(&sight) >= 2500, "{flavour}");
                    elsewhere.unlock().await.unwrap();
                }
                assert_eq!(sight.keys(&[&a]), "", "{flavour}");
            }
        });
    }
}

/// An extension to less is one where nobody else may count on more, and one to more leaves what is longer.
#[test]
fn extensions_cut_nobody_short() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, lock, theirs) = Sight::of_two(flavour).await;
            let a = sight.us.client.owner();
            let mine = enter(&*lock, &a, 9000).await;
            mine.extend(ms(3000)).await.unwrap();
            assert_eq!(sight.server.pttl(NAME.as_bytes()), 3000, "{flavour}");
            let elsewhere = enter(&*theirs, &a, 8000).await;
            mine.extend(ms(2000)).await.unwrap();
            assert_eq!(sight.server.pttl(NAME.as_bytes()), 8000, "{flavour}: another client counts on it");
            mine.extend(ms(10_000)).await.unwrap();
            assert_eq!(sight.server.pttl(NAME.as_bytes()), 10_000, "{flavour}");
            assert!(mine.remaining() > ms(9000) && elsewhere.remaining() > ms(7000), "{flavour}");
            // One that is gone is told so, and the other goes on.
            let gone = mine.into_owner();
            assert_eq!(lock.hold_count(&gone).await.unwrap(), 2, "{flavour}");
            theirs.force_unlock().await.unwrap();
            assert!(matches!(elsewhere.extend(ms(5000)).await, Err(Error::Lost { .. })), "{flavour}");
            sleep(ms(10_001)).await;
            assert_eq!(sight.keys(&[&a]), "", "{flavour}: nothing is created");
        });
    }
}

/// A copy of a command that comes in long after it was answered or given up has no effect on whoever came since.
#[test]
fn what_comes_in_after_its_last_moment_does_nothing() {
    const LATE: Duration = ms(120_000);
    for flavour in FLAVOURS {
        virtually(async move || {
            let sight = Sight::new().await;
            let (lock, link) = (lock(&sight.us.client, flavour, NAME), &sight.us.link);
            let (a, b) = (sight.us.client.owner(), sight.us.client.owner());
            let _ = (a.as_str(), b.as_str());
            // The client has heard what time it is.
            for _ in 0..2 {
                assert!(!lock.force_unlock().await.unwrap(), "{flavour}");
                sleep(ms(10)).await;
            }
            let acts: [(&str, bool); 4] = [("acquire", false), ("again", true), ("extend", true), ("force", true)];
            for (act, held) in acts {
                let guard = if held { Some(enter(&*lock, &a, 5000).await) } else { None };
                link.plan_next(Mishap::LateCopy(LATE));
                let more = match act {
                    "extend" => {
                        guard.as_ref().unwrap().extend(ms(2000)).await.unwrap();
                        None
                    }
                    "force" => {
                        assert!(lock.force_unlock().await.unwrap(), "{flavour}");
                        None
                    }
                    _ => Some(enter(&*lock, &a, 5000).await),
                };
                for guard in more.into_iter().chain(guard) {
                    let _ = guard.unlock().await;
                }
                sleep(LATE - ms(1000)).await;
                assert_eq!(sight.keys(&[&a]), "", "{flavour}: {act}");
                let next = enter(&*lock, &b, 60_000).await;
                let before = sight.keys(&[&a, &b]);
                sleep(ms(2000)).await;
                let now = sight.keys(&[&a, &b]).replace("58000", "60000");
                assert_eq!(now, before, "{flavour}: a late copy of {act}");
                next.unlock().await.unwrap();
                if act == "acquire" {
                    link.plan_next(Mishap::LateCopy(LATE));
                    enter(&*lock, &a, 5000).await.unlock().await.unwrap();
                    sleep(LATE + ms(1000)).await;
                    assert_eq!(sight.keys(&[&a]), "", "{flavour}: a late copy of an acquire");
                }
            }
        });
    }
}

/// Whoever asks not to come in again is told what only the server knows: that its owner is in by another client.
#[test]
fn who_is_in_elsewhere_is_told_so() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let a = sight.us.client.owner();
            let guard = enter(&*theirs, &a, 5000).await;
            let before = sight.keys(&[&a]);
            let again = mine.acquire(Acquire::new().owner(&a).not_reentrant()).await;
            assert!(matches!(again, Err(Error::WouldDeadlock { .. })), "{flavour}: {again:?}");
            assert_eq!(sight.keys(&[&a]), before, "{flavour}");
            // Twice in, and out in any order.
            let second = enter(&*mine, &a, 3000).await;
            assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
            assert_eq!(mine.hold_count(&a).await.unwrap(), 1, "{flavour}");
            assert_eq!(second.unlock().await.unwrap(), Released::Free, "{flavour}");
            assert_eq!(sight.keys(&[&a]), "", "{flavour}");
        });
    }
}

/// Whoever must have no other hold, and asks again because the answer was lost, finds its own and no other; other readers
/// are no holds of its.
#[test]
fn a_repeat_finds_no_other_hold_than_its_own() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let a = sight.us.client.owner();
            let _ = a.as_str();
            let beside = if flavour == Flavour::Read { Some(theirs.lock().await.unwrap()) } else { None };
            sight.us.link.plan_next(Mishap::LoseReply);
            let guard = mine.acquire(Acquire::new().owner(&a).not_reentrant()).await.unwrap().unwrap();
            assert_eq!(mine.hold_count(&a).await.unwrap(), 1, "{flavour}");
            guard.unlock().await.unwrap();
            assert_eq!(mine.hold_count(&a).await.unwrap(), 0, "{flavour}");
            if let Some(beside) = beside {
                beside.unlock().await.unwrap();
            }
            assert_eq!(sight.keys(&[&a]), "", "{flavour}");
        });
    }
}

/// Whoever comes in again while the hold it has is gone, unknown to it, comes in for the first time: its guard is told.
#[test]
fn nobody_comes_in_again_on_a_hold_that_is_gone() {
    for flavour in FLAVOURS {
        for taken in [false, true] {
            virtually(async move || {
                let (sight, mine, theirs) = Sight::of_two(flavour).await;
                let a = sight.us.client.owner();
                // Others may act as it, from the beginning.
                let _ = a.as_str();
                let outer = enter(&*mine, &a, 50_000).await;
                assert!(theirs.force_unlock().await.unwrap());
                // As this owner too, by another client: its hold is another one.
                let next = if taken { Some(enter(&*theirs, &a, 5000).await) } else { None };
                assert!(outer.is_held(), "{flavour}: as far as it knows");
                // At once, without a wait.
                let again = mine.acquire(Acquire::new().owner(&a).lease(ms(5000)).wait(ms(0))).await.unwrap().unwrap();
                assert!(!outer.is_held(), "{flavour}, {taken}");
                assert_eq!(mine.hold_count(&a).await.unwrap(), 1 + u64::from(taken), "{flavour}, {taken}");
                assert!(outer.unlock().await.is_err(), "{flavour}, {taken}");
                for guard in next.into_iter().chain([again]) {
                    guard.unlock().await.unwrap();
                }
                assert_eq!(sight.server.pttl(NAME.as_bytes()), -2, "{flavour}, {taken}");
            });
        }
    }
}

/// All of them or none, and which of them is in the way.
#[test]
fn a_multi_lock_takes_all_or_none() {
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
            sight.server.command(&[b"set", name.as_bytes(), b"x"]);
            assert!(matches!(all.try_lock().await, Err(Error::WrongType { .. })), "{name}");
            assert_eq!(sight.server.keys(), [name.as_bytes()], "nothing was taken beside {name}");
            sight.server.command(&[b"del", name.as_bytes()]);
        }
    });
}

/// Holds that are not listed, as Java's are, are given back one by one, and no list comes of it; a late copy of such a
/// release gives back none.
#[test]
fn holds_of_java_are_given_back_one_by_one() {
    const JAVA: &str = "7be4a1a6-9a6b-4a4c-8b9f-1c1f6f8f6f8f:7";
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, _) = Sight::of_two(flavour).await;
            let (owner, field) = (JAVA.parse::<Owner>().unwrap(), field(flavour, JAVA));
            let mut words = vec!["hset", NAME, &field, "3"];
            match flavour {
                Flavour::Read => words.extend(["mode", "read"]),
                Flavour::Write => words.extend(["mode", "write"]),
                _ => {}
            }
            let run = |words: &[&str]| {
                let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
                sight.server.command(&words)
            };
            run(&words);
            run(&["pexpire", NAME, "300000"]);
            let covers = [1, 2, 3].map(|n| format!("{{{NAME}}}:{JAVA}:rwlock_timeout:{n}"));
            if flavour == Flavour::Read {
                for cover in &covers {
                    run(&["set", cover, "1", "px", "300000"]);
                }
            }
            // The client has heard what time it is.
            assert!(!sight.us.client.reentrant("other").force_unlock().await.unwrap());
            sight.us.link.plan_next(Mishap::LateCopy(ms(120_000)));
            assert_eq!(mine.release(&owner).await.unwrap(), Released::StillHeld(2), "{flavour}");
            sleep(ms(130_000)).await;
            assert_eq!(mine.release(&owner).await.unwrap(), Released::StillHeld(1), "{flavour}");
            assert_eq!(run(&["hget", NAME, &format!("{field}:holds")]), SimReply::Nil, "{flavour}");
            assert_eq!(mine.release(&owner).await.unwrap(), Released::Free, "{flavour}");
            assert_eq!(sight.keys(&[]), "", "{flavour}");
        });
    }
}

/// Whoever frees a lock tells it, once, and so does a release that finds the lock free: the message of one before it may be
/// lost. Spin locks tell nobody, fair locks whoever is first.
#[test]
fn who_frees_a_lock_says_so() {
    for flavour in FLAVOURS {
        virtually(async move || {
            let (sight, mine, theirs) = Sight::of_two(flavour).await;
            let message = match flavour {
                Flavour::Spin | Flavour::Fair => "",
                Flavour::Write => "1",
                _ => "0",
            };
            let (a, b) = (sight.us.client.owner(), sight.us.client.owner());
            let guard = enter(&*mine, &a, 5000).await;
            // Somebody listens.
            if let Some(beside) = theirs.lock_for(ms(10)).await.unwrap() {
                beside.unlock().await.unwrap();
            }
            sleep(ms(100)).await;
            sight.told();
            assert!(theirs.release(&b).await.is_err(), "{flavour}");
            assert_eq!(sight.told(), "", "{flavour}: a stranger");
            let inner = enter(&*mine, &a, 5000).await;
            inner.unlock().await.unwrap();
            assert_eq!(sight.told(), "", "{flavour}: it is held still");
            assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}");
            assert_eq!(sight.told(), message, "{flavour}: a release");
            let again = if matches!(flavour, Flavour::Read | Flavour::Write) { message } else { "" };
            assert!(theirs.release(&a).await.is_err(), "{flavour}");
            assert_eq!(sight.told(), again, "{flavour}: of what is free");
            assert!(!theirs.force_unlock().await.unwrap(), "{flavour}");
            assert_eq!(sight.told(), "", "{flavour}: freed already");
            let guard = mine.lock_leased(ms(5000)).await.unwrap();
            assert!(theirs.force_unlock().await.unwrap(), "{flavour}");
            assert_eq!(sight.told(), message, "{flavour}: by force");
            drop(guard);
        });
    }
}
