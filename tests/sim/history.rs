//! The history of holds, and its checks: no two holders at once (M1, RW1), and tokens in order (M3).

use crate::prelude::*;

/// An interval in which a lock was certainly held: `[from, min(ended, until))`.
#[derive(Clone, Debug)]
pub struct Hold {
    pub name: usize,
    pub owner: String,
    pub shared: bool,
    /// When the acquire returned.
    pub from: Instant,
    /// `V`: the end of the guard's validity, by its last known renewal.
    pub until: Instant,
    pub ended: Option<Instant>,
    pub token: Option<Token>,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub number: u64,
    /// When the acquire was called.
    pub asked: Instant,
    /// True if the owner had no hold before this acquire, so the token must be new.
    pub fresh: bool,
}

impl Hold {
    fn end(&self) -> Instant {
        self.ended.map_or(self.until, |ended| ended.min(self.until))
    }
}

#[derive(Default)]
pub struct History(Mutex<Vec<Hold>>);

impl History {
    pub fn begin(&self, name: usize, owner: String, shared: bool, until: Instant) -> usize {
        let mut holds = self.0.lock();
        holds.push(Hold { name, owner, shared, from: Instant::now(), until, ended: None, token: None });
        holds.len() - 1
    }

    pub fn numbered(&self, hold: usize, token: Token) {
        self.0.lock()[hold].token = Some(token);
    }

    /// Moves the start of a hold back to when the same owner gave up its earlier hold.
    pub fn since(&self, hold: usize, from: Instant) {
        self.0.lock()[hold].from = from;
    }

    pub fn until(&self, hold: usize, until: Instant) {
        self.0.lock()[hold].until = until;
    }

    /// Ends the hold's known validity (`until`) now, because its lease may become shorter.
    pub fn cut(&self, hold: usize) {
        let hold = &mut self.0.lock()[hold];
        hold.until = hold.until.min(Instant::now());
    }

    pub fn end(&self, hold: usize) {
        self.0.lock()[hold].ended.get_or_insert(Instant::now());
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// The time since when a name has been free, not before `start`. `None` if the lock is held.
    pub fn free_since(&self, name: usize, start: Instant) -> Option<Instant> {
        let holds = self.0.lock();
        let mut of_name = holds.iter().filter(|hold| hold.name == name);
        of_name.try_fold(start, |last, hold| Some(last.max(hold.ended?)))
    }

    /// All holds as text, to compare two runs.
    pub fn lines(&self, start: Instant) -> Vec<String> {
        let holds = self.0.lock();
        let line = |hold: &Hold| format!("{} {:?} {:?}", hold.name, hold.from - start, hold.ended.map(|at| at - start));
        holds.iter().map(line).collect()
    }

    /// M1, RW1: pairs of holds of different owners that overlap for longer than `told`. Pairs of readers and the name
    /// `except` are ignored.
    pub fn overlaps(&self, start: Instant, except: Option<usize>, told: Duration) -> Vec<String> {
        let mut holds = self.0.lock().clone();
        holds.retain(|hold| except != Some(hold.name));
        holds.sort_by_key(|hold| (hold.name, hold.from));
        let mut found = Vec::new();
        for (i, first) in holds.iter().enumerate() {
            let later = holds[i + 1..].iter().take_while(|hold| hold.name == first.name);
            for second in later.filter(|hold| hold.owner != first.owner && !(hold.shared && first.shared)) {
                // An empty interval overlaps with nothing.
                if first.end().min(second.end()).saturating_duration_since(second.from) > told {
                    let text = |hold: &Hold| {
                        let kind = if hold.shared { "reads" } else { "" };
                        format!("{} {kind} {:?}..{:?}", hold.owner, hold.from - start, hold.end() - start)
                    };
                    found.push(format!("M1: name {}: {} and {}", first.name, text(first), text(second)));
                }
            }
        }
        found
    }

    /// M3: pairs of sections (times in which the lock was held) whose tokens are equal or in the wrong order. The order
    /// is wrong if the smaller token belongs to an acquire that began after the other acquire had returned. A re-entry
    /// keeps the token of its section.
    pub fn stale(&self, start: Instant) -> Vec<String> {
        let holds = self.0.lock().clone();
        let mut numbered: Vec<_> = holds.iter().filter_map(|hold| Some((hold, hold.token?))).collect();
        numbered.sort_by_key(|(hold, _)| hold.from);
        let mut found = Vec::new();
        for (i, (first, Token { number: earlier, .. })) in numbered.iter().enumerate() {
            let later = numbered[i + 1..].iter().filter(|(second, _)| second.name == first.name);
            for (second, Token { number: later, asked, fresh }) in later {
                let same = second.owner == first.owner && !fresh;
                if (earlier == later && !same) || (first.from < *asked && earlier > later) {
                    let (had, asked) = (first.from - start, *asked - start);
                    let (name, one, other) = (first.name, &first.owner, &second.owner);
                    found.push(format!(
                        "M3: name {name}: {one} has {earlier} at {had:?}, and {other}, who asked at {asked:?}, has {later}"
                    ));
                }
            }
        }
        found
    }
}

mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_different_owners_at_the_same_time_overlap() {
        let start = Instant::now();
        let history = History::default();
        let a = history.begin(0, "a".into(), false, start + ms(100));
        history.begin(0, "a".into(), false, start + ms(50));
        history.begin(1, "b".into(), false, start + ms(100));
        tokio::time::advance(ms(40)).await;
        history.end(a);
        tokio::time::advance(ms(10)).await;
        history.begin(0, "c".into(), false, start + ms(70));
        assert_eq!(history.overlaps(start, None, ms(0)), Vec::<String>::new());
        history.begin(0, "d".into(), true, start + ms(60));
        assert_eq!(history.overlaps(start, None, ms(0)).len(), 1);
        // This hold overlaps with a reader, which is allowed, and with a writer, which is not.
        history.begin(0, "e".into(), true, start + ms(60));
        assert_eq!(history.overlaps(start, None, ms(0)).len(), 2);
        assert_eq!(history.overlaps(start, Some(0), ms(0)).len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_and_falling_tokens_are_stale() {
        let start = Instant::now();
        let history = History::default();
        let hold = |owner: &str, asked, number| {
            let hold = history.begin(0, owner.into(), false, start);
            history.numbered(hold, Token { number, asked: start + asked, fresh: owner != "a" });
        };
        hold("a", ms(0), 5);
        tokio::time::advance(ms(10)).await;
        hold("b", ms(0), 4);
        hold("a", ms(10), 5);
        assert_eq!(history.stale(start), Vec::<String>::new());
        tokio::time::advance(ms(10)).await;
        hold("c", ms(9), 4);
        assert_eq!(history.stale(start).len(), 2);
        hold("d", ms(20), 6);
        assert_eq!(history.stale(start).len(), 2);
        // A hold that was handed over without a new token.
        hold("d", ms(20), 6);
        assert_eq!(history.stale(start).len(), 3);
    }
}
