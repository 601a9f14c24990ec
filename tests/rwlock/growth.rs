//! The number of commands inside each script with a thousand readers, and with ten thousand. `tests/client/scripts.rs`
//! counts renewals of many readers.

use redis::Value;

use crate::crowd::{Crowd, Reader};
use bed::rw;

/// In ms, longer than any test.
const LONG: i64 = 6_000_000;

const STRANGER: &str = "0a1b2c3d-0000-8000-9000-00000000000c";

const TIMES: usize = 40;

type Nth = fn(usize) -> Reader;

const CROWDS: [(&str, Nth); 5] = [
    ("all came at once", |n| Reader::ours(n, &[LONG])),
    ("each third of a watchdog", |n| Reader::ours(n, &[LONG + (n * 7_919 % 10_000) as i64])),
    ("leases of all lengths", |n| Reader::ours(n, &[LONG + (n * 7_919 % 3_000_000) as i64])),
    ("one stays for long", |n| Reader::ours(n, &[if n == 0 { 20 * LONG } else { LONG }])),
    ("half of them dead", |n| Reader::ours(n, &[if n % 2 == 1 { 0 } else { LONG }])),
];

/// Returns the maximum and average number of commands for each script.
async fn costs(crowd: &Crowd<'_>, make: Nth, count: usize) -> Vec<(&'static str, u64, f64)> {
    let readers: Vec<Reader> = (0..count).map(make).collect();
    let longest = readers.iter().map(Reader::lasts).max().unwrap();
    crowd.put(longest, &readers).await;
    let mut live: Vec<&Reader> = readers.iter().filter(|reader| reader.lasts() > 0).collect();
    // The readers are sorted by lease. The last one is released, and has determined the lease of the hash.
    live.sort_by_key(|reader| reader.lasts());
    let mut all = Vec::new();
    for script in ["read", "write", "write, preferred", "leave", "renew", "extend", "release", "release again"] {
        let mut each = Vec::new();
        if script == "release" {
            // Readers without extended leases.
            crowd.put(longest, &readers).await;
        }
        crowd.asked(count).await;
        for n in 0..TIMES {
            let stranger = format!("{STRANGER}:{n}");
            let some = &*live[n].owner;
            let answer = match script {
                "read" => crowd.read(&stranger, LONG).await,
                "write" => crowd.write(&format!("{STRANGER}:w"), 0).await,
                "write, preferred" => crowd.write(&format!("{STRANGER}:w"), 10_000).await,
                "leave" => crowd.leave(&format!("{STRANGER}:w")).await,
                "renew" => crowd.renew(&[some], 2 * LONG, 0).await,
                "extend" => crowd.renew(&[some], -LONG, 1).await,
                // The reader with the longest lease is released first.
                _ => crowd.release(&live[live.len() - 1 - n].owner).await,
            };
            each.push(crowd.asked(count).await);
            let fits = match script {
                "read" => answer == Value::Nil,
                "write" | "write, preferred" => matches!(answer, Value::Int(1..)),
                "leave" | "release again" => matches!(answer, Value::BulkString(_)),
                "renew" | "extend" => answer == Value::Array(vec![Value::Int(1)]),
                _ => answer == Value::Array(vec![Value::Int(-1)]),
            };
            assert!(fits, "{script}: {answer:?}");
        }
        let sum: u64 = each.iter().sum();
        all.push((script, each.iter().copied().max().unwrap(), sum as f64 / TIMES as f64));
    }
    crowd.clear().await;
    all
}

#[tokio::test]
async fn script_cost_stays_bounded_with_ten_times_as_many_readers() {
    rw(async |bed| {
        let crowd = Crowd::new(bed).await;
        for (what, make) in CROWDS {
            let (some, more) = (costs(&crowd, make, 1_000).await, costs(&crowd, make, 10_000).await);
            for ((script, most, mean), (_, most_more, mean_more)) in some.into_iter().zip(more) {
                println!("{what}, {script}: {mean:.1} (at the most {most}), of 10 000 {mean_more:.1} ({most_more})");
                // 48 covers the random sample and the script's own commands.
                assert!(most.max(most_more) <= 48, "{what}, {script}: {most}, then {most_more}");
                assert!(mean_more <= 1.5 * mean + 4.0, "{what}, {script}: {mean:.1}, then {mean_more:.1}");
                // One random sample is usually enough. A refused writer also checks a few readers in order to find one
                // of Java.
                let usual = if matches!(script, "release" | "extend") { 30.0 } else { 15.0 };
                assert!(mean.max(mean_more) <= usual, "{what}, {script}: {mean:.1}, then {mean_more:.1}");
            }
        }
    })
    .await;
}

/// The first command that finds many dead readers checks and removes all of them.
#[tokio::test]
async fn dead_readers_are_checked_once() {
    rw(async |bed| {
        const DEAD: usize = 10_000;
        let crowd = Crowd::new(bed).await;
        let mut readers: Vec<Reader> = (100..100 + DEAD).map(|n| Reader::ours(n, &[0])).collect();
        readers.extend((0..50).map(|n| Reader::ours(n, &[LONG])));
        crowd.put(LONG, &readers).await;
        crowd.asked(0).await;
        let mut fields = crowd.look().await.fields.len();
        let mut all = 0;
        for reader in &readers[DEAD..] {
            crowd.asked(0).await;
            let _ = crowd.release(&reader.owner).await;
            all += crowd.asked(fields).await;
            fields = crowd.look().await.fields.len();
        }
        assert_eq!(crowd.look().await.left, -2);
        println!("{DEAD} dead readers cost {all} looks");
        assert!(all <= 3 * DEAD as u64, "{all}");
    })
    .await;
}

/// If there are few enough readers to search, a command searches them once, even if it releases many readers.
#[tokio::test]
async fn search_of_remaining_readers_is_bounded() {
    rw(async |bed| {
        let crowd = Crowd::new(bed).await;
        // The leases have gaps: each released reader has determined the lease of the hash, and no remaining reader
        // lasts as long.
        let make = |n: usize| Reader::ours(n, &[LONG + 10_000 * n as i64]);
        let mut searched = Vec::new();
        for count in [200, 2_000] {
            let readers: Vec<Reader> = (0..count).map(make).collect();
            crowd.put(readers[count - 1].lasts(), &readers).await;
            crowd.asked(count).await;
            let _ = crowd.release(&readers[count - 1].owner).await;
            searched.push(crowd.asked(count).await);
            let seen = crowd.look().await;
            let over = seen.left - seen.longest();
            let fits = if count == 200 { (-3..900).contains(&over) } else { (9_000..11_000).contains(&over) };
            assert!(fits, "{count}: {over}");
            crowd.clear().await;
        }
        assert!(searched[0] <= 3 * 256 && searched[1] <= 48, "{searched:?}");
    })
    .await;
}
