//! A client's knowledge of its holds, and the commands that it sends for them.

use crate::ours::{Answer, Unlike, Why, note};
use crate::state::{Half, Span, State};

/// Watchdog of our clients and of Java. So long that no automatic renewal happens during a sequence.
pub const WATCHDOG: Span = Span::at(3_600_000);

#[derive(Clone, Debug)]
pub struct Held {
    pub id: u32,
    /// Explicit lease, or `None` for the watchdog's.
    pub lease: Option<Span>,
    until: Span,
}

/// The holds of one owner on one half.
#[derive(Clone, Debug, Default)]
pub struct Book {
    count: i64,
    pub guards: Vec<Held>,
    watched: Span,
}

/// Until when a lease counts as held by the local clock: 1 % and 2 ms less.
fn valid(sent: Span, lease: Span) -> Span {
    let ms = |lease: i64| lease - lease / 100 - 2;
    sent.plus(Span { lo: ms(lease.lo) - 1, hi: ms(lease.hi) + 1 })
}

/// The lease that, sent at `t`, counts as held until `until`.
fn reaching(until: Span, t: Span) -> Span {
    let ms = |left: i64| (left + 2) * 100 / 99;
    Span { lo: ms(until.lo - t.hi), hi: ms(until.hi - t.lo) + 2 }
}

impl Book {
    fn until(&self, held: &Held) -> Span {
        if held.lease.is_none() { self.watched } else { held.until }
    }

    fn until_all(&self) -> Option<Span> {
        self.guards.iter().map(|held| self.until(held)).reduce(Span::max)
    }

    /// The longest lease that the guards were given.
    fn lease(&self) -> Span {
        self.guards.iter().map(|held| held.lease.unwrap_or(WATCHDOG)).reduce(Span::max).unwrap_or(WATCHDOG)
    }

    fn is_watched(&self) -> bool {
        self.guards.iter().any(|held| held.lease.is_none())
    }

    fn opened(&mut self, id: u32, lease: Option<Span>, t: Span) {
        let until = valid(t, lease.unwrap_or(WATCHDOG));
        if lease.is_none() {
            self.watched = self.watched.max(until);
        }
        self.count += 1;
        self.guards.push(Held { id, lease, until });
    }
}

/// One lock, and the books of two owners of ours, each of its own client.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub state: State,
    pub books: [[Book; 2]; 2],
    pub why: Why,
    /// True if the clients are older than a minute, and may have forgotten the server's time.
    pub is_clock_stale: bool,
    pub said: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Free,
    Left(i64),
    /// The server no longer has the hold.
    NotHeld,
    /// The guard had ended by the client's clock.
    Late,
    /// The guard was already lost, so nothing was sent.
    Lost,
}

impl Model {
    pub fn book(&mut self, who: usize, half: Half) -> &mut Book {
        &mut self.books[who][half as usize]
    }

    /// The guard, unless it is lost.
    pub fn held(&self, who: usize, half: Half, id: u32) -> Option<&Held> {
        self.books[who][half as usize].guards.iter().find(|held| held.id == id)
    }

    /// Until when a guard counts as held; `None` if it is lost.
    pub fn until(&self, who: usize, half: Half, id: u32) -> Option<Span> {
        self.held(who, half, id).map(|held| self.books[who][half as usize].until(held))
    }

    /// The ends of all leases, in Redis and in the books.
    pub fn ends(&self) -> impl Iterator<Item = Span> {
        let books = self.books.iter().flatten();
        books.flat_map(|book| book.guards.iter().map(|held| book.until(held))).chain(self.state.ends())
    }

    pub fn acquire(&mut self, who: usize, half: Half, lease: Option<Span>, id: u32, t: Span) -> Answer {
        loop {
            let book = &self.books[who][half as usize];
            let want = Some(book.count + 1);
            let (again, rest) = (book.count > 0, book.until_all().map(|until| t.plus(reaching(until, t))));
            let span = lease.unwrap_or(WATCHDOG);
            let answer = match half {
                Half::Read => self.state.our_read(who, span, want, t, &mut self.why),
                Half::Write => self.state.our_write(who, span, want, rest, t, &mut self.why),
            };
            match answer {
                Answer::Held => self.book(who, half).opened(id, lease, t),
                // The earlier holds are gone. Their guards are lost, and the acquire starts again without these holds.
                _ if again => {
                    *self.book(who, half) = Book::default();
                    continue;
                }
                _ => {}
            }
            return answer;
        }
    }

    pub fn release(&mut self, who: usize, half: Half, id: u32, t: Span) -> Told {
        let Some(until) = self.until(who, half, id) else {
            return Told::Lost;
        };
        let book = &mut self.books[who][half as usize];
        book.guards.retain(|held| held.id != id);
        let left = Some(book.count - 1);
        let answer = match half {
            Half::Read => {
                let promised =
                    book.until_all().filter(|until| t.before(*until)).map(|until| t.plus(reaching(until, t)));
                // A renewal in flight may promise a whole watchdog lease.
                let full = if book.is_watched() { t.plus(WATCHDOG) } else { Span::default() };
                // The client asks for the server's time if the release shortens the lease.
                let asks = |full: Span| full.before(until);
                let untimed = |full| self.is_clock_stale && !asks(full);
                let promised = promised.map(|least| (least, least.max(full), untimed(least.max(full))));
                self.state.our_unread(who, left, promised, t, &mut self.why, &mut self.said)
            }
            Half::Write => {
                // After the guard's end the client does not query the server's time. If the client has forgotten the
                // time, the release shortens no lease.
                let may_stay = self.is_clock_stale && until.before(t);
                self.state.our_unwrite(who, left, (book.lease(), may_stay), t, &mut self.why, &mut self.said)
            }
        };
        let book = self.book(who, half);
        let told = match answer {
            Answer::Left(left) => {
                book.count -= 1;
                if half == Half::Write {
                    // The lease of every guard that has not ended starts again.
                    for held in book.guards.iter_mut().filter(|held| !held.until.before(t)) {
                        held.until = held.until.max(held.lease.map_or(held.until, |lease| valid(t, lease)));
                    }
                    if book.is_watched() {
                        book.watched = book.watched.max(valid(t, WATCHDOG));
                    }
                }
                Told::Left(left)
            }
            answer => {
                *book = Book::default();
                if answer == Answer::Free { Told::Free } else { Told::NotHeld }
            }
        };
        if until.before(t) { Told::Late } else { told }
    }

    /// A client's round of renewals. Returns how many guards were renewed, and how many were lost.
    pub fn renew(&mut self, who: usize, t: Span) -> (usize, usize) {
        let (mut renewed, mut lost) = (0, 0);
        for half in [Half::Read, Half::Write] {
            let book = &self.books[who][half as usize];
            let watched = book.is_watched();
            let lasts = book.until_all().is_some_and(|until| t.plus(Span::at(WATCHDOG.lo / 2)).before(until));
            if !watched && !lasts {
                continue;
            }
            note(&mut self.why, Unlike::Renewal);
            let held = self.state.our_renewed(who, half, watched, WATCHDOG, t);
            let book = self.book(who, half);
            if held && watched {
                book.watched = book.watched.max(valid(t, WATCHDOG));
                renewed += 1;
            } else if !held {
                *book = Book::default();
                lost += 1;
            }
        }
        (renewed, lost)
    }

    /// Returns whether the guard was held.
    pub fn extend(&mut self, who: usize, half: Half, id: u32, lease: Span, t: Span) -> bool {
        if self.until(who, half, id).is_none_or(|until| until.before(t)) {
            return false;
        }
        note(&mut self.why, Unlike::Renewal);
        let book = self.book(who, half);
        let own = book.guards.iter().position(|held| held.id == id).expect("looked up above");
        let held = book.guards.remove(own);
        let (kept, others) = (book.is_watched(), book.until_all());
        let armed = others.map_or(lease, |until| lease.max(reaching(until, t)));
        book.guards.insert(own, Held { lease: Some(lease), until: valid(t, lease), ..held });
        let there = if kept {
            self.state.our_renewed(who, half, true, armed, t)
        } else {
            self.state.our_extended(who, half, armed, t)
        };
        if !there {
            *self.book(who, half) = Book::default();
        }
        there
    }

    /// Acquires a read hold of the same owner for the rest of the lease, then releases the write hold.
    pub fn downgrade(&mut self, who: usize, id: u32, reader: u32, t: Span) -> bool {
        let until = self.until(who, Half::Write, id);
        let mut done = until.is_some_and(|until| t.before(until));
        if let Some(until) = until.filter(|_| done) {
            let explicit = self.held(who, Half::Write, id).is_some_and(|held| held.lease.is_some());
            let lease = explicit.then(|| reaching(until, t));
            done = self.acquire(who, Half::Read, lease, reader, t) == Answer::Held;
        }
        self.release(who, Half::Write, id, t);
        done
    }
}
