//! A holder pauses for longer than its lease and writes when it wakes: `cargo run --example fenced_write`.
//!
//! Two processes withdraw from one account. Each acquires the lock, reads the balance, and writes the reduced
//! balance. The first process is stopped between its last check of its guard and its write. (`SIGSTOP` acts like a
//! long pause of the machine or of a garbage collector.) The lock expires, and the second process withdraws. Then the
//! first one wakes and writes its outdated balance.
//!
//! No lock can prevent this. The storage can, if every write carries the fencing token of its section. The example
//! runs without the check of the token, and then with the check that the docs of the module `fenced` show, for SQL
//! (`SQLite`) and for Redis.
//!
//! Starts its own Redis unless `REDIS_URL` names one. Fails if a late write succeeds although tokens are checked.
//! Also fails if it does not succeed without the check, because then the example has shown nothing.

mod private_server;

use std::error::Error;
use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_support::{Admin, Child, child};
use rusqlite::Connection;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The balance of the account, and the two withdrawals.
const BALANCE: i64 = 100;
const FIRST: i64 = 30;
const SECOND: i64 = 50;

/// The lease of the lock. A lock with the watchdog would expire too, because a stopped process renews nothing.
const LEASE: Duration = Duration::from_secs(1);

/// Both storages write only if no earlier write had a larger token. `<=`, because a section may write more than once.
const CHECKED_SQL: &str = "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2";
const CHECKED_LUA: &str = "
    if tonumber(redis.call('hget', KEYS[1], 'fence') or 0) > tonumber(ARGV[2]) then return 0 end
    redis.call('hset', KEYS[1], 'fence', ARGV[2], 'balance', ARGV[1])
    return 1";

/// The same without the check of the token.
const BLIND_SQL: &str = "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 1";
const BLIND_LUA: &str = "redis.call('hset', KEYS[1], 'fence', ARGV[2], 'balance', ARGV[1]) return 1";

/// One account, kept in two storages.
struct Account {
    sql: Connection,
    redis: Admin,
    key: String,
    checked: bool,
}

impl Account {
    async fn open(place: &Place, checked: bool) -> Outcome<Self> {
        let sql = Connection::open(&place.file)?;
        sql.busy_timeout(Duration::from_secs(5))?;
        let redis = Admin::from_url(&place.url).await;
        Ok(Self { sql, redis, key: format!("{}accounts:1", place.prefix), checked })
    }

    /// Creates the account in both storages.
    async fn create(place: &Place, checked: bool) -> Outcome<Self> {
        let account = Self::open(place, checked).await?;
        account.sql.execute_batch(&format!(
            "DROP TABLE IF EXISTS account;
             CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
             INSERT INTO account (id, balance) VALUES (1, {BALANCE});"
        ))?;
        let _: () = account.redis.cmd(&["DEL", &account.key]).await;
        let _: () = account.redis.cmd(&["HSET", &account.key, "balance", &BALANCE.to_string()]).await;
        Ok(account)
    }

    /// Returns the balance in SQL and in Redis.
    async fn read(&self) -> Outcome<[i64; 2]> {
        let sql = self.sql.query_row("SELECT balance FROM account WHERE id = 1", [], |row| row.get(0))?;
        Ok([sql, self.redis.cmd(&["HGET", &self.key, "balance"]).await])
    }

    /// Writes the balances with a token. Returns which storage accepted the write.
    async fn write(&self, balance: [i64; 2], token: u64) -> Outcome<[bool; 2]> {
        let (sql, lua) = if self.checked { (CHECKED_SQL, CHECKED_LUA) } else { (BLIND_SQL, BLIND_LUA) };
        let rows = self.sql.execute(sql, (balance[0], i64::try_from(token)?))?;
        let words = ["EVAL", lua, "1", &self.key, &balance[1].to_string(), &token.to_string()];
        let done: u64 = self.redis.cmd(&words).await;
        Ok([rows == 1, done == 1])
    }
}

/// Where the lock and the account are stored.
struct Place {
    url: String,
    prefix: String,
    file: String,
}

impl Place {
    async fn client(&self) -> distlock::Result<Client> {
        Client::builder(&self.url).name_prefix(&self.prefix).connect().await
    }
}

/// Runs the first holder, in its own process so that it can be stopped. It is as careful as a single process can be.
async fn first() -> Outcome<()> {
    let place = Place { url: std::env::var("URL")?, prefix: std::env::var("PREFIX")?, file: std::env::var("FILE")? };
    let account = Account::open(&place, std::env::var("CHECKED")? == "true").await?;
    let client = place.client().await?;
    let lock = client.fenced("account");
    let mut paused = false;
    loop {
        let guard = lock.lock_leased(LEASE).await?;
        let token = guard.fencing_token()?;
        let balance = account.read().await?;
        // This is the last possible check, yet time always passes between the check and the write.
        if !guard.is_held() {
            continue;
        }
        if !paused {
            child::say(&format!("writes with {token}"));
            child::hear().await;
            paused = true;
        }
        let taken = account.write(balance.map(|balance| balance - FIRST), token).await?;
        child::say(&format!("{token} {} {}", taken[0], taken[1]));
        // The lock is lost or released. In both cases the next section reads the current balance.
        let _ = guard.unlock().await;
        if taken == [true, true] {
            break;
        }
        if taken[0] != taken[1] {
            return Err("one storage took the late write, and the other one did not".into());
        }
    }
    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Parses the first holder's report of a write: the token, and whether each storage accepted it.
async fn told(holder: &mut Child) -> Outcome<(u64, [bool; 2])> {
    let line = holder.line().await.ok_or_else(|| format!("the first holder failed: {}", holder.output()))?;
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or_else(|| format!("the first holder said {line:?}"));
    Ok((word()?.parse()?, [word()?.parse()?, word()?.parse()?]))
}

/// Runs both withdrawals; the first holder pauses in the middle of its own.
async fn withdraw(place: &Place, client: &Client, checked: bool) -> Outcome<()> {
    let account = Account::create(place, checked).await?;
    let checked_text = checked.to_string();
    let env = [
        ("URL", place.url.as_str()),
        ("PREFIX", place.prefix.as_str()),
        ("FILE", place.file.as_str()),
        ("CHECKED", checked_text.as_str()),
    ];
    let mut holder = Child::spawn("first", &env);
    let line = holder.line().await.ok_or_else(|| format!("the first holder failed: {}", holder.output()))?;
    println!("{}:", if checked { "Tokens are checked" } else { "Nothing is checked" });
    println!("  the first holder has read {BALANCE} and {line}; it is stopped there");
    holder.stop();
    holder.tell("go on");

    let guard = client.fenced("account").acquire(Acquire::new().wait(LEASE * 20)).await?;
    let guard = guard.ok_or("the lock of a stopped holder does not run out")?;
    let token = guard.fencing_token()?;
    let balance = account.read().await?;
    let taken = account.write(balance.map(|balance| balance - SECOND), token).await?;
    guard.unlock().await?;
    println!("  the second writes {} with {token}", BALANCE - SECOND);
    if taken != [true, true] {
        return Err("the second holder's write was refused".into());
    }

    holder.cont();
    let (late, taken) = told(&mut holder).await?;
    println!("  the first wakes and writes {} with {late}:", BALANCE - FIRST);
    let word = |taken: bool| if taken { "goes through" } else { "refused" };
    let now = account.read().await?;
    println!("    SQL   {:<12}  the balance is {}", word(taken[0]), now[0]);
    println!("    Redis {:<12}  the balance is {}", word(taken[1]), now[1]);
    if late >= token {
        return Err(format!("the first section has the token {late}, the second {token}").into());
    }
    if taken != [!checked; 2] {
        return Err(format!("late writes, with tokens checked: {checked}: {taken:?}").into());
    }
    if checked {
        let (again, taken) = told(&mut holder).await?;
        println!("  the first does it all over with {again}");
        if again <= token || taken != [true, true] {
            return Err(format!("the second attempt, with {again}: {taken:?}").into());
        }
    }
    if !holder.wait().await.success() {
        return Err(format!("the first holder failed: {}", holder.output()).into());
    }
    let (right, end) = (BALANCE - FIRST - SECOND, account.read().await?);
    println!("  the balance is {} in SQL, {} in Redis: {right} would be right\n", end[0], end[1]);
    let expected = if checked { right } else { BALANCE - FIRST };
    if end != [expected; 2] {
        return Err(format!("the balance is {end:?}, not {expected}").into());
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    if child::is_child() {
        child::init();
        return runtime.block_on(first());
    }
    let server = private_server::start_unless_given();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("account.db").to_string_lossy().into_owned();
    let place = Place { url: server.url.clone(), prefix: server.prefix.clone(), file };
    runtime.block_on(async {
        let client = place.client().await?;
        println!("{BALANCE} in the account; two processes withdraw {FIRST} and {SECOND}.\n");
        for checked in [false, true] {
            withdraw(&place, &client, checked).await?;
        }
        println!("The paused holder's late write was refused wherever its token was checked.");
        client.shutdown(Duration::from_secs(5)).await?;
        let redis = Admin::from_url(&place.url).await;
        let account = format!("{}accounts:1", place.prefix);
        let _: () = redis.cmd(&["DEL", &account, &format!("redisson_lock_token:{{{}account}}", place.prefix)]).await;
        Ok(())
    })
}
