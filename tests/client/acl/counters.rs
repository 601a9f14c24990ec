//! Permits, semaphores, latches, barriers and leaders under the access list of `docs/acl.md`: the list is enough.
//! Except for leaders, each needs exactly the rules that the page's table lists for it.

use bed::{Bed, PATIENCE, ends, eventually, idle, ms, reentrant, secs};
use distlock::{Acquire, Client, Error, Permits, Result};

use super::{PAGE, leave, lines, log_in, refusals, rules};

/// Returns the rules in the code spans of a text. A span without a sign means all rules of the list that contain it.
fn rules_in(text: &str) -> Vec<String> {
    let (spans, all) = (text.split('`').skip(1).step_by(2), rules());
    let mut found = Vec::new();
    for word in spans.flat_map(str::split_whitespace) {
        if word.starts_with(['+', '~', '&']) {
            found.push(word.to_owned());
        } else {
            found.extend(all.iter().filter(|rule| rule.contains(word)).cloned());
        }
    }
    found
}

/// Returns the rules that the page's table lists for this type (`permits`, `semaphores`, ...).
fn rows(of: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in PAGE.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").collect();
        let [first, last] = cells[..] else { continue };
        for part in last.split(';') {
            if part.split([',', ':']).next().map(str::trim) == Some(of) {
                found.extend([first, part].into_iter().flat_map(rules_in));
            }
        }
    }
    assert!(!found.is_empty(), "the page has no row for {of}");
    found
}

/// Returns the rules of the list's common lines with the patterns that every type needs, and the rules of this type.
fn rules_for(of: &str) -> Vec<String> {
    let mut rules = lines(&[]);
    rules.retain(|rule| !rule.starts_with(['~', '&']) || ["~app:*", "&redisson_*:{app:*}*"].contains(&rule.as_str()));
    rules.extend(rows(of));
    rules
}

/// The object of a refusal without this rule, as `ACL LOG` prints it: a command, or the start of a key or channel.
fn object(rule: &str) -> String {
    match rule[1..].split_once('*') {
        Some((start, _)) => format!("\"{start}"),
        None => format!("{:?}", &rule[1..]),
    }
}

/// Asserts that the rules for this type are enough for `done`. Without each of its rules for which `fails` is true,
/// `done` must return the server's refusal, and the server must refuse exactly what that rule allows.
async fn enough_and_each_is_needed(
    bed: &Bed,
    of: &str,
    fails: impl Fn(&str) -> bool,
    done: impl AsyncFn(&Client, &Client) -> Result<()>,
) {
    let rules = rules_for(of);
    let (one, two) = log_in(bed, &rules, "").await;
    done(&one, &two).await.unwrap_or_else(|error| panic!("{of}: {error:?}"));
    idle(&one).await;
    idle(&two).await;
    assert_eq!(refusals(bed).await, "", "{of}");
    leave(bed, [one, two]).await;
    for without in rows(of) {
        if !fails(&without) {
            continue;
        }
        let (one, two) = log_in(bed, &rules, &without).await;
        let outcome = done(&one, &two).await;
        assert!(matches!(outcome, Err(Error::Server { .. })), "{of} without {without}: {outcome:?}");
        let refused = refusals(bed).await;
        assert!(refused.contains(&object(&without)), "{of} without {without}: {refused}");
        // With the right restored, clean-ups in the background succeed at once.
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", &without]).await;
        leave(bed, [one, two]).await;
    }
}

/// Runs every operation of permits, without fair order.
async fn permits(bed: &Bed, one: &Client, two: &Client) -> Result<()> {
    let (here, there) = (one.permits("gate"), two.permits("gate"));
    assert!(here.try_set_permits(1).await?);
    here.set_permits(2).await?;
    here.add_permits(1).await?;
    let guard = here.acquire(2).await?;
    let leased = there.acquire_with(1, Acquire::new().lease(secs(3600))).await?;
    assert!(there.try_acquire(1).await?.is_none(), "all three permits are held");
    assert_eq!(one.renew_now().await.renewed, 1);
    guard.extend(secs(7200)).await?;
    assert_eq!((there.counts().await?.acquired, there.holders().await?.len()), (3, 3));
    assert!(there.extend_ids(&guard.ids(), secs(7200)).await?);
    let waits = there.clone();
    let waiter = tokio::spawn(async move { waits.acquire_for(2, PATIENCE).await });
    eventually("it waits", async || two.stats().waiting == 1 || waiter.is_finished()).await;
    guard.release().await?;
    let next = ends("the waiter", waiter).await.expect("no panic")?.expect("two permits are free");
    assert!(there.release_ids(&next.ids()).await?);
    drop((leased, next));
    // Another program gives the free count an expiry, and a process has died: the lease of its permit has ended.
    let () = bed.admin.cmd(&["PEXPIRE", "app:gate", "3600000"]).await;
    let () = bed.admin.cmd(&["ZADD", "{app:gate}:timeout", "1", "0123456789abcdef"]).await;
    here.acquire(3).await?.release().await?;
    assert!(here.delete().await?);
    Ok(())
}

/// Two requests of fair permits wait: one for the permit, and one in the line.
async fn fair_permits(one: &Client, two: &Client) -> Result<()> {
    let (here, there) = (one.permits("line").fair(), two.permits("line").fair());
    assert!(here.try_set_permits(1).await?);
    let guard = here.acquire(1).await?;
    let take = |gate: &Permits| {
        let gate = gate.clone();
        tokio::spawn(async move { gate.acquire(1).await?.release().await })
    };
    let waiters = [take(&there), take(&here)];
    eventually("both wait", async || one.stats().waiting + two.stats().waiting == 2).await;
    guard.release().await?;
    for waiter in waiters {
        ends("a request", waiter).await.expect("no panic")?;
    }
    assert!(here.delete().await?);
    Ok(())
}

async fn semaphores(one: &Client, two: &Client) -> Result<()> {
    let (here, there) = (one.semaphore("seats"), two.semaphore("seats"));
    assert!(here.try_set_permits_for(1, secs(3600)).await?);
    assert!(here.delete().await?);
    assert!(here.try_set_permits(1).await?);
    here.set_permits(2).await?;
    here.add_permits(1).await?;
    here.acquire(3).await?;
    assert!(!there.try_acquire(1).await?, "all three permits are taken");
    let waits = there.clone();
    let waiter = tokio::spawn(async move { waits.acquire_for(2, PATIENCE).await });
    eventually("it waits", async || two.stats().waiting == 1 || waiter.is_finished()).await;
    here.release(2).await?;
    assert!(ends("the waiter", waiter).await.expect("no panic")?, "two permits are free");
    assert!(there.release_if_exists(2).await?);
    assert_eq!((there.available().await?, there.drain().await?), (2, 2));
    assert!(here.delete().await?);
    Ok(())
}

async fn latches(one: &Client, two: &Client) -> Result<()> {
    let (here, there) = (one.latch("parts"), two.latch("parts"));
    for deletes in [false, true] {
        assert!(here.try_set(3).await?);
        assert_eq!((here.count_down(1).await?, there.count().await?), (2, 2));
        let waits = there.clone();
        let waiter = tokio::spawn(async move { waits.wait_for(PATIENCE).await });
        eventually("it waits", async || two.stats().waiting == 1 || waiter.is_finished()).await;
        if deletes {
            assert!(here.delete().await?);
        } else {
            assert_eq!(here.count_down(2).await?, 0);
        }
        assert!(ends("the waiter", waiter).await.expect("no panic")?, "the latch is open");
    }
    here.wait().await?;
    assert_eq!(here.count_down(1).await?, 0);
    Ok(())
}

async fn barriers(bed: &Bed, one: &Client, two: &Client) -> Result<()> {
    let (here, there) = (one.barrier("start", 2), two.barrier("start", 2));
    assert!(here.wait_for(ms(300)).await?.is_none(), "the other party has not arrived");
    // A party has died: its lease has ended. The next arrival breaks its round.
    let () = bed.admin.cmd(&["ZADD", "distlock_barrier:{app:start}:parties", "1", "dead"]).await;
    let waits = there.clone();
    let party = tokio::spawn(async move { waits.wait().await });
    eventually("it waits", async || two.stats().waiting == 1 || party.is_finished()).await;
    assert_eq!(here.waiting().await?, 1);
    assert!(here.wait().await?.is_leader());
    assert!(!ends("the party", party).await.expect("no panic")?.is_leader());
    Ok(())
}

/// A candidate waits, and an observer sees the leader.
async fn elections(one: &Client, two: &Client) -> Result<()> {
    let mut observer = two.observe("election");
    assert_eq!(observer.changed().await?, None);
    let term = one.lead("election").payload("one").next().await?;
    term.set_payload("two").await?;
    while observer.changed().await?.is_none_or(|leader| leader.text() != Some("two")) {}
    let candidate = two.lead("election");
    let next = tokio::spawn(async move { candidate.next().await });
    eventually("it waits", async || two.stats().waiting == 1 || next.is_finished()).await;
    term.resign().await?;
    ends("the next leader", next).await.expect("no panic")?.resign().await
}

#[tokio::test]
async fn access_list_is_enough_for_permits_semaphores_latches_barriers_and_leaders() {
    reentrant(async |bed| {
        let (one, two) = log_in(bed, &rules(), "").await;
        permits(bed, &one, &two).await.unwrap();
        fair_permits(&one, &two).await.unwrap();
        semaphores(&one, &two).await.unwrap();
        latches(&one, &two).await.unwrap();
        barriers(bed, &one, &two).await.unwrap();
        elections(&one, &two).await.unwrap();
        idle(&one).await;
        idle(&two).await;
        assert_eq!(refusals(bed).await, "");
        leave(bed, [one, two]).await;

        // The rules allow no name outside the prefix.
        let stray = bed
            .connect(bed.builder().username("locks").password("SECRET").configure(|options| options.preflight = false))
            .await;
        for (of, outcome) in [
            ("permits", stray.permits("gate").try_acquire(1).await.map(drop)),
            ("fair permits", stray.permits("gate").fair().try_acquire(1).await.map(drop)),
            ("semaphore", stray.semaphore("seats").try_acquire(1).await.map(drop)),
            ("latch", stray.latch("parts").count_down(1).await.map(drop)),
            ("barrier", stray.barrier("start", 2).wait().await.map(drop)),
        ] {
            assert!(matches!(outcome, Err(Error::Server { .. })), "{of}: {outcome:?}");
        }
        assert_eq!(bed.keys().await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn rules_for_permits_are_enough_and_each_is_needed() {
    reentrant(async |bed| {
        let done = async |one: &Client, two: &Client| permits(bed, one, two).await;
        enough_and_each_is_needed(bed, "permits", |_| true, done).await;
    })
    .await;
}

#[tokio::test]
async fn rules_for_semaphores_are_enough_and_each_is_needed() {
    reentrant(async |bed| {
        let done = async |one: &Client, two: &Client| semaphores(one, two).await;
        enough_and_each_is_needed(bed, "semaphores", |_| true, done).await;
    })
    .await;
}

/// Latches share a row with semaphores. They use `INCRBY` only for a count that is no number.
#[tokio::test]
async fn rules_for_latches_are_enough_and_each_is_needed() {
    reentrant(async |bed| {
        let done = async |one: &Client, two: &Client| latches(one, two).await;
        let fails = |rule: &str| rule != "+incrby" && !rule.starts_with('&');
        enough_and_each_is_needed(bed, "latches", fails, done).await;
    })
    .await;
}

#[tokio::test]
async fn rules_for_barriers_are_enough_and_each_is_needed() {
    reentrant(async |bed| {
        let done = async |one: &Client, two: &Client| barriers(bed, one, two).await;
        enough_and_each_is_needed(bed, "barriers", |rule: &str| !rule.starts_with('&'), done).await;
    })
    .await;
}

/// Without the right to its channel, a call succeeds, but the server refuses its message.
#[tokio::test]
async fn latches_and_barriers_need_their_channels() {
    reentrant(async |bed| {
        for of in ["latches", "barriers"] {
            let channel = rows(of).into_iter().find(|rule| rule.starts_with('&')).expect("the row has a channel");
            let (one, two) = log_in(bed, &rules_for(of), &channel).await;
            if of == "latches" {
                let latch = one.latch("parts");
                assert!(latch.try_set(1).await.unwrap());
                assert_eq!(latch.count_down(1).await.unwrap(), 0);
            } else {
                assert!(one.barrier("start", 1).wait().await.unwrap().is_leader());
            }
            let refused = refusals(bed).await;
            assert!(refused.contains(&object(&channel)), "{of} without {channel}: {refused}");
            leave(bed, [one, two]).await;
        }
    })
    .await;
}
