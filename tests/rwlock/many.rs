//! RW2 and RW3 (`tests/README.md`) with more readers than a script looks at. The hash never ends before a live reader's
//! cover (key that lives as long as one read hold). It lasts no longer than `docs/wire-format.md` allows. The last live
//! reader frees the lock.

use distlock_support::Numbers;
use redis::Value;

use crate::crowd::{Crowd, Reader, Seen, is_ours};
use bed::rw;

/// With up to `FEW` fields, the hash's lease equals the longest cover. Up to `SEARCHED` fields are searched.
const FEW: usize = 16;
const SEARCHED: usize = 256;
/// Maximum ms by which the hash of many readers may outlast them.
const SLACK: i64 = 5_000;
/// Rounding error of several commands, in ms.
const ROUND: i64 = 3;
/// A script reads a remaining time and sets it again. If the server stalls in between, the end moves by the length of
/// the stall.
const LATE: i64 = 900;

/// Longer than a story.
const SHORT: i64 = 3_600_000;

const WRITER: &str = "0a1b2c3d-0000-8000-9000-00000000000c:1";

struct Kind {
    /// The percentage of dead readers. The fields below: the percentages of Java's readers and of readers with two
    /// covers, and the number of different leases.
    dead: u64,
    java: u64,
    twice: u64,
    spread: i64,
}

fn draw(dice: &mut Numbers, kind: &Kind, count: usize) -> Vec<Reader> {
    let reader = |n: usize| {
        let lease = |dice: &mut Numbers| SHORT + dice.below(kind.spread.unsigned_abs()).cast_signed() * 1_000;
        let mut covers = vec![lease(dice)];
        let java = dice.below(100) < kind.java;
        if java && dice.below(100) < kind.twice {
            covers.insert(usize::from(dice.below(2) == 0), [0, lease(dice)][dice.below(2) as usize]);
        }
        if dice.below(100) < kind.dead {
            covers.fill(0);
        }
        if java { Reader::javas(n, &covers) } else { Reader::ours(n, &covers) }
    };
    (0..count).map(reader).collect()
}

/// Asserts that hash and covers are valid after this owner's step. A writer's attempt must not change the hash.
fn check(what: &str, before: &Seen, after: &Seen, actor: &str, java: bool) {
    let others = before.readers.iter().filter(|(owner, _)| *owner != actor);
    let alive = others.clone().filter(|(_, left)| **left > 0).count();
    if alive == 0 && !after.readers.contains_key(actor) {
        assert_eq!(after.left, -2, "{what}: nobody lives, and the lock is not free");
        return;
    }
    let fields = before.fields.len();
    for (owner, left) in others {
        let stays = *left > 0 || fields <= FEW || !is_ours(owner);
        assert!(!stays || after.readers.contains_key(owner), "{what}: {owner} is out, covered for {left}");
    }
    let longest = after.longest();
    // Java may have shortened the hash before.
    let least = longest.min(before.left - (before.longest() - longest).max(0));
    assert!(after.left >= least - LATE, "{what}: the hash has {} ms, a reader {longest}", after.left);
    let over = after.left - longest;
    if actor == WRITER {
        // Compares absolute expiry times, because the two readings may be far apart.
        let sooner = before.at + before.left - after.at - after.left;
        assert!(sooner < LATE, "{what}: the hash of {} ms ends {sooner} ms sooner", before.left);
    } else if fields <= FEW {
        assert!(over < LATE, "{what}: the hash has {} ms of {longest}", after.left);
    } else if before.left + LATE <= before.longest() + SLACK && fields <= SEARCHED {
        // The released reader had determined the hash's lease, within the slack. Within 1 ms of the slack either result
        // is valid.
        assert!(over < SLACK + LATE, "{what}: the hash has {} ms, nobody more than {longest}", after.left);
    }
    if !java {
        assert!(after.left >= longest - ROUND, "{what}: the hash has {} ms, a reader {longest}", after.left);
        assert!(after.left <= before.left.max(longest) + LATE, "{what}: the hash was made longer");
    }
}

/// All readers of this crate release in random order, while writers attempt and leases are shortened.
async fn story(crowd: &Crowd<'_>, seed: u64, kind: &Kind, count: usize) {
    let mut dice = Numbers::new(seed);
    let readers = draw(&mut dice, kind, count);
    let longest = readers.iter().map(Reader::lasts).max().unwrap_or(0).max(SHORT);
    let java = readers.iter().any(|reader| !is_ours(&reader.owner));
    // The hash may have a lease that Java's watchdog has set, or that a release without a search has left.
    let left = match dice.below(4) {
        0 if java => SHORT / 2,
        1 => longest + dice.below(600_000).cast_signed(),
        _ => longest,
    };
    crowd.put(left, &readers).await;
    let mut ours: Vec<&Reader> = readers.iter().filter(|reader| is_ours(&reader.owner) && reader.lasts() > 0).collect();
    let (mut cut, nobody) = (0, ours.is_empty());
    while !ours.is_empty() {
        // Checking a crowd takes longer than a step, so not every step of a large crowd is checked.
        while ours.len() > 50 && dice.below(6) > 0 {
            let _ = crowd.release(&ours.swap_remove(dice.below(ours.len() as u64) as usize).owner).await;
        }
        let at = dice.below(ours.len() as u64) as usize;
        let (before, owner) = (crowd.look().await, &*ours[at].owner);
        let what = format!("seed {seed}, {count} readers, {} fields, {owner}", before.fields.len());
        match dice.below(8) {
            0 => {
                let busy = crowd.write(WRITER, 0).await;
                let Value::Int(busy) = busy else { panic!("{what}: a writer is in beside readers: {busy:?}") };
                assert!(busy > 0 && busy <= before.left, "{what}: told {busy} of {}", before.left);
                check(&format!("{what}: write"), &before, &crowd.look().await, WRITER, java);
            }
            1 => {
                cut += 1;
                let _ = crowd.renew(&[owner], -SHORT / 2, cut).await;
                let after = crowd.look().await;
                let own = after.readers[owner];
                assert!(own <= SHORT / 2 && own > 0, "{what}: {own}");
                check(&format!("{what}: extend"), &before, &after, owner, java);
            }
            _ => {
                let owner = ours.swap_remove(at).owner.clone();
                let told = crowd.release(&owner).await;
                let after = crowd.look().await;
                assert!(!after.fields.contains_key(&owner), "{what}: {after:?}");
                let free = after.left == -2;
                assert_eq!(told, if free { Value::Int(0) } else { Value::Array(vec![Value::Int(-1)]) }, "{what}");
                check(&format!("{what}: release"), &before, &after, &owner, java);
                let again = crowd.release(&owner).await;
                assert!(
                    matches!((free, &again), (true, Value::Nil) | (false, Value::BulkString(_))),
                    "{what}: {again:?}"
                );
                let more = crowd.look().await;
                assert_eq!(more.fields, after.fields, "{what}");
            }
        }
    }
    let end = crowd.look().await;
    assert!(nobody || (end.left == -2) == (end.longest() == 0), "seed {seed}: {end:?}");
    crowd.clear().await;
}

/// `RW_SEEDS` sets the number of seeds.
fn seeds() -> u64 {
    std::env::var("RW_SEEDS").map_or(2, |seeds| seeds.parse().unwrap())
}

#[tokio::test]
async fn hash_of_many_readers_lasts_little_longer_than_readers() {
    rw(async |bed| {
        let crowd = Crowd::new(bed).await;
        let mut seed = 0;
        for _ in 0..seeds() {
            for (dead, java, twice, spread) in
                [(0, 0, 0, 1), (0, 0, 0, 300), (30, 0, 0, 60), (95, 0, 0, 60), (0, 10, 50, 60), (50, 50, 50, 600)]
            {
                for count in [10, 20, 60, 300] {
                    seed += 1;
                    story(&crowd, seed, &Kind { dead, java, twice, spread }, count).await;
                }
            }
        }
    })
    .await;
}

/// A command that releases many readers checks the remaining readers once, so the hash lasts as long as they do. If
/// more readers remain than a command searches, the hash may last longer: until the released readers' leases would have
/// ended, or until the last live reader releases.
#[tokio::test]
async fn batched_release_keeps_hash_lease_of_remaining_readers() {
    rw(async |bed| {
        let crowd = Crowd::new(bed).await;
        for (stay, leave) in [(30, 12), (8, 20), (200, 32), (300, 12)] {
            // Each lease exceeds the previous one by more than the slack.
            let lease = |n: usize| SHORT + i64::try_from(n.saturating_sub(stay)).unwrap() * (SLACK + 1_000);
            let readers: Vec<Reader> = (0..=stay + leave).skip(1).map(|n| Reader::ours(n, &[lease(n)])).collect();
            let before = lease(stay + leave);
            crowd.put(before, &readers).await;
            let (stays, leaves) = readers.split_at(stay);
            // The reader with the longest lease is released first.
            let owners: Vec<&str> = leaves.iter().rev().map(|reader| &*reader.owner).collect();
            let Value::Array(told) = crowd.release_together(&owners).await else { panic!("no list") };
            assert_eq!(told, vec![Value::Array(vec![Value::Int(-1)]); leave]);
            let seen = crowd.look().await;
            assert_eq!(seen.readers.len(), stay);
            println!("{stay} stay, {leave} left: the hash has {} of {} ms", seen.left, seen.longest());
            assert!(seen.left >= seen.longest() - ROUND, "{seen:?}");
            let searched = stay + leave < SEARCHED;
            let most = if searched { seen.longest() + LATE } else { before };
            assert!(seen.left <= most, "{} of {most}", seen.left);
            let owners: Vec<&str> = stays.iter().map(|reader| &*reader.owner).collect();
            let _ = crowd.release_together(&owners).await;
            assert_eq!(crowd.look().await.left, -2, "the last that lived left");
            crowd.clear().await;
        }
    })
    .await;
}

/// Dead readers of this crate are removed, and Java's stay. The last live reader frees the lock, however many dead
/// readers there are.
#[tokio::test]
async fn last_live_reader_among_many_dead_frees_lock() {
    rw(async |bed| {
        let crowd = Crowd::new(bed).await;
        for java in [false, true] {
            let dead = |n| if java { Reader::javas(n, &[0]) } else { Reader::ours(n, &[0]) };
            let mut readers: Vec<Reader> = (10..1_010).map(dead).collect();
            readers.extend([Reader::ours(1, &[SHORT]), Reader::ours(2, &[SHORT]), Reader::ours(3, &[2 * SHORT])]);
            crowd.put(2 * SHORT, &readers).await;
            // A writer finds a live reader, and the dead readers are removed.
            assert!(matches!(crowd.write(WRITER, 0).await, Value::Int(1..)));
            let _ = crowd.release(&readers[1_002].owner).await;
            let seen = crowd.look().await;
            assert_eq!(seen.fields.len(), if java { 1_003 } else { 3 }, "java {java}");
            assert!(java || seen.left <= SHORT, "{}", seen.left);
            let _ = crowd.release(&readers[1_000].owner).await;
            assert!(crowd.look().await.left > 0);
            assert_eq!(crowd.release(&readers[1_001].owner).await, Value::Int(0));
            assert_eq!(crowd.look().await.left, -2, "java {java}");
            // A writer acquires if all readers are dead.
            crowd.put(SHORT, &readers[..1_000]).await;
            assert_eq!(crowd.write(WRITER, 0).await, Value::Nil);
            assert_eq!(crowd.look().await.fields["mode"], "write");
            crowd.clear().await;
        }
    })
    .await;
}

/// A hash without a TTL gets a TTL again, and a waiting writer learns when to attempt again.
#[tokio::test]
async fn hash_without_ttl_gets_one_from_next_release() {
    rw(async |bed| {
        let crowd = Crowd::new(bed).await;
        for count in [10, 100, 1_000] {
            let readers: Vec<Reader> = (0..count).map(|n| Reader::ours(n, &[SHORT])).collect();
            crowd.put(SHORT, &readers).await;
            let _: u64 = bed.admin.cmd(&["PERSIST", crate::crowd::NAME]).await;
            let told = crowd.write(WRITER, 0).await;
            assert!(matches!(told, Value::Int(1..=SHORT)), "{told:?}");
            let _ = crowd.release(&readers[0].owner).await;
            let left = crowd.look().await.left;
            assert!(left > SHORT / 2 && left <= SHORT, "{count}: {left}");
            crowd.clear().await;
        }
    })
    .await;
}

/// On a server that does not return random fields, the lease is exact, as with few readers.
#[tokio::test]
async fn hash_lease_is_exact_without_random_fields() {
    rw(async |bed| {
        let crowd = Crowd::new(bed).await;
        let () = bed.admin.cmd(&["ACL", "SETUSER", "default", "-hrandfield"]).await;
        let readers: Vec<Reader> = (0..300).map(|n| Reader::ours(n, &[SHORT + 1_000 * n as i64])).collect();
        crowd.put(SHORT + 299_000, &readers).await;
        for n in (200..300).rev() {
            assert!(matches!(crowd.write(WRITER, 0).await, Value::Int(1..)));
            let _ = crowd.release(&readers[n].owner).await;
            let seen = crowd.look().await;
            assert!((-ROUND..LATE).contains(&(seen.left - seen.longest())), "{n}: {} of {}", seen.left, seen.longest());
        }
        // The error names any one holder.
        assert!(matches!(crowd.release(&readers[299].owner).await, Value::BulkString(_)));
        let () = bed.admin.cmd(&["ACL", "SETUSER", "default", "+@all"]).await;
        crowd.clear().await;
    })
    .await;
}
