//! More readers at once than a script scans, and writers in between. The readers acquire, release, die or are cut off.

use crate::prelude::*;

const NAME: &str = "l";
const PARTIES: usize = 3;
const READERS: usize = 20;
const ROUNDS: usize = 4;
const WATCHDOG: Duration = ms(600);
const POLL_CAP: Duration = ms(300);
const LEASE: Duration = ms(9_000);
/// Time in ms by which the hash of many readers may outlive them. Clients that know only the hash wait that much
/// longer.
const SLACK: i64 = 5_000;

struct Scene {
    server: SimServer,
    parties: Vec<Party>,
    /// Guards of readers. A reader removes its guard before it calls the release.
    reading: Mutex<BTreeMap<usize, Arc<Guard>>>,
    next: AtomicUsize,
    over: AtomicBool,
    wrong: Mutex<Vec<String>>,
    /// The most fields seen in the hash, and how often a writer held the lock.
    most: AtomicUsize,
    written: AtomicUsize,
}

/// True for errors that faults cause. Any other error is a failure.
fn passes(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::Lost { .. } | Error::NotHeld { .. } | Error::ReleasePending { .. })
}

impl Scene {
    fn new(seed: u64, rough: bool) -> Arc<Self> {
        let server = SimServer::new(seed);
        let link = LinkOptions { latency_max: ms(4), timeout: ms(100), ..LinkOptions::default() };
        let party = |n: usize| {
            let party = Party::new(&server, link, |options| {
                options.watchdog = WATCHDOG;
                options.command_timeout = ms(100);
                options.subscribe_timeout = ms(100);
                options.poll_cap = POLL_CAP;
                options.batching = n != 1;
            });
            if rough {
                let lose = 0.02;
                let chaos = Chaos { lose_request: lose, lose_reply: lose, lose_message: lose, ..Chaos::default() };
                party.link.chaos(Chaos { late_copy: 0.05, late_max: ms(300), delay_max: ms(20), ..chaos });
            }
            party
        };
        let parties = (0..PARTIES).map(party).collect();
        let (reading, next, over, wrong, most, written) = Default::default();
        Arc::new(Self { parties, server, reading, next, over, wrong, most, written })
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().push(format!("at {:?}: {what}", self.server.uptime()));
    }

    async fn reader(self: Arc<Self>, party: usize, mut dice: Numbers) {
        let client = &self.parties[party].client;
        let (lock, mut owner) = (client.rw(NAME).read(), client.owner());
        for _ in 0..ROUNDS {
            sleep(ms(dice.below(400))).await;
            let mut how = Acquire::new().wait(ms(20_000));
            if dice.once_in(3) {
                how = how.owner(&owner);
            }
            if dice.once_in(3) {
                how = how.lease(dice.between(50, LEASE.as_millis() as u64));
            }
            let guard = match lock.acquire(how).await {
                Ok(Some(guard)) => Arc::new(guard),
                Ok(None) => continue,
                Err(error) if passes(&error) => continue,
                Err(error) => return self.wrong(format!("{error:?}")),
            };
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            self.reading.lock().insert(number, Arc::clone(&guard));
            sleep(ms(dice.below(900))).await;
            if dice.once_in(4) && guard.is_held() {
                let _ = guard.extend(dice.between(50, 2_000)).await;
                sleep(ms(dice.below(300))).await;
            }
            self.reading.lock().remove(&number);
            let Some(guard) = Arc::into_inner(guard) else { return self.wrong("a guard is kept".to_owned()) };
            match dice.below(8) {
                0 => drop(guard),
                // The hold stays without a guard until its lease ends. Its owner is not used again.
                1 => {
                    drop(guard.into_owner());
                    owner = client.owner();
                }
                _ => {
                    let failed = guard.unlock().await.err().filter(|error| !passes(error));
                    failed.iter().for_each(|error| self.wrong(format!("{error:?}")));
                }
            }
        }
    }

    /// M1: no reader reports held while a writer does.
    async fn writer(self: Arc<Self>, party: usize, mut dice: Numbers) {
        let lock = self.parties[party].client.rw(NAME).write();
        while !self.over.load(Ordering::Relaxed) {
            sleep(ms(dice.below(300))).await;
            let Ok(Some(guard)) = lock.lock_for(ms(2_000)).await else { continue };
            for _ in 0..5 {
                let readers: Vec<_> = self.reading.lock().values().cloned().collect();
                if guard.is_held() && readers.iter().any(|reader| reader.is_held()) {
                    self.wrong(format!("M1: a reader beside a writer: {guard:?}"));
                }
                drop(readers);
                sleep(ms(2)).await;
            }
            self.written.fetch_add(1, Ordering::Relaxed);
            let _ = guard.unlock().await;
        }
    }

    /// RW3: the hash lives at least as long as every cover, and at most `SLACK` longer than the longest.
    fn look(&self) {
        let flat = words(&does(&self.server, &format!("hgetall {NAME}")));
        let fields: Vec<&[String]> = flat.chunks(2).collect();
        if !fields.iter().any(|pair| *pair == ["mode", "read"]) {
            return;
        }
        self.most.fetch_max(fields.len(), Ordering::Relaxed);
        let left = self.server.pttl(NAME.as_bytes());
        for pair in fields {
            let [owner, count] = pair else { continue };
            for n in 1..=count.parse::<u32>().unwrap_or(0) {
                let cover = self.server.pttl(format!("{{{NAME}}}:{owner}:rwlock_timeout:{n}").as_bytes());
                if cover > left {
                    self.wrong(format!("RW3: {owner} is covered for {cover} ms, the hash has {left}"));
                }
            }
        }
    }
}

async fn crowd(seed: u64, rough: bool) -> (Vec<String>, usize, usize) {
    let scene = Scene::new(seed, rough);
    let lane = |n: usize| Numbers::lane(seed, n as u64);
    let reader = |n: usize| tokio::spawn(Arc::clone(&scene).reader(n / READERS, lane(n)));
    let readers: Vec<_> = (0..PARTIES * READERS).map(reader).collect();
    let writers = [0, 1].map(|n| tokio::spawn(Arc::clone(&scene).writer(n, lane(1_000 + n))));
    let looking = tokio::spawn({
        let scene = Arc::clone(&scene);
        async move {
            while !scene.over.load(Ordering::Relaxed) {
                scene.look();
                sleep(ms(7)).await;
            }
        }
    });
    // One party is cut off for longer than its leases, with all its readers.
    let mut dice = Numbers::lane(seed, 2_000);
    sleep(ms(300 + dice.below(800))).await;
    scene.parties[2].link.partition(true);
    sleep(WATCHDOG * 3).await;
    scene.parties[2].link.partition(false);
    all(readers).await;
    // Only holds without guards remain. A writer acquires when the last of them has expired.
    let (began, writer) = (Instant::now(), scene.parties[0].client.rw(NAME).write());
    let within = LEASE + ms(SLACK as u64) + POLL_CAP + ms(1_000);
    match writer.lock_for(within * 2).await {
        Ok(Some(guard)) if began.elapsed() <= within => drop(guard.unlock().await),
        odd => scene.wrong(format!("W1: a writer waited for {:?}: {odd:?}", began.elapsed())),
    }
    scene.over.store(true, Ordering::Relaxed);
    all(writers.into_iter().chain([looking])).await;
    for party in &scene.parties {
        party.link.chaos(Chaos::default());
    }
    let parties: Vec<&Party> = scene.parties.iter().collect();
    if let Err(left) = settled(&scene.server, &parties, ms(60_000)).await {
        scene.wrong(left);
    }
    let wrong = scene.wrong.lock().clone();
    (wrong, scene.most.load(Ordering::Relaxed), scene.written.load(Ordering::Relaxed))
}

#[test]
fn many_readers_exclude_writers_until_leases_end() {
    let seeds = seeds(if full() { 300 } else { 20 });
    let enough = seeds.end - seeds.start >= 20;
    let (mut most, mut written) = (0, 0);
    for seed in seeds {
        let (wrong, fields, writes) = virtually(async move || crowd(seed, seed % 2 == 0).await);
        assert!(wrong.is_empty(), "SEED={seed}: {}", wrong.join("\n"));
        (most, written) = (most.max(fields), written + writes);
    }
    println!("up to {most} fields, {written} writes");
    assert!(!enough || most > 40 && written > 20, "{most} fields, {written} writes");
}
