//! A cache that must agree with its database: `cargo run --example cache_and_db`.
//!
//! Four processes show and edit one article. A database keeps it as three rows. Readers take the page from a cache;
//! on a miss they read the rows and fill the cache. An edit writes the rows one after the other, and then deletes the
//! cached page. Without a lock, two things go wrong:
//!
//! - A page is built from old and new rows (torn).
//! - A page that was read before an edit gets into the cache after the edit, and stays there (stale).
//!
//! With a read-write lock, readers run side by side but never during an edit. Here readers come in an endless stream,
//! so the lock prefers writers. After an edit, the editor downgrades its hold to a read lock. It fills the cache with
//! its own page before anybody can edit again.
//!
//! Runs without the lock, and then with it; `--without-lock` stops after the first part. Fails if a page is torn or
//! stale with the lock. Also fails if no page is torn or stale without it: then there was no race to prevent. Starts
//! its own Redis unless `REDIS_URL` names one; this server is the database too.

mod private_server;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, Prefer, RwLock};
use distlock_support::{Admin, Child, child};
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PROCESSES: usize = 4;
/// Readers in each process, in addition to one editor.
const READERS: usize = 8;
const ROWS: usize = 3;
const SPAN: Duration = Duration::from_millis(1_500);
/// Without a lock hundreds of pages are wrong. If none is, the run is repeated.
const ATTEMPTS: u32 = 3;

/// The counts of a run.
#[derive(Clone, Copy, Default)]
struct Tally {
    reads: u64,
    torn: u64,
    stale: u64,
    edits: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.torn += other.torn;
        self.stale += other.stale;
        self.edits += other.edits;
    }

    fn is_wrong(&self) -> bool {
        self.torn + self.stale > 0
    }
}

/// One process's access to the article. The text of a row is the number of the edit that wrote it.
struct Article {
    redis: Admin,
    prefix: String,
    lock: Option<RwLock>,
}

impl Article {
    fn key(&self, what: &str) -> String {
        format!("{}article:{what}", self.prefix)
    }

    /// Returns the number of the last complete edit.
    async fn last_edit(&self) -> u64 {
        self.redis.cmd::<Option<u64>>(&["GET", &self.key("edit")]).await.unwrap_or(0)
    }

    /// Returns the page from the cache. On a miss, reads it from the database and fills the cache.
    async fn page(&self) -> Vec<u64> {
        let cache = self.key("cache");
        let cached: Option<String> = self.redis.cmd(&["GET", &cache]).await;
        if let Some(page) = cached {
            return page.split(' ').filter_map(|row| row.parse().ok()).collect();
        }
        let mut rows = Vec::new();
        for row in 0..ROWS {
            let text: Option<u64> = self.redis.cmd(&["GET", &self.key(&format!("row:{row}"))]).await;
            rows.push(text.unwrap_or(0));
        }
        let page: Vec<_> = rows.iter().map(u64::to_string).collect();
        let _: () = self.redis.cmd(&["SET", &cache, &page.join(" ")]).await;
        rows
    }

    /// Reads the page. Checks that it is whole, and not older than the last edit that was complete before the read.
    async fn read(&self) -> Tally {
        let complete = self.last_edit().await;
        let page = self.page().await;
        let torn = page.iter().any(|row| *row != page[0]);
        let stale = !torn && page[0] < complete;
        Tally { reads: 1, torn: torn.into(), stale: stale.into(), edits: 0 }
    }

    /// Writes all rows one after the other, and deletes the cached page.
    async fn edit(&self) -> Tally {
        let edit = (self.last_edit().await + 1).to_string();
        for row in 0..ROWS {
            let _: () = self.redis.cmd(&["SET", &self.key(&format!("row:{row}")), &edit]).await;
        }
        let _: () = self.redis.cmd(&["SET", &self.key("edit"), &edit]).await;
        let _: () = self.redis.cmd(&["DEL", &self.key("cache")]).await;
        Tally { edits: 1, ..Tally::default() }
    }

    async fn read_one(&self) -> Outcome<Tally> {
        let Some(lock) = &self.lock else { return Ok(self.read().await) };
        let guard = lock.read().lock().await?;
        // If the lock is lost, `run` stops the read and returns an error.
        let tally = guard.run(self.read()).await?;
        guard.unlock().await?;
        Ok(tally)
    }

    async fn edit_one(&self) -> Outcome<Tally> {
        let Some(lock) = &self.lock else { return Ok(self.edit().await) };
        let guard = lock.write().lock().await?;
        let mut tally = guard.run(self.edit()).await?;
        // Readers can enter again. The next editor must wait until the cache is filled.
        let guard = guard.downgrade().await?;
        tally.add(guard.run(self.read()).await?);
        guard.unlock().await?;
        Ok(tally)
    }
}

/// Runs a child process: connects, waits for the start, reads and edits for a while, reports.
async fn site() -> Outcome<()> {
    let (url, prefix, locked) = (std::env::var("URL")?, std::env::var("PREFIX")?, std::env::var("LOCKED")? == "yes");
    let client = Client::builder(&url).name_prefix(&prefix).connect().await?;
    let lock = locked.then(|| client.rw("article").prefer(Prefer::Writers));
    let article = Arc::new(Article { redis: Admin::from_url(&url).await, prefix, lock });
    child::say("ready");
    child::hear().await;

    let until = Instant::now() + SPAN;
    let mut tasks = JoinSet::new();
    for task in 0..=READERS {
        let article = Arc::clone(&article);
        tasks.spawn(async move {
            let mut sum = Tally::default();
            while Instant::now() < until {
                if task < READERS {
                    sum.add(article.read_one().await?);
                } else {
                    sum.add(article.edit_one().await?);
                    tokio::time::sleep(Duration::from_millis(60)).await;
                }
            }
            Outcome::Ok(sum)
        });
    }
    let mut sum = Tally::default();
    while let Some(ended) = tasks.join_next().await {
        sum.add(ended??);
    }
    child::say(&format!("{} {} {} {}", sum.reads, sum.torn, sum.stale, sum.edits));
    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Runs all processes for a while, with or without the lock.
async fn run(server: &private_server::Server, locked: bool) -> Outcome<Tally> {
    let locked = if locked { "yes" } else { "no" };
    let env = [("URL", server.url.as_str()), ("PREFIX", server.prefix.as_str()), ("LOCKED", locked)];
    let mut sites: Vec<_> = (0..PROCESSES).map(|_| Child::spawn("site", &env)).collect();
    for site in &mut sites {
        site.expect("ready").await;
    }
    for site in &mut sites {
        site.tell("go");
    }
    let mut sum = Tally::default();
    for site in &mut sites {
        let line = site.line().await.unwrap_or_default();
        let words: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [reads, torn, stale, edits] = words[..] else {
            return Err(format!("a site failed: {line:?} {}", site.output()).into());
        };
        sum.add(Tally { reads, torn, stale, edits });
        if !site.wait().await.success() {
            return Err(format!("a site failed: {}", site.output()).into());
        }
    }
    Ok(sum)
}

/// Deletes the article.
async fn forget(server: &private_server::Server) {
    let admin = Admin::from_url(&server.url).await;
    let rows = (0..ROWS).map(|row| format!("row:{row}"));
    for what in rows.chain(["edit".to_owned(), "cache".to_owned()]) {
        let _: () = admin.cmd(&["DEL", &format!("{}article:{what}", server.prefix)]).await;
    }
}

/// Runs both ways and prints the results.
async fn compare(server: &private_server::Server, ways: &[bool]) -> Outcome<()> {
    println!("An article in {ROWS} rows, cached; {PROCESSES} processes of {READERS} readers and an editor each.\n");
    println!("{:<22} {:>8} {:>8} {:>12} {:>12}", "", "reads", "edits", "torn pages", "stale pages");
    for &locked in ways {
        for attempt in 1.. {
            forget(server).await;
            let tally = run(server, locked).await?;
            let label = if locked { "read-write lock" } else { "no lock" };
            let Tally { reads, torn, stale, edits } = tally;
            println!("{label:<22} {reads:>8} {edits:>8} {torn:>12} {stale:>12}");
            if locked && (tally.is_wrong() || reads == 0 || edits == 0) {
                return Err(format!("{torn} torn and {stale} stale pages, {edits} edits under the lock").into());
            }
            if locked || tally.is_wrong() {
                break;
            }
            if attempt == ATTEMPTS {
                return Err(format!("all pages right in {ATTEMPTS} attempts without a lock: no race to prevent").into());
            }
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    if child::is_child() {
        child::init();
        return runtime.block_on(site());
    }
    let ways: &[bool] = if std::env::args().any(|arg| arg == "--without-lock") { &[false] } else { &[false, true] };
    let server = private_server::start_unless_given();
    runtime.block_on(async {
        let outcome = compare(&server, ways).await;
        forget(&server).await;
        outcome
    })
}
